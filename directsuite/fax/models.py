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

    address: Annotated[str | None, Wire("Address")] = None
    """The number dialled."""
    name: Annotated[str | None, Wire("Name")] = None
    """The recipient's name."""
    page_count: Annotated[int | None, Wire("PageCount")] = None
    """The number of pages."""
    description: str | None = None
    """The service's remark about this number."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FaxMessage(Model):
    """The status of one fax (MessageObject)."""

    _shown: ClassVar[tuple[str, ...]] = ("status", "updated_ts")

    message_handle: Annotated[
        str | None, Wire("MessageHandle", also=("message_handle", "messageHandle"), exact=True)
    ] = None
    """None where the answer has none for each fax."""
    fax_number: Annotated[str | None, Wire("fax_number")] = None
    """The number of the account that the fax belongs to."""
    status: FaxStatus | None = None
    """How far the fax has come."""
    updated_ts: Annotated[datetime | None, Wire("updated_ts")] = None
    """When the status last changed."""
    recipients: list[FaxRecipient] = attrs.field(factory=list[FaxRecipient])
    """The numbers that it was sent to."""
    description: str | None = None
    """The service's remark about the fax."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FaxMessageInformation(Model):
    """The answer of both fax operations: the account, and the messages asked for, newest first."""

    _shown: ClassVar[tuple[str, ...]] = ("message_detail",)

    username: Annotated[str | None, Wire("Username")] = None
    """The account's name at the service."""
    message_handle: Annotated[str | None, Wire("MessageHandle")] = None
    """The handle that was asked for; None where a list was asked for."""
    message_detail: Annotated[list[FaxMessage], Wire("MessageDetail")] = attrs.field(factory=list[FaxMessage])
    """The faxes, newest first."""
    description: str | None = None
    """The service's remark."""
