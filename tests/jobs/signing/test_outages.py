"""Outages of the service: which errors are waited out, how long, and when only one document is the cause."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.signing import DocumentState, JobStoppedError, Pdf, TargetFolder
from directsuite.jobs.signing.workflow import OutageTracker, RetryState
from tests.integration.scenario import SleepDrivenClock
from tests.jobs.signing.fragile_service import FragileService
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory, yield_pdfs
from tests.waiting import wait_until

AWAY = ds.ServerError("the service failed", operation="Any", status=503, outcome=ds.Outcome.REJECTED)


@attrs.define(kw_only=True)
class Away(FragileService):
    """Rejects Save for 300 seconds of the clock after `go_away`."""

    clock: SleepDrivenClock
    back_at: float = 0.0

    def go_away(self) -> None:
        self.back_at = self.clock.now + 300.0

    async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
        if self.clock.now < self.back_at:
            raise AWAY.copy()
        return await FragileService.save(self, pdf)


@pytest.mark.parametrize("other_ends", ["before it", "in it"])
async def test_outage_within_max_outage_fails_no_document(
    other_ends: str, jobs: JobFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Away(clock=jobs.clock)
    target = TargetFolder(jobs.out)
    publish = target.publish

    async def publish_in_outage(name: str, file: Path) -> None:
        if other_ends == "in it":
            await wait_until(lambda: bool(jobs.clock.sleeps))
        await publish(name, file)

    async def content() -> bytes:
        """Return the content after the other document has been saved, and start the outage."""
        if other_ends == "before it":
            await wait_until(lambda: job.progress.done == 1)
        else:
            await wait_until(lambda: service.request_counts.total() == 1)
        if not service.back_at:
            service.go_away()
        return PDF_CONTENT

    monkeypatch.setattr(target, "publish", publish_in_outage)
    source = yield_pdfs(Pdf("a.pdf", content), "b.pdf")
    job = jobs.make_job(source, service=service, target=target, concurrency=2)
    progress = await job.run()
    assert (progress.done, progress.failed, progress.trouble) == (2, 0, None)
    assert len(jobs.clock.sleeps) >= 8


@pytest.mark.parametrize("operation", ["save", "sign"])
async def test_nothing_is_retried_with_max_outage_0(operation: str, jobs: JobFactory) -> None:
    jobs.service.errors = {operation: ds.RateLimitedError("slow down", operation="Any", status=429)}
    with pytest.raises(JobStoppedError, match="the service has failed for too long: slow down"):
        await jobs.run("a.pdf", max_outage=0)
    assert jobs.clock.sleeps == []


def failures(outage: OutageTracker, retry: RetryState, signed: Sequence[int]) -> list[bool]:
    """Return after each attempt whether the document fails. signed: the number of signed documents when it began."""
    told = list[bool]()
    for number in signed:
        outage.signed_count = number
        retry.begin()
        told.append(retry.record_failure(AWAY))
    return told


def test_failure_counts_only_after_another_signature() -> None:
    outage = OutageTracker(clock=SleepDrivenClock(), max_outage=900.0)
    assert not any(failures(outage, RetryState(outage), [5] * 100))
    assert failures(outage, RetryState(outage), [1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8]) == [False] * 10 + [True]


def test_only_document_failing_alone_fails_at_max_outage() -> None:
    clock = SleepDrivenClock()
    outage = OutageTracker(clock=clock, max_outage=900.0)
    alone, in_an_outage = RetryState(outage), RetryState(outage)
    assert failures(outage, alone, [5, 6, 6]) == [False] * 3
    assert failures(outage, in_an_outage, [6]) == [False]
    clock.now += 901
    assert failures(outage, in_an_outage, [6]) == [False]
    assert in_an_outage.reason_to_stop_waiting(AWAY) is not None
    assert failures(outage, alone, [6]) == [True]


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(("documents", "bad"), [(2, 0), (2, 1), (100, 0), (12, 11), (100, 50), (100, 98)])
async def test_document_that_always_fails_is_the_only_failure(documents: int, bad: int, jobs: JobFactory) -> None:
    contents, tries = [PDF_CONTENT] * documents, 0
    contents[bad] = b"%PDF bad %%EOF"

    async def fail_for_bad(pdf: bytes) -> None:
        """Fail for one document. The last of the others is signed while that one is retried."""
        nonlocal tries
        if pdf == contents[bad]:
            tries += 1
            if tries > 1:
                await wait_until(lambda: job.progress.done == documents - 1)
            raise ds.ServerError("it failed", operation="Save", status=500, outcome=ds.Outcome.FAILED)
        if jobs.service.documents_created == documents - 2:
            await wait_until(lambda: bool(tries))

    jobs.service.before = {"save": fail_for_bad}
    job = jobs.make_job(yield_pdfs(*(Pdf(f"{number}.pdf", content) for number, content in enumerate(contents))))
    progress = await job.run()
    assert (progress.done, progress.failed) == (documents - 1, 1)
    # The outage starts again when another document is done; the last pause is 60 s.
    assert jobs.clock.now < 2 * (900 + 60)


async def test_signatures_of_earlier_run_do_not_end_an_outage(jobs: JobFactory) -> None:
    names = ["0.pdf", "1.pdf"]
    for name in names:
        await jobs.record_stored(name, DocumentState.SIGNED, name)
    service = Away(clock=jobs.clock, stored=dict.fromkeys(names, PDF_CONTENT))
    service.go_away()

    async def source() -> AsyncGenerator[Pdf]:
        yield Pdf("a.pdf", PDF_CONTENT)
        await wait_until(lambda: bool(jobs.clock.sleeps))
        for name in names:
            yield Pdf(name, PDF_CONTENT)

    progress = await jobs.make_job(source(), service=service, concurrency=2).run()
    assert (progress.done, progress.failed) == (3, 0)


async def test_wait_longer_than_outage_left_stops_job_immediately(jobs: JobFactory) -> None:
    jobs.service.errors = {"save": ds.ServerError("it failed", operation="Save", status=503, retry_after=86_400.0)}
    with pytest.raises(JobStoppedError, match=r"the wait of 86400 s.*run the job again") as stopped:
        await jobs.run("a.pdf", "b.pdf", max_outage=900.0)
    assert isinstance(stopped.value.__cause__, ds.ServerError)
    assert jobs.clock.sleeps == []
    assert DocumentState.FAILED not in (await jobs.journal.tally()).states


async def test_retry_after_is_followed_within_outage_left(jobs: JobFactory) -> None:
    waits = [500.0, 300.0, 101.0]

    async def reject(_: bytes) -> None:
        raise ds.RateLimitedError("too many requests", operation="Save", status=429, retry_after=waits.pop(0))

    jobs.service.before = {"save": reject}
    with pytest.raises(JobStoppedError, match="the wait of 101 s"):
        await jobs.run("a.pdf", max_outage=900.0)
    assert jobs.clock.sleeps == [500.0, 300.0]


async def test_rejected_document_ends_outage(jobs: JobFactory) -> None:
    faults: list[ds.ServiceError | None] = [
        AWAY,
        ds.BadRequestError("refused", operation="Save", status=400, outcome=ds.Outcome.FAILED),
        AWAY,
        None,
    ]
    shown = list[str | None]()

    async def fail(_: bytes) -> None:
        if fault := faults.pop(0):
            raise fault.copy()

    async def source() -> AsyncGenerator[Pdf]:
        yield Pdf("a.pdf", PDF_CONTENT)
        await wait_until(lambda: job.progress.failed == 1)
        shown.append(job.progress.trouble)
        jobs.clock.now += 3600
        yield Pdf("b.pdf", PDF_CONTENT)

    jobs.service.before = {"save": fail}
    job = jobs.make_job(source(), concurrency=1)
    assert ((await job.run()).done, shown) == (1, [None])


async def test_local_failure_does_not_prolong_outage(jobs: JobFactory) -> None:
    async def source() -> AsyncGenerator[Pdf]:
        yield Pdf("a.pdf", PDF_CONTENT)
        for number in range(10):
            await wait_until(lambda number=number: len(jobs.clock.sleeps) > number)  # type: ignore[misc]
            yield Pdf(f"../{number}.pdf", PDF_CONTENT)

    service = Away(clock=jobs.clock, back_at=1e9)
    with pytest.raises(JobStoppedError, match="too long"):
        await jobs.make_job(source(), service=service, concurrency=2, max_outage=200.0).run()
    assert 200 < jobs.clock.now < 300
