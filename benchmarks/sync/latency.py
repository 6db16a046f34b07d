"""`python -m benchmarks latency`: the time from the arrival of a message to its commit, simulated.

The schedule is the real one (`Schedule`, `PollSchedule`, `LocalRateLimiter`). Requests and commits are events with a
fixed duration, so that hours with thousands of mailboxes take seconds, and each run has the same result.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import mean, quantiles

import attrs

from benchmarks.processes import format_table, write_page
from directsuite.core.limits import LocalRateLimiter
from directsuite.sync.model import Kind, RoundReport
from directsuite.sync.synchronizer import PollSchedule, Schedule
from tests.core.virtual_time import ManualClock

_RATE, _BURST, _CONCURRENCY = 100.0, 150, 8  # the defaults
_REQUEST_SECONDS, _COMMIT_SECONDS = 0.05, 0.005
_HOURS = 6
_WARM_UP_SECONDS = 3_600.0  # not counted: at the start all mailboxes are polled simultaneously
_BUSY_INTERVAL, _QUIET_INTERVAL = 600.0, 43_200.0  # mean seconds between two messages

SETTINGS = {
    "100, 10 % of them busy": (100, 0.1, None),
    "1,000, 1 % of them busy": (1_000, 0.01, None),
    "1,000, 10 % of them busy": (1_000, 0.1, None),
    "1,000, 50 % of them busy": (1_000, 0.5, None),
    "1,000 with 7 folders each, 10 % of them busy": (1_000, 0.1, 7),
    "10,000, 1 % of them busy": (10_000, 0.01, None),
    "10,000, 10 % of them busy": (10_000, 0.1, None),
}
"""The number of mailboxes, the share of busy ones, and the folders of each; None for INBOX alone."""


@attrs.frozen(kw_only=True)
class Latency:
    """The result, in seconds.

    busy, quiet: p50 and p99 of messages to busy and to other mailboxes. longest_pause: between two polls of a mailbox
    without messages. fairness: the longest mean interval between polls of such a mailbox divided by the shortest.
    rate: requests per second.
    """

    messages: int
    busy: list[float]
    quiet: list[float]
    longest_pause: float
    fairness: float
    rate: float


class Simulation:
    """The schedule with simulated mailboxes."""

    def __init__(self, mailboxes: int, busy: float, folders: int | None = None, *, hours: float = _HOURS) -> None:
        self._folders = folders or 0
        self._rng = random.Random(1)
        self._end = hours * 3600
        self._clock = ManualClock()
        self._limiter = LocalRateLimiter(_RATE, _BURST, self._clock)
        polled = ["INBOX"] if folders is None else None
        self._polls = PollSchedule(interval=None, folders=polled, requests_per_second=_RATE, clock=self._clock)
        self._polls.mailboxes = mailboxes
        names = [str(number) for number in range(mailboxes)]
        self._busy = {*names[: round(mailboxes * busy)]}
        self._schedule = Schedule(names, concurrency=_CONCURRENCY, now=0.0)
        self._events = list[tuple[float, int, Callable[[], None]]]()
        self._numbers = itertools.count()
        self._arrived: dict[str, list[float]] = {name: [] for name in names}
        self._polled: dict[str, list[float]] = {name: [] for name in names}
        self._latencies: dict[bool, list[float]] = {True: [], False: []}
        self._with_messages = set[str]()
        self._requests = 0

    def run(self) -> Latency:
        """Simulate all events."""
        for name in self._arrived:
            self._plan_arrival(name)
        self._start_rounds()
        while self._events and self._events[0][0] <= self._end:
            self._clock.now, _, act = heapq.heappop(self._events)
            act()
        pauses = [
            [later - earlier for earlier, later in itertools.pairwise(polls)]
            for name, polls in self._polled.items()
            if name not in self._with_messages and len(polls) > 2
        ]
        busy, quiet = (quantiles(self._latencies[is_busy], n=100) for is_busy in (True, False))
        return Latency(
            messages=sum(map(len, self._latencies.values())),
            busy=[busy[49], busy[98]],
            quiet=[quiet[49], quiet[98]],
            longest_pause=max(map(max, pauses)),
            fairness=max(map(mean, pauses)) / min(map(mean, pauses)),
            rate=self._requests / (self._end - _WARM_UP_SECONDS),
        )

    def _plan(self, delay: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._clock.now + delay, next(self._numbers), act))

    def _plan_arrival(self, name: str) -> None:
        def arrive() -> None:
            self._arrived[name].append(self._clock.now)
            self._plan_arrival(name)

        interval = _BUSY_INTERVAL if name in self._busy else _QUIET_INTERVAL
        self._plan(self._rng.expovariate(1 / interval), arrive)

    def _start_rounds(self) -> None:
        for name in self._schedule.start(self._clock.now):
            self._resume(self._run_round(name))

    def _resume(self, steps: Iterator[float]) -> None:
        """Continue a round until it waits, and plan its continuation."""
        if (seconds := next(steps, None)) is not None:
            self._plan(seconds, lambda: self._resume(steps))

    def _request(self) -> Iterator[float]:
        while not self._limiter.try_acquire():
            yield self._limiter.seconds_until_slot() + 1e-9
        self._requests += self._clock.now >= _WARM_UP_SECONDS
        yield _REQUEST_SECONDS

    def _run_round(self, name: str) -> Iterator[float]:
        """List messages, fetch new ones, and commit. Yield the seconds that each step takes."""
        for _ in range(self._folders + 1):  # the list of folders, and each folder; for INBOX alone one request
            yield from self._request()
        new, self._arrived[name] = self._arrived[name], []
        if new:
            self._with_messages.add(name)
            yield from self._request()
            yield _COMMIT_SECONDS
        now = self._clock.now
        if now >= _WARM_UP_SECONDS:
            self._polled[name].append(now)
            self._latencies[name in self._busy] += [now - arrived for arrived in new]
        self._polls.learn(name, RoundReport(idle_folders=self._folders or 1, changes=Counter({Kind.NEW: len(new)})))
        pause = self._polls.compute_poll_delay(name, waiting=False) * self._rng.uniform(0.9, 1.1)
        self._schedule.finish(name, now + pause)
        self._plan(pause, self._start_rounds)
        self._start_rounds()


def measure_latency(options: argparse.Namespace) -> int:
    """Simulate all settings, and write latency.md."""
    rows = list[tuple[object, ...]]()
    for title, setting in SETTINGS.items():
        found = Simulation(*setting).run()
        busy, quiet = ("{:.0f} / {:.0f}".format(*each) for each in (found.busy, found.quiet))
        pause, fairness, rate = f"{found.longest_pause:.0f}", f"{found.fairness:.2f}", f"{found.rate:.0f}"
        rows.append((title, f"{found.messages:,}", busy, quiet, pause, fairness, rate))
    columns = "mailboxes", "messages", "busy, p50 / p99", "other, p50 / p99", "longest pause", "fairness"
    table = format_table((*columns, "requests per second"), rows)
    return write_page("latency.md", _PAGE.format(table=table), options.out)


_PAGE = f"""# From arrival to commit

`python -m benchmarks latency`: {_HOURS} simulated hours, of which the first is not counted, with the default limit of
{_RATE:.0f} requests per second, {_CONCURRENCY} simultaneous rounds, {_REQUEST_SECONDS * 1000:.0f} ms for a request and
{_COMMIT_SECONDS * 1000:.0f} ms for a commit. A busy mailbox receives a message every ten minutes on average, any other
mailbox two per day. Times are in seconds.

{{table}}

The longest pause is that between two polls of a mailbox without messages. Fairness is the longest mean pause of such a
mailbox, divided by the shortest.
"""
