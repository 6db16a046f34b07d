"""A worker of a signing fleet: `python -m tests.jobs.signing.killing.fleet_worker URL FOLDER`.

It prints a line when it begins, and reads PostgreSQL's conninfo from the environment.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import directsuite as ds
from directsuite.jobs.signing import Folder, SigningFleet, SigningJournal, TargetFolder
from tests.jobs.signing.killing.worker import SIGNATURES

JOB, CONNINFO = "consents", "DIRECTSUITE_TEST_CONNINFO"
BATCH_SIZE = 10


async def work(url: str, folder: Path) -> None:
    settings = ds.Settings(signing_url=url, requests_per_second=1000, burst=1000)
    async with (
        ds.DirectSuite(settings, token=os.environ["DIRECTSUITE_TOKEN"]) as suite,
        SigningJournal(conninfo=os.environ[CONNINFO], job=JOB, chunk=BATCH_SIZE) as journal,
    ):
        worker = SigningFleet(
            suite.signing,
            Folder(folder / "in").named,
            TargetFolder(folder / "out"),
            SIGNATURES,
            journal=journal,
            concurrency=4,
            worker_timeout=1.0,
            tick=0.1,
        )
        sys.stdout.write("\n")
        sys.stdout.flush()
        await worker.run()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], Path(sys.argv[2])))
