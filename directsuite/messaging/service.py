"""The facade of the messaging service: a Direct mailbox."""

from __future__ import annotations

import contextlib
import functools
import secrets
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Final, TypeVar

from directsuite.core.call import Confirmation
from directsuite.core.events import Progress, validate_progress
from directsuite.core.iteration import Listing
from directsuite.core.operation import Operation, Service
from directsuite.core.transport import Polling, Transport
from directsuite.core.upload import RequestBody
from directsuite.errors import InvalidArgumentError, ResponseDecodeError
from directsuite.messaging import arguments, confirmations, operations
from directsuite.messaging.arguments import INBOX, make_send_body
from directsuite.messaging.confirmations import Deadline
from directsuite.messaging.listings import (
    Batches,
    MessageList,
    MessageReader,
    fetch_and_measure,
    fetch_batches,
    find_missing_uids,
    validate_listing,
)
from directsuite.messaging.models import (
    APIResponse,
    Authentication,
    DirectMessageStatusReportResponse,
    GetCountResponse,
    GetMessageResponse,
    Message,
    MessageDetail,
    RawMessage,
    RawMessagesRequest,
    Recipient,
    SendMessageResponse,
    SendRequest,
    SendRequestWithHeader,
    SetFoldersSubscribedRequest,
    SmtpIdsRequest,
    UidsRequest,
)
from directsuite.messaging.sending import Sender
from directsuite.wire.models import Secret, as_secret, require_instances

M = TypeVar("M", MessageDetail, RawMessage)
A = TypeVar("A", bound=APIResponse)


class Mailbox(Sender):
    """A Direct mailbox: sending, delivery status, folders and messages. `suite.mailbox(...)`; needs `message_url`.

    `directsuite guide methods` lists the operation of each method (specification 4.C). Every method raises
    TransportError if there is no usable response, and ServiceError if the service rejects the request, for example
    because a folder does not exist. The service has no code for this: `get_folders` lists the existing folders. If a
    message may have been sent, OutcomeUnknownError is raised. Only `send_once` with `resend=True` sends such a message
    again. Methods that receive an empty list, such as of uids, make no request. Reading a message does not necessarily
    mark it as read.

    timeout: timeout in seconds. In a listing, that of each request.

    Listings, such as `iter_messages`, are async generators and async context managers. Leaving the `async with` block
    cancels the requests. Messages that are deleted during the listing are skipped.

    batch_size: maximum number of messages per request.
    batch_bytes: approximate size of a response, in bytes. At most twice as many responses as the service has
        connections are fetched ahead. None: fetch about 64 MB ahead.

    If a batch exceeds the setting `max_response_bytes`, its messages are requested again in smaller batches.
    ResponseDecodeError is raised only if a single message exceeds it.
    """

    _send_operation = operations.SEND
    _send_with_header_operation = operations.SEND_WITH_HEADER
    _status_operation = operations.GET_MESSAGE_STATUS
    _request_type = SendRequest
    _request_with_header_type = SendRequestWithHeader

    def __init__(self, transport: Transport, username: str, password: str | Secret) -> None:
        password = as_secret(password)
        self.username: Final = arguments.validate_address(username, "username")
        """The Direct address of the mailbox."""
        super().__init__(transport, username, Authentication(username=username, password=password))

    async def send_once(
        self,
        message: Message,
        *,
        key: str | None = None,
        since: datetime | None = None,
        settle: float | None = None,
        resend: bool = False,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> SendMessageResponse:
        """Send a message once. If the response is lost, search for the message in INBOX.Sent.

        - The message gets a header `X-Request-ID`, a hash of `key`. Recipients can see it.
        - If the response is lost, but the message is found within `settle` seconds, its response is returned.
        - With `since`, the message is searched for first, for `settle` seconds. It is sent only if it is proven to be
        absent from all folders. A copy that was deleted permanently cannot be found.
        - OutcomeUnknownError is raised if the message may or may not have been sent. An error of the search before
        sending is raised unchanged. It does not show whether an earlier call sent the message.

        `directsuite guide delivery` lists all cases.

        key: a unique name for this message, the same in every attempt, even after a crash. None: a random key.
        since: time at which the first attempt began, as an aware datetime. It requires `key`. None: no earlier attempt
            was made. If it is in the future and the message is not found, OutcomeUnknownError is raised.
        settle: time to search for the message, in seconds, because a request may still arrive. None: the suite's.
        resend: send the message again if the response is lost, the server has shown an `X-Request-ID`, the search
            proves that the message is absent, and time is left. If the second request also fails, its error is raised
            only if it concerns the message or is an OutcomeUnknownError; otherwise that of the first. The event
            OutcomeLeftUnknown is emitted even if the second request succeeds.
        progress: see `send`. It starts at 0 again for a second request.
        timeout: timeout of the complete call, also with streamed attachments, in seconds. None: use the suite's. With
            `since`, it must be longer than `settle`, or the message is not sent and OutcomeUnknownError is raised.
        """
        from directsuite.messaging import send_once  # imported only when it is used, to start faster

        message = arguments.validate_message(message, self.username)
        send_once.validate_arguments(key, since)
        settle = self.resolve_settle(settle)
        deadline = Deadline.after(self.resolve_timeout(timeout))
        validate_progress(progress)
        request_id = send_once.make_request_id(self.username, secrets.token_hex(16) if key is None else key)
        message = send_once.add_request_id(message, request_id)
        request = SendRequestWithHeader(authentication=self._authentication, message=message)
        now = datetime.now(UTC)
        if since is None:
            sent = send_once.SentMessage(self.username, request_id, now, deadline)
        else:
            began = since if since <= now else None
            skew = send_once.MAX_SINCE_CLOCK_SKEW
            sent = send_once.SentMessage(self.username, request_id, began, deadline, skew)
            polling, clock = Polling(settle, self.environment), self.environment.clock
            if (response := await send_once.find_earlier_message(sent, self, polling, clock)) is not None:
                return response
        confirm = Confirmation(verify=functools.partial(sent.find, self._as_nested()), seconds=settle)

        async def attempt(seconds: float) -> SendMessageResponse:
            prepare = functools.partial(make_send_body, self.environment.codec, request, progress)
            return await self._call(operations.SEND_WITH_HEADER, prepare=prepare, timeout=seconds, confirm=confirm)

        return await send_once.send(attempt, sent, self, settle=settle, resend=resend)

    async def forward(
        self,
        folder: str,
        uids: Iterable[int],
        recipients: Iterable[Recipient | str] = (),
        *,
        timeout: float | None = None,
    ) -> SendMessageResponse:
        """Forward messages of a folder in one message, which the service stores in INBOX.Sent.

        The service attaches them with their complete headers, or may copy a single one into the text. The header of a
        message from INBOX.Sent contains the Bcc recipients. Raises InvalidArgumentError if `uids` is empty. The service
        may reject an empty `recipients`.
        """
        listed = arguments.validate_uids(uids)
        if not listed:
            raise InvalidArgumentError("at least one message to forward is required", parameter="uids")
        body = self._make_uids_body(listed, arguments.validate_recipients(recipients))
        return await self._call(operations.FORWARD, folder, body=body, timeout=timeout)

    async def get_message_statuses(
        self, smtp_ids: Iterable[str], *, timeout: float | None = None
    ) -> DirectMessageStatusReportResponse:
        """Return the delivery statuses of several messages, with one request."""
        listed = arguments.validate_texts(smtp_ids, "smtp_ids")
        if not listed:
            return DirectMessageStatusReportResponse(success=True)
        body = self._encode_body(SmtpIdsRequest(auth=self._authentication, smtp_ids=listed))
        return await self._call(operations.GET_MESSAGE_STATUS_MANY, body=body, timeout=timeout)

    async def get_message_count(self, folder: str = INBOX, *, timeout: float | None = None) -> int:
        """Return the number of messages in `folder`."""
        return await self._get_count(operations.GET_MESSAGE_COUNT, folder, timeout)

    async def get_unread_message_count(self, folder: str = INBOX, *, timeout: float | None = None) -> int:
        """Return the number of unread messages in `folder`."""
        return await self._get_count(operations.GET_UNREAD_MESSAGE_COUNT, folder, timeout)

    async def get_deleted_message_count(self, folder: str = INBOX, *, timeout: float | None = None) -> int:
        """Return the number of deleted messages in `folder`."""
        return await self._get_count(operations.GET_DELETED_MESSAGE_COUNT, folder, timeout)

    async def get_messages_by_uids(
        self, folder: str, uids: Iterable[int], *, timeout: float | None = None
    ) -> MessageList[MessageDetail]:
        """Return the messages with these uids. `missing_uids` of the list are the uids that the service left out."""
        listed = arguments.validate_uids(uids)
        response = await self._call_for_uids(operations.GET_MESSAGES_BY_UIDS, folder, uids=listed, timeout=timeout)
        return find_missing_uids([] if response is None else response.messages, listed)

    async def get_unread_messages(self, folder: str = INBOX, *, timeout: float | None = None) -> list[MessageDetail]:
        """Return all unread messages of `folder`."""
        return await self._get_messages(operations.GET_UNREAD_MESSAGES, folder, timeout=timeout)

    async def get_messages_by_received_date(
        self,
        folder: str = INBOX,
        begin: datetime | None = None,
        end: datetime | None = None,
        *,
        timeout: float | None = None,
    ) -> list[MessageDetail]:
        """Return the messages received from `begin` to `end`, both inclusive, with a precision of 1 ms.

        begin, end: aware datetimes. None: no limit.
        Raises InvalidArgumentError if one is naive, or `end` is before `begin`.
        """
        span = arguments.format_span_in_milliseconds(begin, end)
        return await self._get_messages(operations.GET_MESSAGES_BY_RECEIVED_DATE, folder, *span, timeout=timeout)

    async def get_messages_by_received_date_utc(
        self,
        folder: str = INBOX,
        begin: datetime | None = None,
        end: datetime | None = None,
        *,
        timeout: float | None = None,
    ) -> list[MessageDetail]:
        """Return the messages received from `begin` to `end`, both inclusive, with a precision of 1 s.

        Otherwise the same as `get_messages_by_received_date`.
        """
        span = arguments.format_span_in_utc(begin, end)
        return await self._get_messages(operations.GET_MESSAGES_BY_RECEIVED_DATE_UTC, folder, *span, timeout=timeout)

    async def get_messages_by_sender(
        self, folder: str, sender: str, *, timeout: float | None = None
    ) -> list[MessageDetail]:
        """Return the messages of `folder` that the service finds for this sender. Parts of an address may match."""
        return await self._get_messages(operations.GET_MESSAGES_BY_SENDER, folder, sender, timeout=timeout)

    async def get_messages_by_subject(
        self, folder: str, subject: str, *, timeout: float | None = None
    ) -> list[MessageDetail]:
        """Return the messages of `folder` that the service finds for this subject. Parts of a subject may match."""
        return await self._get_messages(operations.GET_MESSAGES_BY_SUBJECT, folder, subject, timeout=timeout)

    async def get_messages(self, folder: str = INBOX, *, timeout: float | None = None) -> list[MessageDetail]:
        """Return all messages of `folder` as a list. For a large folder, use `iter_messages` or `stream_messages`."""
        return await self._get_messages(operations.GET_MESSAGES, folder, timeout=timeout)

    async def get_message_metadata(self, folder: str = INBOX, *, timeout: float | None = None) -> list[MessageDetail]:
        """Return the metadata of all messages of `folder`, without bodies or the contents of attachments."""
        return await self._get_messages(operations.GET_MESSAGE_METADATA, folder, timeout=timeout)

    async def search_messages_metadata_by_received_date(
        self,
        folder: str = INBOX,
        begin: datetime | None = None,
        end: datetime | None = None,
        *,
        timeout: float | None = None,
    ) -> list[MessageDetail]:
        """Return the metadata of messages received from `begin` to `end`; see `get_messages_by_received_date`."""
        span = arguments.format_span_in_milliseconds(begin, end)
        return await self._get_messages(operations.SEARCH_METADATA_BY_RECEIVED_DATE, folder, *span, timeout=timeout)

    async def search_messages_metadata_by_received_date_utc(
        self,
        folder: str = INBOX,
        begin: datetime | None = None,
        end: datetime | None = None,
        *,
        timeout: float | None = None,
    ) -> list[MessageDetail]:
        """Return the metadata of messages received from `begin` to `end`; see `get_messages_by_received_date_utc`."""
        span = arguments.format_span_in_utc(begin, end)
        return await self._get_messages(operations.SEARCH_METADATA_BY_RECEIVED_DATE_UTC, folder, *span, timeout=timeout)

    async def get_uids(self, folder: str = INBOX, *, timeout: float | None = None) -> list[int]:
        """Return all uids of `folder`, ascending and without duplicates. This is the cheapest way to detect changes."""
        response = await self._call(operations.GET_UIDS, folder, body=self._credentials, timeout=timeout)
        return sorted(set(response.uids))

    async def get_folders(
        self, root: str = INBOX, *, subscribed_only: bool = False, timeout: float | None = None
    ) -> list[str]:
        """Return the names of the folders below `root`, without `root`. A name that cannot be read is empty."""
        segments = (root, str(bool(subscribed_only)).lower())
        response = await self._call(operations.GET_FOLDERS, *segments, body=self._credentials, timeout=timeout)
        return response.folders

    async def set_folders_subscribed(
        self, folders: Iterable[str], subscribed: bool, *, timeout: float | None = None
    ) -> list[str]:
        """Subscribe to folders, or unsubscribe if `subscribed` is False. Return the folders that the response names."""
        listed = arguments.validate_texts(folders, "folders")
        if not listed:
            return []
        request = SetFoldersSubscribedRequest(auth=self._authentication, folders=listed, subscribed=subscribed)
        body = self._encode_body(request)
        return (await self._call(operations.SET_FOLDERS_SUBSCRIBED, body=body, timeout=timeout)).folders

    async def create_folder(self, folder: str, *, timeout: float | None = None) -> None:
        """Create a folder. Raises InvalidArgumentError if its name is reserved or does not start with `INBOX.`."""
        arguments.validate_new_folder(folder, "folder")
        confirm = confirmations.folder_created(self._as_nested(), folder)
        await self._call(operations.CREATE_FOLDER, folder, body=self._credentials, timeout=timeout, confirm=confirm)

    async def move_folder(self, folder: str, new_folder: str, *, timeout: float | None = None) -> None:
        """Rename a folder, with its contents.

        Raises InvalidArgumentError if one of the names is reserved, or the new name does not start with `INBOX.`.
        """
        arguments.validate_changeable_folder(folder, "folder")
        arguments.validate_new_folder(new_folder, "new_folder")
        confirm = confirmations.folder_moved(self._as_nested(), folder, new_folder)
        await self._call(
            operations.MOVE_FOLDER, folder, new_folder, body=self._credentials, timeout=timeout, confirm=confirm
        )

    async def delete_folder(self, folder: str, *, timeout: float | None = None, settle: float | None = None) -> None:
        """Delete a folder, its messages and its subfolders. Raises InvalidArgumentError if the folder is reserved.

        The request is never repeated, because a delayed duplicate would delete a new folder with the same name. If the
        response is lost, the call succeeds if GetFolders lists neither the folder nor a subfolder. Otherwise
        OutcomeUnknownError is raised, as always for folders outside `INBOX.`, which are never listed, and for names
        that are not ASCII or contain `&`, which a listing may encode differently.

        settle: seconds for which the deletion is verified if the response is lost. None: the suite's. 0: verify once.
        """
        arguments.validate_changeable_folder(folder, "folder")
        seconds = self.resolve_settle(settle)
        confirm = confirmations.folder_deleted(self._as_nested(), folder, seconds)
        await self._call(operations.DELETE_FOLDER, folder, body=self._credentials, timeout=timeout, confirm=confirm)

    async def copy_messages_by_uids(
        self,
        folder: str,
        dest_folder: str,
        uids: Iterable[int],
        *,
        verify: bool = False,
        timeout: float | None = None,
        settle: float | None = None,
    ) -> None:
        """Copy messages to another folder. The request is never repeated.

        verify: list both folders before copying. If the response is lost, the call then succeeds if the Message-IDs of
            the messages are new in the destination. Otherwise, or if a message has no Message-ID, OutcomeUnknownError
            is raised.
        settle: seconds for which the copies are verified. None: the suite's. 0: verify once.
        """
        listed, seconds = arguments.validate_uids(uids), self.resolve_settle(settle)
        operations.COPY_MESSAGES_BY_UIDS.validate_segments((folder, dest_folder))
        confirm = None
        if verify and listed:
            deadline = Deadline.after(self.resolve_timeout(timeout))
            existing = await self.get_message_metadata(folder, timeout=deadline.require_time_left())
            copied = frozenset(listed)
            message_ids = [message.msg_id for message in existing if message.uid in copied]
            box = self._as_nested()
            confirm = await confirmations.messages_arrived(box, dest_folder, message_ids, deadline, seconds)
            timeout = deadline.require_time_left()
        await self._call_for_uids(
            operations.COPY_MESSAGES_BY_UIDS, folder, dest_folder, uids=listed, timeout=timeout, confirm=confirm
        )

    async def move_messages_by_uids(
        self, folder: str, dest_folder: str, uids: Iterable[int], *, timeout: float | None = None
    ) -> None:
        """Move messages to another folder. They get new uids."""
        listed = arguments.validate_uids(uids)
        confirm = confirmations.messages_removed(self._as_nested(), folder, listed)
        await self._call_for_uids(
            operations.MOVE_MESSAGES_BY_UIDS, folder, dest_folder, uids=listed, timeout=timeout, confirm=confirm
        )

    async def delete_messages_by_uids(
        self, folder: str, uids: Iterable[int], *, forever: bool = False, timeout: float | None = None
    ) -> None:
        """Move messages to INBOX.Trash or, with `forever`, delete them permanently."""
        listed, mode = arguments.validate_uids(uids), str(bool(forever)).lower()
        confirm = confirmations.messages_removed(self._as_nested(), folder, listed)
        await self._call_for_uids(
            operations.DELETE_MESSAGES_BY_UIDS, folder, mode, uids=listed, timeout=timeout, confirm=confirm
        )

    async def mark_messages_as_read_by_uids(
        self, folder: str, uids: Iterable[int], *, timeout: float | None = None
    ) -> None:
        """Mark messages as read."""
        await self._call_for_uids(operations.MARK_MESSAGES_AS_READ_BY_UIDS, folder, uids=uids, timeout=timeout)

    async def mark_messages_as_unread_by_uids(
        self, folder: str, uids: Iterable[int], *, timeout: float | None = None
    ) -> None:
        """Mark messages as unread."""
        await self._call_for_uids(operations.MARK_MESSAGES_AS_UNREAD_BY_UIDS, folder, uids=uids, timeout=timeout)

    async def get_raw_messages_by_uids(
        self, folder: str, uids: Iterable[int], *, timeout: float | None = None
    ) -> MessageList[RawMessage]:
        """Return the messages with these uids in their original form (RFC 5322).

        `missing_uids` of the list are the uids that the service left out.
        """
        listed = arguments.validate_uids(uids)
        response = await self._call_for_uids(operations.GET_RAW_MESSAGES_BY_UIDS, folder, uids=listed, timeout=timeout)
        return find_missing_uids([] if response is None else response.messages, listed)

    async def save_raw_messages(
        self,
        folder: str,
        messages: Iterable[RawMessage],
        *,
        verify: bool = False,
        timeout: float | None = None,
        settle: float | None = None,
    ) -> None:
        """Append messages in RFC 5322 form (`data`) to a folder, unchanged. The request is never repeated.

        Raises InvalidArgumentError if a message has no data.

        verify: list the folder before appending. If the response is lost, the call then succeeds if the Message-IDs of
            the messages are new in the folder. Otherwise, or if a message has no Message-ID, OutcomeUnknownError is
            raised.
        settle: seconds for which the messages are verified. None: the suite's. 0: verify once.
        """
        listed = require_instances(messages, RawMessage, "messages")
        if not all(message.data for message in listed):
            raise InvalidArgumentError("each RawMessage must have data, the bytes of the message", parameter="messages")
        operations.SAVE_RAW_MESSAGES.validate_segments((folder,))
        seconds = self.resolve_settle(settle)
        if not listed:
            return
        confirm = None
        if verify:
            from directsuite.messaging import email

            deadline = Deadline.after(self.resolve_timeout(timeout))
            message_ids = [email.read_message_id(message.data or b"") for message in listed]
            confirm = await confirmations.messages_arrived(self._as_nested(), folder, message_ids, deadline, seconds)
            timeout = deadline.require_time_left()
        body = self._encode_body(RawMessagesRequest(auth=self._authentication, messages=listed))
        await self._call(operations.SAVE_RAW_MESSAGES, folder, body=body, timeout=timeout, confirm=confirm)

    def iter_messages(
        self,
        folder: str = INBOX,
        *,
        limit: int | None = None,
        since: datetime | None = None,
        newest_first: bool = False,
        batch_size: int = 50,
        batch_bytes: int | None = None,
        timeout: float | None = None,
    ) -> Listing[MessageDetail]:
        """Yield the messages of `folder` in the order of receipt, which is that of their uids.

        limit: maximum number of messages. None: no limit.
        since: yield only messages received at this time or later, by the service's clock: an aware datetime, with a
            precision of 1 ms. Their uids come from SearchMessagesMetadataByReceivedDate. None: all messages.
        newest_first: yield the messages in descending order of their uids.
        batch_size, batch_bytes, timeout: see `Mailbox`. Batches are fetched ahead.

        Raises InvalidArgumentError, before the first step, if an argument is invalid.
        """
        validate_listing(folder, timeout, batch_size, batch_bytes, limit)
        if since is not None:
            arguments.validate_aware(since, "since")

        async def list_uids() -> list[int]:
            if since is None:
                uids = await self.get_uids(folder, timeout=timeout)
            else:
                found = await self.search_messages_metadata_by_received_date(folder, since, timeout=timeout)
                uids = sorted({message.uid for message in found if message.uid is not None})
            return uids[::-1] if newest_first else uids

        get = functools.partial(Mailbox.get_messages_by_uids, folder=folder, timeout=timeout)
        return Listing(self._iter_in_batches(list_uids, get, batch_size, batch_bytes, limit))

    def iter_raw(
        self,
        folder: str = INBOX,
        *,
        batch_size: int = 50,
        batch_bytes: int | None = None,
        timeout: float | None = None,
    ) -> Listing[RawMessage]:
        """Yield all messages of `folder` in their original form, by ascending uid. Parameters: see `Mailbox`."""
        validate_listing(folder, timeout, batch_size, batch_bytes)
        list_uids = functools.partial(self.get_uids, folder, timeout=timeout)
        get = functools.partial(Mailbox.get_raw_messages_by_uids, folder=folder, timeout=timeout)
        return Listing(self._iter_in_batches(list_uids, get, batch_size, batch_bytes))

    def iter_metadata(self, folder: str = INBOX, *, timeout: float | None = None) -> Listing[MessageDetail]:
        """Yield the metadata of all messages of `folder`, while the response is being received."""
        validate_listing(folder, timeout)
        return Listing(self._stream_listing(operations.GET_MESSAGE_METADATA, folder, timeout))

    def stream_messages(self, folder: str = INBOX, *, timeout: float | None = None) -> Listing[MessageDetail]:
        """Yield all messages of `folder`, while a single response of any size is being received.

        Only one message is in memory at a time. If the response is cut off, the messages before that point are yielded,
        then an error is raised. The listing uses one of the service's connections until it ends. If you call the
        service for each message, set `max_connections` to at least 2.

        timeout: timeout in seconds. None: no limit, until the response pauses for `attempt_timeout` seconds.
        """
        validate_listing(folder, timeout)
        return Listing(self._stream_listing(operations.GET_MESSAGES, folder, timeout))

    def _make_uids_body(self, uids: Iterable[int], recipients: list[Recipient] | None = None) -> RequestBody:
        return self._encode_body(UidsRequest(auth=self._authentication, uids=list(uids), recipients=recipients or []))

    async def _get_count(self, operation: Operation[GetCountResponse], folder: str, timeout: float | None) -> int:
        response = await self._call(operation, folder, body=self._credentials, timeout=timeout)
        return response.count or 0

    async def _get_messages(
        self, operation: Operation[GetMessageResponse], *segments: str, timeout: float | None
    ) -> list[MessageDetail]:
        response = await self._call(operation, *segments, body=self._credentials, timeout=timeout)
        return response.messages

    async def _call_for_uids(
        self,
        operation: Operation[A],
        *segments: str,
        uids: Iterable[int],
        timeout: float | None,
        confirm: Confirmation[A] | None = None,
    ) -> A | None:
        listed = arguments.validate_uids(uids)
        operation.validate_segments(segments)
        if not listed:
            return None
        return await self._call(
            operation, *segments, body=self._make_uids_body(listed), timeout=timeout, confirm=confirm
        )

    async def _iter_in_batches(
        self,
        list_uids: Callable[[], Awaitable[list[int]]],
        get: Callable[..., Awaitable[list[M]]],
        batch_size: int,
        batch_bytes: int | None,
        limit: int | None = None,
    ) -> AsyncGenerator[M]:
        async def fetch(batch: list[int]) -> tuple[list[M] | ResponseDecodeError, int]:
            return await fetch_and_measure(self, lambda box: get(box, uids=batch))

        uids = await list_uids()
        window = self._transport.compute_max_in_flight(Service.MESSAGING)
        wanted = sys.maxsize if limit is None else limit
        while uids and wanted:  # again, with later uids, if the service left out some messages
            batches = Batches(uids[:wanted], batch_size=batch_size, window=window, batch_bytes=batch_bytes)
            uids = uids[wanted:]
            async with contextlib.aclosing(fetch_batches(batches, fetch)) as messages:
                async for message in messages:
                    yield message
                    wanted -= 1
                    if not wanted:
                        return

    def _stream_listing(
        self, operation: Operation[GetMessageResponse], folder: str, timeout: float | None
    ) -> AsyncGenerator[MessageDetail]:
        options, reader = self._options_with_timeout(timeout), MessageReader(operation, self.environment.codec)
        return self._transport.stream(operation, folder, body=self._credentials, options=options, reader=reader)
