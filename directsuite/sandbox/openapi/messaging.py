"""Service C of the specification, Direct messaging: its thirty-four operations, in its order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from directsuite.sandbox.openapi.json_schema import Schema, boolean, long, ref, text
from directsuite.sandbox.openapi.messaging_types import SCHEMAS
from directsuite.sandbox.openapi.operations import Content, Operation, Service, named

if TYPE_CHECKING:
    from collections.abc import Mapping

_API_RESPONSE = ref("APIResponse")

_PARAMETERS: dict[str, Schema] = {
    "folderName": text("A folder.", minLength=1),
    "newFolderName": text("The folder's new name.", minLength=1),
    "destFolderName": text("The folder that the messages go to.", minLength=1),
    "rootFolderName": text("The folder whose sub-folders are listed.", minLength=1),
    "subscribedFolderOnly": boolean("Whether only subscribed folders are listed."),
    "deleteForever": boolean("false: the messages go to INBOX.Trash; true: they are removed permanently."),
    "smtpId": text("Message-ID of a message sent.", minLength=1),
    "sender": text("Text that the sender's address contains.", minLength=1),
    "subject": text("Text that the subject contains.", minLength=1),
}

_MILLISECONDS = {
    "beginTime": long("First moment, in milliseconds since 1970-01-01T00:00:00Z.", minimum=0),
    "endTime": long("Last moment, in milliseconds since 1970-01-01T00:00:00Z.", minimum=0),
}
_UTC = {
    "beginTime": text("First second, as yyyyMMddHHmmss in UTC.", pattern="^[0-9]{14}$"),
    "endTime": text("Last second, as yyyyMMddHHmmss in UTC.", pattern="^[0-9]{14}$"),
}

_MEMBER_OF_CREDENTIALS = {
    "SendRequest": "authentication",
    "SendRequestWithHeader": "authentication",
    "SendWithTuserRequest": "authentication",
    "SendWithHeaderWithTuserRequest": "authentication",
    "UidsRequestType": "auth",
    "SmtpIdsRequestType": "auth",
    "SetFoldersSubscribedRequestType": "auth",
    "RawMessagesRequestType": "auth",
}
"""Where credentials stand in a body; in the bodies that are not listed they are the whole body."""

_CERTAIN = {"SendMessageResponseType": ("smtpId",), "GetCountResponse": ("count",)}
"""Members that a success is worth nothing without; lists may be missing or null when nothing was found."""


def _row(
    name: str, path: str, body: str, answer: str, summary: str, parameters: Mapping[str, Schema] | None = None
) -> Operation:
    verb, _, template = path.partition(" ")
    member = _MEMBER_OF_CREDENTIALS.get(body)
    return Operation(
        name,
        verb,
        template,
        summary,
        named(answer),
        body=Content(schema=ref(body)),
        parameters=parameters or {},
        certain=_CERTAIN.get(answer, ()),
        credentials={"in": "body", "member": member} if member else {"in": "body"},
    )


_IN_FOLDER = "{folderName}"
_BETWEEN = "{folderName}/{beginTime}/{endTime}"
_STATUS = "DirectMessageStatusReportResponseType"

OPERATIONS: list[Operation] = [
    _row("Send", "PUT /Send", "SendRequest", "SendMessageResponseType", "Sends a message."),
    _row(
        "SendWithHeader",
        "PUT /SendWithHeader",
        "SendRequestWithHeader",
        "SendMessageResponseType",
        "Sends a message with headers of one's own.",
    ),
    _row(
        "Forward",
        f"PUT /Forward/{_IN_FOLDER}",
        "UidsRequestType",
        "SendMessageResponseType",
        "Forwards messages; several uids are forwarded as attachments.",
    ),
    _row("SendWithTuser", "PUT /SendWithTuser", "SendWithTuserRequest", "SendMessageResponseType", "Send as a T-User."),
    _row(
        "SendWithHeaderWithTuser",
        "PUT /SendWithHeaderWithTuser",
        "SendWithHeaderWithTuserRequest",
        "SendMessageResponseType",
        "SendWithHeader as a T-User.",
    ),
    _row(
        "GetMessageStatus",
        "POST /GetMessageStatus/{smtpId}",
        "Authentication",
        _STATUS,
        "How delivery of one message stands, a record per recipient.",
    ),
    _row(
        "GetMessageStatusMany",
        "POST /GetMessageStatus/",
        "SmtpIdsRequestType",
        _STATUS,
        "How delivery of several messages stands.",
    ),
    _row(
        "GetMessageStatusWithTuser",
        "POST /GetMessageStatusWithTuser/{smtpId}",
        "AuthenticationWithTuser",
        _STATUS,
        "GetMessageStatus as a T-User.",
    ),
    *(
        _row(name, f"POST /{name}/{_IN_FOLDER}", "Authentication", "GetCountResponse", summary)
        for name, summary in {
            "GetMessageCount": "How many messages a folder has.",
            "GetUnreadMessageCount": "How many unread messages a folder has.",
            "GetDeletedMessageCount": "How many deleted messages a folder has.",
        }.items()
    ),
    *(
        _row(name, f"POST /{name}/{path}", body, "GetMessageResponse", summary, parameters)
        for name, path, body, summary, parameters in (
            ("GetMessagesByUIDs", _IN_FOLDER, "UidsRequestType", "The messages with the given uids.", {}),
            ("GetUnreadMessages", _IN_FOLDER, "Authentication", "All unread messages.", {}),
            (
                "GetMessagesByReceivedDate",
                _BETWEEN,
                "Authentication",
                "Messages by received date, in milliseconds.",
                _MILLISECONDS,
            ),
            ("GetMessagesByReceivedDateUTC", _BETWEEN, "Authentication", "Messages by received date, in UTC.", _UTC),
            ("GetMessagesBySender", "{folderName}/{sender}", "Authentication", "Messages by sender.", {}),
            ("GetMessagesBySubject", "{folderName}/{subject}", "Authentication", "Messages by subject.", {}),
            ("GetMessages", _IN_FOLDER, "Authentication", "All messages.", {}),
            ("GetMessageMetaData", _IN_FOLDER, "Authentication", "Metadata of all messages.", {}),
            (
                "SearchMessagesMetadataByReceivedDate",
                _BETWEEN,
                "Authentication",
                "Metadata by received date, in milliseconds.",
                _MILLISECONDS,
            ),
            (
                "SearchMessagesMetadataByReceivedDateUTC",
                _BETWEEN,
                "Authentication",
                "Metadata by received date, in UTC.",
                _UTC,
            ),
        )
    ),
    _row("GetUIDs", f"POST /GetUIDs/{_IN_FOLDER}", "Authentication", "GetUIDResponseType", "All uids of a folder."),
    _row(
        "GetFolders",
        "POST /GetFolders/{rootFolderName}/{subscribedFolderOnly}",
        "Authentication",
        "GetFoldersResponseType",
        "Sub-folders of a folder.",
    ),
    _row(
        "SetFoldersSubscribed",
        "POST /SetFoldersSubscribed/",
        "SetFoldersSubscribedRequestType",
        "GetFoldersResponseType",
        "Sets folders subscribed or unsubscribed.",
    ),
    *(
        _row(name, f"POST /{name}/{path}", body, "APIResponse", summary)
        for name, path, body, summary in (
            ("CreateFolder", _IN_FOLDER, "Authentication", "Creates a folder."),
            ("MoveFolder", "{folderName}/{newFolderName}", "Authentication", "Renames a folder."),
            ("DeleteFolder", _IN_FOLDER, "Authentication", "Deletes a folder with its messages and sub-folders."),
            ("CopyMessagesByUIDs", "{folderName}/{destFolderName}", "UidsRequestType", "Copies messages."),
            ("MoveMessagesByUIDs", "{folderName}/{destFolderName}", "UidsRequestType", "Moves messages."),
            ("DeleteMessagesByUIDs", "{folderName}/{deleteForever}", "UidsRequestType", "Deletes messages."),
            ("MarkMessagesAsReadByUIDs", _IN_FOLDER, "UidsRequestType", "Marks messages read."),
            ("MarkMessagesAsUnreadByUIDs", _IN_FOLDER, "UidsRequestType", "Marks messages unread."),
        )
    ),
    _row(
        "GetRawMessagesByUIDs",
        f"POST /GetRawMessagesByUIDs/{_IN_FOLDER}",
        "UidsRequestType",
        "GetRawMessageResponse",
        "Raw messages by uid.",
    ),
    _row(
        "SaveRawMessages",
        f"POST /SaveRawMessages/{_IN_FOLDER}",
        "RawMessagesRequestType",
        "APIResponse",
        "Saves raw messages in a folder.",
    ),
]

SERVICE = Service(
    name="messaging",
    description=(
        "Sends Direct messages and manages mailboxes. Credentials travel in the request body: in the member that "
        "`x-credentials` names, or as the whole body where it names none. Refusals are answers with `success: false`."
    ),
    base="/message-rest/api/message",
    operations=OPERATIONS,
    schemas=SCHEMAS,
    parameters=_PARAMETERS,
    refusals={
        400: ("The body is no JSON, or not of the operation's type.", _API_RESPONSE),
        413: ("The body is too large.", _API_RESPONSE),
        415: ("The body is of another media type.", _API_RESPONSE),
        500: ("Server error.", _API_RESPONSE),
    },
)
