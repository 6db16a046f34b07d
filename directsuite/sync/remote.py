"""A mailbox on the server: the requests of a synchronisation, and questions that compare several responses."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeGuard, TypeVar, cast

from directsuite.core.call import SKIP_DECODING, ExchangeInfo
from directsuite.core.outcome import ErrorScope, find_error_scope
from directsuite.core.retry import RetryPolicy
from directsuite.errors import DirectSuiteError, NotFoundError, ResponseDecodeError, ServiceError, TransportError
from directsuite.messaging.arguments import INBOX
from directsuite.messaging.listings import fetch_and_measure
from directsuite.messaging.models import MessageDetail
from directsuite.messaging.operations import CONTENT_PATHS
from directsuite.messaging.service import Mailbox
from directsuite.sync.decide import Match, UidListing, compute_sha256, find_match, has_content, is_storable
from directsuite.sync.model import MessageRow
from directsuite.wire.parsing import parse

_DATE_TOLERANCE_MS = 1000
"""Servers may store dates in seconds."""
_COMPARE_BATCH_MESSAGES = 20
_HASH_BYTES = 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TIME_MS = 253_402_300_799_000  # the last second of the year 9999


class ContradictionError(ResponseDecodeError):
    """Responses of the service contradict each other. What they do not affect is synchronised."""


class Remote:
    """A mailbox of the messaging service. Methods raise DirectSuiteError."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    async def list_folders(self) -> list[str]:
        """Return INBOX and the folders below it; "" for an unreadable name."""
        return sorted({INBOX, *await self._mailbox.get_folders()})

    async def count_messages(self, folder: str) -> int:
        """Call GetMessageCount."""
        return await self._mailbox.get_message_count(folder)

    async def list_uids(self, folder: str, etag: bytes | None = None) -> UidListing | None:
        """Call GetUIDs. Return None, without decoding the response, if its hash is `etag`."""
        bodies: list[bytes] = []

        def retain_body(exchanged: ExchangeInfo) -> object:
            bodies.append(exchanged.response.body)
            return SKIP_DECODING if compute_sha256(bodies[-1], _HASH_BYTES) == etag else None

        try:
            listed: Sequence[object] = await self._mailbox.with_observer(retain_body).get_uids(folder)
        except ResponseDecodeError as error:
            try:
                listed = _read_damaged_list(bodies[-1])
            except (IndexError, ValueError):
                raise error from None
        now = compute_sha256(bodies[-1], _HASH_BYTES)
        if now == etag:
            return None
        unusable = sum(not _is_uid(each) for each in listed)
        return UidListing(frozenset(filter(_is_uid, listed)), b"" if unusable else now, unusable)

    def iter_metadata(self, folder: str) -> AsyncIterator[MessageDetail]:
        """Call GetMessageMetaData. The response is decoded while it is received."""
        return self._mailbox.iter_metadata(folder)

    async def list_unread_uids(self, folder: str, max_count: int) -> frozenset[int] | None:
        """Return the uids of unread messages; None above `max_count`, or if two requests disagree."""
        mailbox = self._mailbox.with_options(retry=RetryPolicy.none())  # the read state is not worth a delay
        count = await mailbox.get_unread_message_count(folder)
        if count > max_count:
            return None
        messages = await mailbox.get_unread_messages(folder) if count else ()
        uids = frozenset(message.uid for message in messages if message.uid is not None)
        return uids if len(uids) == count else None

    async def list_metadata_between(self, folder: str, begin_ms: int, end_ms: int) -> Sequence[MessageDetail]:
        """Call SearchMessagesMetadataByReceivedDate with clamped times, because an end of 0 would mean no end."""
        begin, end = (min(max(first, each), _MAX_TIME_MS) for first, each in ((0, begin_ms), (1, end_ms)))
        times = (_EPOCH + timedelta(milliseconds=each) for each in (begin, end))
        return await self._mailbox.search_messages_metadata_by_received_date(folder, *times)

    async def fetch_messages(self, folder: str, uids: Sequence[int]) -> Sequence[MessageDetail]:
        """Call GetMessagesByUIDs."""
        return await self._mailbox.with_strict_paths(CONTENT_PATHS).get_messages_by_uids(folder, uids)

    async def fetch_and_measure(
        self, folder: str, uids: Sequence[int]
    ) -> tuple[Sequence[MessageDetail] | ResponseDecodeError, int]:
        """Call GetMessagesByUIDs. Return the messages, or the error if they are too large, and the size in bytes."""
        mailbox = self._mailbox.with_strict_paths(CONTENT_PATHS)
        return await fetch_and_measure(mailbox, lambda mailbox: mailbox.get_messages_by_uids(folder, uids))


def find_name_problem(folder: str) -> str | None:
    """Return why no request can contain a folder's name, as a predicate; None if one can."""
    if folder in ("", ".", ".."):
        return "consists of dots" if folder else "is empty"
    return "contains NUL" if "\0" in folder else None


def _read_damaged_list(body: bytes) -> list[object]:
    document = parse(body)
    members = cast("dict[str, object]", document) if isinstance(document, dict) else {}
    listed = members.get("uids")
    if members.get("success") is not True or not isinstance(listed, list):
        raise ValueError
    uids = cast("list[object]", listed)
    return [int(each) if isinstance(each, str) and re.fullmatch(r"[0-9]{1,19}", each) else each for each in uids]


def _is_uid(value: object) -> TypeGuard[int]:
    return type(value) is int and value >= 0 and is_storable(value)


_T = TypeVar("_T")


def may_be_about_messages(error: DirectSuiteError) -> bool:
    """Return True if a requested message may be the cause of an error."""
    return find_error_scope(error) in (ErrorScope.ITEM, ErrorScope.UNCERTAIN) and not isinstance(error, NotFoundError)


def has_unreadable_content(error: DirectSuiteError) -> bool:
    """Return True if the service returned a message with unreadable content, so that a retry is useless."""
    return isinstance(error, ResponseDecodeError) and error.path in CONTENT_PATHS


def may_mean_missing_folder(error: DirectSuiteError) -> bool:
    """Return True if the folder may not exist. The service has no error code for that."""
    return isinstance(error, ServiceError) and find_error_scope(error) is ErrorScope.ITEM


async def find_count(remote: Remote, folder: str) -> int | None:
    """Return the number of messages, or None if the service rejects this operation."""
    try:
        return await remote.count_messages(folder)
    except ServiceError as error:
        if find_error_scope(error) is not ErrorScope.ITEM:
            raise
        return None


async def require_agreement(remote: Remote, folder: str, listing: Collection[int], count: int | None) -> None:
    """Raise ContradictionError if no other operation agrees with a listing that lost many messages.

    Services have listed no uids although they still had the messages. If GetMessageCount reports more messages than are
    listed or is rejected, GetMessageMetaData must return messages, and only listed ones.

    count: the result of GetMessageCount; None if it is rejected.
    """
    if count is not None and count <= len(listing):
        return
    uids = {message.uid async for message in remote.iter_metadata(folder)}
    if not uids or not uids.issubset(listing):
        counts = "is rejected" if count is None else f"reports {count}"
        raise ContradictionError(
            f"GetUIDs lists {len(listing)} messages and GetMessageCount {counts}. No deletions "
            "were reported, and the folder is read again. If this continues, ask the service's provider."
        )


async def require_absence(remote: Remote, folder: str, uids: Sequence[int]) -> None:
    """Raise ContradictionError if GetMessagesByUIDs returns messages that GetUIDs does not list."""
    try:
        messages = await remote.fetch_messages(folder, uids)
    except DirectSuiteError as error:
        if isinstance(error, TransportError) or find_error_scope(error) not in (ErrorScope.ITEM, ErrorScope.UNCERTAIN):
            raise
        is_returned = has_unreadable_content(error) or (isinstance(error, ResponseDecodeError) and error.too_large)
        if not is_returned and len(uids) > 1:  # a service may reject all because of one missing message
            for part in split_in_half(uids):
                await require_absence(remote, folder, part)
    else:
        is_returned = any(message.uid in uids and not message.expunged for message in messages)
    if is_returned:
        raise ContradictionError(
            "GetMessagesByUIDs returns messages that GetUIDs does not list. No deletions were reported, and "
            "the folder is read again. If this continues, ask the service's provider."
        )


def split_in_half(items: Sequence[_T]) -> list[Sequence[_T]]:
    """Return the second and the first half of the items, for a stack; a single item in one part."""
    half = len(items) // 2
    return [items[half:], items[:half]] if half else [items]


async def has_same_message(remote: Remote, folder: str, row: MessageRow) -> bool | None:
    """Return False if the row's uid has a message with other content, True if nothing contradicts the row.

    Return None if the uid's metadata are missing or differ, and no content was compared.
    """
    if row.identity is None:
        return await compare_contents(remote, folder, [row]) is not False
    if row.received_ms is None and row.digest is not None:  # cheaper than the metadata of all messages
        content_is_same = await compare_contents(remote, folder, [row])
        if content_is_same is not None:
            return content_is_same
    message = await _fetch_metadata_near(remote, folder, row)
    match = Match.DIFFERENT if message is None else find_match(message, row)
    if match is Match.SAME:
        return True
    content_is_same = await compare_contents(remote, folder, [row])
    return True if content_is_same is None and match is not Match.DIFFERENT else content_is_same


async def _fetch_metadata_near(remote: Remote, folder: str, row: MessageRow) -> MessageDetail | None:
    if row.received_ms is None:
        found = [each async for each in remote.iter_metadata(folder) if each.uid == row.uid]
    else:
        begin, end = row.received_ms - _DATE_TOLERANCE_MS, row.received_ms + _DATE_TOLERANCE_MS
        found = [each for each in await remote.list_metadata_between(folder, begin, end) if each.uid == row.uid]
    return next(iter(found), None)


async def compare_contents(remote: Remote, folder: str, rows: Sequence[MessageRow]) -> bool | None:
    """Return False if any message differs from its row, True if one was compared and none differs, else None."""
    comparable, result = [row for row in rows if row.digest is not None], None
    for start in range(0, len(comparable), _COMPARE_BATCH_MESSAGES):
        compared = await _compare_batch_contents(remote, folder, comparable[start : start + _COMPARE_BATCH_MESSAGES])
        if compared is False:
            return False
        result = compared or result
    return result


async def _compare_batch_contents(remote: Remote, folder: str, rows: Sequence[MessageRow]) -> bool | None:
    try:
        messages = {each.uid: each for each in await remote.fetch_messages(folder, [row.uid for row in rows])}
    except DirectSuiteError as error:
        if not may_be_about_messages(error):
            raise
        if len(rows) == 1:
            return None
        compared = [await _compare_batch_contents(remote, folder, part) for part in split_in_half(rows)]
    else:
        compared = [has_content(messages[row.uid], row) for row in rows if row.uid in messages]
    return False if False in compared else True in compared or None
