"""Errors that concern the account or the URL stop a job; no document fails.

Documents stored by an earlier run, perhaps with another account, do not stop it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.signing import DocumentState, JobStoppedError, Pdf
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES, Fault, FragileService
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory
from tests.waiting import wait_until

NAMES = [f"{number}.pdf" for number in range(30)]
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


@attrs.define
class Refuses(FragileService):
    """Rejects some operations, for all stored documents, or only for those of another account."""

    refusals: dict[str, ds.ServiceError] = attrs.field(factory=dict[str, ds.ServiceError])
    anothers: str | None = None

    async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
        self._refuse("save")
        return await FragileService.save(self, pdf)

    async def multi_sign_and_pull(
        self, identifier: str, signatures: Sequence[ds.Signature], *, destination: Path | None = None
    ) -> Path | bytes:
        self._refuse("sign", identifier)
        return await FragileService.multi_sign_and_pull(self, identifier, signatures, destination=destination)

    async def download(self, identifier: str, destination: Path) -> Path:
        self._refuse("download", identifier)
        return await FragileService.download(self, identifier, destination)

    async def get_doc_info(self, identifier: str) -> ds.DocumentInfo:
        self._refuse("look", identifier)
        return await FragileService.get_doc_info(self, identifier)

    def _refuse(self, operation: str, identifier: str | None = None) -> None:
        if operation in self.refusals and self.anothers in (None, identifier):
            raise self.refusals[operation]


@pytest.mark.parametrize(
    ("operation", "refusal", "state"),
    [
        ("save", DENIED, DocumentState.NEW),
        ("save", NO_ENDPOINT, DocumentState.NEW),
        *(("save", refusal, DocumentState.NEW) for refusal in ASTRAY.values()),
        ("sign", DENIED, DocumentState.SAVED),
        ("sign", ASTRAY[302], DocumentState.SAVED),
        ("sign", ASTRAY[405], DocumentState.SAVED),
    ],
    ids=["save 403", "save 404", *(f"save {status}" for status in ASTRAY), "sign 403", "sign 302", "sign 405"],
)
async def test_denied_account_stops_job_and_next_run_continues(
    operation: str, refusal: ds.ServiceError, state: DocumentState, jobs: JobFactory
) -> None:
    service = Refuses(refusals={operation: refusal})
    with pytest.raises(JobStoppedError) as stopped:
        await jobs.run(*NAMES, service=service, concurrency=2)
    assert stopped.value.__cause__ is refusal
    assert jobs.clock.slept == []
    states = (await jobs.journal.tally()).states
    assert states[state] >= 1
    assert not states.keys() - {state, DocumentState.NEW}
    service.refusals.clear()
    assert (await jobs.run(*NAMES, service=service)).done == len(NAMES)
    assert set(service.request_counts.values()) == {1}
    assert (await jobs.journal.tally()).abandoned == 0


@pytest.mark.parametrize("refusal", FOR_NOW.values(), ids=[str(status) for status in FOR_NOW])
async def test_transient_rejection_is_retried_and_fails_no_document(refusal: ds.ServiceError, jobs: JobFactory) -> None:
    service = Refuses(refusals={"save": refusal})
    with pytest.raises(JobStoppedError, match="too long") as stopped:
        await jobs.run(*NAMES, service=service, concurrency=2)
    assert stopped.value.__cause__ is refusal
    assert DocumentState.FAILED not in (await jobs.journal.tally()).states


@pytest.mark.parametrize("refusal", [DENIED, ASTRAY[302], ASTRAY[405]], ids=["403", "302", "405"])
async def test_possible_signature_is_not_abandoned_if_download_is_denied(
    refusal: ds.ServiceError, jobs: JobFactory
) -> None:
    service = Refuses(refusals={"download": refusal}, faults=[None, Fault.RESPONSE_LOST])
    with pytest.raises(JobStoppedError):
        await jobs.run("a.pdf", service=service)
    assert (await jobs.journal.tally()).states == {DocumentState.SIGNING: 1}
    service.refusals.clear()
    assert (await jobs.run("a.pdf", service=service)).done == 1
    assert service.request_counts.total() == 1
    assert (jobs.out / "a.pdf").read_bytes() == PDF_CONTENT + SIGNATURE_BYTES


REFUSED = ds.BadRequestError("refused", operation="Any", status=400, outcome=ds.Outcome.FAILED)


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
    service = Refuses(refusals=refusals, anothers="theirs", stored={"theirs": PDF_CONTENT})
    await jobs.record_stored("0.pdf", state, "theirs")
    assert (await jobs.run(*NAMES, service=service, concurrency=2)).done == len(NAMES)
    tally = await jobs.journal.tally()
    assert (tally.abandoned, tally.requested) == (1, int(state is DocumentState.SIGNING))
    assert (jobs.out / "0.pdf").read_bytes() == PDF_CONTENT + SIGNATURE_BYTES
    assert set(service.request_counts.values()) == {1}


async def test_denied_save_stops_job_after_abandoning_earlier_document(jobs: JobFactory) -> None:
    service = Refuses(refusals={"download": DENIED, "save": DENIED}, stored={"theirs": PDF_CONTENT})
    await jobs.record_stored("0.pdf", DocumentState.SIGNING, "theirs")
    for _ in range(7):
        with pytest.raises(JobStoppedError):
            await jobs.run("0.pdf", service=service)
    tally = await jobs.journal.tally()
    assert (tally.states, tally.abandoned) == ({DocumentState.NEW: 1}, 1)


@pytest.mark.parametrize("refusal", [DENIED, FOR_NOW[421]], ids=["403", "421"])
async def test_runs_stopped_before_request_cost_no_attempt(refusal: ds.ServiceError, jobs: JobFactory) -> None:
    service = Refuses(refusals={"sign": refusal})
    for _ in range(7):
        with pytest.raises(JobStoppedError):
            await jobs.run("a.pdf", service=service, max_outage=0.5)
    service.refusals.clear()
    assert (await jobs.run("a.pdf", service=service)).done == 1
    assert service.request_counts.total() == 1


@attrs.define
class Filtering(FragileService):
    """Denies requests for one document, depending on its content, after other documents have made progress."""

    when: Callable[[], bool] = attrs.field(default=lambda: True)

    async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
        if pdf == PDF_CONTENT + b" of Ada":
            await wait_until(self.when)
            raise DENIED
        return await FragileService.save(self, pdf)


async def one_denied(names: Sequence[str]) -> AsyncGenerator[Pdf]:
    for number, name in enumerate(names, 1):
        yield Pdf(name, PDF_CONTENT + b" of Ada" if number == 5 else PDF_CONTENT)


async def test_only_denied_document_fails_if_others_are_signed(jobs: JobFactory) -> None:
    seen = [0]

    def another_is_done() -> bool:
        if job.progress.done > seen[-1]:
            seen.append(job.progress.done)
            return True
        return False

    job = jobs.make_job(one_denied(NAMES), service=Filtering(when=another_is_done), concurrency=2)
    progress = await job.run()
    assert (progress.done, progress.failed) == (29, 1)
    [failed] = await jobs.journal.failures()
    assert failed.name == NAMES[4]


async def test_denied_document_blocks_no_later_document(jobs: JobFactory) -> None:
    progress = await jobs.make_job(one_denied(NAMES), service=Filtering(), concurrency=1).run()
    assert (progress.done, progress.failed) == (29, 1)


async def test_document_denied_after_the_others_fails(jobs: JobFactory) -> None:
    job = jobs.make_job(one_denied(NAMES[:5]), service=Filtering(when=lambda: job.progress.done == 4), concurrency=10)
    progress = await job.run()
    assert (progress.done, progress.failed) == (4, 1)


async def test_denial_of_all_documents_stops_job_and_fails_none(jobs: JobFactory) -> None:
    service = Refuses()

    async def source() -> AsyncGenerator[Pdf]:
        for number, name in enumerate(NAMES):
            if number == 10:
                await wait_until(lambda: job.progress.done == 10)
                service.refusals["save"] = DENIED
            yield Pdf(name, PDF_CONTENT)

    job = jobs.make_job(source(), service=service, concurrency=5)
    with pytest.raises(JobStoppedError) as stopped:
        await job.run()
    assert stopped.value.__cause__ is DENIED
    assert await jobs.journal.failures() == []
