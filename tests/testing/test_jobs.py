"""Jobs and trackers use the suite's clock: they do not wait in users' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from .project import Project

pytestmark = pytest.mark.process

TRACKER = """
import time
import directsuite as ds
from directsuite.jobs.delivery import DeliveryJournal, DeliveryTracker

CLINIC = "clinic@direct.example.test"
NEVER = ds.Message(subject="Referral", recipients=[ds.Recipient("nomdn@pharmacy.example.test")])

async def test_tracker(directsuite_suite, directsuite_sandbox, tmp_path):
    began, at = time.monotonic(), directsuite_sandbox.clock.now()
    await directsuite_sandbox.add_account(CLINIC, "secret")
    box = directsuite_suite.mailbox(CLINIC, "secret")
    async with DeliveryJournal(tmp_path / "delivery.db") as journal:
        tracker = DeliveryTracker(box, journal=journal)
        await tracker.add((await box.send(NEVER)).smtp_id)
        statuses = [str(change.status) async for change in tracker.changes()]
        assert statuses == ["Waiting", "NO MDN Received"]
    assert 3_600 < (directsuite_sandbox.clock.now() - at).total_seconds() < 3_900
    assert time.monotonic() - began < 60

async def test_two_trackers_of_a_journal_agree_what_time_it_is(directsuite_suite, directsuite_sandbox, tmp_path):
    began = time.monotonic()
    await directsuite_sandbox.add_account(CLINIC, "secret")
    box = directsuite_suite.mailbox(CLINIC, "secret")
    async with DeliveryJournal(tmp_path / "delivery.db") as journal:
        await DeliveryTracker(box, journal=journal).add("<nothing@direct.example.test>")
        await box.track((await box.send(NEVER)).smtp_id)
        at = directsuite_sandbox.clock.now()
        [change] = [change async for change in DeliveryTracker(box, journal=journal).changes()]
        assert change.given_up
    assert 3_000 < (directsuite_sandbox.clock.now() - at).total_seconds() < 3_700
    assert time.monotonic() - began < 60

async def test_one_message(directsuite_suite, directsuite_sandbox):
    began = time.monotonic()
    await directsuite_sandbox.add_account(CLINIC, "secret")
    await directsuite_sandbox.add_tuser("front-desk", "secret", [CLINIC])
    box = directsuite_suite.mailbox(CLINIC, "secret")
    tuser = directsuite_suite.tuser("front-desk", "secret", CLINIC)
    for sender in (box, tuser):
        delivery = await sender.track((await sender.send(NEVER)).smtp_id)
        assert [record.status for record in delivery.undelivered] == [ds.MessageStatus.NO_MDN_RECEIVED]
    assert time.monotonic() - began < 60
"""

FAXES = """
import time
import pytest

NUMBER = "15550100100"

@pytest.mark.parametrize("interval", [60, 61, 86_400])
async def test_faxes_are_watched(interval, directsuite_suite, directsuite_sandbox):
    began, at = time.monotonic(), directsuite_sandbox.clock.now()
    handles = [await directsuite_sandbox.add_fax(NUMBER)]
    async with directsuite_suite.fax.watch(NUMBER, interval=interval) as watched:
        assert (await anext(watched)).message_handle == handles[0]
        directsuite_sandbox.inject_fault("getMultipleMessageInfo", "status", status=404, times=3)
        handles.append(await directsuite_sandbox.add_fax(NUMBER))
        assert (await anext(watched)).message_handle == handles[1]
    assert (directsuite_sandbox.clock.now() - at).total_seconds() >= 4 * interval
    assert time.monotonic() - began < 60
"""

SIGNING_JOB = """
import time
from datetime import timedelta
import attrs, directsuite as ds, pytest
from directsuite.jobs.signing import JobStoppedError, Pdf, SigningJob, SigningJournal, TargetFolder

@pytest.fixture
def directsuite_settings(directsuite_settings):
    return attrs.evolve(directsuite_settings, retry=ds.RetryPolicy.none(), circuit_failures=0)

@pytest.fixture
def a_job(directsuite_suite, directsuite_pdf, tmp_path):
    async def source():
        yield Pdf("consent.pdf", directsuite_pdf)

    def job(journal, **options):
        signature = ds.Signature(name="PatientSig")
        target = TargetFolder(tmp_path / "out")
        return SigningJob(directsuite_suite.signing, source(), target, [signature], journal=journal, **options)

    return job

async def test_outage(a_job, directsuite_sandbox, tmp_path):
    began, at = time.monotonic(), directsuite_sandbox.clock.now()
    directsuite_sandbox.inject_fault("Save", "status", status=503, times=9)
    async with SigningJournal(tmp_path / "signing.db") as journal:
        progress = await a_job(journal).run()
    assert (progress.done, progress.failed) == (1, 0)
    assert 243 <= (directsuite_sandbox.clock.now() - at).total_seconds() < 600
    assert time.monotonic() - began < 60

async def test_outage_that_is_too_long(a_job, directsuite_sandbox, directsuite_clock, tmp_path):
    began, at = time.monotonic(), directsuite_clock.monotonic()
    directsuite_sandbox.inject_fault("Save", "status", status=503, times=None)
    async with SigningJournal(tmp_path / "signing.db") as journal:
        with pytest.raises(JobStoppedError):
            await a_job(journal, max_outage=600.0).run()
    assert 600 < directsuite_clock.monotonic() - at < 900
    assert time.monotonic() - began < 60

async def test_what_is_stored_has_expired_by_the_next_run(
    a_job, directsuite_suite, directsuite_sandbox, directsuite_clock, tmp_path
):
    asked = []
    directsuite_suite.add_listener(lambda event: asked.append(event.operation))
    directsuite_sandbox.inject_fault("SignAndPull", "status", status=503, retry_after=1, times=None)
    async with SigningJournal(tmp_path / "signing.db") as journal:
        with pytest.raises(JobStoppedError):
            await a_job(journal, max_outage=1.0).run()
        directsuite_sandbox.clear_faults()
        directsuite_clock.advance(timedelta(hours=5))
        asked.clear()
        assert (await a_job(journal).run()).done == 1
    assert list(dict.fromkeys(asked))[:2] == ["Save", "SignAndPull"]
"""


@pytest.mark.parametrize("program", [TRACKER, FAXES, SIGNING_JOB], ids=["delivery", "faxes", "signing job"])
def test_jobs_have_the_time_of_the_suite(program: str, tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("test_mine.py", program)
    counts, written = project.run()
    assert counts == {"passed": 3}, written
