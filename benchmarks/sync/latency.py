"""`python -m benchmarks latency`: seconds from a message's arrival to the sink's commit, in simulated time.

The schedule is the real one (`Schedule`, `PollSchedule`, the rate's GCRA); requests and commits are events of a
simulation with fixed durations, so that hours of thousands of mailboxes take seconds and each run gives the same.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import quantiles

import attrs

from directsuite.core.limits import LocalRateLimiter
from directsuite.sync.model import Kind, RoundReport
from directsuite.sync.schedule import PollSchedule, Schedule

_RESULTS = Path(__file__).resolve().parents[1] / "results"
_PER_SECOND, _BURST = 100.0, 150  # requests: the default limit
_CONCURRENCY = 8  # the default
_REQUEST_SECONDS = 0.05  # seconds
_COMMIT_SECONDS = 0.005  # seconds
_HOURS = 6
_WARM_UP_SECONDS = 3_600.0  # seconds that are not counted: at the beginning all mailboxes are polled at once


@attrs.frozen
class LatencySetting:
    """So many mailboxes, and how often messages come."""

    title: str
    mailboxes: int
    busy: float
    """The share of mailboxes that get a message every ten minutes; the others get two a day."""
    folders: int | None = None
    """None for INBOX alone; else all folders, so many of them."""


SETTINGS = (
    LatencySetting("100, a tenth of them busy", 100, 0.1),
    LatencySetting("1,000, one per cent of them busy", 1_000, 0.01),
    LatencySetting("1,000, a tenth of them busy", 1_000, 0.1),
    LatencySetting("1,000, half of them busy", 1_000, 0.5),
    LatencySetting("1,000 with 7 folders each, a tenth of them busy", 1_000, 0.1, 7),
    LatencySetting("10,000, one per cent of them busy", 10_000, 0.01),
    LatencySetting("10,000, a tenth of them busy", 10_000, 0.1),
)


@attrs.define
class _SimulatedClock:
    """Simulated time, in seconds."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


@attrs.frozen(kw_only=True)
class Latency:
    """What a simulation found. Seconds."""

    messages: int
    busy: list[float]
    """p50 and p99, of messages to busy mailboxes."""
    quiet: list[float]
    """p50 and p99, of messages to the others."""
    longest_pause: float
    """Between two polls of a mailbox that had no message."""
    fairness: float
    """The longest mean interval between the polls of such a mailbox, by the shortest."""
    rate: float
    """Requests a second."""


def simulate(setting: LatencySetting, *, hours: float = _HOURS, seed: int = 1) -> Latency:
    """Run the schedule for some hours."""
    return _Simulation(setting, random.Random(seed), hours * 3600).run()


class _Simulation:
    def __init__(self, setting: LatencySetting, chance: random.Random, end: float) -> None:
        self._setting = setting
        self._chance = chance
        self._end = end
        self._time = _SimulatedClock()
        self._rate = LocalRateLimiter(_PER_SECOND, _BURST, self._time)
        self._polls = PollSchedule(
            interval=None,
            folders=["INBOX"] if setting.folders is None else None,
            requests_per_second=_PER_SECOND,
            clock=self._time,
        )
        self._polls.mailboxes = setting.mailboxes
        names = [str(number) for number in range(setting.mailboxes)]
        self._busy = {*names[: round(setting.mailboxes * setting.busy)]}
        self._schedule = Schedule(names, concurrency=_CONCURRENCY, now=0.0)
        self._events = list[tuple[float, int, Callable[[], None]]]()
        self._numbers = iter(range(10**12))
        self._arrived: dict[str, list[float]] = {name: [] for name in names}
        self._polled: dict[str, list[float]] = {name: [] for name in names}
        self._latencies: dict[bool, list[float]] = {True: [], False: []}
        self._with_mail = set[str]()
        self._requests = 0

    def run(self) -> Latency:
        for name in self._arrived:
            self._deliver(name)
        self._start()
        while self._events:
            at, _, act = heapq.heappop(self._events)
            if at > self._end:
                break
            self._time.now = at
            act()
        pauses = [
            [later - earlier for earlier, later in itertools.pairwise(polls)]
            for name, polls in self._polled.items()
            if name not in self._with_mail and len(polls) > 2
        ]
        means = [sum(each) / len(each) for each in pauses]
        return Latency(
            messages=sum(map(len, self._latencies.values())),
            busy=_compute_percentiles(self._latencies[True]),
            quiet=_compute_percentiles(self._latencies[False]),
            longest_pause=max(map(max, pauses)),
            fairness=max(means) / min(means),
            rate=self._requests / (self._end - _WARM_UP_SECONDS),
        )

    def _schedule_at(self, moment: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._numbers), act))

    def _deliver(self, name: str) -> None:
        mean = 600.0 if name in self._busy else 43_200.0

        def arrive() -> None:
            self._arrived[name].append(self._time.now)
            self._deliver(name)

        self._schedule_at(self._time.now + self._chance.expovariate(1 / mean), arrive)

    def _start(self) -> None:
        for name in self._schedule.start(self._time.now):
            self._step(self._round(name))

    def _step(self, work: Iterator[float]) -> None:
        """Go on with a round after so many seconds."""
        for seconds in work:
            self._schedule_at(self._time.now + seconds, lambda: self._step(work))
            return

    def _request(self) -> Iterator[float]:
        while not self._rate.try_acquire():
            yield self._rate.seconds_until_slot() + 1e-9
        self._requests += self._time.now >= _WARM_UP_SECONDS
        yield _REQUEST_SECONDS

    def _round(self, name: str) -> Iterator[float]:
        """List, fetch what is new, and commit it."""
        folders = self._setting.folders
        for _ in range(0 if folders is None else folders):  # the list of folders, and the other ones
            yield from self._request()
        yield from self._request()
        new, self._arrived[name] = self._arrived[name], []
        if new:
            self._with_mail.add(name)
            yield from self._request()
            yield _COMMIT_SECONDS
        now = self._time.now
        if now >= _WARM_UP_SECONDS:
            self._polled[name].append(now)
            self._latencies[name in self._busy] += [now - arrived for arrived in new]
        report = RoundReport(idle_folders=folders or 1, changes=Counter({Kind.NEW: len(new)}))
        self._polls.learn(name, report)
        pause = self._polls.compute_poll_delay(name, waiting=False) * self._chance.uniform(0.9, 1.1)
        self._schedule.finish(name, now + pause, has_backlog=False)
        self._schedule_at(now + pause, self._start)
        self._start()


def _compute_percentiles(seconds: list[float]) -> list[float]:
    cuts = quantiles(seconds, n=100)
    return [cuts[49], cuts[98]]


def measure_latency(out: Path = _RESULTS) -> int:
    """Simulate all settings, and write latency.md and latency.json."""
    found = {setting.title: attrs.asdict(simulate(setting)) for setting in SETTINGS}
    (out / "latency.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    page = _format_page(found)
    (out / "latency.md").write_text(page, encoding="utf-8")
    print(page)
    return 0


def _format_page(found: dict[str, dict[str, float | list[float]]]) -> str:
    rows = list[str]()
    for title, each in found.items():
        busy, quiet = ("{:.0f} / {:.0f}".format(*each[key]) for key in ("busy", "quiet"))  # type: ignore[misc]
        rows.append(
            f"| {title} | {each['messages']:,} | {busy} | {quiet} | {each['longest_pause']:.0f} "
            f"| {each['fairness']:.2f} | {each['rate']:.0f} |"
        )
    return f"""# From arrival to commit

`python -m benchmarks latency`: {_HOURS} simulated hours, the first of which isn't counted, with the default limit of
{_PER_SECOND:.0f} requests a second, {_CONCURRENCY} rounds side by side, {_REQUEST_SECONDS * 1000:.0f} ms a request and
{_COMMIT_SECONDS * 1000:.0f} ms a commit. A busy mailbox gets a message every ten minutes on average, any other two a
day. Seconds.

| mailboxes | messages | to a busy mailbox, p50 / p99 | to another, p50 / p99 | longest pause without mail | fairness \
| requests a second |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}

Fairness is the longest mean interval between the polls of a mailbox that had no message, by the shortest one: 1 where
all wait alike.
"""
