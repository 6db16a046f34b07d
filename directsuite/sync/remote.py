"""A mailbox on the server: requests, comparisons with the recorded messages, and the fetching of new ones.

The new messages of a folder are committed in the order of their uids:

    uids ──► batches ──► messages ──► NEW, MOVED or RESTORED, by their contents ──► one commit for each batch
                 └─ not returned ──► quarantined, and retried later
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeGuard, cast

import attrs

from directsuite.core.call import SKIP_DECODING, ExchangeInfo
from directsuite.core.iteration import Prefetch
from directsuite.core.outcome import ErrorScope, find_error_scope
from directsuite.core.retry import RetryPolicy
from directsuite.errors import (
    AuthenticationError,
    DirectSuiteError,
    NotFoundError,
    ResponseDecodeError,
    ServiceError,
)
from directsuite.messaging.arguments import INBOX
from directsuite.messaging.listings import Batch, Batches, fetch_and_measure
from directsuite.messaging.models import MessageDetail
from directsuite.messaging.operations import CONTENT_PATHS
from directsuite.messaging.service import Mailbox
from directsuite.sync import decide
from directsuite.sync.commits import ChangeStep, Commits
from directsuite.sync.decide import (
    Certainty,
    FolderMemory,
    FolderRow,
    FolderSnapshot,
    Match,
    UidListing,
    compute_sha256,
    find_match,
    has_content,
    is_storable,
    split_in_half,
)
from directsuite.sync.model import LISTED_STATES, Change, ChangeSet, MessageRow, MessageState, StoredFolder
from directsuite.wire.parsing import parse

_DATE_TOLERANCE_MS = 1000
"""Servers may store dates in seconds."""
_COMPARE_BATCH_MESSAGES = 20
_HASH_BYTES = 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TIME_MS = 253_402_300_799_000  # the last second of the year 9999

MIN_BATCHES_PER_ROUND = 16
"""Batches that a round may fetch from a small folder; limited, so that other mailboxes get their turn."""
MAX_ROUNDS_PER_FOLDER = 64
"""Rounds that fetch a large folder: few, because each reads the complete listing and all states."""

_MAX_MISSED_FETCHES = 3  # rounds in which a uid is listed but not returned, until it is quarantined
_MAX_ROUNDS_BLOCKED = 3  # rounds in which a folder waits for an unreadable one that may have its message
_FAILURES_BEFORE_PROBE = 5  # messages in a row that can't be fetched

MAX_BATCH_MESSAGES = 200
_TARGET_RESPONSE_BYTES = 4 * 1024 * 1024
_MAX_BATCHES_IN_FLIGHT = 2  # includes fetched batches that are not processed yet
_MAX_ATTEMPTS = 3

_MAYBE_KNOWN_TO_SINK = (MessageState.IN_DOUBT, MessageState.UNRESOLVED, MessageState.QUARANTINED_UNCONFIRMED)


class Remote:
    """A mailbox of the messaging service. Methods raise DirectSuiteError."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    async def list_folders(self) -> list[str]:
        """Return INBOX, which may be listed in any case, and the folders below it; "" for an unreadable name."""
        return sorted({INBOX, *(name for name in await self._mailbox.get_folders() if name.lower() != INBOX.lower())})

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


def may_be_about_messages(error: DirectSuiteError) -> bool:
    """Return True if a requested message may be the cause of an error."""
    return find_error_scope(error) in (ErrorScope.ITEM, ErrorScope.UNCERTAIN) and not isinstance(error, NotFoundError)


def has_unreadable_content(error: DirectSuiteError) -> bool:
    """Return True if the service returned a message with unreadable content, so that a retry is useless."""
    return isinstance(error, ResponseDecodeError) and error.path in CONTENT_PATHS


def may_mean_missing_folder(error: DirectSuiteError) -> bool:
    """Return True if the folder may not exist. The service has no error code for that."""
    return isinstance(error, ServiceError) and find_error_scope(error) is ErrorScope.ITEM


def is_listed(folder: str, names: Iterable[str]) -> bool:
    """Return True if a folder is one of the names, whose case the service ignores."""
    return folder.lower() in map(str.lower, names)


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


@attrs.frozen(kw_only=True, repr=False)
class FetchedBatch:
    """The messages returned for some uids, or the error of the request."""

    uids: Sequence[int]
    messages: Mapping[int | None, tuple[MessageDetail, bytes]] = attrs.field(
        factory=dict[int | None, tuple[MessageDetail, bytes]]
    )
    """By uid, each message with its digest, which is computed while the previous batch is written."""
    failure: DirectSuiteError | None = None


async def fetch_batches(remote: Remote, folder: str, uids: list[int], *, batches: int) -> AsyncGenerator[FetchedBatch]:
    """Yield at most `batches` batches, by ascending uid. Raises errors that the messages do not cause.

    A batch that fails is halved until the failing message is alone. That one is requested three times, and yielded with
    its error.
    """
    cut = Batches(
        uids, batch_size=MAX_BATCH_MESSAGES, window=_MAX_BATCHES_IN_FLIGHT, batch_bytes=_TARGET_RESPONSE_BYTES
    )

    async def fetch(batch: Batch) -> FetchedBatch:
        try:
            messages, batch.size = await remote.fetch_and_measure(folder, batch.uids)
        except DirectSuiteError as failure:
            if not may_be_about_messages(failure):
                raise
            return FetchedBatch(uids=batch.uids, failure=failure)
        if isinstance(messages, ResponseDecodeError):
            cut.record_received(batch, len(batch.uids))
            return FetchedBatch(uids=batch.uids, failure=messages)
        cut.record_received(batch, len(messages))
        return FetchedBatch(uids=batch.uids, messages=_add_digests(messages))

    keys = itertools.islice(cut, batches)
    async with Prefetch(keys, fetch, window=_MAX_BATCHES_IN_FLIGHT, has_room=cut.has_room) as fetched_batches:
        async for fetched in fetched_batches:
            if fetched.failure is None:
                yield fetched
            else:
                async with contextlib.aclosing(_single_out(remote, folder, fetched.uids)) as parts:
                    async for part in parts:
                        yield part
            cut.unread.popleft()


async def _single_out(remote: Remote, folder: str, uids: Sequence[int]) -> AsyncGenerator[FetchedBatch]:
    parts = split_in_half(uids)
    while parts:
        part = parts.pop()
        fetched = await _fetch(remote, folder, part, 1 if len(part) > 1 else _MAX_ATTEMPTS)
        if fetched.failure is None or len(part) == 1:
            yield fetched
        else:
            parts += split_in_half(part)


async def _fetch(remote: Remote, folder: str, uids: Sequence[int], times: int) -> FetchedBatch:
    fetched = FetchedBatch(uids=uids)
    for _ in range(times):
        try:
            return FetchedBatch(uids=uids, messages=_add_digests(await remote.fetch_messages(folder, uids)))
        except DirectSuiteError as failure:
            if not may_be_about_messages(failure):
                raise
            fetched = FetchedBatch(uids=uids, failure=failure)
            if has_unreadable_content(failure):
                break
    return fetched


def _add_digests(messages: Sequence[MessageDetail]) -> dict[int | None, tuple[MessageDetail, bytes]]:
    return {message.uid: (message, decide.compute_digest(message)) for message in messages}


@attrs.define(eq=False, repr=False, slots=False)
class FolderFetch:
    """Fetches new and quarantined messages of a folder.

    folders: the mailbox's folders, by name.
    """

    _commits: Commits = attrs.field(alias="commits")
    _remote: Remote = attrs.field(alias="remote")
    _snapshot: FolderSnapshot = attrs.field(alias="snapshot")
    _folders: Mapping[str, FolderMemory] = attrs.field(alias="folders")

    def __attrs_post_init__(self) -> None:
        self._state = self._snapshot.state
        uids = self._snapshot.uids
        self._listed = uids if self._state.certainty is Certainty.CONFIRMED else None
        self._uids_to_fetch = self._snapshot.uids_to_fetch
        self._max_batches = max(MIN_BATCHES_PER_ROUND, len(uids) // (MAX_ROUNDS_PER_FOLDER * MAX_BATCH_MESSAGES))
        self._unread: frozenset[int] | None = None
        self._other_listings: dict[str, frozenset[int] | None] = {}
        self._unreadable = set[str]()
        self._still_there = set[tuple[int, int, int]]()
        """Rows whose message this round found there, so that many copies of a message are compared only once."""
        self._metadata: dict[int | None, MessageRow] | None = None
        self._failures_in_a_row = 0

    async def fetch_new(self) -> bool:
        """Fetch and commit new messages, up to the round's limit or to a message that the service does not return.

        Return True if none is left, and no rejection by the sink is undecided.
        """
        done = 0
        if self._uids_to_fetch and self._commits.needs_read_state:
            self._unread = await self._fetch_unread_uids()
        batches = fetch_batches(self._remote, self._state.name, self._uids_to_fetch, batches=self._max_batches)
        async with contextlib.aclosing(batches):
            async for batch in batches:
                taken = await self._process_batch(batch)
                done += taken
                if taken < len(batch.uids):
                    break
        return done == len(self._uids_to_fetch) and self._state.name not in self._commits.undecided

    async def _fetch_unread_uids(self) -> frozenset[int] | None:
        """Return the uids of unread messages; None if too many or the request fails. Raises AuthenticationError."""
        # Only a few, because the service returns them only with their contents.
        is_first_time = self._state.folder.audited_ms is None
        max_count = MAX_BATCH_MESSAGES if is_first_time else min(len(self._uids_to_fetch), MAX_BATCH_MESSAGES)
        try:
            return await self._remote.list_unread_uids(self._state.name, max_count)
        except AuthenticationError:  # repeated logins with a wrong password may lock the account
            raise
        except DirectSuiteError:
            return None

    async def _process_batch(self, batch: FetchedBatch) -> int:
        """Return how many messages were committed or quarantined. The next round continues with the others.

        Raises the batch's error if the service seems to be the cause.
        """
        if batch.failure is not None:
            await self._quarantine(batch.uids[0], type(batch.failure).__name__)
            self._failures_in_a_row += 1
            if self._failures_in_a_row % _FAILURES_BEFORE_PROBE == 0 and not await self._can_any_be_fetched():
                raise batch.failure
            return 1
        self._state.missed_fetches.update(_find_missed(batch.uids, batch.messages))
        done = 0
        while done < len(batch.uids):
            returned = list(itertools.takewhile(batch.messages.__contains__, batch.uids[done:]))
            self._failures_in_a_row = 0 if returned else self._failures_in_a_row
            committed = await self._commit(returned, batch.messages)
            done += committed
            if committed < len(returned) or done == len(batch.uids):
                break
            if not await self._skip_missed(batch.uids[done], is_empty=not batch.messages):
                break
            done += 1
        return done

    async def retry(self, row: MessageRow) -> None:
        """Fetch a quarantined message again. Commit it, or one more failed attempt if it is not returned."""
        fetched = await _fetch(self._remote, self._state.name, [row.uid], 1)
        if row.uid in fetched.messages:
            await self._commit([row.uid], fetched.messages)
            return
        await self._commits.write(ChangeSet(rows=[decide.with_failed_attempt(row, self._commits.now_ms())]))

    async def _commit(self, uids: Sequence[int], messages: Mapping[int | None, tuple[MessageDetail, bytes]]) -> int:
        """Commit the messages of `uids`. Return the number committed.

        Stop at a message that differs from the recorded one, and mark the folder as SUSPECT.
        """
        recorded = await self._read_rows(uids)
        digests = {messages[uid][1] for uid in uids} | {row.digest for row in recorded.values() if row.digest}
        origins: defaultdict[bytes | None, list[FolderRow]] = defaultdict(list)
        for name, row in await self._commits.store.with_digests(self._commits.lease, digests):
            if row.key not in self._still_there:
                origins[row.digest].append((name, row))
        steps, folders = list[ChangeStep](), list[StoredFolder]()
        for uid in uids:
            (message, digest), own = messages[uid], recorded.get(uid)
            attempts = 0 if own is None else own.attempts
            row = decide.make_row(message, self._state.folder, uid, digest, attempts)
            if own is not None and own.digest not in (None, digest):
                if not decide.has_content(message, own):
                    self._state.certainty = Certainty.SUSPECT
                    break
                # The date or size could not be read this time.
                row = attrs.evolve(own, state=MessageState.LIVE, retry_ms=None)
            origin = await self._find_origin(row, origins[row.digest])
            if origin is not None:
                origins[row.digest].remove(origin)
                folders += self._invalidate_other_folder(*origin)
            before = None if origin is None else origin[1]
            steps.append(ChangeStep(change=self._make_change(message, row, origin), row=row, origin=before))
        if steps:
            folders += self._state.invalidate_listing()
        await self._commits.deliver(steps, folders)
        return len(steps)

    async def _read_rows(self, uids: Sequence[int]) -> dict[int, MessageRow]:
        known = self._snapshot.recorded.keys() & uids
        rows = await self._commits.store.rows(self._state.folder, known) if known else ()
        return {row.uid: row for row in rows}

    async def _find_origin(self, row: MessageRow, candidates: list[FolderRow]) -> FolderRow | None:
        """Return the earlier row that the message has left; None for a copy or an unknown message.

        Remove the rows that it has not left from the candidates.
        """
        for origin in decide.rank_origins(row, candidates):
            if decide.has_surely_left(row, origin[1]) or not await self._may_be_there(*origin):
                return origin
            candidates.remove(origin)
        return None

    async def _may_be_there(self, name: str, row: MessageRow) -> bool:
        """Return True if the row's message may still be there.

        An unreadable folder raises its error in the first rounds, then counts as True.
        """
        if name in self._unreadable:
            return True
        try:
            is_there = await self._is_there(name, row)
        except DirectSuiteError as error:
            if row.folder == self._state.folder.id or not may_be_about_messages(error):
                raise
            self._state.rounds_blocked_by[name] += 1
            if self._state.rounds_blocked_by[name] < _MAX_ROUNDS_BLOCKED and not may_mean_missing_folder(error):
                raise
            self._unreadable.add(name)
            return True
        del self._state.rounds_blocked_by[name]
        return is_there

    async def _is_there(self, name: str, row: MessageRow) -> bool:
        if row.folder == self._state.folder.id:
            listed = self._listed
        else:  # listed after this folder, so that a message that moved here is not in that listing
            if name not in self._other_listings:
                self._other_listings[name] = await self._list_other_folder(name)
            listed = self._other_listings[name]
        if listed is not None and row.uid not in listed:
            return False
        if await has_same_message(self._remote, name, row):
            self._still_there.add(row.key)
            return True
        if listed is not None and name in self._folders:
            self._folders[name].certainty = Certainty.SUSPECT
        return False

    async def _list_other_folder(self, name: str) -> frozenset[int] | None:
        """Return a folder's uids; an empty set if it was deleted, None if its listing is unreliable."""
        try:
            listed = await self._remote.list_uids(name)
        except ServiceError as error:
            if not may_mean_missing_folder(error) or is_listed(name, await self._remote.list_folders()):
                raise
            return frozenset()
        if listed is None or listed.unusable_count:
            return None
        state = self._folders.get(name)
        if state is not None:
            snapshot = FolderSnapshot(state, listed, await self._commits.store.states(state.folder))
            if snapshot.has_lost_many and await self._remote.count_messages(name) > len(listed.uids):
                return None
        return listed.uids

    def _invalidate_other_folder(self, name: str, row: MessageRow) -> list[StoredFolder]:
        # Otherwise the message would not be fetched if it came back.
        if row.state not in LISTED_STATES or name not in self._folders or row.folder == self._state.folder.id:
            return []
        state = self._folders[name]
        if state.certainty is not Certainty.SUSPECT:
            state.certainty = Certainty.UNCONFIRMED
        return state.invalidate_listing()

    def _make_change(self, message: MessageDetail, row: MessageRow, origin: FolderRow | None) -> Change:
        return Change(
            kind=decide.change_kind(row, None if origin is None else origin[1]),
            key=self._commits.make_key(self._state.name, row),
            previous=None if origin is None else self._commits.make_key(*origin),
            message=message,
            digest=decide.to_hex(row.digest),
            is_read=None if self._unread is None else row.uid not in self._unread,
        )

    async def _can_any_be_fetched(self) -> bool:
        # If neither a sentinel nor the newest message can be fetched, the service is the cause.
        recorded = [row.uid for row in await self._commits.store.sentinels(self._state.folder)]
        for uid in (*recorded, self._uids_to_fetch[-1]):
            with contextlib.suppress(DirectSuiteError):
                if await self._remote.fetch_messages(self._state.name, [uid]):
                    return True
        return False

    async def _skip_missed(self, uid: int, *, is_empty: bool) -> bool:
        """Quarantine a message that several responses lacked. Before that, return False: it may have been deleted.

        Raises ResponseDecodeError if the service returns no messages at all.
        """
        if self._state.missed_fetches[uid] < _MAX_MISSED_FETCHES:
            return False
        if is_empty and len(self._uids_to_fetch) > 1 and not await self._can_any_be_fetched():
            raise ResponseDecodeError("The service lists messages, but does not return them. Ask its provider.")
        del self._state.missed_fetches[uid]
        problem = (
            "The folder lists the message, but the service does not return it. If this persists, ask its provider."
        )
        await self._quarantine(uid, problem)
        return True

    async def _quarantine(self, uid: int, problem: str) -> None:
        if self._metadata is None:  # read once for the round; that also shows that the service responds
            expected = frozenset(self._uids_to_fetch[: self._max_batches * MAX_BATCH_MESSAGES])
            messages = self._remote.iter_metadata(self._state.name)
            try:
                self._metadata = {
                    each.uid: decide.make_row(each, self._state.folder, each.uid)
                    async for each in messages
                    if each.uid is not None and each.uid in expected
                }
            except ServiceError as error:
                if not may_mean_missing_folder(error):
                    raise
                self._metadata = {}
        recorded, folder = (await self._read_rows([uid])).get(uid), self._state.folder
        maybe_known = recorded is not None and recorded.state in _MAYBE_KNOWN_TO_SINK
        state = MessageState.QUARANTINED_UNCONFIRMED if maybe_known else MessageState.POISON
        row = self._metadata.get(uid) or MessageRow(folder.id, folder.uid_validity, uid, state)
        row = attrs.evolve(row, state=state, digest=None if recorded is None else recorded.digest)
        row = decide.with_failed_attempt(row, self._commits.now_ms())
        problems = {row.key: problem}
        await self._commits.write(ChangeSet(rows=[row], problems=problems, folders=self._state.invalidate_listing()))
        self._commits.report.quarantined += 1


def _find_missed(uids: Sequence[int], returned: Collection[int | None]) -> list[int]:
    """Return missing uids: the first, and all before the last returned uid. A later response may contain the others."""
    last = max((place for place, uid in enumerate(uids) if uid in returned), default=0)
    absent = [(place, uid) for place, uid in enumerate(uids) if uid not in returned]
    return [uid for number, (place, uid) in enumerate(absent) if number == 0 or place < last]
