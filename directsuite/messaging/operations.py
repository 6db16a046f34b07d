"""The operations of the messaging service, in the order of specification section 4.C, and its codes (section 7)."""

from __future__ import annotations

from typing import TypeVar

from directsuite.core.operation import Auth, MediaType, Operation, Semantics, Service
from directsuite.core.refusals import Code, Refusals
from directsuite.errors import AddressError, AuthenticationError, ServiceError
from directsuite.messaging.models import (
    APIResponse,
    DirectMessageStatusReportResponse,
    GetCountResponse,
    GetFoldersResponse,
    GetMessageResponse,
    GetRawMessageResponse,
    GetUIDResponse,
    SendMessageResponse,
)

R = TypeVar("R")

CODES: dict[Code, tuple[type[ServiceError], str]] = {
    1: (AuthenticationError, "authentication failed"),
    2: (AddressError, "address error"),
    3: (ServiceError, "other error"),
    4: (ServiceError, "other error"),
}

REFUSALS = Refusals(flag="success", texts=("message",), codes=CODES)

_WHOLE, _AUTH, _AUTHENTICATION = Auth.BODY, Auth.BODY_AUTH, Auth.BODY_AUTHENTICATION
_SAFE, _IDEMPOTENT, _ONCE = Semantics.SAFE, Semantics.IDEMPOTENT, Semantics.NON_IDEMPOTENT

_SENT = (
    "look in INBOX.Sent for the message (get_message_metadata('INBOX.Sent')) before sending it again; "
    "recipients may already have it."
)
_SENT_FOR_THE_USER = (
    "look in INBOX.Sent of the user's own mailbox for the message before sending it again; recipients "
    "may already have it."
)
_APPENDED = "compare the destination folder's Message-IDs (get_message_metadata) with what was to go there."
_FEWER = "fewer uids at a time"
_EACH_UID = ("messages[].uid",)
_FOLDER = (
    "get_folders() shows whether the folder is still there; one made anew under its name may yet be deleted by the "
    "request that was left unknown."
)


def _operation(
    name: str,
    path: str,
    response: type[R],
    *,
    method: str = "POST",
    semantics: Semantics = _SAFE,
    auth: Auth = _WHOLE,
    essential: tuple[str, ...] = (),
    how_to_find_out: str = "",
    streaming_method: str | None = None,
) -> Operation[R]:
    return Operation(
        name=name,
        service=Service.MESSAGING,
        method=method,
        path=path,
        semantics=semantics,
        auth=auth,
        response=response,
        refusals=REFUSALS,
        essential=essential,
        content_type=MediaType.JSON,
        how_to_find_out=how_to_find_out,
        streaming_method=streaming_method,
    )


def _send(
    name: str, path: str | None = None, auth: Auth = _AUTHENTICATION, how_to_find_out: str = _SENT
) -> Operation[SendMessageResponse]:
    return _operation(
        name,
        path or name,
        SendMessageResponse,
        method="PUT",
        semantics=_ONCE,
        auth=auth,
        how_to_find_out=how_to_find_out,
    )


def _status(name: str, path: str, auth: Auth = _WHOLE) -> Operation[DirectMessageStatusReportResponse]:
    return _operation(name, path, DirectMessageStatusReportResponse, auth=auth)


def _count(name: str) -> Operation[GetCountResponse]:
    return _operation(name, f"{name}/{{folder}}", GetCountResponse, essential=("count",))


def _messages(
    name: str, parameters: str, auth: Auth = _WHOLE, streaming_method: str | None = None
) -> Operation[GetMessageResponse]:
    return _operation(
        name,
        f"{name}/{parameters}",
        GetMessageResponse,
        auth=auth,
        essential=_EACH_UID,
        streaming_method=streaming_method,
    )


def _change(
    name: str, path: str, semantics: Semantics = _IDEMPOTENT, auth: Auth = _AUTH, how_to_find_out: str = ""
) -> Operation[APIResponse]:
    return _operation(name, path, APIResponse, semantics=semantics, auth=auth, how_to_find_out=how_to_find_out)


SEND = _send("Send")
SEND_WITH_HEADER = _send("SendWithHeader")
FORWARD = _send("Forward", "Forward/{folder}", _AUTH)
SEND_WITH_TUSER = _send("SendWithTuser", how_to_find_out=_SENT_FOR_THE_USER)
SEND_WITH_HEADER_WITH_TUSER = _send("SendWithHeaderWithTuser", how_to_find_out=_SENT_FOR_THE_USER)

GET_MESSAGE_STATUS = _status("GetMessageStatus", "GetMessageStatus/{smtp_id}")
GET_MESSAGE_STATUS_MANY = _status("GetMessageStatusMany", "GetMessageStatus/", _AUTH)
GET_MESSAGE_STATUS_WITH_TUSER = _status("GetMessageStatusWithTuser", "GetMessageStatusWithTuser/{smtp_id}")

GET_MESSAGE_COUNT = _count("GetMessageCount")
GET_UNREAD_MESSAGE_COUNT = _count("GetUnreadMessageCount")
GET_DELETED_MESSAGE_COUNT = _count("GetDeletedMessageCount")

GET_MESSAGES_BY_UIDS = _messages("GetMessagesByUIDs", "{folder}", _AUTH, _FEWER)
GET_UNREAD_MESSAGES = _messages("GetUnreadMessages", "{folder}")
GET_MESSAGES_BY_RECEIVED_DATE = _messages("GetMessagesByReceivedDate", "{folder}/{begin}/{end}")
GET_MESSAGES_BY_RECEIVED_DATE_UTC = _messages("GetMessagesByReceivedDateUTC", "{folder}/{begin}/{end}")
GET_MESSAGES_BY_SENDER = _messages("GetMessagesBySender", "{folder}/{sender}")
GET_MESSAGES_BY_SUBJECT = _messages("GetMessagesBySubject", "{folder}/{subject}")
GET_MESSAGES = _messages("GetMessages", "{folder}", streaming_method="stream_messages")
GET_MESSAGE_METADATA = _messages("GetMessageMetaData", "{folder}", streaming_method="iter_metadata")
SEARCH_METADATA_BY_RECEIVED_DATE = _messages("SearchMessagesMetadataByReceivedDate", "{folder}/{begin}/{end}")
SEARCH_METADATA_BY_RECEIVED_DATE_UTC = _messages("SearchMessagesMetadataByReceivedDateUTC", "{folder}/{begin}/{end}")
GET_UIDS = _operation("GetUIDs", "GetUIDs/{folder}", GetUIDResponse)

GET_FOLDERS = _operation("GetFolders", "GetFolders/{root}/{subscribed_only}", GetFoldersResponse)
SET_FOLDERS_SUBSCRIBED = _operation(
    "SetFoldersSubscribed", "SetFoldersSubscribed/", GetFoldersResponse, semantics=_IDEMPOTENT, auth=_AUTH
)
CREATE_FOLDER = _change("CreateFolder", "CreateFolder/{folder}", auth=_WHOLE)
MOVE_FOLDER = _change("MoveFolder", "MoveFolder/{folder}/{new_folder}", auth=_WHOLE)
DELETE_FOLDER = _change("DeleteFolder", "DeleteFolder/{folder}", _ONCE, _WHOLE, _FOLDER)

COPY_MESSAGES_BY_UIDS = _change(
    "CopyMessagesByUIDs", "CopyMessagesByUIDs/{folder}/{dest_folder}", _ONCE, how_to_find_out=_APPENDED
)
MOVE_MESSAGES_BY_UIDS = _change("MoveMessagesByUIDs", "MoveMessagesByUIDs/{folder}/{dest_folder}")
DELETE_MESSAGES_BY_UIDS = _change("DeleteMessagesByUIDs", "DeleteMessagesByUIDs/{folder}/{forever}")
MARK_MESSAGES_AS_READ_BY_UIDS = _change("MarkMessagesAsReadByUIDs", "MarkMessagesAsReadByUIDs/{folder}")
MARK_MESSAGES_AS_UNREAD_BY_UIDS = _change("MarkMessagesAsUnreadByUIDs", "MarkMessagesAsUnreadByUIDs/{folder}")

GET_RAW_MESSAGES_BY_UIDS = _operation(
    "GetRawMessagesByUIDs",
    "GetRawMessagesByUIDs/{folder}",
    GetRawMessageResponse,
    auth=_AUTH,
    essential=_EACH_UID,
    streaming_method=_FEWER,
)
SAVE_RAW_MESSAGES = _change("SaveRawMessages", "SaveRawMessages/{folder}", _ONCE, how_to_find_out=_APPENDED)

CONTENT_PATHS = frozenset({"$.messages[].body", "$.messages[].attachments[].content", "$.messages[].data"})
"""JSON paths of message contents. Code that stores messages must raise an error if such a value is unreadable."""
