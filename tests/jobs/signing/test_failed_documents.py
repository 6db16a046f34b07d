"""Failed documents: their problems as codes and texts, and retries, of which none is lost if a run is interrupted."""

from __future__ import annotations

import pytest

import directsuite as ds
from directsuite.jobs.signing import DocumentState, JobStoppedError
from directsuite.jobs.signing.workflow import DOCUMENT_PROBLEMS, DocumentProblem, parse_reason
from tests.jobs.signing.fragile_service import FragileService
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory, yield_pdfs
from tests.statements import sql

NAMES = [f"{number}.pdf" for number in range(25)]


def test_codes_never_change() -> None:
    assert {each.name: each.value for each in DocumentProblem} == {
        "SOURCE_CHANGED": "source-changed",
        "NAME_CONFLICT": "name-conflict",
        "INCOMPLETE": "incomplete",
        "NOT_A_PDF": "not-a-pdf",
        "FIELD_MISSING": "field-missing",
        "FIELD_SIGNED": "field-signed",
        "FIELD_PLACED": "field-placed",
        "GAVE_UP": "gave-up",
    }
    assert set(DocumentProblem) - DOCUMENT_PROBLEMS == {DocumentProblem.GAVE_UP}


async def fail_all(jobs: JobFactory, reason: DocumentProblem | str, names: list[str] = NAMES) -> None:
    for entry in await jobs.journal.lease.entries(names):
        await jobs.journal.lease.abandon(entry, at=0.0, then=DocumentState.FAILED, reason=reason)


@pytest.mark.parametrize("problem", DocumentProblem)
async def test_journal_stores_the_code_and_returns_the_text(problem: DocumentProblem, jobs: JobFactory) -> None:
    await fail_all(jobs, problem, NAMES[:1])
    stored = await jobs.journal._database.fetch(sql("SELECT problem FROM signing_document"))
    assert stored == [(problem.value,)]
    [failed] = await jobs.journal.failures()
    assert (failed.reason, failed.problem) == (problem, problem.text)
    assert {parse_reason(each) for each in (problem.value, problem.text)} == {problem}


@pytest.mark.parametrize("wanted", [DocumentProblem.INCOMPLETE.text, DocumentProblem.INCOMPLETE.value])
async def test_retry_of_a_problem_finds_it_by_code_and_text(wanted: str, jobs: JobFactory) -> None:
    await fail_all(jobs, DocumentProblem.INCOMPLETE, NAMES[:3])
    await fail_all(jobs, DocumentProblem.NAME_CONFLICT, NAMES[3:5])
    assert (await jobs.make_job(yield_pdfs(*NAMES[1:5])).run_failed(wanted)).done == 2
    assert await jobs.journal.retry(wanted) == 1
    assert [each.reason for each in await jobs.journal.failures()] == [DocumentProblem.NAME_CONFLICT] * 2


async def test_repeated_failure_from_an_earlier_run_does_not_stop_job(jobs: JobFactory) -> None:
    class NeverSigns(FragileService):
        async def sign_and_pull(self, identifier: str, signature: ds.Signature, **options: object) -> bytes:
            return PDF_CONTENT

    jobs.service = NeverSigns()
    await fail_all(jobs, DocumentProblem.GAVE_UP)
    progress = await jobs.make_job(yield_pdfs(*NAMES), concurrency=1).run_failed()
    assert progress.failed == len(NAMES)
    await fail_all(jobs, "another reason")
    with pytest.raises(JobStoppedError, match="20 documents failed one after the other; the last: it has no signature"):
        await jobs.make_job(yield_pdfs(*NAMES), concurrency=1).run_failed()


REFUSED = "it was refused"
NO_ACCESS = ds.AuthenticationError("it is refused", operation="SaveDoc", status=401)


@pytest.mark.parametrize("problem", [None, REFUSED])
async def test_document_stopped_by_rejected_token_is_retried(problem: str | None, jobs: JobFactory) -> None:
    await fail_all(jobs, REFUSED)
    jobs.service.errors = {"save": NO_ACCESS}
    with pytest.raises(JobStoppedError):
        await jobs.make_job(yield_pdfs(*NAMES)).run_failed(problem)
    tally = await jobs.journal.tally()
    assert tally.states[DocumentState.FAILED] >= len(NAMES) - 10  # the remaining ones
    jobs.service.errors.clear()
    assert (await jobs.make_job(yield_pdfs(*NAMES)).run_failed(problem)).done == len(NAMES)
    assert await jobs.journal.failures() == []
    assert {entry.problem for entry in await jobs.journal.lease.entries(NAMES)} == {None}


async def test_interrupted_retry_is_signed_by_a_full_run(jobs: JobFactory) -> None:
    await fail_all(jobs, REFUSED)
    jobs.service.errors = {"save": NO_ACCESS}
    with pytest.raises(JobStoppedError):
        await jobs.make_job(yield_pdfs(*NAMES), concurrency=3).run_failed()
    jobs.service.errors.clear()
    assert (await jobs.run(*NAMES)).done == 3
    assert (await jobs.make_job(yield_pdfs(*NAMES)).run_failed()).done == len(NAMES) - 3


async def test_drained_retry_leaves_the_rest_failed(jobs: JobFactory) -> None:
    await fail_all(jobs, REFUSED)
    job = jobs.make_job(yield_pdfs(*NAMES), concurrency=1)
    job.drain()
    assert (await job.run_failed()).done == 0
    assert len(await jobs.journal.failures()) == len(NAMES)
