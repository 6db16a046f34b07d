"""Failures tried again alone: none is lost on the way, however often that is broken off."""

from __future__ import annotations

from typing import Any

import pytest

import directsuite as ds
from directsuite.jobs.signing import JobStoppedError, State
from tests.jobs.signing.fragile_service import FragileService
from tests.jobs.signing.jobs import Jobs, pdfs

NAMES = [f"{number}.pdf" for number in range(15)]
REFUSED = "it was refused"


async def all_failed(jobs: Jobs) -> None:
    """A journal in which all have failed."""
    for entry in await jobs.journal.entries(NAMES):
        await jobs.journal.abandon(entry, at=0.0, then=State.FAILED, problem=REFUSED)


class Refusing(FragileService):
    """Takes no token."""

    async def save(self, pdf: Any) -> ds.StoredDocument:
        """Never."""
        raise ds.AuthenticationError("it is refused", operation="SaveDoc", status=401)


@pytest.mark.parametrize("problem", [None, REFUSED])
async def test_what_a_refused_token_broke_off_is_tried_by_the_next(problem: str | None, jobs: Jobs) -> None:
    await all_failed(jobs)
    with pytest.raises(JobStoppedError):
        await jobs.job(pdfs(*NAMES), service=Refusing()).run_failed(problem)
    tally = await jobs.journal.tally()
    assert tally.states[State.FAILED] >= len(NAMES) - 10  # those that weren't reached
    assert (await jobs.job(pdfs(*NAMES)).run_failed(problem)).done == len(NAMES)
    assert await jobs.journal.failures() == []


async def test_what_was_broken_off_is_signed_by_a_run_of_all_too(jobs: Jobs) -> None:
    await all_failed(jobs)
    with pytest.raises(JobStoppedError):
        await jobs.job(pdfs(*NAMES), service=Refusing(), concurrency=3).run_failed()
    assert (await jobs.job(pdfs(*NAMES)).run()).done == 3
    assert (await jobs.job(pdfs(*NAMES)).run_failed()).done == len(NAMES) - 3


async def test_a_drained_one_leaves_the_rest_failed(jobs: Jobs) -> None:
    await all_failed(jobs)
    job = jobs.job(pdfs(*NAMES), concurrency=1)
    job.drain()
    assert (await job.run_failed()).done == 0
    assert len(await jobs.journal.failures()) == len(NAMES)


async def test_one_that_is_done_has_no_problem_any_more(jobs: Jobs) -> None:
    await all_failed(jobs)
    await jobs.job(pdfs(*NAMES)).run_failed()
    assert {entry.problem for entry in await jobs.journal.entries(NAMES)} == {None}
