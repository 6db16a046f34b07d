"""Follow 1,000 messages on the sandbox's clock, and count the requests, compared with a single message.

`python -m tests.jobs.delivery.thousand` prints benchmarks/results/delivery.md.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import attrs

from directsuite.jobs.delivery import DeliveryJournal, DeliveryTracker
from directsuite.messaging.sending import compute_next_poll
from directsuite.sandbox.clock import Clock as SandboxClock
from tests.jobs.delivery.clinic import Clinic, SandboxTimeClock, open_clinic

DOMAIN = "hospital.example.test"
LAST_USER = "nomdn"
DELIVERY_OUTCOMES: Mapping[str, tuple[float, str]] = {
    # by local part: seconds until the sandbox reports the status, and the status
    "deliver": (0, "Delivered"),
    "deliver+1s": (1, "Delivered"),
    "deliver+3s": (3, "Delivered"),
    "slow+8s": (8, "Delivered"),
    "slow+20s": (20, "Delivered"),
    "slow+90s": (90, "Delivered"),
    "slow+5m": (300, "Delivered"),
    "slow+30m": (1_800, "Delivered"),
    "bounce+10s": (10, "Remotely Failed"),
    LAST_USER: (3_600, "NO MDN Received"),
}


class AgendaClock(SandboxTimeClock):
    """A clock that calls functions at given times while the caller sleeps. agenda: pairs of Unix time and function."""

    def __init__(self, clock: SandboxClock) -> None:
        super().__init__(clock)
        self.agenda = deque[tuple[float, Callable[[], Awaitable[None]]]]()

    async def sleep(self, seconds: float) -> None:
        """Let the seconds pass, and call the functions that are due."""
        end = self.monotonic() + seconds
        while self.agenda and self.agenda[0][0] <= end:
            moment, work = self.agenda.popleft()
            self._clock.advance(timedelta(seconds=max(0.0, moment - self.monotonic())))
            await asyncio.shield(asyncio.ensure_future(work()))
            for _ in range(10):  # the function may wake the sleeping task
                await asyncio.sleep(0)
        await super().sleep(max(0.0, end - self.monotonic()))


@attrs.frozen(kw_only=True)
class TrackingFigures:
    """The results. ends: the number of recipients by final status. delays: seconds from each change to its report."""

    messages: int
    requests: int
    ends: Mapping[str, int]
    delays: Sequence[float]


async def send_and_track(
    stage: Clinic, time: AgendaClock, folder: Path, names: Sequence[str], every: float
) -> TrackingFigures:
    """Send a message to each recipient, `every` seconds apart, and follow all of them."""
    known_at, ends, delays = dict[str, float](), Counter[str](), list[float]()
    async with DeliveryJournal(folder / f"{len(names)}-{every}.db") as journal:
        tracker = DeliveryTracker(stage.box, journal=journal, now=time.monotonic)
        before, began = stage.request_counts["GetMessageStatusMany"], time.monotonic()

        async def send(name: str) -> None:
            smtp_id = await stage.send(f"{name}@{DOMAIN}")
            known_at[smtp_id] = time.monotonic() + DELIVERY_OUTCOMES[name][0]
            await tracker.add(smtp_id)

        def sending(name: str) -> Callable[[], Awaitable[None]]:
            return lambda: send(name)

        time.agenda.extend((began + number * every, sending(name)) for number, name in enumerate(names))
        async with tracker.changes(endless=True) as changes:
            async for change in changes:
                if change.is_end:
                    ends[str(change.status)] += 1
                    delays.append(time.monotonic() - known_at[change.smtp_id])
                await tracker.acknowledge(change)
                if sum(ends.values()) == len(names):
                    break
        assert await tracker.followed() == []
    requests = stage.request_counts["GetMessageStatusMany"] - before
    return TrackingFigures(messages=len(names), requests=requests, ends=ends, delays=sorted(delays))


async def measure_tracking(folder: Path, messages: int, every: float) -> TrackingFigures:
    """Return the figures for many messages, or for a single one that is never confirmed."""
    names = (
        [[*DELIVERY_OUTCOMES][number % len(DELIVERY_OUTCOMES)] for number in range(messages)]
        if messages > 1
        else [LAST_USER]
    )
    times = list[AgendaClock]()

    def made(clock: SandboxClock) -> AgendaClock:
        times.append(AgendaClock(clock))
        return times[-1]

    async with open_clinic(time=made) as stage:
        return await send_and_track(stage, times[-1], folder, names, every)


def count_single_requests(messages: int) -> int:
    """Compute the number of requests if each message were followed separately."""
    polls = Counter[str]()
    for name, (seconds, _) in DELIVERY_OUTCOMES.items():
        age = 0.0
        while age < seconds or not polls[name]:
            age = compute_next_poll(age).latest
            polls[name] += 1
    return sum(polls.values()) * messages // len(DELIVERY_OUTCOMES)


ROWS = [(1, 0.0, "1, without confirmation"), (1_000, 0.0, "1,000 at once"), (1_000, 0.1, "1,000 within 100 seconds")]
LONG_ROW = (1_000, 3.6, "1,000 within an hour")


async def format_page() -> str:
    lines = [
        "# Delivery tracking",
        "",
        "`python -m tests.jobs.delivery.thousand`: `DeliveryTracker` follows messages until their status is final, on",
        "the sandbox's simulated clock. Of ten messages, eight are delivered, after 0 seconds to 30 minutes, one fails",
        "at the recipient's HISP, and one gets no confirmation, which is final after one hour.",
        "",
        "| messages sent | GetMessageStatus requests | final statuses | delay, median | 95 % | maximum |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as name:
        for messages, every, label in [*ROWS, LONG_ROW]:
            figures = await measure_tracking(Path(name), messages, every)
            ends = ", ".join(f"{count} {status}" for status, count in sorted(figures.ends.items()))
            delays_at = [figures.delays[place] for place in (messages // 2, messages * 95 // 100, -1)]
            delays = " | ".join(f"{seconds:.0f} s" for seconds in delays_at)
            lines.append(f"| {label} | {figures.requests} | {ends} | {delays} |")
    lines += [
        "",
        (
            f"With one request for each message and poll, 1,000 messages would take {count_single_requests(1_000):,} "
            "requests (computed)."
        ),
        "`delay`: seconds from the moment at which the service has a final status until the program receives it.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(format_page()))
