"""What the service says of whoever asks, or of the URL, stops a job: it is no document's failure.

What an earlier run has stored, perhaps by another account, is no reason to stop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.signing import JobStoppedError, Pdf, State
from tests.jobs.signing.fragile_service import SIGNATURE, Fault, FragileService, digest_of
from tests.jobs.signing.jobs import CONTENT, Jobs, pdfs
from tests.waiting import until

NAMES = [f"{number}.pdf" for number in range(30)]
DENIED = ds.PermissionDeniedError("permission denied", operation="Any", status=403, outcome=ds.Outcome.FAILED)
NO_ENDPOINT = ds.NotFoundError("endpoint not found", operation="Any", status=404, outcome=ds.Outcome.FAILED)
ASTRAY = {
    status: ds.ServiceError(f"HTTP {status}", operation="Any", status=status, outcome=ds.Outcome.FAILED)
    for status in (301, 302, 307, 308, 405, 407, 410, 426)
}
FOR_NOW = {
    status: ds.ServiceError(f"HTTP {status}", operation="Any", status=status, outcome=outcome)
    for status, outcome in (
        (408, ds.Outcome.UNKNOWN),
        (421, ds.Outcome.REJECTED),
        (425, ds.Outcome.REJECTED),
    )
}


@attrs.define
class Refuses(FragileService):
    """Refuses some operations, until they are none; with all that is stored, or with what is another's alone."""

    refusals: dict[str, ds.ServiceError] = attrs.field(factory=dict[str, ds.ServiceError])
    anothers: str | None = None

    async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
        """Store a PDF."""
        self._refuse("save")
        return await FragileService.save(self, pdf)

    async def multi_sign_and_pull(
        self, identifier: str, signatures: Sequence[ds.Signature], *, destination: Path | None = None
    ) -> Path | bytes:
        """Sign a document."""
        self._refuse("sign", identifier)
        return await FragileService.multi_sign_and_pull(self, identifier, signatures, destination=destination)

    async def download(self, identifier: str, destination: Path) -> Path:
        """Give a document."""
        self._refuse("download", identifier)
        return await FragileService.download(self, identifier, destination)

    async def get_doc_info(self, identifier: str) -> ds.DocumentInfo:
        """Tell of a document."""
        self._refuse("look", identifier)
        return await FragileService.get_doc_info(self, identifier)

    def _refuse(self, operation: str, identifier: str | None = None) -> None:
        if operation in self.refusals and self.anothers in (None, identifier):
            raise self.refusals[operation]


@pytest.mark.parametrize(
    ("operation", "refusal", "state"),
    [
        ("save", DENIED, State.NEW),
        ("save", NO_ENDPOINT, State.NEW),
        *(("save", refusal, State.NEW) for refusal in ASTRAY.values()),
        ("sign", DENIED, State.SAVED),
        ("sign", ASTRAY[302], State.SAVED),
        ("sign", ASTRAY[405], State.SAVED),
    ],
    ids=["save 403", "save 404", *(f"save {status}" for status in ASTRAY), "sign 403", "sign 302", "sign 405"],
)
async def test_it_stops_the_job_at_once_and_the_next_run_goes_on(
    operation: str, refusal: ds.ServiceError, state: State, jobs: Jobs
) -> None:
    service = Refuses(refusals={operation: refusal})
    with pytest.raises(JobStoppedError) as stopped:
        await jobs.job(pdfs(*NAMES), service=service, concurrency=2).run()
    assert stopped.value.__cause__ is refusal
    assert jobs.clock.slept == []
    states = (await jobs.journal.tally()).states
    assert states[state] >= 1
    assert not states.keys() - {state, State.NEW}
    service.refusals.clear()
    assert (await jobs.job(pdfs(*NAMES), service=service).run()).done == len(NAMES)
    assert set(service.asked.values()) == {1}
    assert (await jobs.journal.tally()).abandoned == 0


@pytest.mark.parametrize("refusal", FOR_NOW.values(), ids=[str(status) for status in FOR_NOW])
async def test_what_passes_by_waiting_is_waited_for_and_fails_no_document(refusal: ds.ServiceError, jobs: Jobs) -> None:
    service = Refuses(refusals={"save": refusal})
    with pytest.raises(JobStoppedError, match="too long") as stopped:
        await jobs.job(pdfs(*NAMES), service=service, concurrency=2).run()
    assert stopped.value.__cause__ is refusal
    assert State.FAILED not in (await jobs.journal.tally()).states


@pytest.mark.parametrize("refusal", [DENIED, ASTRAY[302], ASTRAY[405]], ids=["403", "302", "405"])
async def test_a_signature_that_may_be_there_is_not_given_up_by_the_run_that_stored_it_and_may_not_look(
    refusal: ds.ServiceError, jobs: Jobs
) -> None:
    service = Refuses(refusals={"download": refusal}, faults=[None, Fault.ANSWER_LOST])
    with pytest.raises(JobStoppedError):
        await jobs.job(pdfs("a.pdf"), service=service).run()
    assert (await jobs.journal.tally()).states == {State.SIGNING: 1}
    service.refusals.clear()
    assert (await jobs.job(pdfs("a.pdf"), service=service).run()).done == 1
    assert service.asked.total() == 1
    assert (jobs.out / "a.pdf").read_bytes() == CONTENT + SIGNATURE


REFUSED = ds.BadRequestError("refused", operation="Any", status=400, outcome=ds.Outcome.FAILED)


@pytest.mark.parametrize(
    ("state", "refusals"),
    [
        (State.SAVED, {"sign": DENIED}),
        (State.SAVED, {"sign": NO_ENDPOINT}),
        (State.SAVED, {"sign": REFUSED, "look": DENIED}),
        (State.SIGNING, {"download": DENIED}),
        (State.SIGNING, {"download": NO_ENDPOINT}),
    ],
    ids=["sign 403", "sign 404", "sign 400, look 403", "download 403", "download 404"],
)
async def test_what_an_earlier_run_stored_and_this_one_may_not_have_is_abandoned_since_it_may_be_another_accounts(
    state: State, refusals: dict[str, ds.ServiceError], jobs: Jobs
) -> None:
    service = Refuses(refusals=refusals, anothers="theirs", stored={"theirs": CONTENT})
    [entry] = await jobs.journal.entries(["0.pdf"])
    source = digest_of(CONTENT)
    theirs = attrs.evolve(entry, state=state, identifier="theirs", saved_at=0.0, source_sha=source)
    await jobs.journal.put(theirs)
    assert (await jobs.job(pdfs(*NAMES), service=service, concurrency=2).run()).done == len(NAMES)
    tally = await jobs.journal.tally()
    assert (tally.abandoned, tally.requested) == (1, int(state is State.SIGNING))
    assert (jobs.out / "0.pdf").read_bytes() == CONTENT + SIGNATURE
    assert set(service.asked.values()) == {1}


async def test_an_account_that_may_store_nothing_stops_the_job_when_it_has_abandoned_an_earlier_ones(
    jobs: Jobs,
) -> None:
    service = Refuses(refusals={"download": DENIED, "save": DENIED}, stored={"theirs": CONTENT})
    [entry] = await jobs.journal.entries(["0.pdf"])
    theirs = attrs.evolve(entry, state=State.SIGNING, identifier="theirs", saved_at=0.0, source_sha=digest_of(CONTENT))
    await jobs.journal.put(theirs)
    for _ in range(7):
        with pytest.raises(JobStoppedError):
            await jobs.job(pdfs("0.pdf"), service=service).run()
    tally = await jobs.journal.tally()
    assert (tally.states, tally.abandoned) == ({State.NEW: 1}, 1)


@pytest.mark.parametrize("refusal", [DENIED, FOR_NOW[421]], ids=["403", "421"])
async def test_a_document_that_was_never_asked_for_costs_no_try_however_many_runs_end_before(
    refusal: ds.ServiceError, jobs: Jobs
) -> None:
    service = Refuses(refusals={"sign": refusal})
    for _ in range(7):
        with pytest.raises(JobStoppedError):
            await jobs.job(pdfs("a.pdf"), service=service, patience=0.5).run()
    service.refusals.clear()
    assert (await jobs.job(pdfs("a.pdf"), service=service).run()).done == 1
    assert service.asked.total() == 1


@attrs.define
class Filtering(FragileService):
    """Denies one document, by what is in it, each time when something has happened."""

    when: Callable[[], bool] = attrs.field(default=lambda: True)

    async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
        """Store a PDF."""
        if pdf == CONTENT + b" of Ada":
            await until(self.when)
            raise DENIED
        return await FragileService.save(self, pdf)


async def one_denied(names: Sequence[str]) -> AsyncGenerator[Pdf]:
    """Documents of which the fifth is denied."""
    for number, name in enumerate(names, 1):
        yield Pdf(name, CONTENT + b" of Ada" if number == 5 else CONTENT)


async def test_a_document_that_is_denied_while_others_are_signed_fails_alone(jobs: Jobs) -> None:
    seen = [0]

    def another_is_done() -> bool:
        """Since it was denied last."""
        if job.progress.done > seen[-1]:
            seen.append(job.progress.done)
            return True
        return False

    job = jobs.job(one_denied(NAMES), service=Filtering(when=another_is_done), concurrency=2)
    progress = await job.run()
    assert (progress.done, progress.failed) == (29, 1)
    [failed] = await jobs.journal.failures()
    assert failed.name == NAMES[4]


async def test_one_that_is_denied_holds_up_no_other_where_they_come_one_by_one(jobs: Jobs) -> None:
    progress = await jobs.job(one_denied(NAMES), service=Filtering(), concurrency=1).run()
    assert (progress.done, progress.failed) == (29, 1)


async def test_one_that_is_denied_when_the_others_are_signed_fails_too(jobs: Jobs) -> None:
    job = jobs.job(one_denied(NAMES[:5]), service=Filtering(when=lambda: job.progress.done == 4), concurrency=10)
    progress = await job.run()
    assert (progress.done, progress.failed) == (4, 1)


async def test_what_all_are_denied_in_the_middle_stops_the_job_and_fails_none(jobs: Jobs) -> None:
    service = Refuses()

    async def source() -> AsyncGenerator[Pdf]:
        for number, name in enumerate(NAMES):
            if number == 10:
                await until(lambda: job.progress.done == 10)
                service.refusals["save"] = DENIED
            yield Pdf(name, CONTENT)

    job = jobs.job(source(), service=service, concurrency=5)
    with pytest.raises(JobStoppedError) as stopped:
        await job.run()
    assert stopped.value.__cause__ is DENIED
    assert await jobs.journal.failures() == []
