"""The operations of the messaging service, in the order of specification section 4.C, and its codes (section 7)."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import attrs

from directsuite.core.operation import Auth, Code, FaultFormat, Operation, Semantics, Service
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
    3: (ServiceError, "the service reported an unspecified error"),
    4: (ServiceError, "the service reported an unspecified error"),
}

FAULT_FORMAT = FaultFormat(success_key="success", message_keys=("message",), codes=CODES)
_HINT_FOLDER = "check that the folder exists: get_folders() lists the existing ones"
_HINT_NAME = "check the name of the folder: get_folders() lists the existing ones"
_HINT_UIDS = "check the folder and the uids: get_folders() and get_uids(folder) list the existing ones"

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
    path: str,
    response: type[R],
    *,
    name: str = "",
    method: str = "POST",
    semantics: Semantics = _SAFE,
    auth: Auth = _BODY,
    hint: str = "",
    **others: Any,
) -> Operation[R]:
    return Operation(
        name=name or path.partition("/")[0],
        service=Service.MESSAGING,
        method=method,
        path=path,
        semantics=semantics,
        auth=auth,
        response=response,
        fault_format=attrs.evolve(FAULT_FORMAT, advice={3: hint, 4: hint}),
        **others,
    )


_make_send = partial(
    _make_operation,
    response=SendMessageResponse,
    method="PUT",
    semantics=_NON_IDEMPOTENT,
    auth=_BODY_AUTHENTICATION,
    how_to_find_out=_HINT_CHECK_SENT,
)
_make_status = partial(_make_operation, response=DirectMessageStatusReportResponse)
_make_count = partial(_make_operation, response=GetCountResponse, required_fields=("count",), hint=_HINT_FOLDER)
_make_messages = partial(
    _make_operation, response=GetMessageResponse, required_fields=_REQUIRED_UIDS, hint=_HINT_FOLDER
)
_make_change = partial(_make_operation, response=APIResponse, semantics=_IDEMPOTENT, auth=_BODY_AUTH, hint=_HINT_UIDS)
_make_addition = partial(_make_change, semantics=_NON_IDEMPOTENT, how_to_find_out=_HINT_COMPARE_MESSAGE_IDS)

SEND = _make_send("Send")
SEND_WITH_HEADER = _make_send("SendWithHeader")
FORWARD = _make_send("Forward/{folder}", auth=_BODY_AUTH, hint=_HINT_UIDS)
SEND_WITH_TUSER = _make_send("SendWithTuser", how_to_find_out=_HINT_CHECK_USER_SENT)
SEND_WITH_HEADER_WITH_TUSER = _make_send("SendWithHeaderWithTuser", how_to_find_out=_HINT_CHECK_USER_SENT)

GET_MESSAGE_STATUS = _make_status("GetMessageStatus/{smtp_id}")
GET_MESSAGE_STATUS_MANY = _make_status("GetMessageStatus/", name="GetMessageStatusMany", auth=_BODY_AUTH)
GET_MESSAGE_STATUS_WITH_TUSER = _make_status("GetMessageStatusWithTuser/{smtp_id}")

GET_MESSAGE_COUNT = _make_count("GetMessageCount/{folder}")
GET_UNREAD_MESSAGE_COUNT = _make_count("GetUnreadMessageCount/{folder}")
GET_DELETED_MESSAGE_COUNT = _make_count("GetDeletedMessageCount/{folder}")

GET_MESSAGES_BY_UIDS = _make_messages(
    "GetMessagesByUIDs/{folder}", auth=_BODY_AUTH, hint=_HINT_UIDS, streaming_method=_USE_FEWER_UIDS
)
GET_UNREAD_MESSAGES = _make_messages("GetUnreadMessages/{folder}")
GET_MESSAGES_BY_RECEIVED_DATE = _make_messages("GetMessagesByReceivedDate/{folder}/{begin}/{end}")
GET_MESSAGES_BY_RECEIVED_DATE_UTC = _make_messages("GetMessagesByReceivedDateUTC/{folder}/{begin}/{end}")
GET_MESSAGES_BY_SENDER = _make_messages("GetMessagesBySender/{folder}/{sender}")
GET_MESSAGES_BY_SUBJECT = _make_messages("GetMessagesBySubject/{folder}/{subject}")
GET_MESSAGES = _make_messages("GetMessages/{folder}", streaming_method="stream_messages")
GET_MESSAGE_METADATA = _make_messages("GetMessageMetaData/{folder}", streaming_method="iter_metadata")
SEARCH_METADATA_BY_RECEIVED_DATE = _make_messages("SearchMessagesMetadataByReceivedDate/{folder}/{begin}/{end}")
SEARCH_METADATA_BY_RECEIVED_DATE_UTC = _make_messages("SearchMessagesMetadataByReceivedDateUTC/{folder}/{begin}/{end}")
GET_UIDS = _make_operation("GetUIDs/{folder}", GetUIDResponse, hint=_HINT_FOLDER)

GET_FOLDERS = _make_operation("GetFolders/{root}/{subscribed_only}", GetFoldersResponse)
SET_FOLDERS_SUBSCRIBED = _make_operation(
    "SetFoldersSubscribed/", GetFoldersResponse, semantics=_IDEMPOTENT, auth=_BODY_AUTH
)
CREATE_FOLDER = _make_change("CreateFolder/{folder}", auth=_BODY, hint=_HINT_NAME)
MOVE_FOLDER = _make_change("MoveFolder/{folder}/{new_folder}", auth=_BODY, hint=_HINT_NAME)
DELETE_FOLDER = _make_change(
    "DeleteFolder/{folder}",
    semantics=_NON_IDEMPOTENT,
    auth=_BODY,
    hint=_HINT_NAME,
    how_to_find_out=_HINT_CHECK_FOLDER,
)

COPY_MESSAGES_BY_UIDS = _make_addition("CopyMessagesByUIDs/{folder}/{dest_folder}")
MOVE_MESSAGES_BY_UIDS = _make_change("MoveMessagesByUIDs/{folder}/{dest_folder}")
DELETE_MESSAGES_BY_UIDS = _make_change("DeleteMessagesByUIDs/{folder}/{forever}")
MARK_MESSAGES_AS_READ_BY_UIDS = _make_change("MarkMessagesAsReadByUIDs/{folder}")
MARK_MESSAGES_AS_UNREAD_BY_UIDS = _make_change("MarkMessagesAsUnreadByUIDs/{folder}")

GET_RAW_MESSAGES_BY_UIDS = _make_operation(
    "GetRawMessagesByUIDs/{folder}",
    GetRawMessageResponse,
    auth=_BODY_AUTH,
    hint=_HINT_UIDS,
    required_fields=_REQUIRED_UIDS,
    streaming_method=_USE_FEWER_UIDS,
)
SAVE_RAW_MESSAGES = _make_addition("SaveRawMessages/{folder}", hint=_HINT_FOLDER)

CONTENT_PATHS = frozenset({"$.messages[].body", "$.messages[].attachments[].content", "$.messages[].data"})
"""JSON paths of message contents. Code that stores messages must not ignore unreadable values there."""
