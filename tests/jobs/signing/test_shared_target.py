"""Several jobs into one target: none has what another has in the making."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from directsuite.durable.files import FileLock, lock_file
from directsuite.jobs.signing import Pdf, SigningJob, SigningJournal, TargetFolder
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory, yield_pdfs


class SharedFolder(TargetFolder):
    """Lets another job come to its end before it keeps anything."""

    other: SigningJob | None = None

    async def publish(self, name: str, file: Path) -> None:
        """Late."""
        if self.other is not None:
            other, self.other = self.other, None
            await other.run()
        await super().publish(name, file)


async def test_each_output_is_made_of_its_own_source(job_factory: JobFactory, tmp_path: Path) -> None:
    one, other = PDF_CONTENT + b" of Ada", PDF_CONTENT + b" of Bob"
    target = SharedFolder(job_factory.out)
    job = job_factory.make_job(yield_pdfs("Ada.pdf", content=one), target=target)
    async with SigningJournal(tmp_path / "other.db") as journal:
        target.other = JobFactory(tmp_path, journal).make_job(
            yield_pdfs("Bob.pdf", content=other), service=job_factory.service
        )
        assert (await job.run()).done == 1
    assert (job_factory.out / "Ada.pdf").read_bytes() == one + SIGNATURE_BYTES
    assert (job_factory.out / "Bob.pdf").read_bytes() == other + SIGNATURE_BYTES
    assert sorted(each.name for each in job_factory.out.iterdir()) == ["Ada.pdf", "Bob.pdf"]


async def test_staging_folder_of_last_run_is_removed_at_start(job_factory: JobFactory) -> None:
    TargetFolder(job_factory.out)
    left = job_factory.out / ".directsuite" / f"{await job_factory.journal.get_shard()}.0" / "1.pdf"
    others = job_factory.out / ".directsuite" / "other.0" / "1.pdf"
    for file in (left, others):
        file.parent.mkdir(parents=True)
        file.write_bytes(PDF_CONTENT)
    seen = list[bool]()

    async def source() -> AsyncGenerator[Pdf]:
        seen.append(left.exists())
        yield Pdf("a.pdf", PDF_CONTENT)

    await job_factory.make_job(source()).run()
    assert seen == [False]
    assert others.exists()


async def test_run_removes_staging_folders_of_earlier_leases_only(job_factory: JobFactory) -> None:
    target = TargetFolder(job_factory.out)
    async with target.staging_dir("part", 1) as earlier, target.staging_dir("part", 2) as later:
        assert not earlier.exists()
        async with target.staging_dir("part", 1):  # its worker was paused before it came to this
            assert later.exists()


async def test_cancel_while_creating_staging_folder_releases_lock(
    job_factory: JobFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = TargetFolder(job_factory.out)
    begun, go_on, made = threading.Event(), threading.Event(), list[FileLock]()

    def slowly(folder: Path) -> FileLock:
        begun.set()
        go_on.wait(20)
        made.append(lock_file(folder / "lock"))
        return made[0]

    monkeypatch.setattr("directsuite.jobs.signing.targets._lock_dir", slowly)
    working = asyncio.create_task(job_factory.make_job(yield_pdfs("a.pdf"), target=target).run())
    await asyncio.to_thread(begun.wait, 20)
    working.cancel()
    await asyncio.wait([working])
    go_on.set()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})  # the one that makes it, in a thread
    assert not is_open(made[0].descriptor)


async def test_run_after_a_cancelled_one_keeps_its_staging_folder(
    job_factory: JobFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = TargetFolder(job_factory.out)
    begun, go_on = threading.Event(), threading.Event()

    def lock_slowly(folder: Path) -> FileLock:
        lock = lock_file(folder / "lock")
        if not begun.is_set():
            begun.set()
            go_on.wait(20)
        return lock

    async def stage() -> None:
        async with target.staging_dir("part"):
            pass

    monkeypatch.setattr("directsuite.jobs.signing.targets._lock_dir", lock_slowly)
    first = asyncio.create_task(stage())
    await asyncio.to_thread(begun.wait, 20)
    first.cancel()
    await asyncio.wait([first])
    async with target.staging_dir("part") as folder:
        go_on.set()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})  # the one that made it first, in a thread
        await asyncio.sleep(0)
        assert folder.exists()


async def test_staging_folder_that_another_process_removes_is_made_again(
    job_factory: JobFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[Path] = []

    def lock_after_another(path: Path, *, create: bool = True) -> FileLock:
        if not removed:
            removed.append(path)
            path.parent.rmdir()  # by the process that has locked the folder
            raise BlockingIOError
        return lock_file(path, create=create)

    monkeypatch.setattr("directsuite.durable.files.lock_file", lock_after_another)
    async with TargetFolder(job_factory.out).staging_dir("part") as folder:
        assert removed == [folder / "lock"]
        assert (folder / "lock").exists()


def is_open(descriptor: int) -> bool:
    """Whether a file descriptor is."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


DAY = 24 * 3600.0


async def left_in(target: TargetFolder, *, age: float, lock: bool = True) -> Path:
    """A part of a job that was killed, with a PDF in it, changed so many seconds ago for the last time."""
    async with target.staging_dir("ended") as made:
        part = made.rename(made.with_name("deleted.0"))
    if not lock:
        (part / "lock").unlink()
    (part / "1.pdf").write_bytes(PDF_CONTENT)
    at = time.time() - age
    for each in (*part.iterdir(), part):
        os.utime(each, (at, at))
    return part


@pytest.mark.skipif(sys.platform == "win32", reason="parts are locked elsewhere")
async def test_staging_folder_without_journal_is_removed_after_a_day(job_factory: JobFactory) -> None:
    left = await left_in(TargetFolder(job_factory.out), age=DAY + 60)
    assert (await job_factory.make_job(yield_pdfs("a.pdf")).run()).done == 1
    assert not left.exists()
    assert [each.name for each in job_factory.out.iterdir()] == ["a.pdf"]


async def test_staging_folder_of_another_job_is_kept(job_factory: JobFactory) -> None:
    left = await left_in(TargetFolder(job_factory.out), age=DAY - 60)
    await job_factory.make_job(yield_pdfs("a.pdf")).run()
    assert (left / "1.pdf").exists()


async def test_staging_folder_without_lock_is_kept(job_factory: JobFactory) -> None:
    left = await left_in(TargetFolder(job_factory.out), age=9 * DAY, lock=False)
    await job_factory.make_job(yield_pdfs("a.pdf")).run()
    assert (left / "1.pdf").exists()


async def test_a_job_that_waits_for_days_keeps_its_part(job_factory: JobFactory) -> None:
    target = TargetFolder(job_factory.out)
    async with target.staging_dir("waiting") as part:
        at = time.time() - 9 * DAY
        for each in (*part.iterdir(), part):
            os.utime(each, (at, at))
        await job_factory.make_job(yield_pdfs("a.pdf")).run()
        (part / "2.pdf").write_bytes(PDF_CONTENT)
        await target.publish("b.pdf", part / "2.pdf")
    assert sorted(each.name for each in job_factory.out.iterdir()) == ["a.pdf", "b.pdf"]
