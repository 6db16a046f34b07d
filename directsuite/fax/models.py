"""Types of the fax service, in the order of the specification (section 2.B).

The specification does not define the fields of MessageObject. These are the fields that similar services document.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

import attrs

from directsuite.wire.models import Model, OpenEnum, Wire


class FaxStatus(OpenEnum):
    """The status of a fax. Services may also return other values."""

    WAITING = "waiting"
    COMPLETE = "complete"


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FaxRecipient(Model):
    """One number to which a fax was sent (RecipientObject)."""

    _shown: ClassVar[tuple[str, ...]] = ("page_count",)

    address: Annotated[str | None, Wire("Address")] = None
    """The dialled number, such as `15550100100`."""
    name: Annotated[str | None, Wire("Name")] = None
    """The recipient's name."""
    page_count: Annotated[int | None, Wire("PageCount")] = None
    """The number of pages."""
    description: str | None = None
    """The service's comment about this number."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FaxMessage(Model):
    """The status of one fax (MessageObject)."""

    _shown: ClassVar[tuple[str, ...]] = ("status", "updated_ts")

    message_handle: Annotated[
        str | None, Wire("MessageHandle", aliases=("message_handle", "messageHandle"), exact=True)
    ] = None
    """The identifier of the fax, or None if it has none. `get_single_message_info` accepts it, unchanged."""
    fax_number: Annotated[str | None, Wire("fax_number")] = None
    """The account's number, such as `15550100100`."""
    status: FaxStatus | None = None
    """`waiting` or `complete`."""
    updated_ts: Annotated[datetime | None, Wire("updated_ts")] = None
    """The time of the last change of the status, in UTC."""
    recipients: list[FaxRecipient] = attrs.field(factory=list[FaxRecipient])
    """The numbers to which the fax was sent."""
    description: str | None = None
    """The service's comment about the fax."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FaxMessageInformation(Model):
    """The response to both fax operations: the account, and the requested messages, newest first."""

    _shown: ClassVar[tuple[str, ...]] = ("message_detail",)

    username: Annotated[str | None, Wire("Username")] = None
    """The account's name at the service."""
    message_handle: Annotated[str | None, Wire("MessageHandle")] = None
    """The requested handle, or None if a list was requested."""
    message_detail: Annotated[list[FaxMessage], Wire("MessageDetail")] = attrs.field(factory=list[FaxMessage])
    """The faxes, newest first."""
    description: str | None = None
    """The service's comment."""
