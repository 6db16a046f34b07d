"""The operations of the messaging service, in the order of specification section 4.C, and its codes (section 7)."""

from __future__ import annotations

from typing import TypeVar

from directsuite.core.operation import Auth, Code, FaultFormat, MediaType, Operation, Semantics, Service
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

FAULT_FORMAT = FaultFormat(success_key="success", message_keys=("message",), codes=CODES)

_BODY, _BODY_AUTH, _BODY_AUTHENTICATION = Auth.BODY, Auth.BODY_AUTH, Auth.BODY_AUTHENTICATION
_SAFE, _IDEMPOTENT, _NON_IDEMPOTENT = Semantics.SAFE, Semantics.IDEMPOTENT, Semantics.NON_IDEMPOTENT

_HINT_CHECK_SENT = (
    "look in INBOX.Sent for the message (get_message_metadata('INBOX.Sent')) before sending it again; "
    "recipients may already have it."
)
_HINT_CHECK_USER_SENT = (
    "look in INBOX.Sent of the user's own mailbox for the message before sending it again; recipients "
    "may already have it."
)
_HINT_COMPARE_MESSAGE_IDS = (
    "compare the Message-IDs in the destination folder (get_message_metadata) with those of the messages."
)
_USE_FEWER_UIDS = "fewer uids at a time"
_REQUIRED_UIDS = ("messages[].uid",)
_HINT_CHECK_FOLDER = (
    "call get_folders() to see whether the folder still exists. A delayed request may delete a new folder with this "
    "name, so do not create one yet."
)


def _make_operation(
    name: str,
    path: str,
    response: type[R],
    *,
    method: str = "POST",
    semantics: Semantics = _SAFE,
    auth: Auth = _BODY,
    required_fields: tuple[str, ...] = (),
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
        fault_format=FAULT_FORMAT,
        required_fields=required_fields,
        content_type=MediaType.JSON,
        how_to_find_out=how_to_find_out,
        streaming_method=streaming_method,
    )


def _make_send_operation(
    name: str, path: str | None = None, auth: Auth = _BODY_AUTHENTICATION, how_to_find_out: str = _HINT_CHECK_SENT
) -> Operation[SendMessageResponse]:
    return _make_operation(
        name,
        path or name,
        SendMessageResponse,
        method="PUT",
        semantics=_NON_IDEMPOTENT,
        auth=auth,
        how_to_find_out=how_to_find_out,
    )


def _make_status_operation(name: str, path: str, auth: Auth = _BODY) -> Operation[DirectMessageStatusReportResponse]:
    return _make_operation(name, path, DirectMessageStatusReportResponse, auth=auth)


def _make_count_operation(name: str) -> Operation[GetCountResponse]:
    return _make_operation(name, f"{name}/{{folder}}", GetCountResponse, required_fields=("count",))


def _make_messages_operation(
    name: str, parameters: str, auth: Auth = _BODY, streaming_method: str | None = None
) -> Operation[GetMessageResponse]:
    return _make_operation(
        name,
        f"{name}/{parameters}",
        GetMessageResponse,
        auth=auth,
        required_fields=_REQUIRED_UIDS,
        streaming_method=streaming_method,
    )


def _make_change_operation(
    name: str, path: str, semantics: Semantics = _IDEMPOTENT, auth: Auth = _BODY_AUTH, how_to_find_out: str = ""
) -> Operation[APIResponse]:
    return _make_operation(name, path, APIResponse, semantics=semantics, auth=auth, how_to_find_out=how_to_find_out)


SEND = _make_send_operation("Send")
SEND_WITH_HEADER = _make_send_operation("SendWithHeader")
FORWARD = _make_send_operation("Forward", "Forward/{folder}", _BODY_AUTH)
SEND_WITH_TUSER = _make_send_operation("SendWithTuser", how_to_find_out=_HINT_CHECK_USER_SENT)
SEND_WITH_HEADER_WITH_TUSER = _make_send_operation("SendWithHeaderWithTuser", how_to_find_out=_HINT_CHECK_USER_SENT)

GET_MESSAGE_STATUS = _make_status_operation("GetMessageStatus", "GetMessageStatus/{smtp_id}")
GET_MESSAGE_STATUS_MANY = _make_status_operation("GetMessageStatusMany", "GetMessageStatus/", _BODY_AUTH)
GET_MESSAGE_STATUS_WITH_TUSER = _make_status_operation(
    "GetMessageStatusWithTuser", "GetMessageStatusWithTuser/{smtp_id}"
)

GET_MESSAGE_COUNT = _make_count_operation("GetMessageCount")
GET_UNREAD_MESSAGE_COUNT = _make_count_operation("GetUnreadMessageCount")
GET_DELETED_MESSAGE_COUNT = _make_count_operation("GetDeletedMessageCount")

GET_MESSAGES_BY_UIDS = _make_messages_operation("GetMessagesByUIDs", "{folder}", _BODY_AUTH, _USE_FEWER_UIDS)
GET_UNREAD_MESSAGES = _make_messages_operation("GetUnreadMessages", "{folder}")
GET_MESSAGES_BY_RECEIVED_DATE = _make_messages_operation("GetMessagesByReceivedDate", "{folder}/{begin}/{end}")
GET_MESSAGES_BY_RECEIVED_DATE_UTC = _make_messages_operation("GetMessagesByReceivedDateUTC", "{folder}/{begin}/{end}")
GET_MESSAGES_BY_SENDER = _make_messages_operation("GetMessagesBySender", "{folder}/{sender}")
GET_MESSAGES_BY_SUBJECT = _make_messages_operation("GetMessagesBySubject", "{folder}/{subject}")
GET_MESSAGES = _make_messages_operation("GetMessages", "{folder}", streaming_method="stream_messages")
GET_MESSAGE_METADATA = _make_messages_operation("GetMessageMetaData", "{folder}", streaming_method="iter_metadata")
SEARCH_METADATA_BY_RECEIVED_DATE = _make_messages_operation(
    "SearchMessagesMetadataByReceivedDate", "{folder}/{begin}/{end}"
)
SEARCH_METADATA_BY_RECEIVED_DATE_UTC = _make_messages_operation(
    "SearchMessagesMetadataByReceivedDateUTC", "{folder}/{begin}/{end}"
)
GET_UIDS = _make_operation("GetUIDs", "GetUIDs/{folder}", GetUIDResponse)

GET_FOLDERS = _make_operation("GetFolders", "GetFolders/{root}/{subscribed_only}", GetFoldersResponse)
SET_FOLDERS_SUBSCRIBED = _make_operation(
    "SetFoldersSubscribed", "SetFoldersSubscribed/", GetFoldersResponse, semantics=_IDEMPOTENT, auth=_BODY_AUTH
)
CREATE_FOLDER = _make_change_operation("CreateFolder", "CreateFolder/{folder}", auth=_BODY)
MOVE_FOLDER = _make_change_operation("MoveFolder", "MoveFolder/{folder}/{new_folder}", auth=_BODY)
DELETE_FOLDER = _make_change_operation(
    "DeleteFolder", "DeleteFolder/{folder}", _NON_IDEMPOTENT, _BODY, _HINT_CHECK_FOLDER
)

COPY_MESSAGES_BY_UIDS = _make_change_operation(
    "CopyMessagesByUIDs",
    "CopyMessagesByUIDs/{folder}/{dest_folder}",
    _NON_IDEMPOTENT,
    how_to_find_out=_HINT_COMPARE_MESSAGE_IDS,
)
MOVE_MESSAGES_BY_UIDS = _make_change_operation("MoveMessagesByUIDs", "MoveMessagesByUIDs/{folder}/{dest_folder}")
DELETE_MESSAGES_BY_UIDS = _make_change_operation("DeleteMessagesByUIDs", "DeleteMessagesByUIDs/{folder}/{forever}")
MARK_MESSAGES_AS_READ_BY_UIDS = _make_change_operation("MarkMessagesAsReadByUIDs", "MarkMessagesAsReadByUIDs/{folder}")
MARK_MESSAGES_AS_UNREAD_BY_UIDS = _make_change_operation(
    "MarkMessagesAsUnreadByUIDs", "MarkMessagesAsUnreadByUIDs/{folder}"
)

GET_RAW_MESSAGES_BY_UIDS = _make_operation(
    "GetRawMessagesByUIDs",
    "GetRawMessagesByUIDs/{folder}",
    GetRawMessageResponse,
    auth=_BODY_AUTH,
    required_fields=_REQUIRED_UIDS,
    streaming_method=_USE_FEWER_UIDS,
)
SAVE_RAW_MESSAGES = _make_change_operation(
    "SaveRawMessages", "SaveRawMessages/{folder}", _NON_IDEMPOTENT, how_to_find_out=_HINT_COMPARE_MESSAGE_IDS
)

CONTENT_PATHS = frozenset({"$.messages[].body", "$.messages[].attachments[].content", "$.messages[].data"})
"""JSON paths of message contents. Code that stores messages must not ignore unreadable values there."""
