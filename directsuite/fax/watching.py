"""Read the list of a fax number page by page, and watch it: poll for new and changed records with few requests.

The list starts with the newest message. If faxes arrive while it is read, later pages shift and repeat messages. The
page size differs between services. Therefore a short page, or one without new messages, is not the end of the list.

Terms: a *record* is the status of one fax. It is *active* if it has a status, and this is neither complete nor failed.
*Older* records are those after the last page that a poll has read. The *key* of a record is its handle or, if it has
none, a hash of the complete record.

    newest first   page ─► page ─► a page without new or changed records: all later records are older ones
                                     └─ active older records are also read: with their page if it has several of them,
                                        otherwise each by its handle

A poll makes one request if nothing has changed, and at most one more for each older active record.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta

import attrs

from directsuite.core.clock import wait_until
from directsuite.core.outcome import NOT_RETRYABLE, ErrorScope, find_error_scope
from directsuite.core.retry import Backoff
from directsuite.errors import BadRequestError, ClosedError, DirectSuiteError, InvalidArgumentError, NotFoundError
from directsuite.fax import operations
from directsuite.fax.models import FaxMessage, FaxMessageInformation, FaxStatus

FULL_PAGE_MESSAGES = 10
"""The page size of the specification (section 8). Some services have smaller pages."""

MAX_UNCHANGED_TIME = timedelta(days=1)
"""The time without a change after which an older active record is no longer polled."""

_MAX_PAUSE_SECONDS = 900.0
# Final statuses, in lower case. The specification does not define "failed".
_FINAL_STATUSES = (FaxStatus.COMPLETE, "failed")

FetchPage = Callable[[int], Awaitable[FaxMessageInformation]]
"""Requests the page that starts at an offset: the number of newest messages to skip."""

FetchSingle = Callable[[str], Awaitable[FaxMessageInformation]]
"""Requests the message with a handle."""

OnPoll = Callable[[DirectSuiteError | None, float], None]
"""Called after each poll except the last, with its error or None, and the number of seconds until the next poll."""


@attrs.define(eq=False, repr=False)
class PageReader:
    """Reads successive pages from `offset` to the end of the list."""

    _fetch: FetchPage
    offset: int = 0
    """The offset of the next page."""
    has_reached_end: bool = attrs.field(default=False, init=False)
    """True if there are no messages at `offset`."""
    is_repeating: bool = attrs.field(default=False, init=False)
    """True if the service returns the same messages at all further offsets."""
    # The keys on all pages.
    _seen_keys: set[str] = attrs.field(factory=set[str], init=False)
    # The keys on the latest page with a new message, and on the pages after it.
    _latest_keys: set[str] = attrs.field(factory=set[str], init=False)
    # The offset of the first of those pages.
    _latest_start: int = attrs.field(default=0, init=False)
    # The number of pages since then that had only messages of `_latest_keys`.
    _repeats: int = attrs.field(default=0, init=False)

    @property
    def is_done(self) -> bool:
        """True if no further page has new messages."""
        return self.has_reached_end or self.is_repeating

    async def read(self) -> Sequence[FaxMessage]:
        """Return the next page. At the end of the list it is empty, or only repeats messages of earlier pages.

        Some services respond with a 404 at the end of the list, but a 404 may also be a temporary failure. It is the
        end if the page that starts one message earlier is not full. That page is returned then. NotFoundError is raised
        if it is full or also a 404, or if the first page is a 404.
        """
        start = self.offset
        try:
            messages = (await self._fetch(start)).message_detail
        except NotFoundError:
            if start == 0:
                raise
            start -= 1
            messages = (await self._fetch(start)).message_detail
            if len(messages) >= FULL_PAGE_MESSAGES:
                raise
        end = start + len(messages)
        if end <= self.offset:
            self.has_reached_end = True
        else:
            await self._record_page(start, get_message_keys(messages))
        self.offset = max(end, self.offset)
        return messages

    async def may_hide_messages(self) -> bool:
        """Return True if the service returns the same full page at all offsets, so that other messages may exist."""
        if not self.is_repeating or len(self._latest_keys) < FULL_PAGE_MESSAGES:
            return False
        if self._latest_start and not await self._fetch_keys(0) <= self._latest_keys:
            return False
        second = await self._fetch_keys(1)
        return len(second) >= FULL_PAGE_MESSAGES and second <= self._latest_keys

    async def _record_page(self, start: int, keys: frozenset[str]) -> None:
        """Compare a page with earlier pages, and set `is_repeating`.

        After two pages with only messages of `_latest_keys`, the page at `_latest_start` is read again. If it has other
        messages now, new faxes have shifted the list. Otherwise the service ignores offsets, at least those after the
        end.
        """
        if not keys <= self._seen_keys:
            self._seen_keys |= keys
            self._latest_keys, self._latest_start, self._repeats = set(keys), start, 0
        elif (
            not keys <= self._latest_keys
        ):  # new faxes have shifted older pages here, or servers of the service alternate
            self._latest_keys |= keys
        else:
            self._repeats += 1
            if self._repeats > 1:
                self.is_repeating = await self._fetch_keys(self._latest_start) <= self._latest_keys
                if not self.is_repeating:
                    self._latest_keys, self._latest_start, self._repeats = set(keys), start, 0

    async def _fetch_keys(self, offset: int) -> frozenset[str]:
        return get_message_keys((await self._fetch(offset)).message_detail)


def get_message_keys(messages: Sequence[FaxMessage]) -> frozenset[str]:
    """Return the messages' keys."""
    return frozenset(map(get_message_key, messages))


def get_message_key(message: FaxMessage) -> str:
    """Return the message's key."""
    return message.message_handle or f"\0{compute_record_digest(message).hex()}"


def compute_record_digest(message: FaxMessage) -> bytes:
    """Return a hash of all fields of a record."""
    return hashlib.blake2b(repr(attrs.astuple(message)).encode(), digest_size=16).digest()


@attrs.frozen(repr=False)
class _Record:
    digest: bytes
    handle: str | None
    """The handle, or None if no request can contain it."""
    is_active: bool
    first_seen_at: float = attrs.field(eq=False)
    """The time at which this state was first seen, in monotonic seconds."""


@attrs.define(eq=False, repr=False)
class _Poll:
    """The progress of a poll, with records by key. If the poll fails, the next one continues it."""

    records: dict[str, _Record] = attrs.field(factory=dict[str, _Record])
    """The records on the pages that were read, newest first."""
    fresh: dict[str, FaxMessage] = attrs.field(factory=dict[str, FaxMessage])
    """The new or changed messages that were not returned yet."""
    newest: dict[str, _Record] = attrs.field(factory=dict[str, _Record])
    """The records that arrived after the poll had failed, newest first."""
    older: dict[str, _Record | None] = attrs.field(factory=dict[str, _Record | None])
    """The older records that were read again. None for those that no longer exist."""
    offset: int = 0
    last_page_keys: frozenset[str] = frozenset()
    """The keys of the last page that was read, not counting pages read for `newest`."""
    page_size: int = 1
    """The number of messages on the largest page."""
    is_complete: bool = False
    """True if all necessary pages were read."""
    may_have_older: bool = False


@attrs.define(eq=False, repr=False)
class FaxPoller:
    """Polls a fax number, or one fax, and remembers the known records."""

    fetch_page: FetchPage
    fetch_single: FetchSingle
    monotonic: Callable[[], float]
    since: datetime | None = None
    """The caller knows records that were last updated before this time. None: the caller knows none."""
    handle: str | None = None
    """The handle of the only fax to watch. None: watch all faxes of the number."""
    is_finished: bool = attrs.field(default=False, init=False)
    """True if the only fax to watch is not active any more."""
    # True if a poll has succeeded.
    _has_polled: bool = attrs.field(default=False, init=False)
    # Newest first.
    _known: dict[str, _Record] = attrs.field(factory=dict[str, _Record], init=False)
    _poll: _Poll = attrs.field(factory=_Poll, init=False)

    async def poll(self) -> Sequence[FaxMessage]:
        """Return the new and changed messages, sorted by time of update, earliest first.

        If it raises an error, `take_fresh` returns the messages found before it. The next poll reads the newest pages,
        and continues at the page at which this one stopped.
        """
        poll = self._poll
        if self.handle is not None:
            await self._read_single(poll, self.handle)
        if poll.offset:
            await self._read_newest(poll)
        if not poll.is_complete:
            await self._read_pages(poll)
        self._known = poll.records | (await self._read_older(poll) if poll.may_have_older else {})
        messages = self.take_fresh()
        self._poll, self._has_polled = _Poll(), True
        return messages

    def take_fresh(self) -> Sequence[FaxMessage]:
        """Return the messages that the poll has found since the last call, sorted as by `poll`."""
        fresh = list(self._poll.fresh.values())[::-1]
        self._poll.fresh.clear()
        return sorted(fresh, key=_get_update_sort_key)

    async def _read_single(self, poll: _Poll, handle: str) -> None:
        message = _fill_handle(await self.fetch_single(handle), handle)
        if not message:  # some services respond so instead of with a 404
            raise NotFoundError(
                "the response contains no fax", status=200, **operations.GET_SINGLE_MESSAGE_INFO.error_context
            )
        self._record_messages(message, poll, poll.records)
        poll.is_complete = True
        self.is_finished = not any(record.is_active for record in poll.records.values())

    async def _read_newest(self, poll: _Poll) -> None:
        """Read pages from the start, up to the first without records that arrived after the failed poll began."""
        reader, has_new = PageReader(self.fetch_page), True
        while has_new and not reader.is_done:
            page = await reader.read()
            self._record_messages(page, poll, poll.newest)
            has_new = not get_message_keys(page) <= poll.records.keys()
        poll.records = poll.newest | poll.records  # the newest first
        poll.offset += len(poll.newest)
        poll.newest = {}

    async def _read_pages(self, poll: _Poll) -> None:
        """Read pages up to one without new or changed records, or with only updates more than a day before `since`.

        After a failure, continue at the last page that was read. If none of its messages is at its offset, because
        messages were deleted, smaller offsets are tried. At offset 0, all pages are read again. The next poll does that
        if the service responds with a 404.
        """
        has_failed = poll.offset > 0
        poll.offset = max(0, poll.offset - poll.page_size)
        reader = PageReader(self.fetch_page, poll.offset)
        while not poll.is_complete:
            try:
                page = await reader.read()
            except NotFoundError:
                if has_failed:  # the list may be much shorter now
                    poll.offset = 0
                raise
            if has_failed and poll.offset and get_message_keys(page).isdisjoint(poll.last_page_keys):
                poll.offset = max(0, poll.offset - poll.page_size)
                reader = PageReader(self.fetch_page, poll.offset)
                continue
            has_failed = False
            unchanged = self._record_messages(page, poll, poll.records)
            poll.offset, poll.page_size = reader.offset, max(poll.page_size, len(page))
            poll.last_page_keys = get_message_keys(page)
            poll.is_complete = reader.is_done or unchanged or self._is_long_before_since(page)
            poll.may_have_older = not reader.has_reached_end

    def _record_messages(
        self, page: Iterable[FaxMessage], poll: _Poll, into: dict[str, _Record] | dict[str, _Record | None]
    ) -> bool:
        """Record the messages of a page in `into`, and the new or changed ones in `poll.fresh`.

        Return True if no message is new or changed. Messages that this poll has already read are ignored.
        """
        unchanged = True
        for message in page:
            key, record = get_message_key(message), _make_record(message, self.monotonic())
            earlier, before = self._known.get(key), poll.records.get(key) or poll.newest.get(key) or poll.older.get(key)
            if before is None:
                before = into[key] = earlier if earlier is not None and earlier == record else record
                if before is not earlier and (earlier is not None or not self._is_known_to_caller(message)):
                    poll.fresh[key] = message
            unchanged &= before is earlier
        return unchanged

    async def _read_older(self, poll: _Poll) -> dict[str, _Record]:
        """Read active older records again if they changed within a day. Return all older records that still exist."""
        older = {key: record for key, record in self._known.items() if key not in poll.records}
        recently = self.monotonic() - MAX_UNCHANGED_TIME.total_seconds()
        pages = dict[int, list[str]]()
        for place, (key, record) in enumerate(older.items()):
            if record.is_active and record.first_seen_at > recently:
                pages.setdefault(poll.offset + place // poll.page_size * poll.page_size, []).append(key)
        for at, keys in pages.items():
            if poll.older.keys() >= set(keys):
                continue
            if len(keys) > 1 or older[keys[0]].handle is None:
                # After a 404, because the list is shorter now, each record is requested by its handle.
                with contextlib.suppress(NotFoundError):
                    page = (await self.fetch_page(at)).message_detail
                    # The next poll reads new records. One without a handle may be a changed one, whose key has changed.
                    known = [each for each in page if not each.message_handle or get_message_key(each) in older]
                    self._record_messages(known, poll, poll.older)
            for key in keys:
                handle = older[key].handle
                if key not in poll.older and handle is not None:
                    with contextlib.suppress(BadRequestError, NotFoundError):
                        self._record_messages(_fill_handle(await self.fetch_single(handle), handle), poll, poll.older)
                poll.older.setdefault(key)
        found = {key: poll.older.get(key, record) for key, record in older.items()}
        return {key: record for key, record in found.items() if record is not None}

    def _is_known_to_caller(self, message: FaxMessage) -> bool:
        # After the first poll, a record that was not read by it is new, and only the service's clock may be behind.
        skew = MAX_UNCHANGED_TIME if self._has_polled else timedelta()
        return self.since is not None and message.updated_ts is not None and self.since - message.updated_ts > skew

    def _is_long_before_since(self, page: Iterable[FaxMessage]) -> bool:
        since = self.since
        return since is not None and all(
            message.updated_ts is not None and since - message.updated_ts > MAX_UNCHANGED_TIME for message in page
        )


def correct_since(since: datetime | None, now: float) -> datetime | None:
    """Return `since` set back by a day if it is in the future, or None if it is a day or more ahead.

    The clock that set it was ahead, so it may be later than faxes that the caller does not know.

    now: the Unix time.
    """
    ahead = 0.0 if since is None else since.timestamp() - now
    if since is None or ahead >= MAX_UNCHANGED_TIME.total_seconds():
        return None
    return since - MAX_UNCHANGED_TIME if ahead > 0 else since


async def watch(
    poller: FaxPoller,
    interval: float,
    sleep: Callable[[float], Awaitable[None]],
    is_closed: Callable[[], bool],
    on_poll: OnPoll | None,
) -> AsyncGenerator[FaxMessage]:
    """Poll every `interval` seconds, and yield new and changed messages. See `Fax.watch`.

    Ends when the suite is closed, or the poller's `is_finished` is True.
    """
    backoff = Backoff(interval, max(interval, _MAX_PAUSE_SECONDS))
    has_succeeded, failures = False, 0
    while True:
        wait, failure = interval, None
        try:
            messages = await poller.poll()
            has_succeeded, failures = True, 0
        except DirectSuiteError as error:
            if isinstance(error, ClosedError) and is_closed():
                return
            scope = find_error_scope(error)
            if scope in NOT_RETRYABLE or (scope is ErrorScope.ITEM and not has_succeeded):
                raise
            messages, failure = poller.take_fresh(), error
            failures += 1
            wait = backoff.compute_wait(failures, error.retry_after)
        for message in messages:
            yield message
        if poller.is_finished:
            return
        if on_poll is not None:
            on_poll(failure, wait)
        try:
            await wait_until(poller.monotonic() + wait, poller.monotonic, sleep)
        except ClosedError:
            return


def _fill_handle(response: FaxMessageInformation, handle: str) -> Sequence[FaxMessage]:
    return [attrs.evolve(each, message_handle=each.message_handle or handle) for each in response.message_detail[:1]]


def _make_record(message: FaxMessage, now: float) -> _Record:
    handle = message.message_handle
    try:
        operations.GET_SINGLE_MESSAGE_INFO.validate_segments(("0", handle or ""))
    except InvalidArgumentError:
        handle = None
    is_active = message.status is not None and message.status.strip().casefold() not in _FINAL_STATUSES
    return _Record(compute_record_digest(message), handle, is_active, now)


def _get_update_sort_key(message: FaxMessage) -> tuple[bool, float]:
    return (False, 0.0) if message.updated_ts is None else (True, message.updated_ts.timestamp())
