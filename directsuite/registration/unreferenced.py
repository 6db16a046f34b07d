"""Types of the specification's section 2.D that no operation of version 3.0 uses.

In a module of their own, which is imported when one of them is named.
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from directsuite.registration.models import BaseUser, ResellerAPIResponse
from directsuite.wire.models import Model


@attrs.frozen(kw_only=True, repr=False, eq=False)
class AdminUser(BaseUser):
    """A person who administers an organization."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class ArchivedAuditFile(Model):
    """An archived audit log: gzip where is_compressed, else plain text."""

    _shown: ClassVar[tuple[str, ...]] = ("size", "is_compressed")

    content: bytes | None = None
    name: str | None = None
    size: int | None = None
    is_compressed: bool | None = None


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetAuditFileResponse(ResellerAPIResponse):
    """An archived audit log (GetAuditFileResponseType)."""

    archived_audited_messages: ArchivedAuditFile | None = None


@attrs.frozen(kw_only=True, repr=False, eq=False)
class ResellerDomainsResponse(ResellerAPIResponse):
    """A reseller's domains."""

    domains: list[str] = attrs.field(factory=list[str])


@attrs.frozen(kw_only=True, repr=False, eq=False)
class CreditCard(Model):
    """A credit card; the specification doesn't show its fields, so all of them are in `extra`."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class ResellerCreditCardsResponse(ResellerAPIResponse):
    """A reseller's credit cards."""

    cards: list[CreditCard] = attrs.field(factory=list[CreditCard])
