"""Files that can't be made in the staging folder: no document's fault, and nothing is signed a second time for it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator

import attrs
import pytest

from directsuite.jobs.signing import JobStoppedError, Pdf, State
from tests.jobs.signing.fragile_service import SIGNATURE, digest_of
from tests.jobs.signing.jobs import CONTENT, Jobs, pdfs

NAMES = [f"{number}.pdf" for number in range(10)]


async def after_its_staging_folder_has_gone(jobs: Jobs) -> AsyncGenerator[Pdf]:
    """The documents of a job whose folder is cleared meanwhile."""
    shutil.rmtree(jobs.out / ".directsuite")
    async for pdf in pdfs(*NAMES):
        yield pdf


async def test_documents_whose_answers_were_lost_are_signed_once(jobs: Jobs) -> None:
    for entry in await jobs.journal.entries(NAMES):
        identifier = str((await jobs.service.save(CONTENT)).identifier)
        jobs.service.stored[identifier] += SIGNATURE
        jobs.service.asked[identifier] += 1
        source = digest_of(CONTENT)
        asked = attrs.evolve(entry, state=State.SIGNING, identifier=identifier, saved_at=0.0, source_sha=source)
        await jobs.journal.put(asked)
    with pytest.raises(JobStoppedError, match="the target can't be written"):
        await jobs.job(after_its_staging_folder_has_gone(jobs)).run()
    assert (await jobs.journal.tally()).states == {State.SIGNING: len(NAMES)}
    assert (await jobs.job(pdfs(*NAMES)).run()).done == len(NAMES)
    assert jobs.service.asked.total() == len(NAMES)


async def test_nothing_is_asked_for_that_nobody_could_take(jobs: Jobs) -> None:
    with pytest.raises(JobStoppedError, match="the target can't be written"):
        await jobs.job(after_its_staging_folder_has_gone(jobs)).run()
    tally = await jobs.journal.tally()
    assert (tally.states[State.FAILED], tally.abandoned, jobs.service.asked.total()) == (0, 0, 0)
    assert tally.states[State.SAVED] == len(jobs.service.stored) > 0  # none is left there that the journal doesn't know
    assert (await jobs.job(pdfs(*NAMES)).run()).done == len(NAMES)
    assert jobs.service.asked.total() == len(NAMES)
