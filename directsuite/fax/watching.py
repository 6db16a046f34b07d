"""New and changed records of a fax number, pass by pass, with as few requests as tell of all of them.

    newest first   page ─► page ─► a page on which nothing is new: all after it was there before
                                     └─ of those, the ones still under way: their page where it has several of them,
                                        else each by its handle

A pass in which nothing happens costs one request, and one more for each older fax that is still under way.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import attrs

from directsuite.core.waits import wait_until
from directsuite.errors import (
    AuthenticationError,
    BadRequestError,
    ClosedError,
    ConfigurationError,
    DirectSuiteError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from directsuite.fax.models import FaxMessage, FaxMessageInformation, FaxStatus

PAGE = 10
"""Messages that one answer of getMultipleMessageInfo holds (specification section 8)."""

LONGEST = timedelta(days=1)
"""How long a fax may be under way, without a change, and still be seen to end."""

_LONGEST_PAUSE = 900.0  # seconds
_LONGEST_ASKED = 3_600.0  # seconds; a service may ask for more by mistake (Retry-After)
_ENDS = (FaxStatus.COMPLETE, "failed")  # in any case; the specification doesn't name the latter
_HOPELESS = (AuthenticationError, ConfigurationError, InvalidArgumentError, PermissionDeniedError)


class Faxes(Protocol):
    """The two operations, for one fax number."""

    async def page(self, offset: int) -> FaxMessageInformation:
        """Ten messages, newest first, after so many of them."""
        ...

    async def single(self, message_handle: str) -> FaxMessageInformation:
        """One message."""
        ...


@attrs.frozen(repr=False)
class _Known:
    """How a record was seen last. handle: None where it is told apart by all that it says.

    since: the time of the clock when it was first seen to be so.
    """

    digest: bytes
    handle: str | None
    under_way: bool
    since: float = attrs.field(eq=False)


@attrs.define(eq=False, repr=False)
class _Look:
    """How far a look has come. seen: the records of the pages, the newest first; older: those of others.

    newest: those that came after it had failed. gone: keys of older ones that are there no more. offset: of the next
    page. ended: there are no more pages to read; cut: and there may be records after them.
    """

    seen: dict[str, _Known] = attrs.field(factory=dict[str, _Known])
    fresh: dict[str, FaxMessage] = attrs.field(factory=dict[str, FaxMessage])
    newest: dict[str, _Known] = attrs.field(factory=dict[str, _Known])
    older: dict[str, _Known] = attrs.field(factory=dict[str, _Known])
    gone: set[str] = attrs.field(factory=set[str])
    offset: int = 0
    ended: bool = False
    cut: bool = False


@attrs.define(eq=False, repr=False)
class FaxWatch:
    """What is known of a number's faxes. since: records last updated before it are known to the caller.

    monotonic: seconds.
    """

    faxes: Faxes
    monotonic: Callable[[], float]
    since: datetime | None = None
    _known: dict[str, _Known] = attrs.field(factory=dict[str, _Known], init=False)  # the newest first
    _begun: _Look = attrs.field(factory=_Look, init=False)

    async def look(self) -> Sequence[FaxMessage]:
        """What is new or has changed, the oldest first.

        One that fails is gone on with by the next, which looks at the newest before; `found` has what it found.
        """
        look = self._begun
        if look.offset:
            await self._read_newest(look)
        if not look.ended:
            await self._read_pages(look)
        known = look.seen
        if look.cut:
            known = look.seen | await self._look_at_older(look)
        self._known = known
        found = self.found()
        self._begun = _Look()
        return found

    def found(self) -> Sequence[FaxMessage]:
        """What the look that is under way has found, and nobody was told of yet, the oldest first."""
        fresh = list(self._begun.fresh.values())[::-1]
        self._begun.fresh.clear()
        return sorted(fresh, key=_age_of)

    async def _read_newest(self, look: _Look) -> None:
        """Read what has come since a look began that failed: pages up to one of which it has seen all."""
        offset, barren, has_new, read = 0, 0, True, set[str]()
        while has_new and barren < 2:  # as in `_read_pages`
            page = await page_at(self.faxes.page, offset)
            self._sift(page, look, look.newest)
            keys = {_record_of(each, 0.0)[0] for each in page}
            has_new = len(page) == PAGE and not keys <= look.seen.keys()
            barren = barren + 1 if keys <= read else 0
            read |= keys
            offset += PAGE
        look.seen = look.newest | look.seen  # the newest first
        look.offset += len(look.newest)
        look.newest = {}

    async def _read_pages(self, look: _Look) -> None:
        """Read pages up to one on which nothing is new.

        After a failure it goes on one earlier, or at the first before it that has anything of what was seen: some may
        be deleted.
        """
        has_failed = look.offset > 0
        look.offset = max(0, look.offset - PAGE)
        read, barren = set[str](), 0
        while not look.ended:
            page = await page_at(self.faxes.page, look.offset)
            if has_failed and look.offset and not any(_record_of(each, 0.0)[0] in look.seen for each in page):
                look.offset = max(0, look.offset - PAGE)
                continue
            has_failed = False
            before = len(read)
            read.update(_record_of(message, 0.0)[0] for message in page)
            unchanged = self._sift(page, look, look.seen)
            look.offset += PAGE
            # A page that came before may only have been shifted by new faxes; two running are a server that repeats.
            barren = barren + 1 if len(read) == before else 0
            look.ended = len(page) < PAGE or barren == 2 or unchanged or self._is_long_past(page)
            look.cut = len(page) == PAGE

    def _sift(self, page: Iterable[FaxMessage], look: _Look, into: dict[str, _Known]) -> bool:
        """Take in records, of each handle the first of the look; whether all were known as they are before it."""
        unchanged = True
        for message in page:
            key, record = _record_of(message, self.monotonic())
            known, before = self._known.get(key), look.seen.get(key) or look.newest.get(key) or look.older.get(key)
            if before is None:
                before = into[key] = known if known is not None and known == record else record
                if before is not known and (known is not None or not self._is_the_callers(message)):
                    look.fresh[key] = message
            unchanged &= before is known
        return unchanged

    async def _look_at_older(self, look: _Look) -> dict[str, _Known]:
        """The records after those of the pages, after a look at those of them that are under way."""
        older = {key: record for key, record in self._known.items() if key not in look.seen}
        recently = self.monotonic() - LONGEST.total_seconds()
        pages = dict[int, list[str]]()
        for place, (key, record) in enumerate(older.items()):
            if record.under_way and record.since > recently:
                pages.setdefault(look.offset + place // PAGE * PAGE, []).append(key)
        for at, keys in pages.items():
            if look.gone.union(look.older).issuperset(keys):
                continue
            if len(keys) > 1 or older[keys[0]].handle is None:
                with contextlib.suppress(NotFoundError):  # fewer stand before it by now: each is asked for alone
                    self._sift((await self.faxes.page(at)).message_detail, look, look.older)
            for key in keys:
                if key not in look.older:
                    self._sift(await self._single(older[key].handle), look, look.older)
                if key not in look.older:
                    look.gone.add(key)
        return {key: look.older.get(key, record) for key, record in older.items() if key not in look.gone}

    async def _single(self, handle: str | None) -> Sequence[FaxMessage]:
        """The fax of this handle; none where there is no such fax any more, or it is told apart by other means."""
        if handle is None:
            return ()
        try:
            found = (await self.faxes.single(handle)).message_detail
        except (BadRequestError, NotFoundError):
            return ()
        return [attrs.evolve(message, message_handle=message.message_handle or handle) for message in found[:1]]

    def _is_the_callers(self, message: FaxMessage) -> bool:
        """Whether the caller has a record that is seen for the first time, from an earlier watch."""
        return self.since is not None and message.updated_ts is not None and message.updated_ts < self.since

    def _is_long_past(self, page: Iterable[FaxMessage]) -> bool:
        """Whether the caller has all that stands on a page, and all that stands on those after it."""
        since = self.since
        return since is not None and all(
            message.updated_ts is not None and since - message.updated_ts > LONGEST for message in page
        )


async def watch(
    watched: FaxWatch, interval: float, sleep: Callable[[float], Awaitable[None]], closed: Callable[[], bool]
) -> AsyncGenerator[FaxMessage]:
    """What looks give, one every `interval` seconds, until the suite is closed. One that fails gives what it found.

    Until one has succeeded, a refusal is raised: the number may be none that the service knows.
    """
    hopeless: tuple[type[DirectSuiteError], ...] = (*_HOPELESS, BadRequestError, NotFoundError)
    failures = 0
    while True:
        wait = interval
        try:
            messages = await watched.look()
            failures, hopeless = 0, _HOPELESS
        except hopeless:
            raise
        except ClosedError:
            if closed():
                return
            raise
        except DirectSuiteError as error:
            messages = watched.found()
            pause_asked = min(_LONGEST_ASKED, error.retry_after or 0.0)
            wait = max(min(_LONGEST_PAUSE, interval * 2 ** min(failures, 10)), interval, pause_asked)
            failures += 1
        for message in messages:
            yield message
        try:
            await wait_until(watched.monotonic() + wait, watched.monotonic, sleep)
        except ClosedError:
            return


async def page_at(fetch: Callable[[int], Awaitable[FaxMessageInformation]], offset: int) -> Sequence[FaxMessage]:
    """Up to ten messages, newest first, after so many of them; fewer where they end. fetch: the page at an offset.

    The specification doesn't say what a service answers past the end: one may say 404. It may also say that of the
    moment, and what follows would never be seen: so the page one message before has to be short, as the last one is.
    Raises NotFoundError where it isn't, and at offset 0, where nothing is known of the number.
    """
    try:
        return (await fetch(offset)).message_detail
    except NotFoundError:
        if offset == 0:
            raise
        last = (await fetch(offset - 1)).message_detail
        if len(last) >= PAGE:
            raise
        return last


def _record_of(message: FaxMessage, now: float) -> tuple[str, _Known]:
    """A record's key, and how it is seen now."""
    digest = digest_of(message)
    under_way = message.status is not None and message.status.strip().casefold() not in _ENDS
    return message.message_handle or f"\0{digest.hex()}", _Known(digest, message.message_handle, under_way, now)


def digest_of(message: FaxMessage) -> bytes:
    """What tells a record from others, and from itself before a change."""
    return hashlib.blake2b(repr(attrs.astuple(message)).encode(), digest_size=16).digest()


def _age_of(message: FaxMessage) -> tuple[bool, float]:
    """Where it stands among others: by its last update; one without goes first."""
    return (False, 0.0) if message.updated_ts is None else (True, message.updated_ts.timestamp())
