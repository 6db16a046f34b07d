"""Types of the fax service, in the order of the specification (section 2.B).

The specification leaves MessageObject open; its fields here are what such services document in public.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

import attrs

from directsuite.wire.models import Model, OpenEnum, Wire


class FaxStatus(OpenEnum):
    """How far a fax has come."""

    WAITING = "waiting"
    COMPLETE = "complete"


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FaxRecipient(Model):
    """One number that a fax was sent to (RecipientObject)."""

    _shown: ClassVar[tuple[str, ...]] = ("page_count",)
    _loose: ClassVar[bool] = True

    address: Annotated[str | None, Wire("Address")] = None
    """The number dialled."""
    name: Annotated[str | None, Wire("Name")] = None
    page_count: Annotated[int | None, Wire("PageCount")] = None
    description: str | None = None


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FaxMessage(Model):
    """The status of one fax (MessageObject)."""

    _shown: ClassVar[tuple[str, ...]] = ("status", "updated_ts")
    _loose: ClassVar[bool] = True

    message_handle: Annotated[str | None, Wire("MessageHandle", also=("message_handle", "messageHandle"))] = None
    """None where the answer has none for each fax."""
    fax_number: Annotated[str | None, Wire("fax_number")] = None
    status: FaxStatus | None = None
    updated_ts: Annotated[datetime | None, Wire("updated_ts")] = None
    recipients: list[FaxRecipient] = attrs.field(factory=list[FaxRecipient])
    description: str | None = None


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FaxMessageInformation(Model):
    """The answer of both fax operations: the account, and the messages asked for, newest first."""

    _shown: ClassVar[tuple[str, ...]] = ("message_detail",)

    username: Annotated[str | None, Wire("Username")] = None
    message_handle: Annotated[str | None, Wire("MessageHandle")] = None
    message_detail: Annotated[list[FaxMessage], Wire("MessageDetail")] = attrs.field(factory=list[FaxMessage])
    description: str | None = None
