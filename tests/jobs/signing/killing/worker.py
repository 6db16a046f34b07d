"""A signing job, or a worker of a fleet, in a process: `python -m tests.jobs.signing.killing.worker URL FOLDER`.

It prints a line when it begins to sign FOLDER/in into FOLDER/out. It is a worker of a fleet if the environment contains
PostgreSQL's conninfo.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import directsuite as ds
from directsuite.jobs.signing import Folder, SigningFleet, SigningJob, SigningJournal, TargetFolder

JOURNAL = "journal.db"
JOB, CONNINFO, BATCH_SIZE = "consents", "DIRECTSUITE_TEST_CONNINFO", 10
SIGNATURES = [ds.Signature(name=name, reason="Consent", gs_name="Ada") for name in ("PatientSig", "WitnessSig")]


def make_journal(folder: Path, conninfo: str | None) -> SigningJournal:
    if conninfo is None:
        return SigningJournal(folder / JOURNAL)
    return SigningJournal(conninfo=conninfo, job=JOB, chunk=BATCH_SIZE)


async def work(url: str, folder: Path, conninfo: str | None) -> None:
    settings = ds.Settings(signing_url=url, requests_per_second=1000, burst=1000)
    source, target = Folder(folder / "in"), TargetFolder(folder / "out")
    async with (
        ds.DirectSuite(settings, token=os.environ["DIRECTSUITE_TOKEN"]) as suite,
        make_journal(folder, conninfo) as journal,
    ):
        job: SigningJob | SigningFleet
        if conninfo is None:
            job = SigningJob(suite.signing, source, target, SIGNATURES, journal=journal)
        else:
            hurry: dict[str, Any] = {"concurrency": 4, "worker_timeout": 1.0, "tick": 0.1}
            job = SigningFleet(suite.signing, source.named, target, SIGNATURES, journal=journal, **hurry)
        sys.stdout.write("\n")
        sys.stdout.flush()
        await job.run()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], Path(sys.argv[2]), os.environ.get(CONNINFO)))
