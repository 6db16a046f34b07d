"""When the next round of a mailbox is due, after each kind of result."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from directsuite.sync import Kind, SinkError, SqliteSink, SqliteStore, StaleLeaseError, StoreError
from directsuite.sync.commits import UndecidedRejectionError
from directsuite.sync.model import Lease, RoundReport
from directsuite.sync.round import MailboxRounds
from directsuite.sync.sinks.maildir import MaildirSink
from directsuite.sync.synchronizer import MailboxWorker, PollSchedule
from tests.integration.scenario import ALICE, Scenario
from tests.sync.mail_service import RecordingSink
from tests.sync.test_synchronizer import FakePasswords, SteppedClock, make_sync

INTERVAL = 200.0
FAILED: dict[str, ds.DirectSuiteError] = {"INBOX.Ward": ds.ServerError("refused", status=500)}


REFUSED: dict[str, ds.DirectSuiteError] = {"INBOX": UndecidedRejectionError("the sink raised ValueError")}


class RoundStub:
    def __init__(self, scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
        self.results = list[RoundReport | BaseException]()
        clock = SteppedClock(now=10_000.0)
        schedule = PollSchedule(interval=INTERVAL, folders=None, requests_per_second=100.0, clock=clock)
        store = SqliteStore(":memory:")
        self.worker = MailboxWorker(scenario.suite, store, FakePasswords(), None, None, schedule, clock, lambda: 0.0)
        self.worker.requested_mailboxes = ()
        monkeypatch.setattr(MailboxRounds, "run_round", self._run_round)
        monkeypatch.setattr(SqliteStore, "claim", self._claim)

    async def _claim(self, mailbox: str) -> Lease:
        return Lease(1, mailbox, 1)

    async def _run_round(self) -> RoundReport:
        result = self.results.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result

    async def find_delays(self, *results: RoundReport | BaseException) -> list[float]:
        self.results += results
        return [(await self.worker.run_round(ALICE)).next_in for _ in results]


@pytest.fixture
def rounds(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> RoundStub:
    return RoundStub(scenario, monkeypatch)


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(
    ("result", "seconds"),
    [
        (StoreError("PostgreSQL is away"), [10, 10, 10, 10]),  # it affects all mailboxes
        (SinkError("the sink raised OSError"), [30, 60, 120, 300]),
        (ds.AuthenticationError("refused", status=401), [30, 60, 120, 3600]),
        (StaleLeaseError("Another worker has claimed it"), [30, 60, 120, 3600]),
        (RoundReport(failed_folders=FAILED), [30, 60, 120, 3600]),
        (RoundReport(failed_folders=REFUSED | FAILED), [30, 60, 120, 3600]),
    ],
    ids=repr,
)
async def test_back_off_after_failures(
    rounds: RoundStub, result: RoundReport | ds.DirectSuiteError, seconds: list[float]
) -> None:
    delays = await rounds.find_delays(*[result] * 20)
    assert [*delays[:3], delays[-1]] == [pytest.approx(each, rel=0.11) for each in seconds]


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize(
    ("report", "seconds"),
    [
        (RoundReport(idle_folders=1), INTERVAL),
        (RoundReport(idle_folders=1, changes=Counter({Kind.GONE: 0})), INTERVAL),  # a count of 0
        (RoundReport(changes=Counter({Kind.NEW: 1})), 10),
        (RoundReport(changes=Counter({Kind.NEW: 1}), has_waiting=True), 30),
        (RoundReport(idle_folders=1, has_waiting=True), 30),
        (RoundReport(has_more=True, changes=Counter({Kind.NEW: 1})), 0),
        (RoundReport(has_more=True), 0),
        (RoundReport(failed_folders=FAILED), 30),
        (RoundReport(failed_folders=REFUSED), 30),
        (RoundReport(failed_folders=FAILED, idle_folders=2), INTERVAL),
        (RoundReport(failed_folders=FAILED, idle_folders=2, has_more=True), INTERVAL),
        (RoundReport(failed_folders=FAILED, has_more=True, changes=Counter({Kind.NEW: 1})), 0),
    ],
    ids=repr,
)
async def test_delay_after_a_round(rounds: RoundStub, report: RoundReport, seconds: float) -> None:
    assert await rounds.find_delays(report) == [pytest.approx(seconds, rel=0.11)]


async def test_rounds_without_progress_pause(rounds: RoundStub) -> None:
    delays = await rounds.find_delays(*[RoundReport(has_more=True)] * 5, RoundReport(has_more=True, quarantined=1))
    pause = pytest.approx(30, rel=0.11)
    assert delays == [0.0, 0.0, 0.0, pause, pause, 0.0]


async def test_failing_folder_delays_no_others(rounds: RoundStub) -> None:
    lost = {**FAILED, "INBOX": ds.ConnectionLostError("lost", outcome=ds.Outcome.UNKNOWN)}
    some = [RoundReport(failed_folders=FAILED, idle_folders=1)] * 20
    delays = await rounds.find_delays(*some, RoundReport(failed_folders=lost))
    assert delays[-1] <= 70


async def test_another_sink_is_rejected_before_a_round(scenario: Scenario, tmp_path: Path) -> None:
    await scenario.deliver("one")
    path, told = tmp_path / "sync.db", RecordingSink()
    mail, other = MaildirSink(tmp_path / "mail"), MaildirSink(tmp_path / "other")

    async def bring(deliver: Any) -> None:
        async with SqliteStore(path, sink=SqliteSink() if deliver is None else None) as store:
            sync = make_sync(scenario, store, deliver, clock=SteppedClock())
            await sync.once()

    await bring(mail)
    await bring(MaildirSink(tmp_path / "other" / ".." / "mail"))
    for another in (other, told, None):
        with pytest.raises(ds.ConfigurationError, match="another sink"):
            await bring(another)
    assert list((tmp_path / "other").iterdir()) == told.changes == []


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("starting", ["once", "run"])  # changes() has its own test in test_synchronizer
async def test_sink_of_store_beside_another_is_rejected_at_start(scenario: Scenario, starting: str) -> None:
    await scenario.deliver("one")
    told = RecordingSink()
    async with SqliteStore(":memory:", sink=SqliteSink()) as store:
        sync = make_sync(scenario, store, told, clock=SteppedClock())
        with pytest.raises(ds.ConfigurationError, match="The store already has a sink"):
            await asyncio.wait_for(getattr(sync, starting)(), 10)
        await make_sync(scenario, store, clock=SteppedClock()).once()
    assert told.changes == []


def test_the_name_of_a_maildir_sink_reveals_no_path(tmp_path: Path) -> None:
    name = MaildirSink(tmp_path / ALICE).sink_name
    assert name.startswith("maildir ")
    assert "alice" not in name
    assert str(tmp_path) not in name
