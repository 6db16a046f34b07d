"""Jobs on a fragile service, a stopped clock, and one journal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from pathlib import Path
from typing import Any

import directsuite as ds
from directsuite.jobs.signing import Journal, Pdf, SigningJob, TargetFolder
from tests.integration.world import StoppedClock
from tests.jobs.signing.fragile_service import FragileService

SIGN = [ds.Signature(name="S")]
CONTENT = b"%PDF-1.7 %%EOF"


async def pdfs(*names: str, content: bytes = CONTENT) -> AsyncGenerator[Pdf]:
    """Documents by these names."""
    for name in names:
        yield Pdf(name, content)


class Jobs:
    """Makes jobs on one journal, service and folder."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        self.out = folder / "out"
        self.service = FragileService()
        self.clock = StoppedClock()
        self.journal = journal

    def job(self, source: AsyncIterable[Pdf], **options: Any) -> SigningJob:
        """One of them."""
        service: Any = options.pop("service", self.service)
        signatures: Sequence[ds.Signature] = options.pop("signatures", SIGN)
        target = options.pop("target", None) or TargetFolder(self.out)
        return SigningJob(
            service, source, target, signatures, journal=self.journal, clock=self.clock, now=lambda: 0.0, **options
        )

    def signed(self) -> list[str]:
        """What the target has."""
        return sorted(file.relative_to(self.out).as_posix() for file in self.out.rglob("*") if file.is_file())
