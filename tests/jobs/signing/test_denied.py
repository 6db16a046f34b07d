"""What the service says of whoever asks, or of the URL, stops a job: it is no document's failure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.signing import JobStoppedError, State
from tests.jobs.signing.fragile_service import SIGNATURE, Fault, FragileService
from tests.jobs.signing.jobs import CONTENT, Jobs, pdfs

NAMES = [f"{number}.pdf" for number in range(30)]
DENIED = ds.PermissionDeniedError("permission denied", operation="Any", status=403, outcome=ds.Outcome.FAILED)
NO_ENDPOINT = ds.NotFoundError("endpoint not found", operation="Any", status=404, outcome=ds.Outcome.FAILED)


@attrs.define
class Refuses(FragileService):
    """Refuses some operations, until they are none."""

    refusals: dict[str, ds.ServiceError] = attrs.field(factory=dict[str, ds.ServiceError])

    async def save(self, pdf: bytes | Path) -> ds.StoredDocument:
        """Store a PDF."""
        self._refuse("save")
        return await FragileService.save(self, pdf)

    async def multi_sign_and_pull(
        self, identifier: str, signatures: Sequence[ds.Signature], *, destination: Path
    ) -> Path:
        """Sign a document."""
        self._refuse("sign")
        return await FragileService.multi_sign_and_pull(self, identifier, signatures, destination=destination)

    async def download(self, identifier: str, destination: Path) -> Path:
        """Give a document."""
        self._refuse("download")
        return await FragileService.download(self, identifier, destination)

    def _refuse(self, operation: str) -> None:
        if operation in self.refusals:
            raise self.refusals[operation]


@pytest.mark.parametrize(
    ("operation", "refusal", "state"),
    [("save", DENIED, State.NEW), ("save", NO_ENDPOINT, State.NEW), ("sign", DENIED, State.SAVED)],
    ids=["save 403", "save 404", "sign 403"],
)
async def test_it_stops_the_job_at_once_and_the_next_run_goes_on(
    operation: str, refusal: ds.ServiceError, state: State, jobs: Jobs
) -> None:
    service = Refuses(refusals={operation: refusal})
    with pytest.raises(JobStoppedError) as stopped:
        await jobs.job(pdfs(*NAMES), service=service, at_a_time=2).run()
    assert stopped.value.__cause__ is refusal
    assert jobs.clock.slept == []
    states = (await jobs.journal.tally()).states
    assert states[state] >= 1
    assert not states.keys() - {state, State.NEW}
    service.refusals.clear()
    assert (await jobs.job(pdfs(*NAMES), service=service).run()).done == len(NAMES)
    assert set(service.asked.values()) == {1}
    assert (await jobs.journal.tally()).abandoned == 0


async def test_a_signature_that_may_be_there_is_not_given_up_while_nobody_may_look(jobs: Jobs) -> None:
    service = Refuses(refusals={"download": DENIED}, faults=[None, Fault.ANSWER_LOST])
    with pytest.raises(JobStoppedError):
        await jobs.job(pdfs("a.pdf"), service=service).run()
    assert (await jobs.journal.tally()).states == {State.SIGNING: 1}
    service.refusals.clear()
    assert (await jobs.job(pdfs("a.pdf"), service=service).run()).done == 1
    assert service.asked.total() == 1
    assert (jobs.out / "a.pdf").read_bytes() == CONTENT + SIGNATURE
