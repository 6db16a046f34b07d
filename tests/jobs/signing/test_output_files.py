"""Outputs on the disk: a full disk, and a run that is cancelled while a thread writes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from directsuite.jobs.signing import JobStoppedError, steps
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory

STEPS = ["sync the file", "rename the file", "sync the folder"]


def call_before(step: str, action: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Call a function before each execution of a step."""
    fsync, hardlink_to = os.fsync, Path.hardlink_to

    def act_and_sync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        if step == ("sync the folder" if is_folder else "sync the file"):
            action()
        fsync(descriptor)

    def act_and_link(place: Path, file: Path) -> None:
        if step == "rename the file":
            action()
        hardlink_to(place, file)

    patch.setattr(os, "fsync", act_and_sync)
    patch.setattr(Path, "hardlink_to", act_and_link)


async def require_signed_once(jobs: JobFactory) -> None:
    """Check that all signatures of a.pdf were requested once, and that nothing else is left."""
    assert jobs.service.request_counts.total() == 1
    assert (jobs.out / "a.pdf").read_bytes() == PDF_CONTENT + SIGNATURE_BYTES
    assert [each.name for each in jobs.out.iterdir()] == ["a.pdf"]
    assert jobs.service.stored == {}
    assert (await jobs.journal.tally()).abandoned == 0


@pytest.mark.parametrize("step", ["write the file", *STEPS])
async def test_next_run_publishes_what_was_signed_while_the_disk_was_full(step: str, jobs: JobFactory) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_full_device(_: Path) -> BinaryIO:
        return Path("/dev/full").open("wb")

    with pytest.MonkeyPatch.context() as patch:
        call_before(step, fail, patch)
        if step == "write the file":
            patch.setattr(steps, "create_file", open_full_device)
        with pytest.raises(JobStoppedError, match=re.escape(f"can't be written ({os.strerror(errno.ENOSPC)})")):
            await jobs.run("a.pdf")
    assert jobs.list_outputs() == (["a.pdf"] if step == "sync the folder" else [])
    assert (await jobs.run("a.pdf")).done == 1
    await require_signed_once(jobs)


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("continues", ["before the next run", "after the next run"])
@pytest.mark.parametrize("step", STEPS)
async def test_next_run_publishes_what_was_signed_before_a_cancellation(
    step: str, continues: str, jobs: JobFactory
) -> None:
    loop, reached, may_continue = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    executor = ThreadPoolExecutor()
    loop.set_default_executor(executor)

    def hold() -> None:
        if not reached.is_set():
            loop.call_soon_threadsafe(reached.set)
            assert may_continue.wait(60)

    def end_threads() -> None:
        may_continue.set()
        executor.shutdown()

    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        stack.callback(end_threads)
        call_before(step, hold, patch)
        running = asyncio.create_task(jobs.run("a.pdf"))
        async with asyncio.timeout(60):
            await reached.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        loop.set_default_executor(ThreadPoolExecutor())
        if continues == "before the next run":
            end_threads()
        assert (await jobs.run("a.pdf")).done == 1
    await require_signed_once(jobs)
