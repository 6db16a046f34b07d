"""Signing jobs on a scripted service, with a fake clock and one journal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from pathlib import Path
from typing import Any

import attrs

import directsuite as ds
from directsuite.jobs.signing import DocumentState, Pdf, SigningJob, SigningJournal, SigningProgress, TargetFolder
from tests.integration.scenario import SleepDrivenClock
from tests.jobs.signing.fragile_service import FragileService, compute_digest

SIGNATURES = [ds.Signature(name="S")]
PDF_CONTENT = b"%PDF-1.7 %%EOF"
TOO_LARGE = ds.ServiceError("too large", operation="Save", status=413, outcome=ds.Outcome.FAILED)


async def yield_pdfs(*documents: str | Pdf, content: bytes = PDF_CONTENT) -> AsyncGenerator[Pdf]:
    """Yield the documents. Those given by name have the same content."""
    for each in documents:
        yield Pdf(each, content) if isinstance(each, str) else each


class JobFactory:
    def __init__(self, folder: Path, journal: SigningJournal) -> None:
        self.out = folder / "out"
        self.service = FragileService()
        self.clock = SleepDrivenClock()
        self.journal = journal

    def make_job(self, source: AsyncIterable[Pdf], **options: Any) -> SigningJob:
        service: Any = options.pop("service", self.service)
        signatures: Sequence[ds.Signature] = options.pop("signatures", SIGNATURES)
        target = options.pop("target", None) or TargetFolder(self.out)
        return SigningJob(
            service, source, target, signatures, journal=self.journal, clock=self.clock, now=lambda: 0.0, **options
        )

    async def run(self, *documents: str | Pdf, content: bytes = PDF_CONTENT, **options: Any) -> SigningProgress:
        return await self.make_job(yield_pdfs(*documents, content=content), **options).run()

    async def list_problems(self) -> list[str]:
        """Return the problems of the failed documents."""
        return [str(each.problem) for each in await self.journal.failures()]

    async def record_stored(self, name: str, state: DocumentState, identifier: str) -> None:
        """Record that an earlier run stored a document."""
        [entry] = await self.journal.lease.entries([name])
        stored = attrs.evolve(entry, state=state, identifier=identifier, saved_at=0.0)
        await self.journal.lease.put(attrs.evolve(stored, source_sha=compute_digest(PDF_CONTENT)))

    def list_outputs(self) -> list[str]:
        return sorted(file.relative_to(self.out).as_posix() for file in self.out.rglob("*") if file.is_file())
