"""Documents that a job does not sign although the service would; the problems of failed documents, and retries."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.signing import DocumentState, Folder, JobStoppedError
from directsuite.jobs.signing.documents import MAX_IN_MEMORY_BYTES
from directsuite.jobs.signing.workflow import DOCUMENT_PROBLEMS, DocumentProblem, parse_reason
from tests.jobs.signing.fragile_service import FragileService
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory, yield_pdfs
from tests.statements import sql


@pytest.mark.parametrize("size", [20, MAX_IN_MEMORY_BYTES + 1])
async def test_incomplete_pdf_is_not_signed(size: int, jobs: JobFactory, tmp_path: Path) -> None:
    (source := tmp_path / "in").mkdir()
    (source / "whole.pdf").write_bytes(b"%PDF-1.7".ljust(size) + b"%%EOF" + b" " * 900)
    (source / "cut.pdf").write_bytes(
        b"%PDF-1.7".ljust(size) + b"%%EOF" + b" " * 1100
    )  # the end of the PDF is too far from the end of the file
    progress = await jobs.make_job(Folder(source)).run()
    assert (progress.done, progress.failed) == (1, 1)
    [failed] = await jobs.journal.failures()
    assert (failed.name, failed.problem) == (
        "cut.pdf",
        "it has no end-of-file marker (%%EOF) and may be incomplete: get a complete copy",
    )
    assert jobs.service.documents_created == 1


@attrs.define
class WithFields(FragileService):
    """Reports these fields for each document: True if the field is signed, by name."""

    fields: dict[str, bool] = attrs.field(factory=dict[str, bool])

    async def get_doc_info(self, identifier: str) -> ds.DocumentInfo:
        info = await FragileService.get_doc_info(self, identifier)
        fields = [ds.DocumentSignature(name=name, is_signed=signed) for name, signed in self.fields.items()]
        return attrs.evolve(info, signatures=fields)


WIDGET = ds.Widget(x=1, y=1, width=100, height=50, page=1)


@pytest.mark.parametrize(
    ("signature", "problem"),
    [
        (ds.Signature(name="Patient"), None),
        (ds.Signature(name="New", widget=WIDGET), None),
        (ds.Signature(), None),
        (ds.Signature(name="Pateint"), "has no signature field with the signature's name"),
        (ds.Signature(name="Doctor"), "which is already signed"),
        (ds.Signature(name="Doctor", widget=WIDGET), "which is already signed"),
        (ds.Signature(name="Patient", widget=WIDGET), "has its own position: omit the widget"),
    ],
)
async def test_document_without_the_named_field_fails(
    signature: ds.Signature, problem: str | None, jobs: JobFactory
) -> None:
    service = WithFields(fields={"Patient": False, "Doctor": True})
    job = jobs.make_job(yield_pdfs("a.pdf"), service=service, signatures=[signature], check_fields=True)
    progress = await job.run()
    assert (progress.done, progress.failed) == ((1, 0) if problem is None else (0, 1))
    assert service.request_counts.total() == progress.done
    assert service.stored == {}
    if problem is not None:
        assert problem in (await jobs.list_problems())[0]


async def test_fields_are_requested_only_with_check_fields(jobs: JobFactory) -> None:
    assert (await jobs.run("a.pdf", service=WithFields(), signatures=[ds.Signature(name="N")])).done == 1


async def test_file_changed_after_signing_is_only_counted(
    jobs: JobFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (source := tmp_path / "in").mkdir()
    for name in ("same.pdf", "touched.pdf", "changed.pdf", "gone.pdf"):
        (source / name).write_bytes(PDF_CONTENT)
    assert (await jobs.make_job(Folder(source)).run()).done == 4
    os.utime(source / "touched.pdf", (1.0, 1.0))
    (source / "changed.pdf").write_bytes(PDF_CONTENT.replace(b"1.7", b"1.6") + b"\n")
    (source / "gone.pdf").unlink()
    progress = await jobs.make_job(Folder(source)).run()
    assert (progress.done, progress.passed_over, progress.changed) == (0, 3, 1)
    [entry] = await jobs.journal.lease.entries(["changed.pdf"])
    [said] = [record.getMessage() for record in caplog.records if record.name == "directsuite"]
    what = f"document {entry.number} of the journal"
    assert said == f"signing: {what} has changed since it was signed and is not signed again"
    assert jobs.service.documents_created == 4


UNKNOWN = ds.OutcomeUnknownError("it may or may not have happened", how_to_find_out="look")
UNKNOWN.__cause__ = ds.ServerError("the service failed (HTTP 503)", operation="SignAndPull", status=503)


async def test_outage_of_sign_operation_is_waited_out(jobs: JobFactory) -> None:
    errors = [UNKNOWN] * 7

    async def fail(_: str) -> None:
        if errors:
            raise errors.pop()

    jobs.service.before = {"sign": fail}
    progress = await jobs.run("a.pdf")
    assert (progress.done, progress.failed, progress.trouble) == (1, 0, None)
    assert len(jobs.clock.sleeps) >= 7


async def test_lasting_outage_of_signing_stops_job_with_last_error(jobs: JobFactory) -> None:
    jobs.service.errors = {"sign": UNKNOWN}
    with pytest.raises(JobStoppedError, match=r"the service has failed for too long: .* \(HTTP 503\)"):
        await jobs.run("a.pdf", max_outage=60.0)
    tally = await jobs.journal.tally()
    assert tally.requested == tally.abandoned == jobs.service.documents_created
    jobs.service.errors.clear()
    assert (await jobs.run("a.pdf")).done == 1


NAMES = [f"{number}.pdf" for number in range(12)]
MANY = [f"{number}.pdf" for number in range(21)]


def test_codes_never_change() -> None:
    codes = "source-changed name-conflict incomplete not-a-pdf field-missing field-signed field-placed gave-up"
    assert [each.value for each in DocumentProblem] == codes.split()
    assert set(DocumentProblem) - DOCUMENT_PROBLEMS == {DocumentProblem.GAVE_UP}


async def fail_all(jobs: JobFactory, reason: DocumentProblem | str, names: list[str] = NAMES) -> None:
    for entry in await jobs.journal.lease.entries(names):
        await jobs.journal.lease.abandon(entry, at=0.0, then=DocumentState.FAILED, reason=reason)


async def test_journal_stores_the_code_and_returns_the_text(jobs: JobFactory) -> None:
    for problem in DocumentProblem:
        await fail_all(jobs, problem, [problem.name])
        assert {parse_reason(each) for each in (problem.value, problem.text)} == {problem}
    stored = await jobs.journal._database.fetch(sql("SELECT problem FROM signing_document"))
    assert stored == [(problem.value,) for problem in DocumentProblem]
    failures = await jobs.journal.failures()
    assert [(each.reason, each.problem) for each in failures] == [(each, each.text) for each in DocumentProblem]


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
    await fail_all(jobs, DocumentProblem.GAVE_UP, MANY)
    progress = await jobs.make_job(yield_pdfs(*MANY), concurrency=1).run_failed()
    assert progress.failed == len(MANY)
    await fail_all(jobs, "another reason", MANY)
    with pytest.raises(JobStoppedError, match="20 documents failed one after the other; the last: it has no signature"):
        await jobs.make_job(yield_pdfs(*MANY), concurrency=1).run_failed()


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
