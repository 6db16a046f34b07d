"""A staging folder that is not writable is not a failure of the document, and causes no second signature."""

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
    """Yield documents after their staging folder was deleted."""
    shutil.rmtree(jobs.out / ".directsuite")
    async for pdf in yield_pdfs(*NAMES):
        yield pdf


async def test_documents_with_lost_responses_are_signed_once(job_factory: JobFactory) -> None:
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


async def test_source_is_not_read_ahead_without_limit(job_factory: JobFactory) -> None:
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
    )  # no stored document is missing in the journal
    assert (await job_factory.make_job(yield_pdfs(*NAMES)).run()).done == len(NAMES)
    assert job_factory.service.request_counts.total() == len(NAMES)
