"""The default pause between two polls, and the polls for requests of operators."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.errors import ClosedError
from directsuite.sync import Kind, RoundFinished, SqliteStore
from directsuite.sync.model import RoundReport
from directsuite.sync.synchronizer import PollSchedule
from tests.integration.conftest import scenario as scenario
from tests.integration.scenario import Scenario, SleepDrivenClock
from tests.sync.mail_service import RecordingSink
from tests.sync.test_synchronizer import make_sync


@attrs.define
class Slept:
    woken: int = 0
    seconds: asyncio.Queue[float] = attrs.field(factory=asyncio.Queue[float])

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.seconds.put_nowait(seconds)
        if self.woken:
            self.woken -= 1
            return
        await asyncio.Event().wait()

    async def has_slept(self, least: float, most: float) -> None:
        async with asyncio.timeout(10):
            while not least <= await self.seconds.get() <= most:
                pass


class ClosedForWishes(SqliteStore):
    async def pending_requests(self) -> Sequence[str]:
        raise ClosedError("The store is closed.")


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("interval", [None, 500.0])
async def test_every_folder_that_was_seen_counts_for_the_interval(scenario: Scenario, interval: float | None) -> None:
    for number in range(4):
        await scenario.box.create_folder(f"INBOX.Ward{number}")
    asked = 1 + len({"INBOX", *await scenario.box.get_folders()})
    seconds = 20.0  # for each request: more than the least interval allows
    clock = Slept()
    async with SqliteStore(":memory:") as store:
        options: dict[str, Any] = {"folders": None, "interval": interval, "requests_per_second": 1 / (0.9 * seconds)}
        sync = make_sync(scenario, store, RecordingSink(), clock=clock, **options)
        await sync.once()
        await sync.once()  # the first round is not idle
        running = asyncio.create_task(sync.run())
        expected = asked * seconds if interval is None else interval
        await clock.has_slept(0.9 * expected, 1.1 * expected)
        running.cancel()
        await asyncio.wait([running])


async def test_a_store_that_was_closed_ends_no_worker_that_listens_for_requests(scenario: Scenario) -> None:
    clock, rounds = Slept(woken=5), asyncio.Queue[RoundFinished]()
    scenario.suite.add_listener(lambda event: rounds.put_nowait(event) if isinstance(event, RoundFinished) else None)
    async with ClosedForWishes(":memory:") as store:
        sync = make_sync(scenario, store, RecordingSink(), clock=clock)
        running = asyncio.create_task(sync.run())
        await rounds.get()
        for _ in range(2):
            await clock.has_slept(2.0, 2.0)
        assert not running.done()
        sync.stop()
        await running


def of_folders(idle: int, *, new: int = 0) -> RoundReport:
    return RoundReport(idle_folders=idle, changes=Counter({Kind.NEW: new}))


def test_fleet_poll_cost_is_estimated_from_own_mailboxes() -> None:
    schedule = PollSchedule(interval=None, folders=None, requests_per_second=100.0, clock=Slept())
    schedule.mailboxes = 7_000
    assert schedule.compute_poll_delay("a", waiting=False) == pytest.approx(7_000 / 90)
    schedule.learn("a", of_folders(3))
    schedule.learn("b", of_folders(7))
    assert schedule.compute_poll_delay("a", waiting=False) == pytest.approx(6 * 7_000 / 90)
    schedule.forget("b")
    assert schedule.compute_poll_delay("a", waiting=False) == pytest.approx(4 * 7_000 / 90)


def test_mailboxes_with_mail_are_polled_more_often() -> None:
    clock = SleepDrivenClock()
    schedule = PollSchedule(interval=None, folders=["INBOX"], requests_per_second=10.0, clock=clock)
    schedule.mailboxes = 1_000
    for number in range(1_000):
        schedule.learn(str(number), of_folders(0, new=number % 2))
    for name in ("0", "1"):  # a quarter of the requests would not suffice to poll half of them more often
        assert schedule.compute_poll_delay(name, waiting=False) == pytest.approx(1_000 / 9)
    clock.now += 1_800
    for number in range(1, 101, 2):
        schedule.learn(str(number), of_folders(0, new=1))
    clock.now += 1_801
    assert schedule.compute_poll_delay("1", waiting=False) == 50 / 2.5
    assert schedule.compute_poll_delay("1", waiting=True) == schedule.compute_poll_delay("0", waiting=True) == 30.0
    assert schedule.compute_poll_delay("0", waiting=False) == pytest.approx(950 / (9 - 2.5))
    clock.now += 1_800
    assert schedule.compute_poll_delay("1", waiting=False) == pytest.approx(1_000 / 9)


def test_few_mailboxes_are_not_polled_without_a_rest() -> None:
    schedule = PollSchedule(interval=None, folders=["INBOX"], requests_per_second=100.0, clock=SleepDrivenClock())
    schedule.learn("hot", of_folders(0, new=1))
    schedule.learn("idle", of_folders(1))
    assert (schedule.compute_poll_delay("hot", waiting=False), schedule.compute_poll_delay("idle", waiting=False)) == (
        10.0,
        30.0,
    )


@given(
    mailboxes=st.integers(1, 100_000), hot=st.floats(0, 1), folders=st.integers(1, 20), per_second=st.floats(0.1, 1_000)
)
def test_polls_take_no_more_than_their_share_of_the_requests(
    mailboxes: int, hot: float, folders: int, per_second: float
) -> None:
    schedule = PollSchedule(interval=None, folders=["INBOX"] * folders, requests_per_second=per_second, clock=Slept())
    known = min(mailboxes, 50)
    schedule.mailboxes = mailboxes
    for number in range(known):
        schedule.learn(str(number), of_folders(0, new=number < round(hot * known)))
    intervals = [schedule.compute_poll_delay(str(number), waiting=False) for number in range(known)]
    requests = sum(folders * mailboxes / known / interval for interval in intervals)
    assert requests <= 0.9 * per_second * (1 + 1e-9)


def test_a_configured_interval_is_used() -> None:
    schedule = PollSchedule(interval=5.0, folders=["INBOX"], requests_per_second=0.01, clock=Slept())
    schedule.mailboxes = 1_000
    assert schedule.compute_poll_delay("a", waiting=False) == schedule.compute_poll_delay("a", waiting=True) == 5.0
