"""Results of documents in a loop, and the progress of a run in a function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import directsuite as ds
from directsuite.jobs.signing import DocumentState, JobStoppedError, Pdf, SigningJob, SigningProgress, SigningResult
from tests.jobs.signing.fragile_service import Fault
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory, yield_pdfs
from tests.waiting import notify_waiters, wait_until

NAMES = [f"{number}.pdf" for number in range(10)]
BAD = "../bad.pdf"


def _notify(_: SigningProgress) -> None:
    notify_waiters()


async def collect(job: SigningJob) -> list[SigningResult]:
    return [result async for result in job.results()]


async def read_names(job: SigningJob, names: list[str]) -> None:
    async for result in job.results():
        names.append(result.name)  # noqa: PERF401  also if the loop raises


async def collect_names(job: SigningJob) -> list[str]:
    return sorted(result.name for result in await collect(job))


async def test_loop_runs_the_job_and_receives_each_result(jobs: JobFactory) -> None:
    job = jobs.make_job(yield_pdfs("a.pdf", "b/c.pdf", BAD))
    bad, first, second = sorted(await collect(job), key=lambda result: result.name)
    assert (bad.name, bad.state, bad.target) == (BAD, DocumentState.FAILED, None)
    assert bad.problem is not None
    assert "not a path below the target" in bad.problem
    assert bad.reason == bad.problem
    assert (first.name, first.state, first.problem, first.reason) == ("a.pdf", DocumentState.DONE, None, None)
    assert [first.target, second.target] == [(jobs.out / name).as_posix() for name in ("a.pdf", "b/c.pdf")]
    assert jobs.list_outputs() == ["a.pdf", "b/c.pdf"]
    assert (job.progress.done, job.progress.failed) == (2, 1)
    assert [repr(first), repr(bad)] == [
        f"SigningResult(number={first.number}, state=DONE, group=None)",
        f"SigningResult(number={bad.number}, state=FAILED, group=None)",
    ]
    assert [entry.number for entry in await jobs.journal.failures()] == [bad.number]
    assert await collect(jobs.make_job(yield_pdfs("a.pdf", "b/c.pdf", BAD))) == []


async def _run_within_a_limit(job: SigningJob) -> SigningProgress:
    return await asyncio.wait_for(job.run(), 60)


@pytest.mark.parametrize("start", [SigningJob.run, _run_within_a_limit])
async def test_loop_receives_the_results_of_another_task(
    start: Callable[[SigningJob], Coroutine[Any, Any, SigningProgress]], jobs: JobFactory
) -> None:
    job = jobs.make_job(yield_pdfs(*NAMES, BAD))
    run = asyncio.create_task(start(job))
    assert await collect_names(job) == [BAD, *NAMES]
    progress = await run
    assert (progress.done, progress.failed) == (10, 1)


async def test_loop_receives_the_results_of_retries(jobs: JobFactory) -> None:
    await jobs.make_job(yield_pdfs("a.pdf", BAD)).run()
    job = jobs.make_job(yield_pdfs("a.pdf", BAD))
    run = asyncio.create_task(job.run_failed())
    assert await collect_names(job) == [BAD]
    assert (await run).failed == 1


@pytest.mark.parametrize("by_another_task", [False, True])
async def test_error_follows_the_last_result_where_the_job_was_started(by_another_task: bool, jobs: JobFactory) -> None:
    jobs.service.faults = [None] * 3 + [Fault.NOT_SENT] * 1000
    job = jobs.make_job(yield_pdfs("a.pdf", "b.pdf"), concurrency=1, max_outage=10)
    names = list[str]()
    run = asyncio.create_task(job.run()) if by_another_task else read_names(job, names)
    if by_another_task:
        await read_names(job, names)
    with pytest.raises(JobStoppedError, match="too long"):
        await run
    assert names == ["a.pdf"]


async def test_slow_loop_delays_the_job(jobs: JobFactory) -> None:
    job, received = jobs.make_job(yield_pdfs(*NAMES), concurrency=2, progress=_notify), 0
    async for _ in job.results():
        received += 1
        if received == 1:
            await wait_until(lambda: job.progress.done == 3)
            for _ in range(50):  # time for steps of other documents
                await jobs.journal.tally()
            assert (job.progress.done, job.progress.under_way) == (3, 0)
    assert received == len(NAMES)


async def test_loop_that_ends_early_stops_the_run_that_it_started(jobs: JobFactory) -> None:
    job = jobs.make_job(yield_pdfs(*NAMES), concurrency=1)
    async with job.results() as results:
        first = await anext(results)
    done = job.progress.done
    assert done in (1, 2)
    names = await collect_names(jobs.make_job(yield_pdfs(*NAMES)))
    assert first.name not in names
    assert len(names) == len(NAMES) - done
    assert jobs.list_outputs() == NAMES


async def test_loop_that_ends_early_does_not_stop_the_run_of_another_task(jobs: JobFactory) -> None:
    job = jobs.make_job(yield_pdfs(*NAMES), concurrency=2)
    run = asyncio.create_task(job.run())
    async for _ in job.results():
        break
    assert (await run).done == len(NAMES)


async def test_drain_ends_the_loop_after_the_documents_in_progress(jobs: JobFactory) -> None:
    job = jobs.make_job(yield_pdfs(*NAMES), concurrency=1)
    names = list[str]()
    async for result in job.results():
        names.append(result.name)
        job.drain()
    assert names == jobs.list_outputs()
    assert 1 <= len(names) <= 2


async def test_results_of_a_cancelled_run_are_received(jobs: JobFactory) -> None:
    job = jobs.make_job(yield_pdfs(*NAMES), concurrency=2, progress=_notify)
    run, names = asyncio.create_task(job.run()), list[str]()
    async for result in job.results():
        names.append(result.name)
        if len(names) == 1:
            await wait_until(lambda: job.progress.done >= 3)
            run.cancel()
            await asyncio.wait([run])
    assert run.cancelled()
    assert sorted(names) == jobs.list_outputs()


async def test_one_loop_at_a_time_reads_the_results(jobs: JobFactory) -> None:
    job = jobs.make_job(yield_pdfs("a.pdf", "b.pdf"))
    async for _ in job.results():
        with pytest.raises(ds.ConfigurationError, match="another loop is reading the results"):
            await anext(job.results())


async def test_progress_is_reported_from_zero_to_the_end(jobs: JobFactory) -> None:
    reported = list[SigningProgress]()
    await jobs.make_job(yield_pdfs("old.pdf")).run()
    job = jobs.make_job(yield_pdfs("old.pdf", "a.pdf", BAD), concurrency=1, progress=reported.append)
    assert await job.run() == reported[-1]
    counts = [(each.done, each.failed, each.passed_over, each.under_way) for each in reported]
    assert counts == [(0, 0, 0, 0), (1, 0, 1, 0), (1, 1, 1, 0), (1, 1, 1, 0)]


async def test_progress_is_reported_when_trouble_begins_changes_and_ends(jobs: JobFactory) -> None:
    reported = list[tuple[str | None, int, int]]()

    def report(progress: SigningProgress) -> None:
        reported.append((progress.trouble, len(jobs.clock.sleeps), progress.done))

    jobs.service.faults = [Fault.NOT_SENT, Fault.NOT_SENT, Fault.RESPONSE_LOST]
    await jobs.make_job(yield_pdfs("a.pdf", "b.pdf"), concurrency=1, progress=report).run()
    assert reported == [
        (None, 0, 0),
        ("ConnectFailedError", 0, 0),  # before the first pause
        ("ConnectionLostError", 2, 0),
        (None, 3, 1),
        (None, 3, 2),
        (None, 3, 2),
    ]


async def test_error_of_the_progress_function_about_trouble_stops_the_job(jobs: JobFactory) -> None:
    def report(progress: SigningProgress) -> None:
        if progress.trouble:
            raise BrokenPipeError

    jobs.service.faults = [Fault.NOT_SENT] * 1000
    with pytest.raises(BrokenPipeError):
        await jobs.make_job(yield_pdfs("a.pdf"), progress=report).run()
    assert jobs.clock.sleeps == []


async def test_total_is_known_once_the_source_is_read(jobs: JobFactory) -> None:
    reported = list[SigningProgress]()
    names = [f"{number}.pdf" for number in range(8)]
    await jobs.run(*names[:5])
    job = jobs.make_job(yield_pdfs(*names, BAD, BAD), concurrency=1, progress=reported.append)
    progress = await job.run()
    assert reported[0].total is None
    assert next(each.total for each in reported if each.total is not None) == progress.total == 10
    assert (progress.done, progress.failed, progress.passed_over, progress.drained) == (3, 1, 6, False)
    assert job.progress == progress
    again = await jobs.make_job(yield_pdfs(*names, BAD)).run_failed()
    assert (again.failed, again.passed_over, again.total, again.drained) == (1, 8, 9, False)


@pytest.mark.parametrize(("at", "done", "is_drained"), [(0, 0, True), (1, 1, True), (2, 2, True), (3, 3, False)])
async def test_drained_says_whether_documents_are_left(at: int, done: int, is_drained: bool, jobs: JobFactory) -> None:
    def drain(progress: SigningProgress) -> None:
        if progress.done == at:
            job.drain()

    names = ["a.pdf", "b.pdf", "c.pdf"]
    job = jobs.make_job(yield_pdfs(*names), concurrency=1, progress=drain)
    progress = await job.run()
    assert (progress.done, progress.drained, job.progress.drained) == (done, is_drained, is_drained)
    progress = await jobs.run(*names)
    assert (progress.done, progress.drained) == (3 - done, False)


async def test_drain_while_the_last_documents_are_in_progress_leaves_none(jobs: JobFactory) -> None:
    async def content() -> bytes:
        if job.progress.under_way == 3:
            job.drain()
        await wait_until(lambda: job.progress.drained)
        return PDF_CONTENT

    job = jobs.make_job(yield_pdfs(*(Pdf(name, content) for name in NAMES[:3])), progress=_notify)
    progress = await job.run()
    assert (progress.done, progress.total, progress.drained) == (3, 3, False)


async def test_stopped_run_is_drained_and_the_next_one_is_not(jobs: JobFactory) -> None:
    jobs.service.faults = [Fault.NOT_SENT] * 1000
    job = jobs.make_job(yield_pdfs("a.pdf"), max_outage=10)
    with pytest.raises(JobStoppedError):
        await job.run()
    assert job.progress.drained
    jobs.service.faults = []
    assert not (await jobs.run("a.pdf")).drained


async def test_error_of_the_progress_function_stops_the_job_and_loses_no_result(jobs: JobFactory) -> None:
    def report(progress: SigningProgress) -> None:
        if progress.done:
            raise BrokenPipeError

    job = jobs.make_job(yield_pdfs(*NAMES), concurrency=1, progress=report)
    names = list[str]()
    with pytest.raises(BrokenPipeError):
        await read_names(job, names)
    assert names == jobs.list_outputs() == NAMES[:1]


async def test_progress_function_must_not_be_async(jobs: JobFactory) -> None:
    class Report:
        async def __call__(self, _: SigningProgress) -> None: ...

    for progress in (Report(), Report().__call__):
        with pytest.raises(ds.ConfigurationError, match="progress must be a function that is not async"):
            jobs.make_job(yield_pdfs(), progress=progress)
