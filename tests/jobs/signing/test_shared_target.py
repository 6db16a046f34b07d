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
from directsuite.jobs.signing import Journal, Pdf, SigningJob, TargetFolder
from tests.jobs.signing.fragile_service import SIGNATURE
from tests.jobs.signing.jobs import CONTENT, Jobs, pdfs


class SharedFolder(TargetFolder):
    """Lets another job come to its end before it keeps anything."""

    other: SigningJob | None = None

    async def keep(self, name: str, file: Path) -> None:
        """Late."""
        if self.other is not None:
            other, self.other = self.other, None
            await other.run()
        await super().keep(name, file)


async def test_each_output_is_made_of_its_own_source(jobs: Jobs, tmp_path: Path) -> None:
    one, other = CONTENT + b" of Ada", CONTENT + b" of Bob"
    target = SharedFolder(jobs.out)
    job = jobs.job(pdfs("Ada.pdf", content=one), target=target)
    async with Journal(tmp_path / "other.db") as journal:
        target.other = Jobs(tmp_path, journal).job(pdfs("Bob.pdf", content=other), service=jobs.service)
        assert (await job.run()).done == 1
    assert (jobs.out / "Ada.pdf").read_bytes() == one + SIGNATURE
    assert (jobs.out / "Bob.pdf").read_bytes() == other + SIGNATURE
    assert sorted(each.name for each in jobs.out.iterdir()) == ["Ada.pdf", "Bob.pdf"]


async def test_what_a_job_left_in_the_making_is_taken_away_when_its_next_run_begins(jobs: Jobs) -> None:
    TargetFolder(jobs.out)
    left = jobs.out / ".directsuite" / f"{await jobs.journal.part()}.0" / "1.pdf"
    others = jobs.out / ".directsuite" / "other.0" / "1.pdf"
    for file in (left, others):
        file.parent.mkdir(parents=True)
        file.write_bytes(CONTENT)
    seen = list[bool]()

    async def source() -> AsyncGenerator[Pdf]:
        seen.append(left.exists())
        yield Pdf("a.pdf", CONTENT)

    await jobs.job(source()).run()
    assert seen == [False]
    assert others.exists()


async def test_a_turn_takes_away_what_earlier_ones_left_and_nothing_of_a_later_one(jobs: Jobs) -> None:
    target = TargetFolder(jobs.out)
    async with target.staging_dir("part", 1) as earlier, target.staging_dir("part", 2) as later:
        assert not earlier.exists()
        async with target.staging_dir("part", 1):  # its worker was paused before it came to this
            assert later.exists()


async def test_who_is_cancelled_while_a_staging_folder_is_made_leaves_it_unlocked(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = TargetFolder(jobs.out)
    begun, go_on, made = threading.Event(), threading.Event(), list[FileLock]()

    def slowly(folder: Path) -> FileLock:
        begun.set()
        go_on.wait(20)
        made.append(lock_file(folder / "lock"))
        return made[0]

    monkeypatch.setattr("directsuite.jobs.signing.targets._locked", slowly)
    working = asyncio.create_task(jobs.job(pdfs("a.pdf"), target=target).run())
    await asyncio.to_thread(begun.wait, 20)
    working.cancel()
    await asyncio.wait([working])
    go_on.set()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})  # the one that makes it, in a thread
    assert not is_open(made[0].descriptor)


async def test_run_after_a_cancelled_one_keeps_its_staging_folder(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    target = TargetFolder(jobs.out)
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

    monkeypatch.setattr("directsuite.jobs.signing.targets._locked", lock_slowly)
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
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[Path] = []

    def lock_after_another(path: Path, *, create: bool = True) -> FileLock:
        if not removed:
            removed.append(path)
            path.parent.rmdir()  # by the process that has locked the folder
            raise BlockingIOError
        return lock_file(path, create=create)

    monkeypatch.setattr("directsuite.durable.files.lock_file", lock_after_another)
    async with TargetFolder(jobs.out).staging_dir("part") as folder:
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
    (part / "1.pdf").write_bytes(CONTENT)
    at = time.time() - age
    for each in (*part.iterdir(), part):
        os.utime(each, (at, at))
    return part


@pytest.mark.skipif(sys.platform == "win32", reason="parts are locked elsewhere")
async def test_what_a_job_left_whose_journal_is_deleted_is_taken_away_after_a_day(jobs: Jobs) -> None:
    left = await left_in(TargetFolder(jobs.out), age=DAY + 60)
    assert (await jobs.job(pdfs("a.pdf")).run()).done == 1
    assert not left.exists()
    assert [each.name for each in jobs.out.iterdir()] == ["a.pdf"]


async def test_what_another_job_left_is_kept_while_it_may_be_of_use(jobs: Jobs) -> None:
    left = await left_in(TargetFolder(jobs.out), age=DAY - 60)
    await jobs.job(pdfs("a.pdf")).run()
    assert (left / "1.pdf").exists()


async def test_a_part_that_nothing_tells_the_end_of_is_kept(jobs: Jobs) -> None:
    left = await left_in(TargetFolder(jobs.out), age=9 * DAY, lock=False)
    await jobs.job(pdfs("a.pdf")).run()
    assert (left / "1.pdf").exists()


async def test_a_job_that_waits_for_days_keeps_its_part(jobs: Jobs) -> None:
    target = TargetFolder(jobs.out)
    async with target.staging_dir("waiting") as part:
        at = time.time() - 9 * DAY
        for each in (*part.iterdir(), part):
            os.utime(each, (at, at))
        await jobs.job(pdfs("a.pdf")).run()
        (part / "2.pdf").write_bytes(CONTENT)
        await target.keep("b.pdf", part / "2.pdf")
    assert sorted(each.name for each in jobs.out.iterdir()) == ["a.pdf", "b.pdf"]
