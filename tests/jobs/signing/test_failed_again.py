"""Retries of failed documents: none is lost if a run is interrupted."""

from __future__ import annotations

from typing import Any

import pytest

import directsuite as ds
from directsuite.jobs.signing import DocumentState, JobStoppedError
from tests.jobs.signing.fragile_service import FragileService
from tests.jobs.signing.job_factory import JobFactory, yield_pdfs

NAMES = [f"{number}.pdf" for number in range(15)]
REFUSED = "it was refused"


async def all_failed(jobs: JobFactory) -> None:
    for entry in await jobs.journal.lease.entries(NAMES):
        await jobs.journal.lease.abandon(entry, at=0.0, then=DocumentState.FAILED, reason=REFUSED)


class Refusing(FragileService):
    async def save(self, pdf: Any) -> ds.StoredDocument:
        raise ds.AuthenticationError("it is refused", operation="SaveDoc", status=401)


@pytest.mark.parametrize("problem", [None, REFUSED])
async def test_document_stopped_by_rejected_token_is_retried(problem: str | None, jobs: JobFactory) -> None:
    await all_failed(jobs)
    with pytest.raises(JobStoppedError):
        await jobs.make_job(yield_pdfs(*NAMES), service=Refusing()).run_failed(problem)
    tally = await jobs.journal.tally()
    assert tally.states[DocumentState.FAILED] >= len(NAMES) - 10  # the remaining ones
    assert (await jobs.make_job(yield_pdfs(*NAMES)).run_failed(problem)).done == len(NAMES)
    assert await jobs.journal.failures() == []


async def test_interrupted_retry_is_signed_by_a_full_run(jobs: JobFactory) -> None:
    await all_failed(jobs)
    with pytest.raises(JobStoppedError):
        await jobs.make_job(yield_pdfs(*NAMES), service=Refusing(), concurrency=3).run_failed()
    assert (await jobs.run(*NAMES)).done == 3
    assert (await jobs.make_job(yield_pdfs(*NAMES)).run_failed()).done == len(NAMES) - 3


async def test_drained_retry_leaves_the_rest_failed(jobs: JobFactory) -> None:
    await all_failed(jobs)
    job = jobs.make_job(yield_pdfs(*NAMES), concurrency=1)
    job.drain()
    assert (await job.run_failed()).done == 0
    assert len(await jobs.journal.failures()) == len(NAMES)


async def test_done_document_has_no_problem(jobs: JobFactory) -> None:
    await all_failed(jobs)
    await jobs.make_job(yield_pdfs(*NAMES)).run_failed()
    assert {entry.problem for entry in await jobs.journal.lease.entries(NAMES)} == {None}
