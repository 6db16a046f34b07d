"""Staging folders: jobs with one target do not delete each other's, and an unwritable one fails no document."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from directsuite.jobs.signing import DocumentState, JobStoppedError, Pdf, SigningJob, SigningJournal, TargetFolder
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory, yield_pdfs


class SharedFolder(TargetFolder):
    """Lets another job finish before it publishes."""

    other: SigningJob | None = None

    async def publish(self, name: str, file: Path) -> None:
        if self.other is not None:
            other, self.other = self.other, None
            await other.run()
        await super().publish(name, file)


async def test_each_output_belongs_to_its_source(jobs: JobFactory, tmp_path: Path) -> None:
    one, other = PDF_CONTENT + b" of Ada", PDF_CONTENT + b" of Bob"
    target = SharedFolder(jobs.out)
    job = jobs.make_job(yield_pdfs("Ada.pdf", content=one), target=target)
    async with SigningJournal(tmp_path / "other.db") as journal:
        target.other = JobFactory(tmp_path, journal).make_job(
            yield_pdfs("Bob.pdf", content=other), service=jobs.service
        )
        assert (await job.run()).done == 1
    assert (jobs.out / "Ada.pdf").read_bytes() == one + SIGNATURE_BYTES
    assert (jobs.out / "Bob.pdf").read_bytes() == other + SIGNATURE_BYTES
    assert sorted(each.name for each in jobs.out.iterdir()) == ["Ada.pdf", "Bob.pdf"]


async def test_staging_folder_of_last_run_is_removed_at_start(jobs: JobFactory) -> None:
    left = jobs.out / ".directsuite" / f"{jobs.journal.lease.shard}.0" / "1.pdf"
    others = jobs.out / ".directsuite" / "other.0" / "1.pdf"
    for file in (left, others):
        file.parent.mkdir(parents=True)
        file.write_bytes(PDF_CONTENT)
    seen = list[bool]()

    async def source() -> AsyncGenerator[Pdf]:
        seen.append(left.exists())
        yield Pdf("a.pdf", PDF_CONTENT)

    await jobs.make_job(source()).run()
    assert seen == [False]
    assert others.exists()


async def test_run_removes_staging_folders_of_earlier_leases_only(jobs: JobFactory) -> None:
    target = TargetFolder(jobs.out)
    async with target.staging_dir("part", 1) as earlier, target.staging_dir("part", 2) as later:
        assert not earlier.exists()
        (later / "1.pdf").write_bytes(PDF_CONTENT)
        async with target.staging_dir("part", 1):  # its worker was suspended before this
            assert (later / "1.pdf").exists()
        assert (later / "1.pdf").exists()


async def test_staging_folder_is_created_if_its_parent_was_removed(
    jobs: JobFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, mkdir = list[Path](), Path.mkdir

    def mkdir_after_another(path: Path, *args: Any, **options: Any) -> None:
        if path.name == "part.0" and not removed:
            removed.append(path)
            raise FileNotFoundError
        mkdir(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir_after_another)
    async with TargetFolder(jobs.out).staging_dir("part") as folder:
        assert removed == [folder]
        assert folder.is_dir()


DAY = 24 * 3600.0


async def make_left_folder(target: TargetFolder, *, age: float) -> Path:
    """Return the staging folder of a killed job, with a PDF, last changed `age` seconds ago."""
    async with target.staging_dir("ended") as made:
        folder = made.rename(made.with_name("deleted.0"))
    (folder / "1.pdf").write_bytes(PDF_CONTENT)
    at = time.time() - age
    for each in (*folder.iterdir(), folder):
        os.utime(each, (at, at))
    return folder


async def test_staging_folder_without_journal_is_removed_after_a_week(jobs: JobFactory) -> None:
    left = await make_left_folder(TargetFolder(jobs.out), age=7 * DAY + 60)
    assert (await jobs.run("a.pdf")).done == 1
    assert not left.exists()
    assert [each.name for each in jobs.out.iterdir()] == ["a.pdf"]


async def test_staging_folder_of_another_job_is_kept(jobs: JobFactory) -> None:
    left = await make_left_folder(TargetFolder(jobs.out), age=7 * DAY - 60)
    await jobs.run("a.pdf")
    assert (left / "1.pdf").exists()


NAMES = [f"{number}.pdf" for number in range(10)]


async def after_its_staging_folder_has_gone(jobs: JobFactory) -> AsyncGenerator[Pdf]:
    """Yield documents after their staging folder was deleted."""
    shutil.rmtree(jobs.out / ".directsuite")
    async for pdf in yield_pdfs(*NAMES):
        yield pdf


async def test_documents_with_lost_responses_are_signed_once(jobs: JobFactory) -> None:
    for name in NAMES:
        identifier = str((await jobs.service.save(PDF_CONTENT)).identifier)
        jobs.service.stored[identifier] += SIGNATURE_BYTES
        jobs.service.request_counts[identifier] += 1
        await jobs.record_stored(name, DocumentState.SIGNING, identifier)
    with pytest.raises(JobStoppedError, match="the target can't be written"):
        await jobs.make_job(after_its_staging_folder_has_gone(jobs)).run()
    assert (await jobs.journal.tally()).states == {DocumentState.SIGNING: len(NAMES)}
    assert (await jobs.run(*NAMES)).done == len(NAMES)
    assert jobs.service.request_counts.total() == len(NAMES)


async def test_source_is_not_read_ahead_without_limit(jobs: JobFactory) -> None:
    with pytest.raises(JobStoppedError, match="the target can't be written"):
        await jobs.make_job(after_its_staging_folder_has_gone(jobs)).run()
    tally = await jobs.journal.tally()
    assert (tally.states[DocumentState.FAILED], tally.abandoned, jobs.service.request_counts.total()) == (0, 0, 0)
    assert (
        tally.states[DocumentState.SAVED] == len(jobs.service.stored) > 0
    )  # no stored document is missing in the journal
    assert (await jobs.run(*NAMES)).done == len(NAMES)
    assert jobs.service.request_counts.total() == len(NAMES)
