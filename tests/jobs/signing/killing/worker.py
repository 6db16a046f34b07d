"""A signing job in a process: `python -m tests.jobs.signing.killing.worker URL FOLDER`.

It prints a line when it begins to sign FOLDER/in into FOLDER/out.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import directsuite as ds
from directsuite.jobs.signing import Folder, SigningJob, SigningJournal, TargetFolder

JOURNAL = "journal.db"
SIGNATURES = [ds.Signature(name=name, reason="Consent", gs_name="Ada") for name in ("PatientSig", "WitnessSig")]


async def work(url: str, folder: Path) -> None:
    settings = ds.Settings(signing_url=url, requests_per_second=1000, burst=1000)
    async with (
        ds.DirectSuite(settings, token=os.environ["DIRECTSUITE_TOKEN"]) as suite,
        SigningJournal(folder / JOURNAL) as journal,
    ):
        job = SigningJob(
            suite.signing, Folder(folder / "in"), TargetFolder(folder / "out"), SIGNATURES, journal=journal
        )
        sys.stdout.write("\n")
        sys.stdout.flush()
        await job.run()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], Path(sys.argv[2])))
