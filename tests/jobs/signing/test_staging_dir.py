"""Files that can't be made in the staging folder: no document's fault, and nothing is signed a second time for it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator

import attrs
import pytest

from directsuite.jobs.signing import DocumentState, JobStoppedError, Pdf
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES, compute_digest
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory, yield_pdfs

NAMES = [f"{number}.pdf" for number in range(10)]


async def after_its_staging_folder_has_gone(jobs: JobFactory) -> AsyncGenerator[Pdf]:
    """The documents of a job whose folder is cleared meanwhile."""
    shutil.rmtree(jobs.out / ".directsuite")
    async for pdf in yield_pdfs(*NAMES):
        yield pdf


async def test_documents_whose_answers_were_lost_are_signed_once(job_factory: JobFactory) -> None:
    for entry in await job_factory.journal.lease.entries(NAMES):
        identifier = str((await job_factory.service.save(PDF_CONTENT)).identifier)
        job_factory.service.stored[identifier] += SIGNATURE_BYTES
        job_factory.service.request_counts[identifier] += 1
        source = compute_digest(PDF_CONTENT)
        asked = attrs.evolve(entry, state=DocumentState.SIGNING, identifier=identifier, saved_at=0.0, source_sha=source)
        await job_factory.journal.lease.put(asked)
    with pytest.raises(JobStoppedError, match="the target can't be written"):
        await job_factory.make_job(after_its_staging_folder_has_gone(job_factory)).run()
    assert (await job_factory.journal.tally()).states == {DocumentState.SIGNING: len(NAMES)}
    assert (await job_factory.make_job(yield_pdfs(*NAMES)).run()).done == len(NAMES)
    assert job_factory.service.request_counts.total() == len(NAMES)


async def test_nothing_is_asked_for_that_nobody_could_take(job_factory: JobFactory) -> None:
    with pytest.raises(JobStoppedError, match="the target can't be written"):
        await job_factory.make_job(after_its_staging_folder_has_gone(job_factory)).run()
    tally = await job_factory.journal.tally()
    assert (tally.states[DocumentState.FAILED], tally.abandoned, job_factory.service.request_counts.total()) == (
        0,
        0,
        0,
    )
    assert (
        tally.states[DocumentState.SAVED] == len(job_factory.service.stored) > 0
    )  # none is left there that the journal doesn't know
    assert (await job_factory.make_job(yield_pdfs(*NAMES)).run()).done == len(NAMES)
    assert job_factory.service.request_counts.total() == len(NAMES)
