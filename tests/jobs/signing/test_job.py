"""A job of many documents: what it passes over, what it waits for, and when it stops."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

import directsuite as ds
from directsuite.jobs.signing import (
    Folder,
    JobStoppedError,
    Journal,
    JournalError,
    Pdf,
    SigningJob,
    State,
    TargetFolder,
)
from directsuite.sandbox import Sandbox
from tests.jobs.signing.fragile_service import SIGNATURE, Fault, FragileService
from tests.jobs.signing.jobs import CONTENT, SIGN, Jobs, pdfs
from tests.waiting import until


class RefusesAll(FragileService):
    """Has none of the documents."""

    async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
        """Refuse a PDF."""
        raise ds.ServiceError("too large", operation="Save", status=413, outcome=ds.Outcome.FAILED)


async def test_a_folder_is_signed_name_by_name_and_a_second_run_has_nothing_to_do(jobs: Jobs, tmp_path: Path) -> None:
    source = tmp_path / "in"
    for name in ("a.pdf", "b/c.pdf", "b/d.pdf"):
        file = source / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(CONTENT)
    (source / "e.txt").write_text("no PDF")
    progress = await jobs.job(Folder(source)).run()
    assert (progress.done, progress.failed, progress.passed_over) == (3, 0, 0)
    assert jobs.signed() == ["a.pdf", "b/c.pdf", "b/d.pdf"]
    assert (jobs.out / "b" / "c.pdf").read_bytes() == CONTENT + SIGNATURE
    assert jobs.service.stored == {}
    again = await jobs.job(Folder(source)).run()
    assert (again.done, again.passed_over) == (0, 3)
    assert jobs.service.made == 3


async def test_one_that_is_refused_is_listed_and_signed_when_that_is_asked_for(jobs: Jobs) -> None:
    progress = await jobs.job(pdfs("good.pdf", "../out of it.pdf")).run()
    assert (progress.done, progress.failed) == (1, 1)
    [failed] = await jobs.journal.failures()
    assert failed.name == "../out of it.pdf"
    assert failed.problem is not None
    assert "no path below the target" in failed.problem
    assert jobs.service.asked.total() == 1  # nobody signs what can't be kept
    assert (await jobs.job(pdfs("good.pdf", "../out of it.pdf")).run()).passed_over == 2
    assert await jobs.journal.renew("something else") == 0
    assert await jobs.journal.renew(failed.problem) == 1
    assert (await jobs.job(pdfs("good.pdf", "../out of it.pdf")).run()).failed == 1


async def test_a_source_that_changed_meanwhile_is_not_signed(jobs: Jobs) -> None:
    jobs.service.faults = [None, Fault.CRASH_BEFORE]
    with contextlib.suppress(BaseException):
        await jobs.job(pdfs("a.pdf")).run()
    progress = await jobs.job(pdfs("a.pdf", content=CONTENT + b" other")).run()
    assert (progress.done, progress.failed) == (0, 1)
    assert (await jobs.journal.tally()).abandoned == 1


@pytest.mark.parametrize("fault", [None, Fault.ANSWER_LOST])
async def test_pdf_with_a_time_stamp_beside_the_signature_is_kept(fault: Fault | None, jobs: Jobs) -> None:
    jobs.service.timestamps = 1
    jobs.service.faults = [None, fault]
    progress = await jobs.job(pdfs("a.pdf")).run()
    assert (progress.done, progress.failed) == (1, 0)
    assert (jobs.out / "a.pdf").read_bytes() == CONTENT + SIGNATURE * 2
    assert jobs.service.asked.total() == 1


async def test_signed_pdf_without_its_end_is_not_kept(jobs: Jobs) -> None:
    class CutsOff(FragileService):
        """Returns the start of a signed PDF, with its signature."""

        def _signed(self, identifier: str, signatures: int) -> bytes:
            return super()._signed(identifier, signatures).replace(b"%%EOF", b"")

    progress = await jobs.job(pdfs("a.pdf"), service=CutsOff()).run()
    assert (progress.done, progress.failed) == (0, 1)
    assert jobs.signed() == []


async def test_trouble_is_waited_out_and_nothing_fails(jobs: Jobs) -> None:
    jobs.service.faults = [Fault.NOT_SENT] * 5
    progress = await jobs.job(pdfs("a.pdf"), concurrency=1).run()
    assert (progress.done, progress.failed, progress.trouble) == (1, 0, None)
    assert jobs.clock.slept == [1, 2, 4, 8, 16]


async def test_trouble_that_lasts_stops_the_job_and_the_next_run_goes_on(jobs: Jobs) -> None:
    jobs.service.faults = [None] * 3 + [Fault.NOT_SENT] * 1000
    with pytest.raises(JobStoppedError, match="too long") as stopped:
        await jobs.job(pdfs("a.pdf", "b.pdf"), concurrency=1, patience=100).run()
    assert isinstance(stopped.value.__cause__, ds.ConnectFailedError)
    assert 100 < sum(jobs.clock.slept) < 200
    jobs.service.faults = []
    assert (await jobs.job(pdfs("a.pdf", "b.pdf")).run()).done == 1
    assert jobs.signed() == ["a.pdf", "b.pdf"]


async def test_the_rate_is_that_of_the_last_15_minutes_of_a_run(jobs: Jobs, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number in range(4):
        (source / f"{number}.pdf").write_bytes(CONTENT)
    remembered = list[int]()

    def signatures(pdf: Pdf) -> list[ds.Signature]:
        """An hour later."""
        jobs.clock.now += 3600
        remembered.append(len(job._rate))
        return SIGN

    job = jobs.job(Folder(source), signatures=signatures, concurrency=1)
    assert (await job.run()).rate == 1 / 900
    assert remembered == [0, 1, 1, 1]  # also where nobody asks how it stands
    assert (await job.run()).rate == 0


async def test_many_failures_in_a_row_stop_the_job(jobs: Jobs) -> None:
    with pytest.raises(JobStoppedError, match="20 documents failed one after the other"):
        await jobs.job(pdfs(*(f"../{number}.pdf" for number in range(50))), concurrency=1).run()
    assert (await jobs.journal.tally()).states[State.FAILED] == 20


async def test_a_job_that_failures_stopped_says_how_they_are_tried_again(jobs: Jobs) -> None:
    names = [f"{number}.pdf" for number in range(25)]
    service = RefusesAll()
    with pytest.raises(JobStoppedError) as stopped:
        await jobs.job(pdfs(*names), service=service, concurrency=1).run()
    why = "20 documents failed one after the other; the last: too large"
    assert stopped.value.why == why
    assert str(stopped.value).startswith(f"{why}: see what is wrong with them")
    assert [word for word in ("run_failed", "renew", "passes them over") if word not in str(stopped.value)] == []
    again = await jobs.job(pdfs(*names)).run()  # the service takes them by now
    assert (again.done, again.passed_over) == (5, 20)
    assert (await jobs.job(pdfs(*names)).run_failed()).done == 20


async def test_what_fails_again_as_before_keeps_nothing_else_from_being_tried_again(jobs: Jobs) -> None:
    names = [f"{number}.pdf" for number in range(30)]
    with pytest.raises(JobStoppedError):
        await jobs.job(pdfs(*names), service=RefusesAll(), concurrency=1).run()
    assert (await jobs.job(pdfs(*names), service=RefusesAll(), concurrency=1).run()).failed == 10

    class RefusesMost(FragileService):
        """Has the last five of them."""

        saved = 0

        async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
            self.saved += 1
            if self.saved <= 25:
                raise ds.ServiceError("too large", operation="Save", status=413, outcome=ds.Outcome.FAILED)
            return await super().save(pdf)

    progress = await jobs.job(pdfs(*names), service=RefusesMost(), concurrency=1).run_failed()
    assert (progress.done, progress.failed) == (5, 25)


async def test_files_that_are_no_pdfs_stop_no_job(jobs: Jobs, tmp_path: Path) -> None:
    names = [f"{number}.pdf" for number in range(30)]
    async with Sandbox() as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
        job = SigningJob(
            suite.signing, pdfs(*names, content=b"no PDF"), TargetFolder(tmp_path / "out"), SIGN, journal=jobs.journal
        )
        assert (await job.run()).failed == 30


async def test_paused_it_begins_nothing_and_drained_it_ends(jobs: Jobs) -> None:
    job = jobs.job(pdfs(*(f"{number}.pdf" for number in range(50))), concurrency=2)
    job.pause()
    running = asyncio.create_task(job.run())
    await until(lambda: bool(job._open._waiters))
    assert (job.progress.done, jobs.service.made) == (0, 0)
    job.resume()
    await until(lambda: job.progress.done > 0)
    job.drain()
    progress = await running
    assert 1 <= progress.done <= 4
    assert progress.under_way == 0
    assert len(jobs.signed()) == progress.done
    states = (await jobs.journal.tally()).states
    assert states[State.DONE] == progress.done
    assert states[State.SIGNING] == states[State.SAVED] == states[State.SIGNED] == 0


async def test_a_journal_belongs_to_what_is_signed_with(jobs: Jobs) -> None:
    await jobs.job(pdfs("a.pdf")).run()
    with pytest.raises(ds.ConfigurationError, match="a journal of its own"):
        await jobs.job(pdfs("b.pdf"), signatures=[ds.Signature(name="other")]).run()


async def test_a_journal_is_open_once(jobs: Jobs, tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="open already"):
        async with Journal(tmp_path / "journal.db"):
            pass


def test_nothing_to_sign_with_is_refused(jobs: Jobs) -> None:
    with pytest.raises(ds.ConfigurationError, match="at least one signature"):
        jobs.job(pdfs(), signatures=[])


async def test_what_is_stored_and_could_not_be_deleted_is_deleted_later(jobs: Jobs) -> None:
    jobs.service.faults = [None, None, Fault.NOT_SENT, Fault.NOT_SENT]
    assert (await jobs.job(pdfs("a.pdf")).run()).done == 1
    assert len(jobs.service.stored) == 1
    await jobs.job(pdfs("a.pdf")).run()
    assert jobs.service.stored == {}
    assert await jobs.journal.abandoned() == []
