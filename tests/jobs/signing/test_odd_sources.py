"""Sources that fail, change, repeat names, or contain files that are not PDFs."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from directsuite.jobs.signing import Folder, JobStoppedError, Pdf, SigningJob, TargetFolder
from directsuite.jobs.signing.documents import MAX_IN_MEMORY_BYTES
from directsuite.jobs.signing.workflow import DocumentProblem
from tests.jobs.signing.fragile_service import Fault
from tests.jobs.signing.job_factory import PDF_CONTENT, SIGNATURES, JobFactory, yield_pdfs


def failing(error: Exception) -> Callable[[], Awaitable[bytes]]:
    async def read() -> bytes:
        raise error

    return read


async def test_only_unreadable_documents_fail(jobs: JobFactory) -> None:
    numbers = [errno.ENOENT, errno.EACCES, errno.ENAMETOOLONG]
    errors = [
        *(OSError(number, os.strerror(number), "/in/ada.pdf") for number in numbers),
        ds.MissingFileError("the file does not exist", parameter="pdf"),
        ds.UnreadableFileError("the file can't be read", parameter="pdf", errno=errno.EACCES),
    ]
    progress = await jobs.run(*(Pdf(f"{number}.pdf", failing(each)) for number, each in enumerate(errors)), "b.pdf")
    assert (progress.done, progress.failed) == (1, len(errors))
    problems = [f"it can't be read ({os.strerror(number)})" for number in [*numbers, errno.ENOENT, errno.EACCES]]
    assert await jobs.list_problems() == problems


TROUBLE = [OSError(errno.EIO, "I/O error", "/in/ada.pdf"), TimeoutError("ada.pdf")]


@pytest.mark.parametrize("error", TROUBLE)
async def test_failing_source_is_retried(error: OSError, jobs: JobFactory) -> None:
    faults = [error] * 6

    async def read() -> bytes:
        if faults:
            raise faults.pop()
        return PDF_CONTENT

    assert (await jobs.run(Pdf("a.pdf", read))).done == 1
    assert jobs.clock.sleeps == [1, 2, 4, 8, 16, 32]


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("concurrency", [1, 10])
@pytest.mark.parametrize("error", TROUBLE)
async def test_unreadable_document_does_not_block_others(error: OSError, concurrency: int, jobs: JobFactory) -> None:
    others = [f"{number}.pdf" for number in range(20)]
    progress = await jobs.run(Pdf("a.pdf", failing(error)), *others, concurrency=concurrency)
    assert (progress.done, progress.failed) == (20, 1)
    [failed] = await jobs.journal.failures()
    assert failed.problem is not None
    assert failed.problem.startswith("it can't be read (")
    assert "ada" not in failed.problem


async def test_permanently_failing_source_stops_job_early(jobs: JobFactory) -> None:
    with pytest.raises(JobStoppedError, match=r"20 documents failed one after the other.*can't be read"):
        await jobs.run(*(Pdf(f"{number}.pdf", failing(TimeoutError())) for number in range(100)), concurrency=2)
    assert len(await jobs.journal.failures()) < 25


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("concurrency", [1, 10])
async def test_cancelled_source_function_fails_its_document(concurrency: int, jobs: JobFactory) -> None:
    async def cancelled() -> bytes:
        fetching = asyncio.ensure_future(asyncio.Event().wait())
        fetching.cancel()
        await fetching
        return PDF_CONTENT

    progress = await jobs.run(Pdf("a.pdf", cancelled), "b.pdf", "c.pdf", concurrency=concurrency)
    assert (progress.done, progress.failed) == (2, 1)
    assert await jobs.list_problems() == ["it can't be read (it was cancelled)"]


async def test_cancelled_task_in_target_stops_job(jobs: JobFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    async def keep(*_: object) -> None:
        raise asyncio.CancelledError

    target = TargetFolder(jobs.out)
    monkeypatch.setattr(target, "publish", keep)
    with pytest.raises(JobStoppedError, match="a document waited for a task that was cancelled"):
        await jobs.run("a.pdf", "b.pdf", target=target, concurrency=1)


async def test_file_that_disappears_during_save_fails_its_document(jobs: JobFactory, tmp_path: Path) -> None:
    async def remove(pdf: Path) -> None:
        await asyncio.to_thread(pdf.unlink)

    file = tmp_path / "a.pdf"
    file.write_bytes(PDF_CONTENT.rjust(MAX_IN_MEMORY_BYTES + 1))
    jobs.service.before = {"save": remove}
    assert (await jobs.run(Pdf("a.pdf", file))).failed == 1
    assert await jobs.list_problems() == ["it can't be read (No such file or directory)"]


async def test_large_file_that_changes_during_save_is_not_signed(jobs: JobFactory, tmp_path: Path) -> None:
    async def change(pdf: Path) -> None:
        await asyncio.to_thread(pdf.write_bytes, (PDF_CONTENT + b" of another").rjust(MAX_IN_MEMORY_BYTES + 2))

    file = tmp_path / "a.pdf"
    file.write_bytes(PDF_CONTENT.rjust(MAX_IN_MEMORY_BYTES + 1))
    jobs.service.before = {"save": change}
    assert (await jobs.run(Pdf("a.pdf", file))).failed == 1
    assert await jobs.list_problems() == [DocumentProblem.SOURCE_CHANGED.text]
    assert (jobs.list_outputs(), jobs.service.stored, jobs.service.request_counts.total()) == ([], {}, 0)


async def test_file_changed_before_second_save_is_not_signed(jobs: JobFactory, tmp_path: Path) -> None:
    async def change(_: str) -> None:
        file.write_bytes(PDF_CONTENT + b" of another")

    file = tmp_path / "a.pdf"
    file.write_bytes(PDF_CONTENT)
    jobs.service.before, jobs.service.faults = {"download": change}, [None, Fault.REQUEST_LOST]
    assert (await jobs.run(Pdf("a.pdf", file))).failed == 1
    assert await jobs.list_problems() == [DocumentProblem.SOURCE_CHANGED.text]
    assert jobs.service.documents_created == 1


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_repeated_name_is_signed_once_and_logged(
    concurrency: int, jobs: JobFactory, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "directsuite"):
        progress = await jobs.run("ada.pdf", "ada.pdf", "b.pdf", "ada.pdf", "b.pdf", concurrency=concurrency)
    assert (progress.done, progress.passed_over) == (2, 3)
    assert jobs.service.documents_created == 2
    assert "yielded document 1 of the journal twice" in caplog.text
    assert "ada" not in caplog.text


async def test_cancelled_source_is_not_complete(jobs: JobFactory) -> None:
    async def source() -> AsyncGenerator[Pdf]:
        yield Pdf("a.pdf", PDF_CONTENT)
        fetching = asyncio.ensure_future(asyncio.Event().wait())
        fetching.cancel()
        await fetching

    with pytest.raises(JobStoppedError, match="the source can't be read"):
        await jobs.make_job(source()).run()


async def test_staging_files_are_not_documents(jobs: JobFactory, tmp_path: Path) -> None:
    making = tmp_path / "year" / "january" / ".directsuite" / "ab.0"
    making.mkdir(parents=True)
    for file in (making / "3.pdf", tmp_path / "year" / "january" / "ada.pdf"):
        file.write_bytes(PDF_CONTENT)
    assert [each.name async for each in Folder(tmp_path / "year")] == ["january/ada.pdf"]


@pytest.mark.parametrize(
    ("source", "signatures", "said"),
    [
        ([Pdf("a.pdf", PDF_CONTENT)], SIGNATURES, "source must be"),
        (None, SIGNATURES[0], "signatures must be"),
        (None, "PatientSig", "signatures must be"),
        (None, [*SIGNATURES, "PatientSig"], "signatures must be"),
        (None, [], "at least"),
    ],
)
async def test_invalid_source_or_signature_is_rejected(
    source: Any, signatures: Any, said: str, jobs: JobFactory
) -> None:
    service: Any = jobs.service
    with pytest.raises(ds.ConfigurationError, match=said):
        SigningJob(service, source or yield_pdfs("a.pdf"), TargetFolder(jobs.out), signatures, journal=jobs.journal)


async def test_source_that_was_read_by_an_earlier_run_is_rejected(jobs: JobFactory) -> None:
    job = jobs.make_job(yield_pdfs("a.pdf", "../b.pdf"))
    assert (await job.run()).failed == 1
    for run in (job.run, job.run_failed):
        with pytest.raises(ds.ConfigurationError, match="the source can be read only once"):
            await run()
    with pytest.raises(ds.ConfigurationError, match="the source can be read only once"):
        await anext(job.results())


async def test_service_error_of_a_source_is_raised(jobs: JobFactory) -> None:
    async def yield_attachments() -> AsyncGenerator[Pdf]:
        yield Pdf("a.pdf", PDF_CONTENT)
        raise ds.DeadlineExceededError("no response", operation="GetMessages")

    with pytest.raises(ds.DeadlineExceededError, match="no response"):
        await jobs.make_job(yield_attachments()).run()


async def test_source_that_cannot_read_a_file_stops_the_job(jobs: JobFactory) -> None:
    async def yield_files() -> AsyncGenerator[Pdf]:
        yield Pdf("a.pdf", PDF_CONTENT)
        raise ds.MissingFileError("the file does not exist", parameter="path", filename="ada.pdf")

    with pytest.raises(JobStoppedError, match="the source can't be read") as found:
        await jobs.make_job(yield_files()).run()
    assert (found.value.reason, found.value.__cause__) == ("source not readable", None)


def test_folder_whose_name_is_too_long_is_an_invalid_argument(tmp_path: Path) -> None:
    with pytest.raises(ds.InvalidArgumentError, match="path: ") as refused:
        Folder(tmp_path / ("ada" * 100))
    assert "ada" not in str(refused.value)


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
async def test_only_circular_link_in_folder_fails(tmp_path: Path, jobs: JobFactory) -> None:
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "a.pdf").symlink_to(folder / "a.pdf")
    (folder / "b.pdf").write_bytes(PDF_CONTENT)
    progress = await jobs.make_job(Folder(folder)).run()
    assert (progress.done, progress.failed) == (1, 1)
    assert await jobs.list_problems() == [f"it can't be read ({os.strerror(errno.ELOOP)})"]
