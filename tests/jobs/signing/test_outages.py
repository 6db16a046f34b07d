"""A service in trouble: what is waited for, for how long, and when it is the trouble of one document alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.signing import JobStoppedError, Pdf, State, TargetFolder
from directsuite.jobs.signing.workflow import OutageTracker, RetryState
from tests.integration.world import StoppedClock
from tests.jobs.signing.fragile_service import FragileService, digest_of
from tests.jobs.signing.jobs import CONTENT, Jobs, pdfs
from tests.waiting import until

AWAY = ds.ServerError("the service failed", operation="Any", status=503, outcome=ds.Outcome.REJECTED)


@attrs.define(kw_only=True)
class Away(FragileService):
    """Stores nothing for 300 s of a clock, from when that is said."""

    clock: StoppedClock
    back_at: float = 0.0

    def go_away(self) -> None:
        """From now on."""
        self.back_at = self.clock.now + 300.0

    async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
        """Store a PDF."""
        if self.clock.now < self.back_at:
            raise AWAY.copy()
        return await FragileService.save(self, pdf)


class Slow(TargetFolder):
    """Keeps nothing before something is so."""

    when: Callable[[], bool] | None = None

    async def keep(self, name: str, file: Path) -> None:
        """Late."""
        if self.when is not None:
            await until(self.when)
        await super().keep(name, file)


@pytest.mark.parametrize("other_ends", ["before it", "in it"])
async def test_an_outage_that_patience_outlasts_fails_no_document(other_ends: str, jobs: Jobs) -> None:
    service = Away(clock=jobs.clock)
    target = Slow(jobs.out)

    async def content() -> bytes:
        """It comes when the other document has come so far, and then the service goes away."""
        if other_ends == "before it":
            await until(lambda: job.progress.done == 1)
        else:
            await until(lambda: service.asked.total() == 1)
        if not service.back_at:
            service.go_away()
        return CONTENT

    async def source() -> AsyncGenerator[Pdf]:
        yield Pdf("a.pdf", content)
        yield Pdf("b.pdf", CONTENT)

    job = jobs.job(source(), service=service, target=target, concurrency=2)
    if other_ends == "in it":
        target.when = lambda: bool(jobs.clock.slept)  # it is in trouble by then
    progress = await job.run()
    assert (progress.done, progress.failed, progress.trouble) == (2, 0, None)
    assert len(jobs.clock.slept) >= 8


def failures(outage: OutageTracker, retry: RetryState, signed: Sequence[int]) -> list[bool]:
    """Whether the document is to be given up, after each try; signed: how often the service had when it began."""
    told = list[bool]()
    for number in signed:
        outage.signed = number
        retry.begin()
        told.append(retry.record_failure(AWAY))
    return told


def test_a_failure_counts_where_the_service_has_signed_since_the_one_before() -> None:
    outage = OutageTracker(clock=StoppedClock(), patience=900.0)
    assert not any(failures(outage, RetryState(outage), [5] * 100))  # an outage
    assert failures(outage, RetryState(outage), [1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8]) == [False] * 10 + [True]


def test_at_the_end_of_patience_who_failed_alone_is_given_up_and_not_the_job() -> None:
    clock = StoppedClock()
    outage = OutageTracker(clock=clock, patience=900.0)
    alone, in_an_outage = RetryState(outage), RetryState(outage)
    assert failures(outage, alone, [5, 6, 6]) == [False] * 3
    assert failures(outage, in_an_outage, [6]) == [False]
    clock.now += 901
    assert failures(outage, in_an_outage, [6]) == [False]
    assert in_an_outage.why_over(AWAY) is not None
    assert failures(outage, alone, [6]) == [True]


@attrs.define(kw_only=True)
class Bad(FragileService):
    """Fails with one document, always; of the others the last is signed while that is tried again. others: how many."""

    others: int
    tries: int = 0

    async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
        """Store a PDF."""
        if pdf == b"%PDF bad %%EOF":
            self.tries += 1
            if self.tries > 1:
                await until(lambda: self.made - len(self.stored) == self.others)
            raise ds.ServerError("it failed", operation="Save", status=500, outcome=ds.Outcome.FAILED)
        if self.made == self.others - 1:
            await until(lambda: bool(self.tries))
        return await FragileService.save(self, pdf)


@pytest.mark.by_default(2)
@pytest.mark.parametrize(("documents", "bad"), [(2, 0), (2, 1), (12, 11), (100, 0), (100, 50), (100, 98)])
async def test_a_document_with_which_alone_the_service_fails_is_one_failure(
    documents: int, bad: int, jobs: Jobs
) -> None:
    async def source() -> AsyncGenerator[Pdf]:
        for number in range(documents):
            yield Pdf(f"{number}.pdf", b"%PDF bad %%EOF" if number == bad else CONTENT)

    progress = await jobs.job(source(), service=Bad(others=documents - 1)).run()
    assert (progress.done, progress.failed) == (documents - 1, 1)
    assert jobs.clock.now < 2 * (
        900 + 60
    )  # patience starts again when another document is done; the last pause is 60 s


async def test_what_an_earlier_run_had_signed_tells_nothing_of_the_service(jobs: Jobs) -> None:
    names = ["0.pdf", "1.pdf"]
    for entry in await jobs.journal.entries(names):
        signed = attrs.evolve(entry, state=State.SIGNED, identifier=entry.name, saved_at=0.0)
        await jobs.journal.put(attrs.evolve(signed, source_sha=digest_of(CONTENT)))
    service = Away(clock=jobs.clock, stored=dict.fromkeys(names, CONTENT))
    service.go_away()

    async def source() -> AsyncGenerator[Pdf]:
        yield Pdf("a.pdf", CONTENT)
        await until(lambda: bool(jobs.clock.slept))
        for name in names:
            yield Pdf(name, CONTENT)

    progress = await jobs.job(source(), service=service, concurrency=2).run()
    assert (progress.done, progress.failed) == (3, 0)


async def test_what_the_function_of_signatures_raises_is_not_the_sources(jobs: Jobs) -> None:
    def signatures(_: Pdf) -> Sequence[ds.Signature]:
        raise FileNotFoundError("the picture of a signature")

    with pytest.raises(FileNotFoundError):
        await jobs.job(pdfs("a.pdf"), signatures=signatures).run()


async def test_a_wait_that_patience_does_not_outlast_stops_the_job_at_once(jobs: Jobs) -> None:
    class Long(FragileService):
        """Wants to be left alone for a day."""

        async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
            """Not now."""
            error = AWAY.copy()
            error.retry_after = 86_400.0
            raise error

    with pytest.raises(JobStoppedError, match=r"left alone for 86400 s.*run the job again") as stopped:
        await jobs.job(pdfs("a.pdf", "b.pdf"), service=Long(), patience=900.0).run()
    assert isinstance(stopped.value.__cause__, ds.ServerError)
    assert jobs.clock.slept == []
    assert State.FAILED not in (await jobs.journal.tally()).states


async def test_what_fits_into_the_patience_that_is_left_is_waited_for_as_long_as_the_service_wants(jobs: Jobs) -> None:
    waits = [500.0, 300.0, 101.0]

    class Busy(FragileService):
        """Wants to be left alone, again and again."""

        async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
            """Not now."""
            error = ds.RateLimitedError("too many requests", operation="Save", status=429)
            error.retry_after = waits.pop(0)
            raise error

    with pytest.raises(JobStoppedError, match="left alone for 101 s"):
        await jobs.job(pdfs("a.pdf"), service=Busy(), patience=900.0).run()
    assert jobs.clock.slept == [500.0, 300.0]


async def test_trouble_ends_when_a_document_is_refused_after_it(jobs: Jobs) -> None:
    faults: list[ds.ServiceError | None] = [
        AWAY,
        ds.BadRequestError("refused", operation="Save", status=400, outcome=ds.Outcome.FAILED),
        AWAY,
        None,
    ]
    shown = list[str | None]()

    class Faulty(FragileService):
        """Fails as it is told."""

        async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
            """Store a PDF."""
            fault = faults.pop(0)
            if fault is not None:
                raise fault.copy()
            return await FragileService.save(self, pdf)

    async def source() -> AsyncGenerator[Pdf]:
        yield Pdf("a.pdf", CONTENT)
        await until(lambda: job.progress.failed == 1)
        shown.append(job.progress.trouble)
        jobs.clock.now += 3600
        yield Pdf("b.pdf", CONTENT)

    job = jobs.job(source(), service=Faulty(), concurrency=1)
    assert ((await job.run()).done, shown) == (1, [None])


async def test_a_refusal_that_asks_no_service_does_not_prolong_the_wait(jobs: Jobs) -> None:
    async def source() -> AsyncGenerator[Pdf]:
        yield Pdf("a.pdf", CONTENT)
        for number in range(10):
            await until(lambda number=number: len(jobs.clock.slept) > number)  # type: ignore[misc]
            yield Pdf(f"../{number}.pdf", CONTENT)

    service = Away(clock=jobs.clock, back_at=1e9)
    with pytest.raises(JobStoppedError, match="too long"):
        await jobs.job(source(), service=service, concurrency=2, patience=200.0).run()
    assert 200 < jobs.clock.now < 300
