"""What a synchronisation asks of a mailbox, as a seam, and how a Mailbox answers it."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

import attrs

from directsuite.core.call import Exchanged
from directsuite.errors import ResponseDecodeError
from directsuite.messaging.arguments import INBOX
from directsuite.messaging.batches import measured
from directsuite.messaging.models import MessageDetail
from directsuite.messaging.service import Mailbox
from directsuite.sync.identity import is_storable

_HASH = 16  # bytes
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@attrs.frozen(repr=False)
class Listed:
    """The uids of a folder, ascending. mark: of the answer's bytes: an equal one has the same uids."""

    uids: array[int]
    mark: bytes

    @property
    def fingerprint(self) -> bytes:
        """Of the uids, however they were listed."""
        return hashlib.blake2b(self.uids.tobytes(), digest_size=_HASH).digest()


class Remote(Protocol):
    """One mailbox on the server. Every method raises DirectSuiteError."""

    async def folders(self) -> list[str]:
        """Names of all folders."""
        ...

    async def uids(self, folder: str, mark: bytes | None = None) -> Listed | None:
        """The listing of a folder; None where its mark is still the one given."""
        ...

    def metadata(self, folder: str) -> AsyncIterator[MessageDetail]:
        """The metadata of all messages of a folder, in any order."""
        ...

    async def metadata_between(self, folder: str, begin_ms: int, end_ms: int) -> Sequence[MessageDetail]:
        """The metadata of messages received between two times, in milliseconds since 1970, both included."""
        ...

    async def messages(self, folder: str, uids: Sequence[int]) -> Sequence[MessageDetail]:
        """The messages with these uids that are there, in any order."""
        ...

    async def measured_messages(
        self, folder: str, uids: Sequence[int]
    ) -> tuple[Sequence[MessageDetail] | ResponseDecodeError, int]:
        """As `messages`, or the error of too large an answer; and the bytes of the answer."""
        ...


class DirectRemote:
    """A mailbox of the messaging service."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    async def folders(self) -> list[str]:
        """Names of all folders: INBOX, and what operation GetFolders lists below it."""
        return sorted({INBOX, *await self._mailbox.get_folders()})

    async def uids(self, folder: str, mark: bytes | None = None) -> Listed | None:
        """The listing of a folder: operation GetUIDs."""
        marks: list[bytes] = []

        def told(exchanged: Exchanged) -> None:
            """Take the mark of an answer."""
            marks.append(hashlib.blake2b(exchanged.answer.body, digest_size=_HASH).digest())

        uids = await self._mailbox.observed(told).get_uids(folder)
        if marks[-1] == mark:
            return None
        if not all(map(is_storable, uids)):
            raise ResponseDecodeError("The service lists uids beyond 64 bits: ask its provider.")
        return Listed(array("q", sorted(set(uids))), marks[-1])

    def metadata(self, folder: str) -> AsyncIterator[MessageDetail]:
        """Operation GetMessageMetaData, read while it comes."""
        return self._mailbox.iter_metadata(folder)

    async def metadata_between(self, folder: str, begin_ms: int, end_ms: int) -> Sequence[MessageDetail]:
        """Operation SearchMessagesMetadataByReceivedDate."""
        begin, end = (_EPOCH + timedelta(milliseconds=each) for each in (max(0, begin_ms), end_ms))
        return await self._mailbox.search_messages_metadata_by_received_date(folder, begin, end)

    async def messages(self, folder: str, uids: Sequence[int]) -> Sequence[MessageDetail]:
        """Operation GetMessagesByUIDs."""
        return await self._mailbox.get_messages_by_uids(folder, uids)

    async def measured_messages(
        self, folder: str, uids: Sequence[int]
    ) -> tuple[Sequence[MessageDetail] | ResponseDecodeError, int]:
        """Operation GetMessagesByUIDs."""
        return await measured(self._mailbox, lambda mailbox: mailbox.get_messages_by_uids(folder, uids))
