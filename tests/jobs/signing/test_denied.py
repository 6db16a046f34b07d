"""Errors that concern the account or the URL stop a job; no document fails.

Documents stored by an earlier run, perhaps with another account, do not stop it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

import directsuite as ds
from directsuite.jobs.signing import DocumentState, JobStoppedError, Pdf
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES, Fault
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory, yield_pdfs
from tests.waiting import wait_until

NAMES = [f"{number}.pdf" for number in range(4)]
MANY = [f"{number}.pdf" for number in range(30)]
DENIED = ds.PermissionDeniedError("permission denied", operation="Any", status=403, outcome=ds.Outcome.FAILED)
NO_ENDPOINT = ds.NotFoundError("endpoint not found", operation="Any", status=404, outcome=ds.Outcome.FAILED)
ASTRAY = {
    status: ds.ServiceError(f"HTTP {status}", operation="Any", status=status, outcome=ds.Outcome.FAILED)
    for status in (301, 302, 307, 308, 405, 407, 410, 426)
}
FOR_NOW = {
    status: ds.ServiceError(f"HTTP {status}", operation="Any", status=status, outcome=outcome)
    for status, outcome in ((408, ds.Outcome.UNKNOWN), (421, ds.Outcome.REJECTED), (425, ds.Outcome.REJECTED))
}


@pytest.mark.parametrize(
    ("operation", "refusal", "state"),
    [
        ("save", DENIED, DocumentState.NEW),
        ("save", NO_ENDPOINT, DocumentState.NEW),
        ("sign", DENIED, DocumentState.SAVED),
        ("sign", ASTRAY[302], DocumentState.SAVED),
        *(pytest.param("save", refusal, DocumentState.NEW, marks=pytest.mark.wide) for refusal in ASTRAY.values()),
        pytest.param("sign", ASTRAY[405], DocumentState.SAVED, marks=pytest.mark.wide),
    ],
    ids=["save 403", "save 404", "sign 403", "sign 302", *(f"save {status}" for status in ASTRAY), "sign 405"],
)
async def test_denied_account_stops_job_and_next_run_continues(
    operation: str, refusal: ds.ServiceError, state: DocumentState, jobs: JobFactory
) -> None:
    jobs.service.errors = {operation: refusal}
    with pytest.raises(JobStoppedError) as stopped:
        await jobs.run(*NAMES, concurrency=2)
    assert stopped.value.__cause__ is refusal
    assert jobs.clock.sleeps == []
    states = (await jobs.journal.tally()).states
    assert states[state] >= 1
    assert not states.keys() - {state, DocumentState.NEW}
    jobs.service.errors.clear()
    assert (await jobs.run(*NAMES)).done == len(NAMES)
    assert set(jobs.service.request_counts.values()) == {1}
    assert (await jobs.journal.tally()).abandoned == 0


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("refusal", FOR_NOW.values(), ids=[str(status) for status in FOR_NOW])
async def test_transient_rejection_is_retried_and_fails_no_document(refusal: ds.ServiceError, jobs: JobFactory) -> None:
    jobs.service.errors = {"save": refusal}
    with pytest.raises(JobStoppedError, match="too long") as stopped:
        await jobs.run(*NAMES, concurrency=2)
    assert stopped.value.__cause__ is refusal
    assert DocumentState.FAILED not in (await jobs.journal.tally()).states


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("refusal", [DENIED, ASTRAY[302], ASTRAY[405]], ids=["403", "302", "405"])
async def test_possible_signature_is_not_abandoned_if_download_is_denied(
    refusal: ds.ServiceError, jobs: JobFactory
) -> None:
    jobs.service.errors, jobs.service.faults = {"download": refusal}, [None, Fault.RESPONSE_LOST]
    with pytest.raises(JobStoppedError):
        await jobs.run("a.pdf")
    assert (await jobs.journal.tally()).states == {DocumentState.SIGNING: 1}
    jobs.service.errors.clear()
    assert (await jobs.run("a.pdf")).done == 1
    assert jobs.service.request_counts.total() == 1
    assert (jobs.out / "a.pdf").read_bytes() == PDF_CONTENT + SIGNATURE_BYTES


REFUSED = ds.BadRequestError("refused", operation="Any", status=400, outcome=ds.Outcome.FAILED)


def reject_document(identifier: str, error: ds.ServiceError) -> Callable[[str], Awaitable[None]]:
    async def reject(requested: str) -> None:
        if requested == identifier:
            raise error

    return reject


@pytest.mark.parametrize(
    ("state", "refusals"),
    [
        (DocumentState.SAVED, {"sign": DENIED}),
        (DocumentState.SAVED, {"sign": NO_ENDPOINT}),
        (DocumentState.SAVED, {"sign": REFUSED, "look": DENIED}),
        (DocumentState.SIGNING, {"download": DENIED}),
        (DocumentState.SIGNING, {"download": NO_ENDPOINT}),
    ],
    ids=["sign 403", "sign 404", "sign 400, look 403", "download 403", "download 404"],
)
async def test_denied_document_of_an_earlier_run_is_abandoned(
    state: DocumentState, refusals: dict[str, ds.ServiceError], jobs: JobFactory
) -> None:
    jobs.service.before = {operation: reject_document("theirs", error) for operation, error in refusals.items()}
    jobs.service.stored["theirs"] = PDF_CONTENT
    await jobs.record_stored("0.pdf", state, "theirs")
    assert (await jobs.run(*NAMES, concurrency=2)).done == len(NAMES)
    tally = await jobs.journal.tally()
    assert (tally.abandoned, tally.requested) == (1, int(state is DocumentState.SIGNING))
    assert (jobs.out / "0.pdf").read_bytes() == PDF_CONTENT + SIGNATURE_BYTES
    assert set(jobs.service.request_counts.values()) == {1}


async def test_denied_save_stops_job_after_abandoning_earlier_document(jobs: JobFactory) -> None:
    jobs.service.errors = {"download": DENIED, "save": DENIED}
    jobs.service.stored["theirs"] = PDF_CONTENT
    await jobs.record_stored("0.pdf", DocumentState.SIGNING, "theirs")
    for _ in range(7):
        with pytest.raises(JobStoppedError):
            await jobs.run("0.pdf")
    tally = await jobs.journal.tally()
    assert (tally.states, tally.abandoned) == ({DocumentState.NEW: 1}, 1)


@pytest.mark.parametrize("refusal", [DENIED, FOR_NOW[421]], ids=["403", "421"])
async def test_runs_stopped_before_request_cost_no_attempt(refusal: ds.ServiceError, jobs: JobFactory) -> None:
    jobs.service.errors = {"sign": refusal}
    for _ in range(7):
        with pytest.raises(JobStoppedError):
            await jobs.run("a.pdf", max_outage=0.5)
    jobs.service.errors.clear()
    assert (await jobs.run("a.pdf")).done == 1
    assert jobs.service.request_counts.total() == 1


@pytest.mark.parametrize(
    ("documents", "concurrency", "waits_for"), [(30, 1, "none"), (30, 2, "another"), (5, 10, "all others")]
)
async def test_only_denied_document_fails_if_others_are_signed(
    documents: int, concurrency: int, waits_for: str, jobs: JobFactory
) -> None:
    denied, signed = PDF_CONTENT + b" of Ada", 0

    async def deny_one(pdf: bytes) -> None:
        nonlocal signed
        if pdf == denied:
            wanted = {"none": 0, "another": signed + 1, "all others": documents - 1}[waits_for]
            await wait_until(lambda: job.progress.done >= wanted)
            signed = job.progress.done
            raise DENIED

    jobs.service.before = {"save": deny_one}
    source = yield_pdfs(*MANY[:4], Pdf(MANY[4], denied), *MANY[5:documents])
    job = jobs.make_job(source, concurrency=concurrency)
    progress = await job.run()
    assert (progress.done, progress.failed) == (documents - 1, 1)
    [failed] = await jobs.journal.failures()
    assert failed.name == MANY[4]


async def test_denial_of_all_documents_stops_job_and_fails_none(jobs: JobFactory) -> None:
    async def source() -> AsyncGenerator[Pdf]:
        for number, name in enumerate(MANY):
            if number == 4:
                await wait_until(lambda: job.progress.done == 4)
                jobs.service.errors["save"] = DENIED
            yield Pdf(name, PDF_CONTENT)

    job = jobs.make_job(source(), concurrency=5)
    with pytest.raises(JobStoppedError) as stopped:
        await job.run()
    assert stopped.value.__cause__ is DENIED
    assert await jobs.journal.failures() == []
