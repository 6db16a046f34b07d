"""The end of a job: drained, cancelled, or ended by an error of the source or of a document."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.signing import DocumentState, Folder, JobStoppedError, Pdf, SigningJournalError, TargetFolder
from tests.core.virtual_time import yield_to_loop
from tests.jobs.signing.fragile_service import Fault
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory, yield_pdfs
from tests.waiting import wait_until


async def endless(*names: str) -> AsyncGenerator[Pdf]:
    for name in names:
        yield Pdf(name, PDF_CONTENT)
    await asyncio.Event().wait()


async def test_drain_does_not_wait_for_idle_source(jobs: JobFactory) -> None:
    job = jobs.make_job(endless("a.pdf", "b.pdf", "c.pdf"))
    running = asyncio.create_task(job.run())
    await wait_until(lambda: job.progress.done == 3)
    job.drain()
    assert (await running).done == 3


async def test_drain_before_start_applies_to_that_run_only(jobs: JobFactory, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.pdf").write_bytes(PDF_CONTENT)
    job = jobs.make_job(Folder(tmp_path / "in"))
    running = asyncio.create_task(job.run())
    job.drain()
    assert (await running).done == 0
    assert jobs.service.documents_created == 0
    job.drain()
    assert (await job.run()).done == 0
    assert (await job.run()).done == 1


async def test_drain_during_cleanup_applies(jobs: JobFactory) -> None:
    [entry] = await jobs.journal.lease.entries(["left.pdf"])
    await jobs.journal.lease.abandon(
        attrs.evolve(entry, identifier="left"), at=0.0, then=DocumentState.FAILED, reason="refused"
    )
    deleting, go_on = asyncio.Event(), asyncio.Event()

    async def hold(_: str) -> None:
        deleting.set()
        await go_on.wait()

    jobs.service.stored["left"], jobs.service.before = PDF_CONTENT, {"delete": hold}
    job = jobs.make_job(yield_pdfs("a.pdf"))
    running = asyncio.create_task(job.run())
    await deleting.wait()
    job.drain()
    with pytest.raises(ds.ConfigurationError):
        await job.run()  # rejected, without an effect on the running job
    go_on.set()
    assert (await running).done == 0
    assert jobs.service.documents_created == 0


async def test_pause_while_waiting_for_source_starts_nothing(jobs: JobFactory) -> None:
    go_on = asyncio.Event()

    async def source() -> AsyncGenerator[Pdf]:
        yield Pdf("first.pdf", PDF_CONTENT)
        await go_on.wait()
        for number in range(20):
            yield Pdf(f"{number}.pdf", PDF_CONTENT)

    job = jobs.make_job(source(), concurrency=10)
    running = asyncio.create_task(job.run())
    await wait_until(lambda: job.progress.done == 1)
    job.pause()
    go_on.set()
    await wait_until(lambda: bool(job._open._waiters))
    assert (job.progress.under_way, jobs.service.documents_created) == (0, 1)
    job.resume()
    assert (await running).done == 21


@pytest.mark.parametrize("who", ["one job, run twice", "two jobs on one journal"])
async def test_concurrent_run_on_same_journal_is_rejected(who: str, jobs: JobFactory) -> None:
    job = jobs.make_job(endless("a.pdf", "b.pdf"))
    running = asyncio.create_task(job.run())
    await wait_until(lambda: job.progress.done == 2)
    job.drain()
    other = job if who.startswith("one") else jobs.make_job(yield_pdfs("c.pdf"))
    for refused in (other.run(), other.run_failed()):
        with pytest.raises(ds.ConfigurationError, match="another run is using this journal"):
            await refused
    assert (await running).done == 2  # it is drained as before
    assert job.progress.done == 2
    assert set(await jobs.journal.lease.find_entries(["a.pdf", "b.pdf", "c.pdf"])) == {"a.pdf", "b.pdf"}
    assert (await jobs.run("c.pdf")).done == 1


async def test_failing_source_ends_job_after_documents_in_progress(jobs: JobFactory) -> None:
    async def source() -> AsyncGenerator[Pdf]:
        for name in ("a.pdf", "b.pdf"):
            yield Pdf(name, PDF_CONTENT)
        raise LookupError("the list ends here")

    job = jobs.make_job(source())
    with pytest.raises(LookupError, match="the list ends here"):
        await job.run()
    assert job.progress.done == 2
    assert jobs.list_outputs() == ["a.pdf", "b.pdf"]


@pytest.mark.parametrize("error", [LookupError("no picture"), FileNotFoundError("no picture")])
async def test_error_of_signatures_function_ends_job(error: Exception, jobs: JobFactory) -> None:
    def signatures(_: Pdf) -> list[ds.Signature]:
        raise error

    with pytest.raises(type(error), match="no picture"):
        await jobs.run("a.pdf", signatures=signatures)


async def test_drain_in_outage_leaves_documents_to_next_run(jobs: JobFactory) -> None:
    jobs.service.faults = [Fault.NOT_SENT] * 1000
    job = jobs.make_job(yield_pdfs("a.pdf"), concurrency=1)
    running = asyncio.create_task(job.run())
    await wait_until(lambda: job.progress.trouble is not None)
    job.drain()
    progress = await running
    assert (progress.done, progress.failed, progress.trouble) == (0, 0, "ConnectFailedError")
    jobs.service.faults = []
    assert (await jobs.run("a.pdf")).done == 1


async def test_cancelled_run_leaves_documents_to_next_run(jobs: JobFactory) -> None:
    asked = asyncio.Event()

    async def content() -> bytes:
        asked.set()
        await asyncio.Event().wait()
        return PDF_CONTENT

    job = jobs.make_job(yield_pdfs("a.pdf", Pdf("b.pdf", content)))
    running = asyncio.create_task(job.run())
    await asked.wait()
    await wait_until(lambda: job.progress.done == 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not (jobs.out / ".directsuite").exists()
    assert (await jobs.journal.tally()).states == {DocumentState.DONE: 1, DocumentState.NEW: 1}
    assert (await jobs.run("a.pdf", "b.pdf")).done == 1
    assert jobs.service.documents_created == 2


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("concurrency", [2, 10])
async def test_document_that_fails_service_does_not_block_others(concurrency: int, jobs: JobFactory) -> None:
    poison, tries = b"%PDF-1.7 poison %%EOF", 0

    async def fail_with_poison(pdf: bytes) -> None:
        nonlocal tries
        if pdf == poison:
            tries += 1
            await wait_until(lambda: job.progress.done >= min(30, 9 + 3 * tries))
            raise ds.ServerError("it fails", operation="Save", status=500)

    jobs.service.before = {"save": fail_with_poison}
    source = yield_pdfs(Pdf("poison.pdf", poison), *(f"{number}.pdf" for number in range(30)))
    job = jobs.make_job(source, concurrency=concurrency)
    progress = await job.run()
    assert (progress.done, progress.failed) == (30, 1)
    [failed] = await jobs.journal.failures()
    assert (failed.name, failed.problem) == ("poison.pdf", "it fails")


async def test_any_rejection_fails_its_document(jobs: JobFactory) -> None:
    message = "at most\0 9 MB \ud800"
    jobs.service.errors = {"save": ds.ServiceError("too large", operation="Save", status=413, message=message)}
    progress = await jobs.run("large.pdf")
    assert (progress.failed, jobs.clock.sleeps) == (1, [])
    [failed] = await jobs.journal.failures()
    assert (failed.problem, failed.service_message) == ("too large", "at most 9 MB ?")
    assert "9 MB" not in repr(failed)


@pytest.mark.parametrize("path", [".", "out", "in/out"])
async def test_target_within_source_is_rejected_and_not_created(path: str, jobs: JobFactory, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "source" / path
    source.mkdir()
    target.parent.mkdir(exist_ok=True)
    before = sorted(source.rglob("*"))
    with pytest.raises(ds.ConfigurationError, match="within the source"):
        jobs.make_job(Folder(source), target=TargetFolder(target))
    assert sorted(source.rglob("*")) == before


async def test_target_beside_the_source_may_begin_with_its_name(jobs: JobFactory, tmp_path: Path) -> None:
    (tmp_path / "ou").mkdir()
    assert (await jobs.make_job(Folder(tmp_path / "ou")).run()).total == 0
    assert jobs.out.is_dir()


@pytest.mark.parametrize(("path", "why"), [("none/out", errno.ENOENT), ("file", errno.ENOTDIR)])
def test_target_that_cannot_be_a_folder_is_rejected(path: str, why: int, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ds.ConfigurationError, match=rf"can't be used \({os.strerror(why)}\)"):
        TargetFolder(tmp_path / path)


async def test_target_whose_parent_was_removed_stops_the_job(jobs: JobFactory, tmp_path: Path) -> None:
    (tmp_path / "parent").mkdir()
    job = jobs.make_job(yield_pdfs("a.pdf"), target=TargetFolder(tmp_path / "parent" / "out"))
    (tmp_path / "parent").rmdir()
    with pytest.raises(JobStoppedError, match=rf"the target can't be written \({os.strerror(errno.ENOENT)}\)"):
        await job.run()


async def test_journal_that_stays_full_does_not_hide_why_the_job_stopped(
    jobs: JobFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SigningJournalError("the journal can't be written (database or disk is full)")

    async def fail(*_: object) -> None:
        raise full

    async def fill_disk(_: str) -> None:
        for method in ("put", "forget_expired"):
            monkeypatch.setattr(jobs.journal.lease, method, fail)

    jobs.service.before = {"sign": fill_disk}
    with pytest.raises(JobStoppedError, match="disk is full") as caught:
        await jobs.run("a.pdf")
    assert caught.value.__cause__ is full


async def test_second_cancellation_ends_the_wait_for_a_source_that_ignores_it(jobs: JobFactory) -> None:
    released = asyncio.Event()

    async def yield_one() -> AsyncGenerator[Pdf]:
        yield Pdf("a.pdf", PDF_CONTENT)
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    job = jobs.make_job(yield_one())
    running = asyncio.create_task(job.run())
    await wait_until(lambda: job.progress.done == 1)
    running.cancel()
    await yield_to_loop()
    assert not running.done()
    running.cancel()
    try:
        await asyncio.wait([running], timeout=5)
        assert running.cancelled()
    finally:
        released.set()


async def test_exception_of_a_source_that_is_closed_early_is_not_logged(
    jobs: JobFactory, caplog: pytest.LogCaptureFixture
) -> None:
    async def yield_one() -> AsyncGenerator[Pdf]:
        try:
            yield Pdf("a.pdf", PDF_CONTENT)
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("could not close /in/ada.pdf")

    async def run_and_drain() -> None:
        job = jobs.make_job(yield_one())
        running = asyncio.create_task(job.run())
        await wait_until(lambda: job.progress.done == 1)
        job.drain()
        assert (await running).done == 1

    await run_and_drain()
    gc.collect()
    assert "ada" not in caplog.text
