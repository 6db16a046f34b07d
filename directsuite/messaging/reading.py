"""The part of a mailbox's facade that reads: counts, messages by several filters, metadata, raw messages.

None of it is assumed to mark a message as read.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from directsuite.core.operation import Operation
from directsuite.messaging import arguments, operations
from directsuite.messaging.account import Account, checked_uids
from directsuite.messaging.arguments import INBOX, flag
from directsuite.messaging.models import GetCountResponse, GetMessageResponse, MessageDetail, RawMessage


class Reading(Account):
    """What can be read of a mailbox."""

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
        listed = checked_uids(uids)
        operations.GET_MESSAGES_BY_UIDS.check((folder,))
        if not listed:
            return []
        body = self._uids_body(listed)
        answer = await self._call(operations.GET_MESSAGES_BY_UIDS, folder, body=body, timeout=timeout)
        return answer.messages

    async def get_unread_messages(self, folder: str = INBOX, *, timeout: float | None = None) -> list[MessageDetail]:
        """All unread messages.

        Operation GetUnreadMessages (specification 4.C).
        """
        return await self._messages(operations.GET_UNREAD_MESSAGES, folder, timeout=timeout)

    async def get_messages_by_received_date(
        self, folder: str, begin: datetime | None, end: datetime | None, *, timeout: float | None = None
    ) -> list[MessageDetail]:
        """Messages received from `begin` to `end`, both included, to the millisecond; None is open.

        Operation GetMessagesByReceivedDate (specification 4.C). Raises InvalidArgumentError for naive datetimes.
        """
        span = arguments.span_in_milliseconds(begin, end)
        return await self._messages(operations.GET_MESSAGES_BY_RECEIVED_DATE, folder, *span, timeout=timeout)

    async def get_messages_by_received_date_utc(
        self, folder: str, begin: datetime | None, end: datetime | None, *, timeout: float | None = None
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
        self, folder: str, begin: datetime | None, end: datetime | None, *, timeout: float | None = None
    ) -> list[MessageDetail]:
        """As `get_messages_by_received_date`, metadata only.

        Operation SearchMessagesMetadataByReceivedDate (specification 4.C).
        """
        span = arguments.span_in_milliseconds(begin, end)
        return await self._messages(operations.SEARCH_METADATA_BY_RECEIVED_DATE, folder, *span, timeout=timeout)

    async def search_messages_metadata_by_received_date_utc(
        self, folder: str, begin: datetime | None, end: datetime | None, *, timeout: float | None = None
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

    async def get_raw_messages_by_uids(
        self, folder: str, uids: Iterable[int], *, timeout: float | None = None
    ) -> list[RawMessage]:
        """The messages with these uids as they stand on the server, RFC 5322; with no uids, nothing is sent.

        Operation GetRawMessagesByUIDs (specification 4.C).
        """
        listed = checked_uids(uids)
        operations.GET_RAW_MESSAGES_BY_UIDS.check((folder,))
        if not listed:
            return []
        body = self._uids_body(listed)
        answer = await self._call(operations.GET_RAW_MESSAGES_BY_UIDS, folder, body=body, timeout=timeout)
        return answer.messages

    async def _has(self, folder: str) -> bool:
        wanted = folder.lower()
        return any(name.lower() == wanted for name in await self.get_folders())

    async def _count(self, operation: Operation[GetCountResponse], folder: str, timeout: float | None) -> int:
        answer = await self._call(operation, folder, body=self._credentials, timeout=timeout)
        return answer.count or 0

    async def _messages(
        self, operation: Operation[GetMessageResponse], *segments: str, timeout: float | None
    ) -> list[MessageDetail]:
        answer = await self._call(operation, *segments, body=self._credentials, timeout=timeout)
        return answer.messages
