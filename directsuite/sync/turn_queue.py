"""Whose turn it is: the mailboxes of one process, in the order in which they are due.

    later ──► ready, by two: in step, and behind ──► busy ──► later

Those with a backlog have half of the places at most, so that they hold up nobody. Each step costs the logarithm of how
many mailboxes there are.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable

import attrs


@attrs.define(eq=False, repr=False)
class _Queued:
    """A mailbox in the queue. place: the number of its newest entry. hastened: due anew when its turn ends."""

    name: str
    place: int = 0
    behind: bool = False
    busy: bool = False
    hastened: bool = False


_Heap = list[tuple[float, int, _Queued]]
"""When it is due (monotonic seconds), in which place among those due then, and who. Older entries are passed over."""

_AT_ONCE = float("-inf")


class TurnQueue:
    """Mailboxes, all of them due at `now` at first. places: how many have their turn at a time."""

    def __init__(self, names: Iterable[str], *, places: int, now: float) -> None:
        self._queued = {name: _Queued(name) for name in names}
        self._places = itertools.count(1)
        self._free = places
        self._free_for_backlogs = max(1, places // 2)
        self._later: _Heap = []
        self._ready: dict[bool, _Heap] = {False: [], True: []}
        for queued in self._queued.values():
            self._put(queued, now)

    def start(self, now: float) -> list[str]:
        """Mailboxes whose turn begins now, the longest due first."""
        while self._later and self._later[0][0] <= now:
            entry = heapq.heappop(self._later)
            if not _is_left_over(entry):
                heapq.heappush(self._ready[entry[2].behind], entry)
        started = list[str]()
        while self._free and (queued := self._next_ready()) is not None:
            queued.busy = True
            self._free -= 1
            self._free_for_backlogs -= queued.behind
            started.append(queued.name)
        return started

    def end(self, name: str, due: float, *, behind: bool) -> None:
        """A turn is over. behind: whether there is more to fetch."""
        queued = self._queued[name]
        self._free += 1
        self._free_for_backlogs += queued.behind
        queued.busy, queued.behind = False, behind
        self._put(queued, _AT_ONCE if queued.hastened else due)
        queued.hastened = False

    def hasten(self, name: str) -> None:
        """Have a mailbox due at once, before all others; where its turn is under way, anew after that."""
        queued = self._queued.get(name)
        if queued is None:
            return
        if queued.busy:
            queued.hastened = True
        else:
            self._put(queued, _AT_ONCE)

    def next_due(self) -> float | None:
        """When the next mailbox is due that isn't now; None where none will be until a turn ends."""
        while self._later and _is_left_over(self._later[0]):
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def _next_ready(self) -> _Queued | None:
        heaps = [self._ready[False], self._ready[True]] if self._free_for_backlogs > 0 else [self._ready[False]]
        for heap in heaps:
            while heap and _is_left_over(heap[0]):
                heapq.heappop(heap)
        heads = [heap for heap in heaps if heap]
        return heapq.heappop(min(heads))[2] if heads else None

    def _put(self, queued: _Queued, due: float) -> None:
        queued.place = next(self._places)
        heapq.heappush(self._later, (due, queued.place, queued))


def _is_left_over(entry: tuple[float, int, _Queued]) -> bool:
    _, place, queued = entry
    return queued.busy or queued.place != place
