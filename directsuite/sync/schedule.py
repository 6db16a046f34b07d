"""When the next round of each mailbox is due.

Schedule        the mailboxes of one process, by due time
PollSchedule    the pause between two polls of a mailbox, so that all polls fit into the requests per second
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence

import attrs

from directsuite.core.checks import INTERVAL, POSITIVE
from directsuite.core.clock import Clock
from directsuite.sync.model import RoundReport

_MIN_INTERVAL = 30.0  # seconds between two polls of a mailbox
_MIN_ACTIVE_INTERVAL = 10.0
_POLL_SHARE = 0.9  # of all requests; the rest is for fetching messages
_ACTIVE_POLL_SHARE = 0.25  # of all requests, for active mailboxes
_ACTIVE_SECONDS = 3600.0

_DUE_NOW = float("-inf")


@attrs.define(eq=False, repr=False)
class _ScheduledMailbox:
    name: str
    entry: int = 0
    """The number of its newest heap entry. Older ones are ignored."""
    has_backlog: bool = False
    busy: bool = False
    is_due_again: bool = False


class Schedule:
    """The mailboxes of one process, ordered by due time.

    Mailboxes with a backlog, which need another round immediately, get at most half of `concurrency`.
    """

    def __init__(self, names: Iterable[str], *, concurrency: int, now: float) -> None:
        self._scheduled = {name: _ScheduledMailbox(name) for name in names}
        self._entries = itertools.count(1)
        self._free = concurrency
        self._free_for_backlogs = max(1, concurrency // 2)
        # By has_backlog: due time in monotonic seconds, number of the entry, mailbox.
        self._heaps: dict[bool, list[tuple[float, int, _ScheduledMailbox]]] = {False: [], True: []}
        for scheduled in self._scheduled.values():
            self._push(scheduled, now)

    def start(self, now: float) -> list[str]:
        """Return the mailboxes to run now, longest due first, at most the free `concurrency`. `finish` frees it."""
        started = list[str]()
        while (heap := self._find_next_heap()) is not None and heap[0][0] <= now:
            scheduled = heapq.heappop(heap)[2]
            scheduled.busy = True
            self._free -= 1
            self._free_for_backlogs -= scheduled.has_backlog
            started.append(scheduled.name)
        return started

    def finish(self, name: str, due: float, *, has_backlog: bool) -> None:
        """Record the end of a round. due: monotonic seconds of the next one, ignored after `reschedule_now`."""
        scheduled = self._scheduled[name]
        self._free += 1
        self._free_for_backlogs += scheduled.has_backlog
        scheduled.busy, scheduled.has_backlog = False, has_backlog
        self._push(scheduled, _DUE_NOW if scheduled.is_due_again else due)
        scheduled.is_due_again = False

    def reschedule_now(self, name: str) -> None:
        """Make a mailbox due before all others; if it is busy, after its round. An unknown mailbox is ignored."""
        scheduled = self._scheduled.get(name)
        if scheduled is None:
            return
        if scheduled.busy:
            scheduled.is_due_again = True
        else:
            self._push(scheduled, _DUE_NOW)

    def find_next_due(self) -> float | None:
        """Return when the next mailbox can start, in monotonic seconds; None if a round must end first."""
        heap = self._find_next_heap()
        return None if heap is None else heap[0][0]

    def _find_next_heap(self) -> list[tuple[float, int, _ScheduledMailbox]] | None:
        heaps = [self._heaps[False]] if self._free else []
        if self._free and self._free_for_backlogs > 0:
            heaps.append(self._heaps[True])
        for heap in heaps:
            while heap and (heap[0][2].busy or heap[0][2].entry != heap[0][1]):
                heapq.heappop(heap)
        return min((heap for heap in heaps if heap), key=lambda heap: heap[0][:2], default=None)

    def _push(self, scheduled: _ScheduledMailbox, due: float) -> None:
        scheduled.entry = next(self._entries)
        heapq.heappush(self._heaps[scheduled.has_backlog], (due, scheduled.entry, scheduled))


class PollSchedule:
    """Computes the pause between two polls. A mailbox is active for an hour after a change.

    interval: seconds for an inactive mailbox; None: as often as the requests allow.
    folders: the folders of each mailbox; None: all, counted during the rounds.
    requests_per_second: shared by all processes.
    """

    def __init__(
        self,
        *,
        interval: float | None,
        folders: Sequence[str] | None,
        requests_per_second: float,
        clock: Clock,
    ) -> None:
        INTERVAL.allow_none().require("interval", interval)
        POSITIVE.require("requests_per_second", requests_per_second)
        self.mailboxes: int | None = None
        """The number of mailboxes in all processes; None: those of this one."""
        self._interval = interval
        self._is_learning = folders is None
        self._min_requests = 1 if folders is None else len(folders)
        self._requests_per_second = requests_per_second
        self._clock = clock
        self._requests: dict[str, int] = {}
        self._all_requests = 0
        self._active_until: dict[str, float] = {}
        """Ordered by time."""

    def learn(self, name: str, report: RoundReport) -> None:
        """Record the mailbox's requests per poll. If the report has changes, the mailbox is active."""
        requests = self._requests.get(name, self._min_requests)
        if self._is_learning:  # one for the list of folders, and one for each folder
            requests = max(requests, 1 + report.idle_folders + len(report.failed_folders))
        self._all_requests += requests - self._requests.get(name, 0)
        self._requests[name] = requests
        if report.changes.total() > 0:
            self._active_until.pop(name, None)
            self._active_until[name] = self._clock.monotonic() + _ACTIVE_SECONDS

    def forget(self, name: str) -> None:
        """Stop counting a mailbox's requests."""
        self._all_requests -= self._requests.pop(name, 0)
        self._active_until.pop(name, None)

    def compute_poll_delay(self, name: str, *, waiting: bool) -> float:
        """Return the seconds until the mailbox's next poll.

        waiting: True if the last round left something undecided, which shortens the pause.
        """
        while self._active_until and next(iter(self._active_until.values())) <= self._clock.monotonic():
            del self._active_until[next(iter(self._active_until))]
        hot = len(self._active_until) / max(1, len(self._requests))
        of_hot = max(_MIN_ACTIVE_INTERVAL, self._compute_poll_seconds(hot) / _ACTIVE_POLL_SHARE)
        of_all = self._interval or max(_MIN_INTERVAL, self._compute_poll_seconds(1.0) / _POLL_SHARE)
        if of_hot >= of_all:
            return of_all
        if waiting:  # at least _MIN_INTERVAL, because a missing message may come back
            return min(of_all, max(of_hot, _MIN_INTERVAL))
        if name in self._active_until:
            return of_hot
        if self._interval is not None:
            return self._interval
        return max(
            _MIN_INTERVAL,
            self._compute_poll_seconds(1.0 - hot) / (_POLL_SHARE - self._compute_poll_seconds(hot) / of_hot),
        )

    def _compute_poll_seconds(self, share: float) -> float:
        # For one poll of this share of all mailboxes.
        here = max(1, len(self._requests))
        mailboxes = here if self.mailboxes is None else self.mailboxes
        requests = (self._all_requests or self._min_requests) / here * mailboxes * share
        return requests / self._requests_per_second
