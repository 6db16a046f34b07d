"""The facade of the messaging service: one Direct mailbox, with every operation of section 4.C in its order."""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Final, TypeVar

from directsuite.core.call import SETTLE_TIMEOUT, Confirmation, Exchanged
from directsuite.core.events import Progress, refuse_progress
from directsuite.core.facade import Facade
from directsuite.core.iteration import Listing
from directsuite.core.operation import Operation, Service
from directsuite.core.transport import Transport
from directsuite.core.upload import RequestBody
from directsuite.errors import InvalidArgumentError, ResponseDecodeError
from directsuite.messaging import arguments, email, operations, send_once
from directsuite.messaging.arguments import INBOX, flag, send_body
from directsuite.messaging.listings import MessageReader, fetched_in_batches, measured
from directsuite.messaging.models import (
    APIResponse,
    Authentication,
    DirectMessageStatusReportResponse,
    GetCountResponse,
    GetMessageResponse,
    Message,
    MessageDetail,
    MessageWithHeader,
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
from directsuite.messaging.send_once import Deadline
from directsuite.messaging.tracking import GIVE_UP_AFTER, Delivery, OnPoll, follow
from directsuite.secret import Secret, as_secret
from directsuite.wire.models import require_instances

M = TypeVar("M", MessageDetail, RawMessage)
A = TypeVar("A", bound=APIResponse)
S = TypeVar("S", bound=Message)

_DONE = APIResponse(success=True, code=0)
"""Stands for the answer of a change that was proven to have happened."""


class Mailbox(Facade):
    """A Direct mailbox: sending, delivery status, folders and messages. `suite.mailbox(...)`; needs `message_url`.

    Cheap: it holds no connection. Every method raises TransportError where no usable answer came, ServiceError where
    the service said no. A message that may have gone is sent again by `send_once(resend=True)` only: all others raise
    OutcomeUnknownError then. Reading is not assumed to mark a message as read.

    The methods that give a Listing (`iter_messages`, `iter_raw`, `iter_metadata`, `stream_messages`) read a whole
    folder, message by message. Each is an async generator and its own context manager; leaving `async with` early ends
    its requests at once. Messages that vanish meanwhile are passed over. `timeout` holds for each request.

    batch_size: the most messages that one request asks for. batch_bytes: what an answer is to hold, about: requests ask
    for fewer messages where those before turned out to be large, and at most as many answers are fetched ahead of the
    reader as twice the service's connections. None: all that is fetched ahead about 64 MB together. An answer that goes
    past max_response_bytes is asked for again in smaller ones; only a message that does so alone is an error.
    """

    def __init__(self, transport: Transport, username: str, password: str | Secret) -> None:
        super().__init__(transport)
        password = as_secret(password)
        self.username: Final = arguments.address(username, "username")
        """The Direct address whose mailbox this is."""
        self._authentication = Authentication(username=username, password=password)
        self._credentials = self._body(self._authentication)

    async def send(
        self, message: Message, *, progress: Progress | None = None, timeout: float | None = None
    ) -> SendMessageResponse:
        """Send a message; it is stored unread in INBOX.Sent.

        Operation Send (specification 4.C), or SendWithHeader where the message is a `MessageWithHeader`. progress: see
        `Progress`; it is told of all attachments together that are streamed (`Attachment.from_path`, `from_file`,
        `from_stream`), and of nothing where there is none. Without `timeout` such a message, and one with more than 256
        KB of contents in memory, takes as long as it flows: beyond the suite's `timeout`, a pause of `attempt_timeout`
        seconds ends it.
        """
        if isinstance(message, MessageWithHeader):
            return await self.send_with_header(message, progress=progress, timeout=timeout)
        message = self._checked(message)
        request = SendRequest(authentication=self._authentication, message=message)
        prepare = functools.partial(send_body, self._transport.codec, request, progress)
        return await self._call(operations.SEND, prepare=prepare, timeout=timeout)

    async def send_with_header(
        self, message: MessageWithHeader, *, progress: Progress | None = None, timeout: float | None = None
    ) -> SendMessageResponse:
        """Send a message with header lines of one's own; it is stored unread in INBOX.Sent.

        Operation SendWithHeader (specification 4.C). progress, timeout: as for `send`.
        """
        message = self._checked(message)
        request = SendRequestWithHeader(authentication=self._authentication, message=message)
        prepare = functools.partial(send_body, self._transport.codec, request, progress)
        return await self._call(operations.SEND_WITH_HEADER, prepare=prepare, timeout=timeout)

    async def send_once(
        self,
        message: Message,
        *,
        key: str | None = None,
        since: datetime | None = None,
        settle: float = SETTLE_TIMEOUT,
        resend: bool = False,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> SendMessageResponse:
        """Send a message; if the answer gets lost, look for the message in INBOX.Sent.

        Operation SendWithHeader (specification 4.C) with a header `X-Request-ID`, a hash of `key` that recipients see.
        key: your own name for this message, which makes the promise hold across a crash: call again with the same key
        and `since`, and a message that is there already is not sent again. settle: seconds to look for it, in which its
        request may still arrive. Raises OutcomeUnknownError where it may or may not have gone.

        since: the time of the first attempt, where there may have been one. The message is then looked for before it is
        sent, for the settle time from now, since the last attempt may just have been made. It is sent where it surely
        isn't there: INBOX.Sent has no message at all since a day before then, or this server was seen to show
        `X-Request-ID` in the metadata of one (other headers don't tell), and no other folder has it, into which
        somebody may have moved it. A message that was deleted for ever is found nowhere. Anything else raises
        OutcomeUnknownError, as does a `timeout` that is not longer than `settle`. An error of the search itself says
        nothing of the attempts before. A time in the future was set by a clock that was ahead: then all messages are
        searched, and OutcomeUnknownError is raised if it is not found.

        resend: where it isn't found in the settle time, send it again under the same key; only on a server that was
        seen to show such headers, and where `timeout`, which bounds all of it, leaves time. The second send's failure
        is told only where it is about the message itself, else as the cause of the first's. The event
        OutcomeLeftUnknown tells of the first request even where the second goes through, which leaves open what became
        of that one.

        progress: as for `send`; a second send begins at 0 again, and of the looks it is told nothing. timeout: bounds
        all of it, and is the suite's where it isn't given. Unlike `send`, a message that flows is not
        waited for beyond that: one whose streamed attachments take long to send needs a `timeout` that is long enough.
        """
        message = self._checked(message)
        send_once.refuse(key, since, settle)
        deadline = self._deadline(timeout)
        refuse_progress(progress)
        mark = send_once.request_id(self.username, secrets.token_hex(16) if key is None else key)
        message = send_once.marked(message, mark)
        request = SendRequestWithHeader(authentication=self._authentication, message=message)
        now = datetime.now(UTC)
        if since is None:
            sent = send_once.SentMessage(mark, now, deadline)
        else:
            began = since if since <= now else None
            sent = send_once.SentMessage(mark, began, deadline, skew=send_once.CLOCK_SKEW_BEFORE)
            polling, clock = self._transport.polling(settle), self.runtime.clock
            response = await send_once.find_earlier(sent, self._sent_since, self._filed_since, polling, clock)
            if response is not None:
                return response
        confirm = Confirmation(verify=functools.partial(sent.find, self._within_a_call()._sent_since), seconds=settle)

        async def attempt(seconds: float) -> SendMessageResponse:
            """One send, whose lost answer is looked for."""
            prepare = functools.partial(send_body, self._transport.codec, request, progress)
            return await self._call(operations.SEND_WITH_HEADER, prepare=prepare, timeout=seconds, confirm=confirm)

        return await send_once.send(attempt, sent, self._filed_since, settle=settle, resend=resend)

    async def forward(
        self,
        folder: str,
        uids: Iterable[int],
        recipients: Iterable[Recipient | str] = (),
        *,
        timeout: float | None = None,
    ) -> SendMessageResponse:
        """Forward messages of a folder; several go as attachments of one message, which is stored in INBOX.Sent.

        They are attached whole: the header of a message from INBOX.Sent names the recipients of its Bcc.
        Operation Forward (specification 4.C). Raises InvalidArgumentError where `uids` is empty.
        """
        listed = arguments.checked_uids(uids)
        if not listed:
            raise InvalidArgumentError("name at least one message to forward", parameter="uids")
        body = self._uids_body(listed, arguments.recipients(recipients))
        return await self._call(operations.FORWARD, folder, body=body, timeout=timeout)

    async def get_message_status(
        self, smtp_id: str, *, timeout: float | None = None
    ) -> DirectMessageStatusReportResponse:
        """How far a message has come, for each of its recipients. smtp_id: what `send` returned.

        Operation GetMessageStatus (specification 4.C).
        """
        return await self._call(operations.GET_MESSAGE_STATUS, smtp_id, body=self._credentials, timeout=timeout)

    async def get_message_statuses(
        self, smtp_ids: Iterable[str], *, timeout: float | None = None
    ) -> DirectMessageStatusReportResponse:
        """As `get_message_status`, for several messages in one request. With none, nothing is sent.

        Operation GetMessageStatus for many (specification 4.C).
        """
        listed = arguments.texts(smtp_ids, "smtp_ids")
        if not listed:
            return DirectMessageStatusReportResponse(success=True)
        body = self._body(SmtpIdsRequest(auth=self._authentication, smtp_ids=listed))
        return await self._call(operations.GET_MESSAGE_STATUS_MANY, body=body, timeout=timeout)

    async def track(
        self,
        smtp_id: str,
        *,
        recipients: int | Iterable[Recipient | str] = 1,
        give_up_after: float = GIVE_UP_AFTER,
        on_poll: OnPoll | None = None,
        timeout: float | None = None,
    ) -> Delivery:
        """Follow a message to its recipients, and return what became of it. smtp_id: what `send` returned.

        An end is Delivered, Locally Failed, Remotely Failed or NO MDN Received (after one hour); a confirmation that
        comes later is not waited for. It is polled with GetMessageStatus (specification 4.C): at once, after 5
        seconds, and at twice its age each time, eleven times within the hour. recipients: who they are, of whom one
        that is named twice is one, or how many, at the least; until so many are seen it isn't over, as it isn't while
        the service doesn't know it.

        give_up_after: seconds from now; what is known then is returned, `given_up`, or the error raised of a poll that
        fails then. A poll that fails before is made again; only what another would repeat, such as AuthenticationError,
        is raised at once. timeout: of each poll. on_poll: called after each poll that isn't the last, with the latest
        record of each recipient and the seconds until the next. For many messages, or across restarts:
        `directsuite.jobs.delivery`.
        """
        ask = functools.partial(self.get_message_status, smtp_id, timeout=timeout)
        return await follow(self, ask, smtp_id, recipients=recipients, give_up_after=give_up_after, on_poll=on_poll)

    async def get_message_count(self, folder: str = INBOX, *, timeout: float | None = None) -> int:
        """How many messages `folder` holds.

        Operation GetMessageCount (specification 4.C). Raises ServiceError if the folder does not exist.
        """
        return await self._count(operations.GET_MESSAGE_COUNT, folder, timeout)

    async def get_unread_message_count(self, folder: str = INBOX, *, timeout: float | None = None) -> int:
        """How many unread messages `folder` holds.

        Operation GetUnreadMessageCount (specification 4.C). Raises ServiceError if the folder does not exist.
        """
        return await self._count(operations.GET_UNREAD_MESSAGE_COUNT, folder, timeout)

    async def get_deleted_message_count(self, folder: str = INBOX, *, timeout: float | None = None) -> int:
        """How many deleted messages `folder` holds.

        Operation GetDeletedMessageCount (specification 4.C). Raises ServiceError if the folder does not exist.
        """
        return await self._count(operations.GET_DELETED_MESSAGE_COUNT, folder, timeout)

    async def get_messages_by_uids(
        self, folder: str, uids: Iterable[int], *, timeout: float | None = None
    ) -> list[MessageDetail]:
        """The messages with these uids. Uids that don't exist are passed over; with none, nothing is sent.

        Operation GetMessagesByUIDs (specification 4.C).
        """
        answer = await self._for_uids(operations.GET_MESSAGES_BY_UIDS, folder, uids=uids, timeout=timeout)
        return [] if answer is None else answer.messages

    async def get_unread_messages(self, folder: str = INBOX, *, timeout: float | None = None) -> list[MessageDetail]:
        """All unread messages.

        Operation GetUnreadMessages (specification 4.C).
        """
        return await self._messages(operations.GET_UNREAD_MESSAGES, folder, timeout=timeout)

    async def get_messages_by_received_date(
        self,
        folder: str = INBOX,
        begin: datetime | None = None,
        end: datetime | None = None,
        *,
        timeout: float | None = None,
    ) -> list[MessageDetail]:
        """Messages received from `begin` to `end`, both included, to the millisecond; None is open.

        Operation GetMessagesByReceivedDate (specification 4.C). Raises InvalidArgumentError for naive datetimes.
        """
        span = arguments.span_in_milliseconds(begin, end)
        return await self._messages(operations.GET_MESSAGES_BY_RECEIVED_DATE, folder, *span, timeout=timeout)

    async def get_messages_by_received_date_utc(
        self,
        folder: str = INBOX,
        begin: datetime | None = None,
        end: datetime | None = None,
        *,
        timeout: float | None = None,
    ) -> list[MessageDetail]:
        """Messages received from `begin` to `end`, both included, to the second; None is open.

        Operation GetMessagesByReceivedDateUTC (specification 4.C). Raises InvalidArgumentError for naive datetimes.
        """
        span = arguments.span_in_utc(begin, end)
        return await self._messages(operations.GET_MESSAGES_BY_RECEIVED_DATE_UTC, folder, *span, timeout=timeout)

    async def get_messages_by_sender(
        self, folder: str, sender: str, *, timeout: float | None = None
    ) -> list[MessageDetail]:
        """Messages from this sender.

        Operation GetMessagesBySender (specification 4.C).
        """
        return await self._messages(operations.GET_MESSAGES_BY_SENDER, folder, sender, timeout=timeout)

    async def get_messages_by_subject(
        self, folder: str, subject: str, *, timeout: float | None = None
    ) -> list[MessageDetail]:
        """Messages with this subject.

        Operation GetMessagesBySubject (specification 4.C).
        """
        return await self._messages(operations.GET_MESSAGES_BY_SUBJECT, folder, subject, timeout=timeout)

    async def get_messages(self, folder: str = INBOX, *, timeout: float | None = None) -> list[MessageDetail]:
        """All messages at once. For a large folder use `iter_messages`, or `stream_messages` for this very answer.

        Operation GetMessages (specification 4.C).
        """
        return await self._messages(operations.GET_MESSAGES, folder, timeout=timeout)

    async def get_message_metadata(self, folder: str = INBOX, *, timeout: float | None = None) -> list[MessageDetail]:
        """The metadata of all messages: no bodies, no contents of attachments.

        Operation GetMessageMetaData (specification 4.C).
        """
        return await self._messages(operations.GET_MESSAGE_METADATA, folder, timeout=timeout)

    async def search_messages_metadata_by_received_date(
        self,
        folder: str = INBOX,
        begin: datetime | None = None,
        end: datetime | None = None,
        *,
        timeout: float | None = None,
    ) -> list[MessageDetail]:
        """As `get_messages_by_received_date`, metadata only.

        Operation SearchMessagesMetadataByReceivedDate (specification 4.C).
        """
        span = arguments.span_in_milliseconds(begin, end)
        return await self._messages(operations.SEARCH_METADATA_BY_RECEIVED_DATE, folder, *span, timeout=timeout)

    async def search_messages_metadata_by_received_date_utc(
        self,
        folder: str = INBOX,
        begin: datetime | None = None,
        end: datetime | None = None,
        *,
        timeout: float | None = None,
    ) -> list[MessageDetail]:
        """As `get_messages_by_received_date_utc`, metadata only.

        Operation SearchMessagesMetadataByReceivedDateUTC (specification 4.C).
        """
        span = arguments.span_in_utc(begin, end)
        return await self._messages(operations.SEARCH_METADATA_BY_RECEIVED_DATE_UTC, folder, *span, timeout=timeout)

    async def get_uids(self, folder: str = INBOX, *, timeout: float | None = None) -> list[int]:
        """All uids in `folder`, ascending, each once: the cheapest way to see what changed.

        Operation GetUIDs (specification 4.C). Raises ServiceError if the folder does not exist.
        """
        answer = await self._call(operations.GET_UIDS, folder, body=self._credentials, timeout=timeout)
        return sorted(set(answer.uids))

    async def get_folders(
        self, root: str = INBOX, *, subscribed_only: bool = False, timeout: float | None = None
    ) -> list[str]:
        """The names of the folders below `root`.

        Operation GetFolders (specification 4.C).
        """
        segments = (root, flag(subscribed_only))
        answer = await self._call(operations.GET_FOLDERS, *segments, body=self._credentials, timeout=timeout)
        return answer.folders

    async def set_folders_subscribed(
        self, folders: Iterable[str], subscribed: bool, *, timeout: float | None = None
    ) -> list[str]:
        """Subscribe to folders, or end it; gives the folders that the service names. With none, nothing is sent.

        Operation SetFoldersSubscribed (specification 4.C).
        """
        listed = arguments.texts(folders, "folders")
        if not listed:
            return []
        request = SetFoldersSubscribedRequest(auth=self._authentication, folders=listed, subscribed=subscribed)
        body = self._body(request)
        return (await self._call(operations.SET_FOLDERS_SUBSCRIBED, body=body, timeout=timeout)).folders

    async def create_folder(self, folder: str, *, timeout: float | None = None) -> None:
        """Create a folder; its name starts with `INBOX.`.

        Operation CreateFolder (specification 4.C). Raises InvalidArgumentError for a name elsewhere or reserved.
        """
        arguments.new_folder(folder, "folder")
        within_call = self._within_a_call()

        async def created() -> APIResponse | None:
            """Success where the folder is there."""
            return _DONE if _is_listed(folder, await within_call.get_folders()) else None

        confirm = Confirmation(verify=created)
        await self._call(operations.CREATE_FOLDER, folder, body=self._credentials, timeout=timeout, confirm=confirm)

    async def move_folder(self, folder: str, new_folder: str, *, timeout: float | None = None) -> None:
        """Rename a folder, with what is in it.

        Operation MoveFolder (specification 4.C). Raises InvalidArgumentError for a reserved folder.
        """
        arguments.changeable_folder(folder, "folder")
        arguments.new_folder(new_folder, "new_folder")
        within_call = self._within_a_call()

        async def moved() -> APIResponse | None:
            """Success where the folder stands under its new name only."""
            names = await within_call.get_folders()
            is_moved = _is_listed(new_folder, names) and not _is_listed(folder, names) and "" not in names
            return _DONE if is_moved else None

        segments, confirm = (folder, new_folder), Confirmation(verify=moved)
        await self._call(operations.MOVE_FOLDER, *segments, body=self._credentials, timeout=timeout, confirm=confirm)

    async def delete_folder(self, folder: str, *, timeout: float | None = None) -> None:
        """Delete a folder with its messages and sub-folders.

        Operation DeleteFolder (specification 4.C). Raises InvalidArgumentError for a reserved folder. Never sent a
        second time: a late duplicate would destroy a folder made anew. Should its answer get lost, it has happened if
        GetFolders lists neither the folder nor anything below it, since that is the state asked for. Nothing proves the
        deletion of a folder outside `INBOX.`, which is never listed, nor of one whose name isn't plain ASCII or has
        a `&`, since IMAP spells such names in another way, and a listing may do so too.
        """
        arguments.changeable_folder(folder, "folder")
        within_call = self._within_a_call()

        async def deleted() -> APIResponse | None:
            """Success where the folder is gone with what was below it."""
            return _DONE if _is_deleted(folder, await within_call.get_folders(folder.rpartition(".")[0])) else None

        confirm = Confirmation(verify=deleted, seconds=SETTLE_TIMEOUT) if _shows_its_deletion(folder) else None
        await self._call(operations.DELETE_FOLDER, folder, body=self._credentials, timeout=timeout, confirm=confirm)

    async def copy_messages_by_uids(
        self,
        folder: str,
        dest_folder: str,
        uids: Iterable[int],
        *,
        verify: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Copy messages to another folder. With no uids, nothing is sent.

        Operation CopyMessagesByUIDs (specification 4.C). Never sent a second time. verify: note beforehand what is in
        the destination, so that an unknown outcome can be settled by the Message-IDs that are new there.
        """
        listed = arguments.checked_uids(uids)
        operations.COPY_MESSAGES_BY_UIDS.check((folder, dest_folder))
        if not listed:
            return
        confirm = None
        if verify:
            deadline = self._deadline(timeout)
            there = await self.get_message_metadata(folder, timeout=deadline.left())
            copied = frozenset(listed)
            message_ids = [message.msg_id for message in there if message.uid in copied]
            confirm = await self._arrival(dest_folder, message_ids, deadline)
            timeout = deadline.left()
        body = self._uids_body(listed)
        await self._call(
            operations.COPY_MESSAGES_BY_UIDS, folder, dest_folder, body=body, timeout=timeout, confirm=confirm
        )

    async def move_messages_by_uids(
        self, folder: str, dest_folder: str, uids: Iterable[int], *, timeout: float | None = None
    ) -> None:
        """Move messages to another folder, where they get new uids. With no uids, nothing is sent.

        Operation MoveMessagesByUIDs (specification 4.C).
        """
        listed = arguments.checked_uids(uids)
        confirm = self._gone(folder, listed)
        segments = (folder, dest_folder)
        await self._for_uids(operations.MOVE_MESSAGES_BY_UIDS, *segments, uids=listed, timeout=timeout, confirm=confirm)

    async def delete_messages_by_uids(
        self, folder: str, uids: Iterable[int], *, forever: bool = False, timeout: float | None = None
    ) -> None:
        """Move messages to INBOX.Trash or, with `forever`, remove them. With no uids, nothing is sent.

        Operation DeleteMessagesByUIDs (specification 4.C).
        """
        listed = arguments.checked_uids(uids)
        confirm = self._gone(folder, listed)
        segments = (folder, flag(forever))
        await self._for_uids(
            operations.DELETE_MESSAGES_BY_UIDS, *segments, uids=listed, timeout=timeout, confirm=confirm
        )

    async def mark_messages_as_read_by_uids(
        self, folder: str, uids: Iterable[int], *, timeout: float | None = None
    ) -> None:
        """Mark messages as read. With no uids, nothing is sent.

        Operation MarkMessagesAsReadByUIDs (specification 4.C).
        """
        await self._for_uids(operations.MARK_MESSAGES_AS_READ_BY_UIDS, folder, uids=uids, timeout=timeout)

    async def mark_messages_as_unread_by_uids(
        self, folder: str, uids: Iterable[int], *, timeout: float | None = None
    ) -> None:
        """Mark messages as unread. With no uids, nothing is sent.

        Operation MarkMessagesAsUnreadByUIDs (specification 4.C).
        """
        await self._for_uids(operations.MARK_MESSAGES_AS_UNREAD_BY_UIDS, folder, uids=uids, timeout=timeout)

    async def get_raw_messages_by_uids(
        self, folder: str, uids: Iterable[int], *, timeout: float | None = None
    ) -> list[RawMessage]:
        """The messages with these uids as they stand on the server, RFC 5322; with no uids, nothing is sent.

        Operation GetRawMessagesByUIDs (specification 4.C).
        """
        answer = await self._for_uids(operations.GET_RAW_MESSAGES_BY_UIDS, folder, uids=uids, timeout=timeout)
        return [] if answer is None else answer.messages

    async def save_raw_messages(
        self,
        folder: str,
        messages: Iterable[RawMessage],
        *,
        verify: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Append messages to a folder as they are, RFC 5322 in `data`. With none, nothing is sent.

        Operation SaveRawMessages (specification 4.C). Never sent a second time. verify: note beforehand what is in the
        folder, so that an unknown outcome can be settled by the Message-IDs that are new there.
        """
        listed = require_instances(messages, RawMessage, "messages")
        if not all(message.data for message in listed):
            raise InvalidArgumentError("each RawMessage needs data: the message's bytes", parameter="messages")
        operations.SAVE_RAW_MESSAGES.check((folder,))
        if not listed:
            return
        confirm = None
        if verify:
            deadline = self._deadline(timeout)
            message_ids = [email.message_id(message.data or b"") for message in listed]
            confirm = await self._arrival(folder, message_ids, deadline)
            timeout = deadline.left()
        body = self._body(RawMessagesRequest(auth=self._authentication, messages=listed))
        await self._call(operations.SAVE_RAW_MESSAGES, folder, body=body, timeout=timeout, confirm=confirm)

    def iter_messages(
        self,
        folder: str = INBOX,
        *,
        batch_size: int = 50,
        batch_bytes: int | None = None,
        timeout: float | None = None,
    ) -> Listing[MessageDetail]:
        """All messages of `folder`, by ascending uid, fetched in batches ahead of the reader.

        Operations GetUIDs, then GetMessagesByUIDs (specification 4.C).
        """
        _refuse(folder, batch_size, batch_bytes)

        async def get(box: Mailbox, uids: list[int]) -> list[MessageDetail]:
            """One batch of messages."""
            return await box.get_messages_by_uids(folder, uids, timeout=timeout)

        return Listing(self._in_batches(folder, batch_size, batch_bytes, timeout, get))

    def iter_raw(
        self,
        folder: str = INBOX,
        *,
        batch_size: int = 50,
        batch_bytes: int | None = None,
        timeout: float | None = None,
    ) -> Listing[RawMessage]:
        """All messages of `folder` as they stand on the server, by ascending uid, in batches ahead of the reader.

        Operations GetUIDs, then GetRawMessagesByUIDs (specification 4.C).
        """
        _refuse(folder, batch_size, batch_bytes)

        async def get(box: Mailbox, uids: list[int]) -> list[RawMessage]:
            """One batch of raw messages."""
            return await box.get_raw_messages_by_uids(folder, uids, timeout=timeout)

        return Listing(self._in_batches(folder, batch_size, batch_bytes, timeout, get))

    def iter_metadata(self, folder: str = INBOX, *, timeout: float | None = None) -> Listing[MessageDetail]:
        """The metadata of all messages of `folder`, from one answer read while it comes.

        Operation GetMessageMetaData (specification 4.C).
        """
        _refuse(folder)
        return Listing(self._streamed(operations.GET_MESSAGE_METADATA, folder, timeout))

    def stream_messages(self, folder: str = INBOX, *, timeout: float | None = None) -> Listing[MessageDetail]:
        """All messages of `folder`, from one answer of any size, read while it comes: one message in memory at a time.

        Operation GetMessages (specification 4.C). An answer that breaks off raises where it breaks, after the messages
        before that. Without `timeout` only a pause of `attempt_timeout` seconds ends it. It holds one of the service's
        connections until its end: a call made for each message needs another, so let `max_connections` leave one.
        """
        _refuse(folder)
        return Listing(self._streamed(operations.GET_MESSAGES, folder, timeout))

    def _uids_body(self, uids: Iterable[int], recipients: list[Recipient] | None = None) -> RequestBody:
        request = UidsRequest(auth=self._authentication, uids=list(uids), recipients=recipients or [])
        return self._body(request)

    def _checked(self, message: S) -> S:
        return arguments.checked_message(message, self.username)

    async def _count(self, operation: Operation[GetCountResponse], folder: str, timeout: float | None) -> int:
        answer = await self._call(operation, folder, body=self._credentials, timeout=timeout)
        return answer.count or 0

    async def _messages(
        self, operation: Operation[GetMessageResponse], *segments: str, timeout: float | None
    ) -> list[MessageDetail]:
        answer = await self._call(operation, *segments, body=self._credentials, timeout=timeout)
        return answer.messages

    async def _for_uids(
        self,
        operation: Operation[A],
        *segments: str,
        uids: Iterable[int],
        timeout: float | None,
        confirm: Confirmation[A] | None = None,
    ) -> A | None:
        """The answer to a request about messages that are named by uid; with none nothing is sent."""
        listed = arguments.checked_uids(uids)
        operation.check(segments)
        if not listed:
            return None
        return await self._call(operation, *segments, body=self._uids_body(listed), timeout=timeout, confirm=confirm)

    def _gone(self, folder: str, uids: list[int]) -> Confirmation[APIResponse]:
        """Confirmation that a repeat was refused because the first attempt had taken the messages away."""
        within_call = self._within_a_call()

        async def gone() -> APIResponse | None:
            """Success where none of them is left in the folder."""
            return _DONE if set(uids).isdisjoint(await within_call.get_uids(folder)) else None

        return Confirmation(verify=gone)

    async def _arrival(
        self, folder: str, message_ids: Iterable[str | None], deadline: Deadline
    ) -> Confirmation[APIResponse] | None:
        """Confirmation that messages were appended: their Message-IDs, new in the folder since now.

        None where a message has no Message-ID, so that nothing could prove its arrival.
        """
        listed = list(message_ids)
        expected = Counter(message_id.strip() for message_id in listed if message_id is not None)
        if not expected or None in listed:
            return None
        existing = frozenset(await self.get_uids(folder, timeout=deadline.left()))
        within_call = self._within_a_call()

        async def arrived() -> APIResponse | None:
            """Success where each is there, as often as it was to arrive."""
            now = await within_call.get_message_metadata(folder, timeout=deadline.left())
            new = Counter(message.msg_id for message in now if message.uid not in existing)
            return _DONE if all(new[message_id] >= times for message_id, times in expected.items()) else None

        return Confirmation(verify=arrived, seconds=SETTLE_TIMEOUT)

    def _deadline(self, timeout: float | None) -> Deadline:
        """Return the end of a method that makes several requests, by the rules of a single one."""
        return Deadline.after(self.time_limit(timeout))

    async def _sent_since(self, begin: datetime | None, timeout: float) -> list[MessageDetail]:
        return await self._received_since(send_once.SENT, begin, Deadline.after(timeout))

    async def _filed_since(self, begin: datetime | None, timeout: float) -> list[MessageDetail]:
        """Return the metadata of all folders but INBOX.Sent. Listed folders that no request can name are left out.

        Raises ResponseDecodeError for a name that cannot be read: the folder might have the message.
        """
        deadline, found = Deadline.after(timeout), list[MessageDetail]()
        names = await self.requiring(send_once.STRICT_NAMES).get_folders(timeout=deadline.left())
        for folder in (INBOX, *names):
            if _can_be_named(folder) and folder.casefold() != send_once.SENT.casefold():
                found += await self._received_since(folder, begin, deadline)
        return found

    async def _received_since(self, folder: str, begin: datetime | None, deadline: Deadline) -> list[MessageDetail]:
        """The metadata of a folder's messages from a time on; of all if the server's clock is far behind ours.

        The time is by our clock: if that is ahead, the messages that were received after it have earlier dates.
        """
        exchanges: list[Exchanged] = []
        view = self.requiring(send_once.STRICT_PATHS).observed(exchanges.append)
        search = view.search_messages_metadata_by_received_date
        found = await search(folder, begin, None, timeout=deadline.left())
        if begin is not None and exchanges and send_once.is_clock_ahead(exchanges[-1].answer.headers):
            found = await search(folder, None, None, timeout=deadline.left())
        return found

    async def _in_batches(
        self,
        folder: str,
        batch_size: int,
        batch_bytes: int | None,
        timeout: float | None,
        get: Callable[[Mailbox, list[int]], Awaitable[list[M]]],
    ) -> AsyncGenerator[M]:
        async def fetch(batch: list[int]) -> tuple[list[M] | ResponseDecodeError, int]:
            """One batch, and the size of its answer."""
            return await measured(self, lambda box: get(box, batch))

        uids = await self.get_uids(folder, timeout=timeout)
        window = self._transport.window(Service.MESSAGING)
        messages = fetched_in_batches(uids, fetch, most=batch_size, window=window, batch_bytes=batch_bytes)
        async with contextlib.aclosing(messages):
            async for message in messages:
                yield message

    def _streamed(
        self, operation: Operation[GetMessageResponse], folder: str, timeout: float | None
    ) -> AsyncGenerator[MessageDetail]:
        options, reader = self._timed(timeout), MessageReader(operation, self._transport.codec)
        return self._transport.stream(operation, folder, body=self._credentials, options=options, reader=reader)


def _refuse(folder: str, batch_size: int = 1, batch_bytes: int | None = None) -> None:
    operations.GET_UIDS.check((folder,))
    if type(batch_size) is not int or batch_size < 1:
        raise InvalidArgumentError("give a number of messages, 1 or more", parameter="batch_size")
    if batch_bytes is not None and (type(batch_bytes) is not int or batch_bytes < 1):
        raise InvalidArgumentError("give a number of bytes, 1 or more, or None", parameter="batch_bytes")


def _can_be_named(folder: str) -> bool:
    """Return True if a request can name this folder, which a server has listed."""
    try:
        operations.GET_UIDS.check((folder,))
    except InvalidArgumentError:
        return False
    return True


def _is_listed(folder: str, names: Iterable[str]) -> bool:
    return folder.lower() in (name.lower() for name in names)


def _shows_its_deletion(folder: str) -> bool:
    """Return True if GetFolders can prove that this folder was deleted.

    What is outside `INBOX.` is never listed; a name that isn't plain ASCII, or has a `&`, may be listed in the other
    spelling that IMAP has for it.
    """
    return folder.lower().startswith("inbox.") and folder.isascii() and "&" not in folder


def _is_deleted(folder: str, names: Iterable[str]) -> bool:
    """Return True if a listing of the parent's folders has neither this one nor any below it.

    An empty name is one that could not be read, and might be the folder's.
    """
    levels = folder.lower().split(".")
    spellings = {".".join(levels[start:]) for start in range(len(levels))}  # a listing may leave out what is above
    listed = [name.lower() for name in names]
    there = any(name.startswith(f"{spelling}.") or name == spelling for spelling in spellings for name in listed)
    parent_is_there = bool(listed) or len(levels) > 2  # INBOX itself always has its reserved folders
    return parent_is_there and not there and "" not in listed
