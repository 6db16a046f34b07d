"""What a synchronisation asks of a mailbox, as a seam; how a Mailbox answers it; messages in batches of so many bytes.

A batch that fails is halved until the message is alone that makes it fail; that one is then asked for three times.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeGuard, TypeVar, cast, runtime_checkable

import attrs

from directsuite.core.call import NO_MORE, Exchanged
from directsuite.core.failures import Scope, scope_of
from directsuite.core.iteration import Prefetch
from directsuite.core.retry import RetryPolicy
from directsuite.errors import (
    DirectSuiteError,
    NotFoundError,
    ResponseDecodeError,
    ServiceError,
    TransportError,
)
from directsuite.messaging.arguments import INBOX
from directsuite.messaging.listings import Batch, Batches, measured
from directsuite.messaging.models import MessageDetail
from directsuite.messaging.operations import CONTENT_PATHS
from directsuite.messaging.service import Mailbox
from directsuite.sync.identity import digest_of, hashed, is_storable
from directsuite.wire.parsing import parse

_HASH = 16  # bytes
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_000  # the last second of the year 9999: Python has no later times


@attrs.frozen(repr=False)
class Listing:
    """The uids of a folder, ascending. mark: of the answer's bytes: an equal one has the same uids."""

    uids: array[int]
    mark: bytes
    unusable: int = 0
    """The number of listed values that are not uids. Each may replace the uid of any message."""

    @property
    def fingerprint(self) -> bytes:
        """Of the uids, however they were listed."""
        return hashed(self.uids.tobytes(), _HASH)


class ContradictionError(ResponseDecodeError):
    """Operations of the service contradict each other, or a response contradicts itself. The rest is synchronised."""


class Remote(Protocol):
    """One mailbox on the server. Every method raises DirectSuiteError."""

    async def folders(self) -> list[str]:
        """Return the names of all folders, including names that no request can contain."""
        ...

    async def count(self, folder: str) -> int:
        """Return the number of messages in a folder, from a different operation than `uids`."""
        ...

    async def uids(self, folder: str, mark: bytes | None = None) -> Listing | None:
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


@runtime_checkable
class SupportsReadState(Protocol):
    """A remote that can return which messages are unread."""

    async def unread_uids(self, folder: str, max_count: int) -> frozenset[int] | None:
        """Return the uids of the unread messages of a folder, or None if there are more than max_count."""
        ...


class DirectRemote:
    """A mailbox of the messaging service."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    async def folders(self) -> list[str]:
        """Names of all folders: INBOX, and what operation GetFolders lists below it."""
        return sorted({INBOX, *await self._mailbox.get_folders()})

    async def count(self, folder: str) -> int:
        """Operation GetMessageCount."""
        return await self._mailbox.get_message_count(folder)

    async def uids(self, folder: str, mark: bytes | None = None) -> Listing | None:
        """The listing of a folder: operation GetUIDs. An answer with the mark given isn't even decoded."""
        bodies: list[bytes] = []

        def keep_body(exchanged: Exchanged) -> object:
            """Keep the body of a response."""
            bodies.append(exchanged.answer.body)
            return NO_MORE if hashed(bodies[-1], _HASH) == mark else None

        try:
            listed: Sequence[object] = await self._mailbox.observed(keep_body).get_uids(folder)
        except ResponseDecodeError as error:
            try:
                listed = _read_damaged_list(bodies[-1])
            except (IndexError, ValueError):
                raise error from None
        now = hashed(bodies[-1], _HASH)
        if now == mark:
            return None
        uids = {each for each in listed if _is_uid(each)}
        unusable = sum(not _is_uid(each) for each in listed)
        return Listing(array("q", sorted(uids)), b"" if unusable else now, unusable)

    def metadata(self, folder: str) -> AsyncIterator[MessageDetail]:
        """Operation GetMessageMetaData, read while it comes."""
        return self._mailbox.iter_metadata(folder)

    async def unread_uids(self, folder: str, max_count: int) -> frozenset[int] | None:
        """Operation GetUnreadMessageCount, then GetUnreadMessages, if there are any and few. None if they disagree."""
        mailbox = self._mailbox.with_options(retry=RetryPolicy.none())  # the read state is not worth a wait
        count = await mailbox.get_unread_message_count(folder)
        if count > max_count:
            return None
        messages = await mailbox.get_unread_messages(folder) if count else ()
        uids = frozenset(message.uid for message in messages if message.uid is not None)
        return uids if len(uids) == count else None

    async def metadata_between(self, folder: str, begin_ms: int, end_ms: int) -> Sequence[MessageDetail]:
        """Operation SearchMessagesMetadataByReceivedDate, with times that it can express.

        A begin of 0 means no begin. An end of 0 would mean no end, so that the earliest end is 1.
        """
        begin, end = (min(max(first, each), _LAST_MS) for first, each in ((0, begin_ms), (1, end_ms)))
        times = (_EPOCH + timedelta(milliseconds=each) for each in (begin, end))
        return await self._mailbox.search_messages_metadata_by_received_date(folder, *times)

    async def messages(self, folder: str, uids: Sequence[int]) -> Sequence[MessageDetail]:
        """Operation GetMessagesByUIDs."""
        return await self._mailbox.requiring(CONTENT_PATHS).get_messages_by_uids(folder, uids)

    async def measured_messages(
        self, folder: str, uids: Sequence[int]
    ) -> tuple[Sequence[MessageDetail] | ResponseDecodeError, int]:
        """Operation GetMessagesByUIDs."""
        mailbox = self._mailbox.requiring(CONTENT_PATHS)
        return await measured(mailbox, lambda mailbox: mailbox.get_messages_by_uids(folder, uids))


def find_name_problem(folder: str) -> str | None:
    """Return what is wrong with a folder's name if no request can contain it, as the end of a sentence; else None."""
    if folder in ("", ".", ".."):
        return "consists of dots" if folder else "is empty"
    return "contains NUL" if "\0" in folder else None


def _read_damaged_list(body: bytes) -> list[object]:
    """Return the list of a GetUIDs response that could not be decoded. Raises ValueError if it has none."""
    document = parse(body)
    members = cast("dict[str, object]", document) if isinstance(document, dict) else {}
    listed = members.get("uids")
    if members.get("success") is not True or not isinstance(listed, list):
        raise ValueError
    uids = cast("list[object]", listed)
    return [int(each) if isinstance(each, str) and re.fullmatch(r"[0-9]{1,19}", each) else each for each in uids]


def _is_uid(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0 and is_storable(value)


MOST = 200
"""Messages of a batch."""
_BYTES = 4 * 1024 * 1024  # of an answer, aimed at
_WINDOW = 2  # batches under way or not read yet
_STRIKES = 3

_T = TypeVar("_T")


def may_be_about_messages(error: DirectSuiteError) -> bool:
    """Return True if a failure may be the fault of a message that was asked for; NotFoundError is about the folder."""
    return scope_of(error) in (Scope.ITEM, Scope.UNCERTAIN) and not isinstance(error, NotFoundError)


def has_unreadable_content(error: DirectSuiteError) -> bool:
    """Return True if the service returned a message whose content cannot be read, as it cannot the next time."""
    return isinstance(error, ResponseDecodeError) and error.path in CONTENT_PATHS


def says_no_such_folder(error: DirectSuiteError) -> bool:
    """Return True if the service rejected a request about a folder, which it does if the folder does not exist.

    The specification has no code for this reason only.
    """
    return isinstance(error, ServiceError) and scope_of(error) is Scope.ITEM


async def find_count(remote: Remote, folder: str) -> int | None:
    """Return the number of messages from GetMessageCount, or None if the service rejects this operation."""
    try:
        return await remote.count(folder)
    except ServiceError as error:
        if scope_of(error) is not Scope.ITEM:
            raise
        return None


async def require_agreement(remote: Remote, folder: str, listing: Collection[int], count: int | None) -> None:
    """Raise ContradictionError if no other operation agrees with a listing that lost many messages.

    Services have answered GetUIDs without uids while every other operation still showed the messages. If
    GetMessageCount reports more messages or is rejected, GetMessageMetaData must return messages of the listing only.
    """
    if count is not None and count <= len(listing):
        return
    uids = {message.uid async for message in remote.metadata(folder)}
    if not uids or not uids.issubset(listing):
        counts = "is rejected" if count is None else f"reports {count}"
        raise ContradictionError(
            f"GetUIDs lists {len(listing)} messages and GetMessageCount {counts}: nothing was deleted, and the "
            "folder is read again. If this continues, ask the service's provider."
        )


async def require_absence(remote: Remote, folder: str, uids: Sequence[int]) -> None:
    """Raise ContradictionError if GetMessagesByUIDs returns messages that GetUIDs does not list.

    Services may reject a request because of one message that does not exist. The others are then requested again.
    """
    try:
        messages = await remote.messages(folder, uids)
    except DirectSuiteError as error:
        if isinstance(error, TransportError) or scope_of(error) not in (Scope.ITEM, Scope.UNCERTAIN):
            raise
        is_returned = has_unreadable_content(error) or (isinstance(error, ResponseDecodeError) and error.too_large)
        if not is_returned and len(uids) > 1:
            for part in halves(uids):
                await require_absence(remote, folder, part)
    else:
        is_returned = any(message.uid in uids and not message.expunged for message in messages)
    if is_returned:
        raise ContradictionError(
            "GetMessagesByUIDs returns messages that GetUIDs does not list: nothing was deleted, and the folder is "
            "read again. If this continues, ask the service's provider."
        )


def halves(items: Sequence[_T]) -> list[Sequence[_T]]:
    """The second half and the first, of a batch that was refused; the whole where it is a single item."""
    half = len(items) // 2
    return [items[half:], items[:half]] if half else [items]


@attrs.frozen(kw_only=True, repr=False)
class Fetched:
    """The answer for some uids. failure: of the one that was asked for in vain."""

    uids: Sequence[int]
    messages: Sequence[MessageDetail] = ()
    digests: Sequence[bytes] = attrs.field(
        default=attrs.Factory(lambda fetched: [digest_of(each) for each in fetched.messages], takes_self=True)
    )
    """Of the messages, one each: made when they come, while what came before is written."""
    failure: DirectSuiteError | None = None


async def fetch_batches(remote: Remote, folder: str, uids: list[int], *, batches: int) -> AsyncGenerator[Fetched]:
    """So many batches of these messages, by ascending uid. Raises what is no fault of theirs."""
    cut = Batches(uids, most=MOST, window=_WINDOW, batch_bytes=_BYTES)

    async def fetch(batch: Batch) -> Fetched:
        """One batch, or its failure."""
        try:
            messages, batch.size = await remote.measured_messages(folder, batch.uids)
        except DirectSuiteError as failure:
            if not may_be_about_messages(failure):
                raise
            return Fetched(uids=batch.uids, failure=failure)
        if isinstance(messages, ResponseDecodeError):
            cut.came(batch, len(batch.uids))
            return Fetched(uids=batch.uids, failure=messages)
        cut.came(batch, len(messages))
        return Fetched(uids=batch.uids, messages=messages)

    keys = itertools.islice(cut, batches)
    async with Prefetch(keys, fetch, window=_WINDOW, has_room=cut.has_room) as answers:
        async for answer in answers:
            if answer.failure is None:
                yield answer
            else:
                async with contextlib.aclosing(_single_out(remote, folder, answer.uids)) as parts:
                    async for part in parts:
                        yield part
            cut.read()


async def fetch_one(remote: Remote, folder: str, uid: int) -> MessageDetail | None:
    """One message, asked for once; None where it isn't there, or can't be fetched. Raises what is no fault of it."""
    answer = await _fetch(remote, folder, [uid], 1)
    return next((each for each in answer.messages if each.uid == uid), None)


async def _single_out(remote: Remote, folder: str, uids: Sequence[int]) -> AsyncGenerator[Fetched]:
    """The messages of a batch that failed, in as many answers as it takes."""
    parts = halves(uids)
    while parts:
        part = parts.pop()
        answer = await _fetch(remote, folder, part, 1 if len(part) > 1 else _STRIKES)
        if answer.failure is None or len(part) == 1:
            yield answer
        else:
            parts += halves(part)


async def _fetch(remote: Remote, folder: str, uids: Sequence[int], times: int) -> Fetched:
    answer = Fetched(uids=uids)
    for _ in range(times):
        try:
            return Fetched(uids=uids, messages=await remote.messages(folder, uids))
        except DirectSuiteError as failure:
            if not may_be_about_messages(failure):
                raise
            answer = Fetched(uids=uids, failure=failure)
            if has_unreadable_content(failure):
                break
    return answer
