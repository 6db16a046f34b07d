"""Stored times after the wall clock jumped, by an hour and by two years, in both directions.

A stored time in the future was written while the clock was ahead.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from directsuite.durable.fleet import _SQL, _STALE_SECONDS, FleetEngine
from directsuite.durable.postgres import PostgresDatabase
from directsuite.jobs.signing import DocumentState, SigningJob, SigningJournal, TargetFolder
from directsuite.jobs.signing.documents import PdfInfo
from directsuite.jobs.signing.journal import SigningJournalError
from directsuite.jobs.signing.workflow import RunContext, SigningEntry, SigningStep, next_step
from tests.integration.scenario import SleepDrivenClock
from tests.jobs.signing.fragile_service import FragileService
from tests.jobs.signing.job_factory import PDF_CONTENT, SIGNATURES, yield_pdfs
from tests.statements import sql

HOUR = 3600.0
YEARS = 2 * 365 * 24 * HOUR
JUMPS = [-YEARS, -HOUR, HOUR, YEARS]
NOW = 1_800_000_000.0
PATIENCE = 30.0
every_jump = pytest.mark.parametrize("jump", JUMPS, ids=["-2 years", "-1 h", "+1 h", "+2 years"])


@every_jump
def test_saved_document_is_saved_again_unless_it_is_known_to_be_fresh(jump: float) -> None:
    source = PdfInfo(sha256="ab", signature_count=0)
    saved = SigningEntry(
        number=1, name="a.pdf", state=DocumentState.SAVED, identifier="x", saved_at=NOW, source_sha="ab"
    )
    step = next_step(saved, RunContext(signature_count=1, source=source), NOW + jump)
    assert step is (SigningStep.SIGN if jump == HOUR else SigningStep.EXPIRE)


@every_jump
async def test_job_goes_on_after_the_clock_jumped(jump: float, tmp_path: Path) -> None:
    service: Any = FragileService()
    async with SigningJournal(tmp_path / "journal.db") as journal:
        [entry] = await journal.lease.entries(["a.pdf"])
        stored = await service.save(PDF_CONTENT)
        saved: dict[str, Any] = {"state": DocumentState.SAVED, "identifier": stored.identifier, "saved_at": NOW}
        await journal.lease.put(SigningEntry(number=entry.number, name="a.pdf", **saved))
        time_options: dict[str, Any] = {"clock": SleepDrivenClock(), "now": lambda: NOW + jump}
        target = TargetFolder(tmp_path / "out")
        job = SigningJob(service, yield_pdfs("a.pdf"), target, SIGNATURES, journal=journal, **time_options)
        assert (await job.run()).done == 1
        assert service.request_counts.total() == 1
        assert service.stored == {}


@every_jump
async def test_abandoned_document_is_forgotten_when_it_has_expired(jump: float, tmp_path: Path) -> None:
    async with SigningJournal(tmp_path / "journal.db") as journal:
        [entry] = await journal.lease.entries(["a.pdf"])
        saved = await journal.lease.put(
            SigningEntry(number=entry.number, name="a.pdf", state=DocumentState.SAVED, identifier="x", saved_at=NOW)
        )
        await journal.lease.abandon(saved, at=NOW)
        await journal.lease.forget_expired(NOW + jump, 4 * HOUR)
        assert await journal.lease.list_abandoned() == ([] if jump == YEARS else ["x"])
        await journal.lease.forget_expired(NOW + jump + 4 * HOUR + 1, 4 * HOUR)
        assert await journal.lease.list_abandoned() == []


@every_jump
async def test_staging_folder_of_an_ended_job_is_removed(jump: float, tmp_path: Path) -> None:
    target = TargetFolder(tmp_path / "out")
    async with target.staging_dir("ended") as made:
        part = made.rename(made.with_name("left.0"))
    os.utime(part, (time.time() - jump, time.time() - jump))
    async with target.staging_dir("mine"):
        assert part.exists() == (abs(jump) == HOUR)


@pytest.fixture
async def fleet_journal(conninfo: str) -> AsyncGenerator[SigningJournal]:
    async with SigningJournal(conninfo=conninfo, job="job") as journal:
        await journal.add(["a.pdf"])
        yield journal


async def shift(journal: SigningJournal, column: str, seconds: float) -> None:
    statement = "UPDATE directsuite.signing_chunk SET column = column - make_interval(secs => :seconds)"
    await journal._database.execute(sql(statement.replace("column", column)), {"seconds": seconds})


@pytest.mark.postgres
@every_jump
async def test_lease_of_a_dead_worker_ends(jump: float, fleet_journal: SigningJournal) -> None:
    [key] = await fleet_journal.list_due(PATIENCE)
    assert await fleet_journal.lease_batch(key, PATIENCE) is not None
    await shift(fleet_journal, "seen_at", jump)
    assert await fleet_journal.list_due(PATIENCE) == ([key] if jump > 0 else [])
    await shift(fleet_journal, "seen_at", 0.0 if jump > 0 else PATIENCE + 1)
    assert await fleet_journal.list_due(PATIENCE) == ([] if jump > 0 else [key])
    assert await fleet_journal.lease_batch(key, PATIENCE) is not None


@pytest.mark.postgres
@every_jump
async def test_lease_of_a_live_worker_stays_after_its_next_sign(jump: float, fleet_journal: SigningJournal) -> None:
    [key] = await fleet_journal.list_due(PATIENCE)
    chunk = await fleet_journal.lease_batch(key, PATIENCE)
    assert chunk is not None
    await shift(fleet_journal, "seen_at", jump)
    await chunk.confirm()
    assert await fleet_journal.list_due(PATIENCE) == []
    assert await fleet_journal.lease_batch(key, PATIENCE) is None


@pytest.mark.postgres
@every_jump
async def test_worker_is_woken_again_for_a_chunk(jump: float, fleet_journal: SigningJournal) -> None:
    [key] = await fleet_journal.list_due(PATIENCE)
    await shift(fleet_journal, "woken_at", jump)
    assert await fleet_journal.list_due(PATIENCE) == ([key] if jump > 0 else [])
    await shift(fleet_journal, "woken_at", PATIENCE + 1)
    assert await fleet_journal.list_due(PATIENCE) == [key]


@pytest.fixture
async def engine(conninfo: str) -> AsyncGenerator[FleetEngine]:
    from tests.sync.fleet.test_fleet_engine import Turns, make_engine

    database = PostgresDatabase(conninfo, error=SigningJournalError)
    made = make_engine(database, Turns(), worker_timeout=PATIENCE)
    await made.open()
    yield made
    await made.aclose()
    await database.aclose()


SHIFT_EVENTS = "UPDATE directsuite.procrastinate_events SET at = at - make_interval(secs => :seconds)"
ADD_WORKER = "INSERT INTO directsuite.procrastinate_workers VALUES (DEFAULT, now() - make_interval(secs => :seconds))"
JOBS = "SELECT count(*) FROM directsuite.procrastinate_jobs"


@pytest.mark.postgres
@every_jump
async def test_old_jobs_are_deleted(jump: float, engine: FleetEngine) -> None:
    await engine.wake({1: None})
    await engine._database.fetch(sql(SHIFT_EVENTS), {"seconds": jump})
    await engine.delete_old_jobs()
    assert await engine._database.fetch(sql(JOBS)) == [(0,)]


@pytest.mark.postgres
@every_jump
async def test_dead_worker_does_not_hold_back_migrations_for_ever(jump: float, engine: FleetEngine) -> None:
    await engine._database.fetch(sql(ADD_WORKER), {"seconds": jump})
    found = await engine._database.fetch(_SQL["has_recent_workers"], {"seconds": _STALE_SECONDS})
    assert found == [(abs(jump) == HOUR,)]
