"""How a job comes to its end, or doesn't: drained, cancelled, broken off by its source, or by one document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.signing import Folder, JobStoppedError, Pdf, State, TargetFolder
from tests.jobs.signing.fragile_service import SIGNATURE, Fault, FragileService
from tests.jobs.signing.jobs import CONTENT, Jobs, pdfs
from tests.waiting import until

POISON = b"%PDF-1.7 poison %%EOF"


class FailsWithPoison(FragileService):
    """Has no usable answer for one document, and refuses another for a reason of its own."""

    poisoned = 0

    async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
        """Store a PDF."""
        if pdf == POISON:
            self.poisoned += 1
            others = min(30, 9 + 3 * self.poisoned)
            await until(lambda: self.made - len(self.stored) >= others)  # they have come through meanwhile
            raise ds.ServerError("it fails", operation="Save", status=500)
        if pdf == POISON * 2:
            raise ds.ServiceError("too large", operation="Save", status=413, message="at most\0 9 MB \ud800")
        return await super().save(pdf)


async def endless(*names: str) -> AsyncGenerator[Pdf]:
    """Documents by these names, and then nothing for ever."""
    for name in names:
        yield Pdf(name, CONTENT)
    await asyncio.Event().wait()


async def broken(*names: str) -> AsyncGenerator[Pdf]:
    """Documents by these names, and then a failure."""
    for name in names:
        yield Pdf(name, CONTENT)
    raise LookupError("the list ends here")


async def test_what_comes_is_signed_at_once_and_a_quiet_source_does_not_hold_up_a_drain(jobs: Jobs) -> None:
    job = jobs.job(endless("a.pdf", "b.pdf", "c.pdf"))
    running = asyncio.create_task(job.run())
    await until(lambda: job.progress.done == 3)
    job.drain()
    assert (await running).done == 3


async def test_a_drain_holds_before_the_run_has_had_its_turn_and_for_that_one_alone(jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.pdf").write_bytes(CONTENT)
    job = jobs.job(Folder(tmp_path / "in"))
    running = asyncio.create_task(job.run())
    job.drain()
    assert (await running).done == 0
    assert jobs.service.made == 0
    job.drain()
    assert (await job.run()).done == 0
    assert (await job.run()).done == 1


async def test_a_drain_holds_that_is_asked_for_while_leftovers_are_deleted(jobs: Jobs) -> None:
    [entry] = await jobs.journal.entries(["left.pdf"])
    await jobs.journal.abandon(attrs.evolve(entry, identifier="left"), at=0.0, then=State.FAILED, problem="refused")
    deleting, go_on = asyncio.Event(), asyncio.Event()

    class Slow(FragileService):
        """Takes its time to delete."""

        async def delete(self, identifier: str) -> ds.DocumentUpdate:
            """When it is let go."""
            deleting.set()
            await go_on.wait()
            return ds.DocumentUpdate(identifier=identifier)

    service = Slow()
    job = jobs.job(pdfs("a.pdf"), service=service)
    running = asyncio.create_task(job.run())
    await deleting.wait()
    job.drain()
    with pytest.raises(ds.ConfigurationError):
        await job.run()  # which is refused, and changes nothing
    go_on.set()
    assert (await running).done == 0
    assert service.made == 0


async def test_paused_while_the_source_is_waited_for_it_begins_nothing(jobs: Jobs) -> None:
    go_on = asyncio.Event()

    async def source() -> AsyncGenerator[Pdf]:
        yield Pdf("first.pdf", CONTENT)
        await go_on.wait()
        for number in range(20):
            yield Pdf(f"{number}.pdf", CONTENT)

    job = jobs.job(source(), concurrency=10)
    running = asyncio.create_task(job.run())
    await until(lambda: job.progress.done == 1)
    job.pause()
    go_on.set()
    await until(lambda: bool(job._open._waiters))
    assert (job.progress.under_way, jobs.service.made) == (0, 1)
    job.resume()
    assert (await running).done == 21


@pytest.mark.parametrize("who", ["one job, run twice", "two jobs on one journal"])
async def test_of_two_runs_with_one_journal_at_a_time_the_second_is_refused_and_touches_nothing(
    who: str, jobs: Jobs
) -> None:
    job = jobs.job(endless("a.pdf", "b.pdf"))
    running = asyncio.create_task(job.run())
    await until(lambda: job.progress.done == 2)
    job.drain()
    other = job if who.startswith("one") else jobs.job(pdfs("c.pdf"))
    for refused in (other.run(), other.run_failed()):
        with pytest.raises(ds.ConfigurationError, match="another run goes on with this journal"):
            await refused
    assert (await running).done == 2  # it is drained as before
    assert job.progress.done == 2
    assert set(await jobs.journal.known(["a.pdf", "b.pdf", "c.pdf"])) == {"a.pdf", "b.pdf"}
    assert (await jobs.job(pdfs("c.pdf")).run()).done == 1


async def test_a_source_that_fails_ends_the_job_when_others_have_come_to_their_end(jobs: Jobs) -> None:
    job = jobs.job(broken("a.pdf", "b.pdf"))
    with pytest.raises(LookupError, match="the list ends here"):
        await job.run()
    assert job.progress.done == 2
    assert jobs.signed() == ["a.pdf", "b.pdf"]


async def test_a_function_that_fails_ends_the_job(jobs: Jobs) -> None:
    def signatures(pdf: Pdf) -> list[ds.Signature]:
        """Nobody knows."""
        raise LookupError(pdf.name)

    with pytest.raises(LookupError, match=r"a\.pdf"):
        await jobs.job(pdfs("a.pdf"), signatures=signatures).run()


async def test_drained_in_trouble_it_leaves_what_is_under_way_to_the_next_run(jobs: Jobs) -> None:
    jobs.service.faults = [Fault.NOT_SENT] * 1000
    job = jobs.job(pdfs("a.pdf"), concurrency=1)
    running = asyncio.create_task(job.run())
    await until(lambda: job.progress.trouble is not None)
    job.drain()
    progress = await running
    assert (progress.done, progress.failed, progress.trouble) == (0, 0, "ConnectFailedError")
    jobs.service.faults = []
    assert (await jobs.job(pdfs("a.pdf")).run()).done == 1


async def test_cancelled_it_leaves_what_is_under_way_to_the_next_run(jobs: Jobs) -> None:
    asked = asyncio.Event()

    async def content() -> bytes:
        """It never comes."""
        asked.set()
        await asyncio.Event().wait()
        return CONTENT

    async def source() -> AsyncGenerator[Pdf]:
        yield Pdf("a.pdf", CONTENT)
        yield Pdf("b.pdf", content)

    job = jobs.job(source())
    running = asyncio.create_task(job.run())
    await asked.wait()
    await until(lambda: job.progress.done == 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not (jobs.out / ".directsuite").exists()
    assert (await jobs.journal.tally()).states == {State.DONE: 1, State.NEW: 1}
    assert (await jobs.job(pdfs("a.pdf", "b.pdf")).run()).done == 1
    assert jobs.service.made == 2


@pytest.mark.by_default(1)
@pytest.mark.parametrize("concurrency", [2, 10])
async def test_one_document_with_which_the_service_fails_does_not_hold_up_the_others(
    concurrency: int, jobs: Jobs
) -> None:
    async def source() -> AsyncGenerator[Pdf]:
        yield Pdf("poison.pdf", POISON)
        for number in range(30):
            yield Pdf(f"{number}.pdf", CONTENT)

    progress = await jobs.job(source(), service=FailsWithPoison(), concurrency=concurrency).run()
    assert (progress.done, progress.failed) == (30, 1)
    [failed] = await jobs.journal.failures()
    assert (failed.name, failed.problem) == ("poison.pdf", "it fails")


async def test_a_refusal_of_any_kind_is_the_documents_own(jobs: Jobs) -> None:
    progress = await jobs.job(pdfs("large.pdf", content=POISON * 2), service=FailsWithPoison()).run()
    assert (progress.failed, jobs.clock.slept) == (1, [])
    [failed] = await jobs.journal.failures()
    assert (failed.problem, failed.service_message) == ("too large", "at most 9 MB ?")
    assert "9 MB" not in repr(failed)


async def test_a_target_within_the_source_is_refused(jobs: Jobs, tmp_path: Path) -> None:
    for within in (tmp_path, tmp_path / "out"):
        source = Folder(within) if within.is_dir() else Folder(tmp_path)
        with pytest.raises(ds.ConfigurationError, match="within the source"):
            jobs.job(source)
    (tmp_path / "ou").mkdir()
    jobs.job(Folder(tmp_path / "ou"))


async def test_a_name_that_the_target_has_for_a_folder_fails_alone(jobs: Jobs) -> None:
    TargetFolder(jobs.out)
    (jobs.out / "a.pdf").mkdir()
    progress = await jobs.job(pdfs("a.pdf", "b.pdf", f"{'c' * 300}.pdf", "b.pdf/d.pdf"), concurrency=1).run()
    assert (progress.done, progress.failed) == (1, 3)
    assert (jobs.out / "b.pdf").read_bytes() == CONTENT + SIGNATURE


async def test_a_stopped_job_says_why(jobs: Jobs) -> None:
    jobs.service.faults = [Fault.NOT_SENT] * 1000
    with pytest.raises(JobStoppedError, match="run the job again"):
        await jobs.job(pdfs("a.pdf"), patience=0).run()
