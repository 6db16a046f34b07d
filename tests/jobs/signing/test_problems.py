"""The problems of documents: codes in the journal, texts for people, and texts of older journals."""

from __future__ import annotations

import pytest

import directsuite as ds
from directsuite.jobs.signing import DocumentState, JobStoppedError
from directsuite.jobs.signing.problems import DOCUMENT_PROBLEMS, DocumentProblem, parse_reason
from tests.jobs.signing.fragile_service import FragileService
from tests.jobs.signing.job_factory import JobFactory, yield_pdfs
from tests.statements import sql

OLD_TEXTS = {
    DocumentProblem.SOURCE_CHANGED: "it is another document than when it was first read",
    DocumentProblem.NAME_CONFLICT: (
        "the target has another file of this name, which is not replaced: move it away, or sign into another target"
    ),
    DocumentProblem.INCOMPLETE: "it has no end of a PDF (%%EOF), and may be cut off: get a whole copy",
    DocumentProblem.NOT_A_PDF: "this is not a PDF: no %PDF- in its first KB",
    DocumentProblem.FIELD_MISSING: "it has no signature field of the name to sign under, and would be signed invisibly",
    DocumentProblem.FIELD_SIGNED: "it has a signature field of the name to sign under, and that is signed already",
    DocumentProblem.FIELD_PLACED: (
        "it has a signature field of the name to sign under, which has its own position: leave the widget out"
    ),
    DocumentProblem.GAVE_UP: "its signature was asked for again and again, and never seen",
}
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


@pytest.mark.parametrize("problem", DocumentProblem)
def test_problem_is_found_by_code_and_by_new_and_old_text(problem: DocumentProblem) -> None:
    assert {parse_reason(each) for each in (problem.value, problem.text, OLD_TEXTS[problem])} == {problem}


async def fail_all(jobs: JobFactory, reason: DocumentProblem | str, names: list[str] = NAMES) -> None:
    """Record that documents failed. A text is stored unchanged, as an older version stored it."""
    for entry in await jobs.journal.lease.entries(names):
        await jobs.journal.lease.abandon(entry, at=0.0, then=DocumentState.FAILED, reason=reason)


async def read_stored(jobs: JobFactory) -> set[str]:
    return {problem for (problem,) in await jobs.journal._database.fetch(sql("SELECT problem FROM signing_document"))}


@pytest.mark.parametrize("problem", DocumentProblem)
async def test_journal_stores_the_code_and_returns_the_text(problem: DocumentProblem, job_factory: JobFactory) -> None:
    await fail_all(job_factory, problem, NAMES[:1])
    assert await read_stored(job_factory) == {problem.value}
    [failed] = await job_factory.journal.failures()
    assert (failed.reason, failed.problem) == (problem, problem.text)


@pytest.mark.parametrize("problem", DocumentProblem)
async def test_old_text_in_a_journal_is_read_as_the_problem(problem: DocumentProblem, job_factory: JobFactory) -> None:
    await fail_all(job_factory, OLD_TEXTS[problem], NAMES[:1])
    assert await read_stored(job_factory) == {OLD_TEXTS[problem]}
    [failed] = await job_factory.journal.failures()
    assert (failed.reason, failed.problem) == (problem, problem.text)


@pytest.mark.parametrize("is_old", [True, False])
@pytest.mark.parametrize("form", ["old", "new", "code"])
async def test_retry_of_a_problem_finds_it_in_every_form(form: str, is_old: bool, job_factory: JobFactory) -> None:
    problem = DocumentProblem.INCOMPLETE
    wanted = {"old": OLD_TEXTS[problem], "new": problem.text, "code": problem.value}[form]
    await fail_all(job_factory, OLD_TEXTS[problem] if is_old else problem, NAMES[:3])
    await fail_all(job_factory, DocumentProblem.NAME_CONFLICT, NAMES[3:5])
    assert (await job_factory.make_job(yield_pdfs(*NAMES[1:5])).run_failed(wanted)).done == 2
    assert await job_factory.journal.retry(wanted) == 1
    assert [each.reason for each in await job_factory.journal.failures()] == [DocumentProblem.NAME_CONFLICT] * 2


class NeverSigns(FragileService):
    async def sign_and_pull(self, identifier: str, signature: ds.Signature, **options: object) -> bytes:
        return b"%PDF-1.7 %%EOF"


@pytest.mark.parametrize("before", [DocumentProblem.GAVE_UP, OLD_TEXTS[DocumentProblem.GAVE_UP]])
async def test_repeated_failure_from_older_journal_does_not_stop_job(
    before: DocumentProblem | str, job_factory: JobFactory
) -> None:
    await fail_all(job_factory, before)
    progress = await job_factory.make_job(yield_pdfs(*NAMES), service=NeverSigns(), concurrency=1).run_failed()
    assert progress.failed == len(NAMES)
    await fail_all(job_factory, "another reason")
    with pytest.raises(JobStoppedError, match="20 documents failed one after the other; the last: it has no signature"):
        await job_factory.make_job(yield_pdfs(*NAMES), service=NeverSigns(), concurrency=1).run_failed()
