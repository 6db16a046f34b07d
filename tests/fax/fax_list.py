"""The faxes of a number, as a service lists them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta

import attrs

import directsuite as ds
from directsuite.fax.watching import FaxPoller, correct_since

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def make_fax(number: int, status: str = "complete", *, has_handle: bool = True) -> ds.FaxMessage:
    return ds.FaxMessage(
        message_handle=str(number) if has_handle else None,
        status=ds.FaxStatus(status),
        updated_ts=NOON + timedelta(minutes=number),
        description=str(number),
    )


def make_faxes(count: int, *, waiting: Collection[int] = (), has_handle: bool = True) -> list[ds.FaxMessage]:
    """Return faxes numbered from `count` - 1 to 0. Those in `waiting` are in progress."""
    return [
        make_fax(number, "waiting" if number in waiting else "complete", has_handle=has_handle)
        for number in reversed(range(count))
    ]


@attrs.define(eq=False, slots=False)
class FaxList:
    """The faxes of a number, newest first."""

    faxes: list[ds.FaxMessage]
    page_size: int = 10
    ignores_offset: bool = False
    """True if every page is the first one."""
    repeats_last_page: bool = False
    """True if the last page is also returned for offsets past the end."""
    ends_with_404: bool = False
    lag: int = 0
    """The number of newest faxes missing from every second page, as from a server that is behind."""
    on_request: Callable[[], None] = lambda: None
    """Called before each response. May raise an error."""
    offsets: list[int] = attrs.field(factory=list[int])
    """The requested pages."""
    handles: list[str] = attrs.field(factory=list[str])
    """The faxes that were requested by their handle."""
    seconds: float = 0.0
    """The monotonic time."""

    @property
    def requests(self) -> int:
        return len(self.offsets) + len(self.handles)

    async def get_page(self, offset: int) -> ds.FaxMessageInformation:
        self.offsets.append(offset)
        assert len(self.offsets) < 1_000, "the reading does not end"
        self.on_request()
        start = 0 if self.ignores_offset else offset
        start += self.lag if len(self.offsets) % 2 else 0
        if self.repeats_last_page and start >= len(self.faxes):
            start = (len(self.faxes) - 1) // self.page_size * self.page_size
        if self.ends_with_404 and start >= len(self.faxes):
            raise ds.NotFoundError("not found", status=404)
        return ds.FaxMessageInformation(message_detail=self.faxes[start : start + self.page_size])

    async def get_single(self, handle: str) -> ds.FaxMessageInformation:
        """Return a fax without its handle."""
        self.handles.append(handle)
        self.on_request()
        found = [attrs.evolve(each, message_handle=None) for each in self.faxes if each.message_handle == handle]
        if not found:
            raise ds.BadRequestError("there is none", status=400)
        return ds.FaxMessageInformation(message_handle=handle, message_detail=found)

    def add(self, count: int) -> None:
        """Add new complete faxes, with the next numbers."""
        first = int(self.faxes[0].description or "") + 1
        self.faxes[:0] = [make_fax(number) for number in reversed(range(first, first + count))]

    def add_before(self, request: int, count: int) -> None:
        """Add new faxes before the response to a request. The next one is number 1."""
        self._run_at((self.requests + request,), lambda: self.add(count))

    def fail(self, *requests: int, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Fail these requests, after a call of `meanwhile`. The next one is number 1."""

        def fail() -> None:
            meanwhile()
            raise ds.ServerError("it is broken", status=500)

        self._run_at([self.requests + each for each in requests], fail)

    def _run_at(self, requests: Collection[int], work: Callable[[], None]) -> None:
        def run() -> None:
            if self.requests in requests:
                work()

        self.on_request = run

    def watch(self, since: datetime | None = None, *, now: datetime = NOON, handle: str | None = None) -> FaxPoller:
        since = correct_since(since, now.timestamp())
        return FaxPoller(self.get_page, self.get_single, lambda: self.seconds, since, handle)
