"""Model test: after lost, delayed and expired requests and crashes, each output has exactly its signatures.

No stored document has two signing requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import directsuite as ds
from directsuite.jobs.signing import DocumentState, Pdf, SigningEntry, SigningJournal, TargetFolder, documents, steps
from directsuite.jobs.signing.steps import DocumentWorkflow
from directsuite.jobs.signing.workflow import OutageTracker
from tests.examples import scale_examples
from tests.integration.scenario import SleepDrivenClock
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES, CrashError, Fault, FragileService, compute_digest

pytestmark = pytest.mark.wide

_PATIENCE = 60
"""Maximum number of runs. Each run has at most one fault."""

faults = st.lists(st.one_of(st.none(), st.sampled_from(Fault)), max_size=24)
refusals = st.sampled_from([ds.NotFoundError, ds.BadRequestError])
signed_before = st.lists(st.integers(0, 2), min_size=1, max_size=3)


async def _run(
    folder: Path, service: FragileService, pdfs: list[Pdf], signatures: list[ds.Signature]
) -> list[SigningEntry]:
    """Run the program once, until an exception or its end."""
    target = TargetFolder(folder / "out")
    async with SigningJournal(folder / "journal.db") as journal, target.staging_dir("part") as staging_dir:
        signing: Any = service
        outage = OutageTracker(clock=SleepDrivenClock(), max_outage=900.0)
        workflow = DocumentWorkflow(
            signing=signing, lease=journal.lease, target=target, staging_dir=staging_dir, outage=outage, now=lambda: 0.0
        )
        with contextlib.suppress(CrashError, ds.TransportError):
            for entry, pdf in zip(await journal.lease.entries([pdf.name for pdf in pdfs]), pdfs, strict=True):
                if not entry.state.is_final:
                    await workflow.run(entry, pdf, signatures)
        return await journal.lease.entries([pdf.name for pdf in pdfs])


@pytest.fixture(params=[documents.MAX_IN_MEMORY_BYTES, -1], ids=["in memory", "streamed"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (documents, steps):
        monkeypatch.setattr(module, "MAX_IN_MEMORY_BYTES", request.param)


def _holds(number: int) -> None:
    @settings(max_examples=number)
    @given(
        happens=faults, before=signed_before, wanted=st.integers(1, 2), late_after=st.integers(0, 5), missing=refusals
    )
    def check(
        happens: list[Fault | None], before: list[int], wanted: int, late_after: int, missing: type[ds.ServiceError]
    ) -> None:
        service = FragileService(faults=happens, not_found_error=missing)
        pdfs = [
            Pdf(f"{number}.pdf", b"%PDF-1.7" + SIGNATURE_BYTES * count + b"%%EOF")
            for number, count in enumerate(before)
        ]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            entries = list[SigningEntry]()
            for number in range(_PATIENCE):
                entries = asyncio.run(_run(folder, service, pdfs, [ds.Signature(name="S")] * wanted))
                if number >= late_after:
                    service.apply_pending()
                if all(entry.state.is_final for entry in entries):
                    break
            service.apply_pending()
            for entry, pdf in zip(entries, pdfs, strict=True):
                output = folder / "out" / entry.name
                assert output.exists() == (entry.state is DocumentState.DONE)
                if entry.state is DocumentState.DONE:
                    assert isinstance(pdf.content, bytes)
                    assert output.read_bytes() == pdf.content + SIGNATURE_BYTES * wanted
                    assert entry.output_sha == compute_digest(output.read_bytes())
                else:
                    assert entry.state is DocumentState.FAILED
                    assert entry.tries == 4  # it was repeated, and then given up
            assert list((folder / "out").rglob("*.part")) == []
            assert not (folder / "out" / ".directsuite").exists()
        assert all(count == 1 for count in service.request_counts.values())

    check()


@pytest.mark.usefixtures("_way")
def test_each_output_is_signed_exactly_once() -> None:
    _holds(scale_examples(60))


@pytest.mark.slow
@pytest.mark.usefixtures("_way")
def test_each_output_is_signed_exactly_once_slow() -> None:
    _holds(1_500)
