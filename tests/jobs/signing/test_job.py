"""A job of many documents: which it skips, which errors it waits out, and when it stops."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from pathlib import Path

import pytest

import directsuite as ds
from directsuite.core.events import CallFinished
from directsuite.jobs.signing import DocumentState, Folder, JobStoppedError, Pdf
from directsuite.sandbox import Sandbox
from tests.integration.documents import make_consent_form
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES, Fault
from tests.jobs.signing.job_factory import PDF_CONTENT, SIGNATURES, TOO_LARGE, JobFactory, yield_pdfs
from tests.waiting import wait_until


async def test_folder_is_signed_by_name_and_second_run_does_nothing(jobs: JobFactory, tmp_path: Path) -> None:
    source = tmp_path / "in"
    for name in ("a.pdf", "b/c.pdf", "b/d.pdf"):
        file = source / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(PDF_CONTENT)
    (source / "e.txt").write_text("no PDF")
    progress = await jobs.make_job(Folder(source)).run()
    assert (progress.done, progress.failed, progress.passed_over) == (3, 0, 0)
    assert jobs.list_outputs() == ["a.pdf", "b/c.pdf", "b/d.pdf"]
    assert (jobs.out / "b" / "c.pdf").read_bytes() == PDF_CONTENT + SIGNATURE_BYTES
    assert jobs.service.stored == {}
    again = await jobs.make_job(Folder(source)).run()
    assert (again.done, again.passed_over) == (0, 3)
    assert jobs.service.documents_created == 3


async def test_rejected_document_is_listed_and_can_be_retried(jobs: JobFactory) -> None:
    progress = await jobs.run("good.pdf", "../out of it.pdf")
    assert (progress.done, progress.failed) == (1, 1)
    [failed] = await jobs.journal.failures()
    assert failed.name == "../out of it.pdf"
    assert failed.problem is not None
    assert "not a path below the target" in failed.problem
    assert jobs.service.request_counts.total() == 1  # no document is signed if it cannot be written
    assert (await jobs.run("good.pdf", "../out of it.pdf")).passed_over == 2
    assert await jobs.journal.retry("something else") == 0
    assert await jobs.journal.retry(failed.problem) == 1
    assert (await jobs.run("good.pdf", "../out of it.pdf")).failed == 1


@pytest.mark.parametrize("fault", [None, Fault.RESPONSE_LOST])
async def test_pdf_with_a_time_stamp_beside_the_signature_is_kept(fault: Fault | None, jobs: JobFactory) -> None:
    jobs.service.timestamps = 1
    jobs.service.faults = [None, fault]
    progress = await jobs.run("a.pdf")
    assert (progress.done, progress.failed) == (1, 0)
    assert (jobs.out / "a.pdf").read_bytes() == PDF_CONTENT + SIGNATURE_BYTES * 2
    assert jobs.service.request_counts.total() == 1


async def test_outage_is_waited_out_and_nothing_fails(jobs: JobFactory) -> None:
    jobs.service.faults = [Fault.NOT_SENT] * 5
    progress = await jobs.run("a.pdf", concurrency=1)
    assert (progress.done, progress.failed, progress.trouble) == (1, 0, None)
    assert jobs.clock.sleeps == [1, 2, 4, 8, 16]


async def test_lasting_outage_stops_job_and_next_run_resumes(jobs: JobFactory) -> None:
    jobs.service.faults = [None] * 3 + [Fault.NOT_SENT] * 1000
    with pytest.raises(JobStoppedError, match="too long") as stopped:
        await jobs.run("a.pdf", "b.pdf", concurrency=1, max_outage=100)
    assert isinstance(stopped.value.__cause__, ds.ConnectFailedError)
    assert 100 < sum(jobs.clock.sleeps) < 200
    jobs.service.faults = []
    assert (await jobs.run("a.pdf", "b.pdf")).done == 1
    assert jobs.list_outputs() == ["a.pdf", "b.pdf"]


async def test_rate_covers_the_last_15_minutes(jobs: JobFactory, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number in range(4):
        (source / f"{number}.pdf").write_bytes(PDF_CONTENT)
    remembered = list[int]()

    def signatures(pdf: Pdf) -> list[ds.Signature]:
        jobs.clock.now += 3600
        remembered.append(len(job._recent_ends))
        return SIGNATURES

    job = jobs.make_job(Folder(source), signatures=signatures, concurrency=1)
    assert (await job.run()).rate == 1 / 900
    assert remembered == [0, 1, 1, 1]  # also without a call of `tally`
    assert (await job.run()).rate == 0


async def test_stop_after_failures_says_how_to_retry(jobs: JobFactory) -> None:
    names = [f"{number}.pdf" for number in range(25)]
    jobs.service.errors = {"save": TOO_LARGE}
    with pytest.raises(JobStoppedError) as stopped:
        await jobs.run(*names, concurrency=1)
    why = "20 documents failed one after the other; the last: too large"
    assert stopped.value.why == why
    assert str(stopped.value).startswith(f"{why}: fix the cause, then retry the failed documents")
    hints = ("run_failed", "retry", "skips failed documents", ".service_message")
    assert [hint for hint in hints if hint not in str(stopped.value)] == []
    jobs.service.errors.clear()
    again = await jobs.run(*names)
    assert (again.done, again.passed_over) == (5, 20)
    assert (await jobs.make_job(yield_pdfs(*names)).run_failed()).done == 20


async def test_repeated_failure_does_not_block_other_retries(jobs: JobFactory) -> None:
    names = [f"{number}.pdf" for number in range(30)]
    errors = [TOO_LARGE] * 25

    async def reject_first(_: bytes) -> None:
        if errors:
            raise errors.pop()

    jobs.service.errors = {"save": TOO_LARGE}
    with pytest.raises(JobStoppedError):
        await jobs.run(*names, concurrency=1)
    assert (await jobs.run(*names, concurrency=1)).failed == 10
    jobs.service.errors, jobs.service.before = {}, {"save": reject_first}
    progress = await jobs.make_job(yield_pdfs(*names), concurrency=1).run_failed()
    assert (progress.done, progress.failed) == (5, 25)


async def test_files_that_are_not_pdfs_do_not_stop_job(jobs: JobFactory) -> None:
    names = [f"{number}.pdf" for number in range(30)]
    async with Sandbox() as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
        assert (await jobs.run(*names, content=b"no PDF", service=suite.signing)).failed == 30


async def test_calls_for_one_document_are_a_group_in_the_log(
    jobs: JobFactory, caplog: pytest.LogCaptureFixture
) -> None:
    contents = (make_consent_form(), b"%PDF-1.7 incomplete", b"no PDF", make_consent_form(), make_consent_form())
    forms = yield_pdfs(*(Pdf(f"{number}.pdf", content) for number, content in enumerate(contents, start=1)))

    def choose_signatures(pdf: Pdf) -> list[ds.Signature]:
        return [ds.Signature(name="patient" if pdf.name == "5.pdf" else "S")]  # "patient" is a text field

    caplog.set_level(logging.DEBUG, "directsuite")
    finished = list[CallFinished]()
    async with Sandbox() as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
        suite.add_listener(lambda event: finished.append(event) if isinstance(event, CallFinished) else None)
        job = jobs.make_job(forms, service=suite.signing, signatures=choose_signatures)
        groups = {result.name: result.group async for result in job.results()}
    operations = defaultdict[int | None, list[str]](list)
    for event in finished:
        operations[event.group].append(event.operation)
    ends = dict[int, tuple[str, list[str], str]]()
    for record in caplog.records:
        fields = record.__dict__.get("directsuite", {})
        if fields.get("event") == "DocumentEnded":
            ends[fields["document"]] = (fields["state"], operations.get(fields.get("group"), []), record.levelname)
    assert ends == {
        1: ("DONE", ["Save", "SignAndPull", "Delete"], "DEBUG"),
        2: ("FAILED", [], "WARNING"),
        3: ("FAILED", ["Save"], "WARNING"),
        4: ("DONE", ["Save", "SignAndPull", "Delete"], "DEBUG"),
        5: ("FAILED", ["Save", "SignAndPull", "GetDocInfo", "Delete"], "WARNING"),  # Delete at the end of the run
    }
    assert {name: operations.get(group, []) for name, group in groups.items()} == {
        f"{number}.pdf": names for number, (_, names, _) in ends.items()
    }
    failed = "signing: document %d of the journal is FAILED"
    assert f"{failed % 2} (incomplete, no calls)" in caplog.messages
    rejected = next(line for line in caplog.messages if line.startswith(failed % 5))
    assert re.fullmatch(r".* is FAILED \(BadRequestError, HTTP 400, call \d+, group \d+\)", rejected)


async def test_log_says_that_the_job_resolves_an_unknown_outcome_and_how_it_ended(
    jobs: JobFactory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "directsuite")
    async with Sandbox() as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
        sandbox.inject_fault("SignAndPull", "reset_after")
        job = jobs.make_job(yield_pdfs("a.pdf", content=make_consent_form()), service=suite.signing)
        [result] = [result async for result in job.results()]
    assert result.state is DocumentState.DONE
    lines = [(each.levelname, re.sub(r"call \d+", "call ?", each.getMessage())) for each in caplog.records]
    finds_out = (
        "what to do: nothing, because the signing job finds out in this run or the next one, or logs that the document "
        "may be signed"
    )
    group = f"group {result.group}"
    assert lines[2:] == [  # after those of the token and the attempt
        ("INFO", f"SignAndPull: it may or may not have happened (call ?, {group}, {finds_out})"),
        (
            "INFO",
            f"signing: document {result.number} of the journal is signed: an earlier request took effect ({group})",
        ),
    ]


async def test_pause_starts_nothing_and_drain_ends_run(jobs: JobFactory) -> None:
    job = jobs.make_job(yield_pdfs(*(f"{number}.pdf" for number in range(50))), concurrency=2)
    job.pause()
    running = asyncio.create_task(job.run())
    await wait_until(lambda: bool(job._open._waiters))
    assert (job.progress.done, jobs.service.documents_created) == (0, 0)
    job.resume()
    await wait_until(lambda: job.progress.done > 0)
    job.drain()
    progress = await running
    assert 1 <= progress.done <= 4
    assert progress.under_way == 0
    assert len(jobs.list_outputs()) == progress.done
    states = (await jobs.journal.tally()).states
    assert states[DocumentState.DONE] == progress.done
    assert states[DocumentState.SIGNING] == states[DocumentState.SAVED] == states[DocumentState.SIGNED] == 0


async def test_undeleted_stored_document_is_deleted_later(jobs: JobFactory) -> None:
    jobs.service.faults = [None, None, Fault.NOT_SENT, Fault.NOT_SENT]
    assert (await jobs.run("a.pdf")).done == 1
    assert len(jobs.service.stored) == 1
    await jobs.run("a.pdf")
    assert jobs.service.stored == {}
    assert await jobs.journal.lease.list_abandoned() == []
