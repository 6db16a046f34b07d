"""A staging folder that is not writable is not a failure of the document, and causes no second signature."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator

import pytest

from directsuite.jobs.signing import DocumentState, JobStoppedError, Pdf
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory, yield_pdfs

NAMES = [f"{number}.pdf" for number in range(10)]


async def after_its_staging_folder_has_gone(jobs: JobFactory) -> AsyncGenerator[Pdf]:
    """Yield documents after their staging folder was deleted."""
    shutil.rmtree(jobs.out / ".directsuite")
    async for pdf in yield_pdfs(*NAMES):
        yield pdf


async def test_documents_with_lost_responses_are_signed_once(jobs: JobFactory) -> None:
    for name in NAMES:
        identifier = str((await jobs.service.save(PDF_CONTENT)).identifier)
        jobs.service.stored[identifier] += SIGNATURE_BYTES
        jobs.service.request_counts[identifier] += 1
        await jobs.record_stored(name, DocumentState.SIGNING, identifier)
    with pytest.raises(JobStoppedError, match="the target can't be written"):
        await jobs.make_job(after_its_staging_folder_has_gone(jobs)).run()
    assert (await jobs.journal.tally()).states == {DocumentState.SIGNING: len(NAMES)}
    assert (await jobs.run(*NAMES)).done == len(NAMES)
    assert jobs.service.request_counts.total() == len(NAMES)


async def test_source_is_not_read_ahead_without_limit(jobs: JobFactory) -> None:
    with pytest.raises(JobStoppedError, match="the target can't be written"):
        await jobs.make_job(after_its_staging_folder_has_gone(jobs)).run()
    tally = await jobs.journal.tally()
    assert (tally.states[DocumentState.FAILED], tally.abandoned, jobs.service.request_counts.total()) == (0, 0, 0)
    assert (
        tally.states[DocumentState.SAVED] == len(jobs.service.stored) > 0
    )  # no stored document is missing in the journal
    assert (await jobs.run(*NAMES)).done == len(NAMES)
    assert jobs.service.request_counts.total() == len(NAMES)
