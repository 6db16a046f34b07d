"""Types of the specification's section 2.C that no operation of version 3.0 uses.

In a module of their own, which is imported when one of them is named.
"""

from __future__ import annotations

import attrs

from directsuite.messaging.models import APIResponse, MessageStatusLog
from directsuite.wire.models import Model


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FHIRQueryParameter(Model):
    """One parameter of a FHIR query."""

    name: str
    value: str | None = None


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FHIRResource(Model):
    """A FHIR resource and its query (FHIRResourceType)."""

    resource_type: str
    query_parameters: list[FHIRQueryParameter] = attrs.field(factory=list[FHIRQueryParameter])


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetMessageStatusReportResponse(APIResponse):
    """Delivery status without details."""

    has_cv_data: bool | None = None
    csv_data: bytes | None = None
    message_logs: list[MessageStatusLog] = attrs.field(factory=list[MessageStatusLog])
