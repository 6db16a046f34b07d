"""Workers of a fleet are killed, or suspended and resumed: each output has exactly the requested signatures.

The journal in PostgreSQL and the outputs agree, and each stored document had at most one signing request.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from directsuite.jobs.signing import DocumentState
from directsuite.sandbox.server import Sandbox
from tests.integration.documents import make_consent_form
from tests.jobs.signing.killing.experiment import count_pdfsig_signatures, start_worker
from tests.jobs.signing.killing.worker import CONNINFO, make_journal
from tests.statements import sql

pytest.importorskip("psycopg", reason="psycopg isn't installed: the extra 'fleet' brings it")

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("without_coverage")]

WORKERS, SEED = 3, 11
_LOG = logging.getLogger(__name__)


async def _signed_in_spite_of_all(sandbox: Sandbox, folder: Path, conninfo: str, seconds: float, kills: int) -> None:
    """Run workers until the job is finished. Some are killed and replaced, others suspended for a while."""
    dice = random.Random(SEED)
    workers = [await start_worker(sandbox, folder, **{CONNINFO: conninfo}) for _ in range(WORKERS)]
    try:
        for _ in range(kills):
            victim, hanging = dice.sample(range(WORKERS), 2)
            with contextlib.suppress(ProcessLookupError):
                workers[hanging].send_signal(signal.SIGSTOP)
            with contextlib.suppress(ProcessLookupError):
                workers[victim].kill()
            await workers[victim].communicate()
            workers[victim] = await start_worker(sandbox, folder, **{CONNINFO: conninfo})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(workers[victim].wait(), dice.uniform(seconds, 2 * seconds))
            with contextlib.suppress(ProcessLookupError):
                workers[hanging].send_signal(signal.SIGCONT)
        for worker in workers:
            _, errors = await worker.communicate()
            assert worker.returncode == 0, errors.decode()
    finally:
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                worker.kill()


@pytest.mark.postgres
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGSTOP there")
@pytest.mark.skipif(shutil.which("pdfsig") is None, reason="pdfsig (poppler-utils) is not installed")
@pytest.mark.parametrize(
    ("documents", "seconds", "kills"), [(20, 0.6, 2), pytest.param(1_000, 2.0, 25, marks=pytest.mark.slow)]
)
async def test_each_output_verifies_and_agrees_with_the_journal(
    documents: int, seconds: float, kills: int, tmp_path: Path, conninfo: str
) -> None:
    names = [f"{number}.pdf" for number in range(documents)]
    (tmp_path / "in").mkdir()
    for name in names:
        (tmp_path / "in" / name).write_bytes(make_consent_form())
    async with make_journal(tmp_path, conninfo) as journal, Sandbox() as sandbox:
        assert await journal.add(names) == documents
        await _signed_in_spite_of_all(sandbox, tmp_path, conninfo, seconds, kills)
        asked = Counter(str(each["subject"]) for each in await sandbox.ledger("MultiSignAndPull"))
        tally = await journal.tally()
        rows = await journal.postgres.fetch(sql("SELECT name, output_sha FROM directsuite.signing_document"))
    assert tally.states == {DocumentState.DONE: documents}
    assert set(asked.values()) == {1}
    assert len(asked) <= documents + tally.requested
    outputs = {each.name: each for each in (tmp_path / "out").iterdir() if each.is_file()}
    assert sorted(outputs) == sorted(names)
    for name, digest in rows:
        output = outputs[bytes(name).decode()]
        assert hashlib.sha256(output.read_bytes()).hexdigest() == digest
        assert count_pdfsig_signatures(output) == (2, 2)
    _LOG.info(
        "%d documents, %d kills, %d abandoned, %d perhaps signed", documents, kills, tally.abandoned, tally.requested
    )
