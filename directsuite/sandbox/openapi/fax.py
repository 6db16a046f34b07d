"""Service B of the specification, fax message status: its types and its two operations."""

from __future__ import annotations

from directsuite.sandbox.openapi.json_schema import (
    Schema,
    all_nullable,
    array_of,
    integer,
    nullable,
    obj,
    one_of,
    ref,
    text,
)
from directsuite.sandbox.openapi.moments import timestamp
from directsuite.sandbox.openapi.operations import Operation, Service, named
from directsuite.sandbox.openapi.signing import BEARER_REFUSALS

SCHEMAS: dict[str, Schema] = {
    "MessageInformation": obj(
        "What the service knows about one fax message, or about several.",
        required={
            "Username": nullable(text("Service username of the account.")),
            "MessageHandle": nullable(text("Unique message identifier for retrieving message information.")),
            "MessageDetail": nullable(array_of(ref("MessageObject"), "The messages, newest first.")),
            "description": nullable(text("Description.")),
        },
    ),
    "MessageObject": obj(
        "One fax message.",
        optional=all_nullable(
            {
                "MessageHandle": text("The handle of this message."),
                "fax_number": text("The fax number asked for."),
                "status": one_of(["waiting", "complete"], "How far the message has come."),
                "updated_ts": timestamp("When the status last changed."),
                "recipients": array_of(ref("RecipientObject"), "Who was dialled."),
                "description": text("Description."),
            }
        ),
    ),
    "RecipientObject": obj(
        "One recipient of a fax message.",
        optional=all_nullable(
            {
                "Address": text("The number dialled."),
                "Name": text("The recipient's name."),
                "PageCount": integer("Pages sent.", minimum=0),
                "description": text("Description."),
            }
        ),
    ),
}

_information = named("MessageInformation")

OPERATIONS: list[Operation] = [
    Operation(
        "getSingleMessageInfo",
        "GET",
        "/{fax_number}/{message_handle}",
        "Describes one message by fax number and message handle.",
        _information,
    ),
    Operation(
        "getMultipleMessageInfo",
        "GET",
        "/getMessageList/{fax_number}/{offset}",
        "Describes up to ten messages of a fax number, newest first, from an offset on.",
        _information,
    ),
]

SERVICE = Service(
    name="fax",
    description="Tells the status of fax messages.",
    base="/fax/api/fax",
    operations=OPERATIONS,
    schemas=SCHEMAS,
    parameters={
        "fax_number": text("Fax number.", minLength=1),
        "message_handle": text("Message handle.", minLength=1),
        "offset": integer("How many of the newest messages to skip.", minimum=0),
    },
    refusals=BEARER_REFUSALS,
    security=[{"bearer": []}],
)
