"""A job is killed every few seconds: each output has exactly the signatures asked for, as pdfsig sees them.

The journal and the outputs agree, and the service was asked at most once to sign each stored document.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path

import pytest

from directsuite.jobs.signing import Journal, State
from directsuite.sandbox.server import Sandbox
from tests.integration.documents import consent
from tests.jobs.signing.killing.worker import JOURNAL

SEED = 11
_LOG = logging.getLogger(__name__)
_ROOT = Path(__file__).resolve().parents[4]


async def _worker(sandbox: Sandbox, folder: Path) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "tests.jobs.signing.killing.worker", sandbox.signing_url, str(folder))
    environment = os.environ | {"DIRECTSUITE_TOKEN": sandbox.environment["DIRECTSUITE_TOKEN"]}
    return await asyncio.create_subprocess_exec(*command, cwd=_ROOT, env=environment, stdout=PIPE, stderr=PIPE)


async def _signed_in_spite_of_kills(sandbox: Sandbox, folder: Path, seconds: tuple[float, float]) -> int:
    """Start workers and kill each, until one comes to the end; how many were killed."""
    dice, kills = random.Random(SEED), 0
    while True:
        worker = await _worker(sandbox, folder)
        assert worker.stdout is not None
        await worker.stdout.readline()
        ending = asyncio.create_task(worker.communicate())
        await asyncio.wait([ending], timeout=dice.uniform(*seconds))
        with contextlib.suppress(ProcessLookupError):  # it has come to its end by itself
            worker.kill()
        _, errors = await ending
        if worker.returncode == 0:
            return kills
        assert worker.returncode == -signal.SIGKILL, errors.decode()
        kills += 1


def _valid_signatures(file: Path) -> int:
    """How many signatures pdfsig finds valid, of all."""
    pdfsig = shutil.which("pdfsig")
    assert pdfsig is not None
    seen = subprocess.run([pdfsig, "-nocert", file], check=True, capture_output=True, text=True).stdout
    assert seen.count("Signature Validation:") == seen.count("Signature is Valid.")
    return seen.count("Signature is Valid.")


@pytest.mark.skipif(shutil.which("pdfsig") is None, reason="pdfsig (poppler-utils) is not installed")
@pytest.mark.parametrize(
    ("documents", "seconds"), [(30, (0.2, 0.8)), pytest.param(2_000, (2.0, 6.0), marks=pytest.mark.slow)]
)
async def test_each_output_verifies_and_agrees_with_the_journal(
    documents: int, seconds: tuple[float, float], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(documents):
        (tmp_path / "in" / f"{number}.pdf").write_bytes(consent())
    async with Sandbox() as sandbox:
        kills = await _signed_in_spite_of_kills(sandbox, tmp_path, seconds)
        asked = Counter(str(each["subject"]) for each in await sandbox.ledger("MultiSignAndPull"))
        saved = len(await sandbox.ledger("Save"))
    async with Journal(tmp_path / JOURNAL) as journal:
        tally = await journal.tally()
        entries = await journal.entries([f"{number}.pdf" for number in range(documents)])
    assert tally.states == {State.DONE: documents}
    for entry in entries:
        output = tmp_path / "out" / entry.name
        assert hashlib.sha256(output.read_bytes()).hexdigest() == entry.output_sha
        assert _valid_signatures(output) == 2
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == sorted(entry.name for entry in entries)
    assert set(asked.values()) == {1}
    assert len(asked) <= documents + tally.asked
    _LOG.info(
        "%d documents, %d kills, %d saved, %d abandoned, %d of them perhaps signed",
        documents,
        kills,
        saved,
        tally.abandoned,
        tally.asked,
    )
    assert saved >= documents + tally.abandoned
