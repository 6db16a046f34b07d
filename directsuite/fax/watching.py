"""New and changed records of a fax number, poll by poll, with as few requests as show all of them.

    newest first   page ─► page ─► a page on which nothing is new: all after it was there before
                                     └─ of those, the ones still under way: their page where it has several of them,
                                        else each by its handle

A poll in which nothing happens costs one request, and one more for each older fax that is still under way. A watch of
one fax polls that one alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta

import attrs

from directsuite.core.clock import wait_until
from directsuite.core.failures import HOPELESS, Scope, scope_of
from directsuite.core.retry import Backoff
from directsuite.errors import BadRequestError, ClosedError, DirectSuiteError, InvalidArgumentError, NotFoundError
from directsuite.fax import operations
from directsuite.fax.models import FaxMessage, FaxMessageInformation, FaxStatus
from directsuite.fax.pages import FetchPage, PageReader, digest_of, key_of, keys_of

LONGEST = timedelta(days=1)
"""How long a fax may be under way, without a change, and still be seen to end."""

_MAX_AHEAD = timedelta(days=7)
"""How far `since` may be in the future. If it is further, the clock that set it says nothing about time."""

_LONGEST_PAUSE = 900.0  # seconds
_ENDS = (FaxStatus.COMPLETE, "failed")  # in any case; the specification doesn't name the latter


FetchSingle = Callable[[str], Awaitable[FaxMessageInformation]]
"""Gives the message of a handle."""

OnPoll = Callable[[DirectSuiteError | None, float], None]
"""What is told of a poll that isn't the last: why it failed, or None, and the seconds until the next."""


@attrs.frozen(repr=False)
class _Record:
    """How a record was seen last."""

    digest: bytes
    handle: str | None
    """The handle by which it can be requested; None if it has none."""
    under_way: bool
    since: float = attrs.field(eq=False)
    """The clock's time at which it was first seen to be so."""


@attrs.define(eq=False, repr=False)
class _Poll:
    """How far a poll has come."""

    seen: dict[str, _Record] = attrs.field(factory=dict[str, _Record])
    """The records of the pages, the newest first."""
    fresh: dict[str, FaxMessage] = attrs.field(factory=dict[str, FaxMessage])
    """Messages that are new or have changed, and were not given yet."""
    newest: dict[str, _Record] = attrs.field(factory=dict[str, _Record])
    """The records that came after the poll had failed."""
    older: dict[str, _Record] = attrs.field(factory=dict[str, _Record])
    """The records that are on none of the pages."""
    gone: set[str] = attrs.field(factory=set[str])
    """The keys of older records that are there no more."""
    offset: int = 0
    """Of the next page."""
    latest: frozenset[str] = frozenset()
    """The keys of the last page that was read, not counting those of `newest`."""
    page_size: int = 1
    """The number of messages of the largest page."""
    ended: bool = False
    """Whether there are no more pages to read."""
    cut: bool = False
    """Whether there may be records after the last page that was read."""


@attrs.define(eq=False, repr=False)
class FaxPoller:
    """What is known of a number's faxes, poll by poll."""

    fetch_page: FetchPage
    fetch_single: FetchSingle
    monotonic: Callable[[], float]
    """The clock, in seconds."""
    since: datetime | None = None
    """Records last updated before it are known to the caller."""
    handle: str | None = None
    """Of the fax that is watched alone."""
    unix_time: Callable[[], float] = time.time
    is_over: bool = attrs.field(default=False, init=False)
    """Whether that fax has come to its end, or is there no more."""
    _known: dict[str, _Record] = attrs.field(factory=dict[str, _Record], init=False)  # the newest first
    _poll: _Poll = attrs.field(factory=_Poll, init=False)
    _is_since_checked: bool = attrs.field(default=False, init=False)

    async def poll(self) -> Sequence[FaxMessage]:
        """What is new or has changed, the oldest first.

        After a failure `take_fresh` gives what was found until then. The next poll reads the newest pages, then goes on
        where the failed one ended.
        """
        poll = self._poll
        if self.handle is not None:
            await self._read_one(poll, self.handle)
        if poll.offset:
            await self._read_newest(poll)
        if not poll.ended:
            await self._read_pages(poll)
        records = poll.seen
        if poll.cut:
            records = poll.seen | await self._read_older(poll)
        self._known = records
        messages = self.take_fresh()
        self._poll = _Poll()
        return messages

    def take_fresh(self) -> Sequence[FaxMessage]:
        """What the poll that is under way has found and not yet given, the oldest first."""
        fresh = list(self._poll.fresh.values())[::-1]
        self._poll.fresh.clear()
        return sorted(fresh, key=_age_of)

    async def _read_one(self, poll: _Poll, handle: str) -> None:
        """Read the fax of this handle, and no page."""
        message = _named(await self.fetch_single(handle), handle)
        self._check_since(message)
        self._sift(message, poll, poll.seen)
        poll.ended = True
        self.is_over = not any(record.under_way for record in poll.seen.values())

    async def _read_newest(self, poll: _Poll) -> None:
        """Read what has come since the failed poll began: pages up to one of which it has seen all."""
        reader, has_new = PageReader(self.fetch_page), True
        while has_new and not reader.is_done:
            page = await reader.read()
            self._sift(page, poll, poll.newest)
            has_new = not keys_of(page) <= poll.seen.keys()
        poll.seen = poll.newest | poll.seen  # the newest first
        poll.offset += len(poll.newest)
        poll.newest = {}

    async def _read_pages(self, poll: _Poll) -> None:
        """Read pages up to one on which nothing is new.

        After a failure, continue at the last page that was read. Its messages may be at another offset, because new
        ones have arrived that the failed poll did or did not see, or because some were deleted. If the page is not
        found at its expected offset or a smaller one, all pages are read again.
        """
        has_failed = poll.offset > 0
        poll.offset = max(0, poll.offset - poll.page_size)
        reader = PageReader(self.fetch_page, poll.offset)
        while not poll.ended:
            page = await reader.read()
            if has_failed and poll.offset and keys_of(page).isdisjoint(poll.latest):
                poll.offset = max(0, poll.offset - poll.page_size)
                reader = PageReader(self.fetch_page, poll.offset)
                continue
            has_failed = False
            self._check_since(page)
            unchanged = self._sift(page, poll, poll.seen)
            poll.offset, poll.page_size = reader.offset, max(poll.page_size, len(page))
            poll.latest = keys_of(page)
            poll.ended = reader.is_done or unchanged or self._is_long_past(page)
            poll.cut = not reader.has_reached_end

    def _sift(self, page: Iterable[FaxMessage], poll: _Poll, into: dict[str, _Record]) -> bool:
        """Take in records, of each handle the poll's first. Return True if all were known as they are before it."""
        unchanged = True
        for message in page:
            key, record = _record_of(message, self.monotonic())
            earlier, before = self._known.get(key), poll.seen.get(key) or poll.newest.get(key) or poll.older.get(key)
            if before is None:
                before = into[key] = earlier if earlier is not None and earlier == record else record
                if before is not earlier and (earlier is not None or not self._is_the_callers(message)):
                    poll.fresh[key] = message
            unchanged &= before is earlier
        return unchanged

    async def _read_older(self, poll: _Poll) -> dict[str, _Record]:
        """The records after those of the pages, once those of them that are under way were read again."""
        older = {key: record for key, record in self._known.items() if key not in poll.seen}
        recently = self.monotonic() - LONGEST.total_seconds()
        pages = dict[int, list[str]]()
        for place, (key, record) in enumerate(older.items()):
            if record.under_way and record.since > recently:
                pages.setdefault(poll.offset + place // poll.page_size * poll.page_size, []).append(key)
        for at, keys in pages.items():
            if poll.gone.union(poll.older).issuperset(keys):
                continue
            if len(keys) > 1 or older[keys[0]].handle is None:
                with contextlib.suppress(NotFoundError):  # fewer stand before it by now: each is asked for alone
                    page = (await self.fetch_page(at)).message_detail
                    # Others are new ones, which the next poll reads. One without a handle may be a record that changed.
                    known = [each for each in page if not each.message_handle or key_of(each) in older]
                    self._sift(known, poll, poll.older)
            for key in keys:
                if key not in poll.older:
                    self._sift(await self._single(older[key].handle), poll, poll.older)
                if key not in poll.older:
                    poll.gone.add(key)
        return {key: poll.older.get(key, record) for key, record in older.items() if key not in poll.gone}

    async def _single(self, handle: str | None) -> Sequence[FaxMessage]:
        """The fax of this handle; none if there is no such fax any more, or if the record has no handle."""
        if handle is None:
            return ()
        try:
            return _named(await self.fetch_single(handle), handle)
        except (BadRequestError, NotFoundError):
            return ()

    def _check_since(self, newest: Sequence[FaxMessage]) -> None:
        """Correct a `since` in the future, once: it was set by a clock that was ahead, and would hide new faxes.

        It is in the future if it is later than the local time and than these records, the newest of the service. Then
        it is set back by a day or, if it is a week ahead or more, ignored.
        """
        if self.since is None or self._is_since_checked:
            return
        self._is_since_checked = True
        times = [message.updated_ts.timestamp() for message in newest if message.updated_ts is not None]
        ahead = self.since.timestamp() - max([self.unix_time(), *times])
        if ahead >= _MAX_AHEAD.total_seconds():
            self.since = None
        elif ahead > 0:
            self.since -= LONGEST

    def _is_the_callers(self, message: FaxMessage) -> bool:
        """Return True if the caller has this record, which is seen for the first time, from an earlier watch."""
        return self.since is not None and message.updated_ts is not None and message.updated_ts < self.since

    def _is_long_past(self, page: Iterable[FaxMessage]) -> bool:
        """Return True if the caller has all records of this page, and of those after it."""
        since = self.since
        return since is not None and all(
            message.updated_ts is not None and since - message.updated_ts > LONGEST for message in page
        )


async def watch(
    poller: FaxPoller,
    interval: float,
    sleep: Callable[[float], Awaitable[None]],
    closed: Callable[[], bool],
    on_poll: OnPoll | None,
) -> AsyncGenerator[FaxMessage]:
    """What polls give, one every `interval` seconds, until the suite is closed. One that fails gives what it found.

    Until one has succeeded, a refusal is raised: the number may be none that the service knows.
    """
    backoff = Backoff(interval, max(interval, _LONGEST_PAUSE))
    has_succeeded, failures = False, 0
    while True:
        wait, failure = interval, None
        try:
            messages = await poller.poll()
            has_succeeded, failures = True, 0
        except DirectSuiteError as error:
            if isinstance(error, ClosedError) and closed():
                return
            scope = scope_of(error)
            if scope in HOPELESS or (scope is Scope.ITEM and not has_succeeded):
                raise
            messages, failure = poller.take_fresh(), error
            failures += 1
            wait = backoff.after(failures, error.retry_after)
        for message in messages:
            yield message
        if poller.is_over:
            return
        if on_poll is not None:
            on_poll(failure, wait)
        try:
            await wait_until(poller.monotonic() + wait, poller.monotonic, sleep)
        except ClosedError:
            return


def _named(answer: FaxMessageInformation, handle: str) -> Sequence[FaxMessage]:
    """The message of an answer about one fax, which may leave out its handle; none where the answer has none."""
    return [attrs.evolve(each, message_handle=each.message_handle or handle) for each in answer.message_detail[:1]]


def _record_of(message: FaxMessage, now: float) -> tuple[str, _Record]:
    """A record's key, and how it is seen now."""
    digest = digest_of(message)
    under_way = message.status is not None and message.status.strip().casefold() not in _ENDS
    return key_of(message), _Record(digest, _usable_handle(message), under_way, now)


def _usable_handle(message: FaxMessage) -> str | None:
    """Return the message's handle, or None if it has none that a request can name, such as `..`."""
    try:
        operations.GET_SINGLE_MESSAGE_INFO.check(("0", message.message_handle or ""))
    except InvalidArgumentError:
        return None
    return message.message_handle


def _age_of(message: FaxMessage) -> tuple[bool, float]:
    """Sort key: the last update; a record without one goes first."""
    return (False, 0.0) if message.updated_ts is None else (True, message.updated_ts.timestamp())
