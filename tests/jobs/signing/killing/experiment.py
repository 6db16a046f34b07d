"""Kill a signing job every few seconds until it finishes, and count its outputs."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path

import attrs

from directsuite.jobs.signing import DocumentState
from directsuite.sandbox.server import Sandbox
from tests.integration.documents import make_consent_form
from tests.jobs.signing.killing import worker

SEED = 11
_SIGNATURES_BETWEEN_KILLS = 4
"""With fewer, a busy machine would abandon the same documents again and again."""
_POLL_SECONDS = 0.05
_ROOT = Path(__file__).resolve().parents[4]


@attrs.frozen(kw_only=True)
class KillResult:
    """The final state.

    seconds: duration, with the starts of processes.
    saved: the number of documents stored at the service.
    asked: the number of stored documents by number of signing requests.
    abandoned, perhaps_signed: from the journal.
    outputs: the number of files at the target. as_noted: those with the digest of the journal.
    signatures: the number of outputs by number of signatures in pdfsig. invalid: outputs with an invalid signature.
    """

    documents: int
    kills: int
    seconds: float
    saved: int
    asked: dict[int, int]
    states: dict[DocumentState, int]
    abandoned: int
    perhaps_signed: int
    outputs: int
    as_noted: int
    signatures: dict[int, int]
    invalid: int


async def sign_despite_kills(documents: int, seconds: tuple[float, float], folder: Path) -> KillResult:
    """Sign documents with a job that is killed at random times between the two limits, in seconds."""
    (folder / "in").mkdir()
    for number in range(documents):
        (folder / "in" / f"{number}.pdf").write_bytes(make_consent_form())
    async with Sandbox() as sandbox:
        began = time.monotonic()
        kills = await _run_until_done(sandbox, folder, seconds)
        took = time.monotonic() - began
        asked = Counter(str(each["subject"]) for each in await sandbox.ledger("MultiSignAndPull"))
        saved = len(await sandbox.ledger("Save"))
    async with worker.make_journal(folder, None) as journal:
        tally = await journal.tally()
        entries = await journal.lease.entries([f"{number}.pdf" for number in range(documents)])
    outputs = {file.name: file for file in (folder / "out").iterdir()}
    digests = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in outputs.items()}
    seen = [count_pdfsig_signatures(file) for file in outputs.values()]
    return KillResult(
        documents=documents,
        kills=kills,
        seconds=took,
        saved=saved,
        asked=dict(Counter(asked.values())),
        states=dict(tally.states),
        abandoned=tally.abandoned,
        perhaps_signed=tally.requested,
        outputs=len(outputs),
        as_noted=sum(digests.get(entry.name) == entry.output_sha for entry in entries),
        signatures=dict(Counter(valid for valid, _ in seen)),
        invalid=sum(valid != all_of_them for valid, all_of_them in seen),
    )


async def start_worker(sandbox: Sandbox, folder: Path, **environment: str) -> asyncio.subprocess.Process:
    """Start a worker, and wait until it begins to sign."""
    command = (sys.executable, "-m", worker.__name__, sandbox.signing_url, str(folder))
    environment = os.environ | {"DIRECTSUITE_TOKEN": sandbox.environment["DIRECTSUITE_TOKEN"]} | environment
    process = await asyncio.create_subprocess_exec(*command, cwd=_ROOT, env=environment, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def _run_until_done(sandbox: Sandbox, folder: Path, seconds: tuple[float, float]) -> int:
    """Start workers and kill each, until one finishes. Return the number of kills."""
    dice, kills = random.Random(SEED), 0
    while True:
        process = await start_worker(sandbox, folder)
        ending = asyncio.create_task(process.communicate())
        signed = await _count_signed(sandbox)
        await asyncio.wait([ending], timeout=dice.uniform(*seconds))
        while not ending.done() and await _count_signed(sandbox) < signed + _SIGNATURES_BETWEEN_KILLS:
            await asyncio.wait([ending], timeout=_POLL_SECONDS)
        with contextlib.suppress(ProcessLookupError):  # it ended without being killed
            process.kill()
        _, errors = await ending
        if process.returncode == 0:
            return kills
        assert process.returncode == -signal.SIGKILL, errors.decode()
        kills += 1


async def _count_signed(sandbox: Sandbox) -> int:
    return len(await sandbox.ledger("MultiSignAndPull"))


def count_pdfsig_signatures(file: Path) -> tuple[int, int]:
    """Return the numbers of valid signatures, and of all signatures, by pdfsig."""
    pdfsig = shutil.which("pdfsig")
    assert pdfsig is not None
    seen = subprocess.run([pdfsig, "-nocert", file], check=True, capture_output=True, text=True).stdout
    return seen.count("Signature is Valid."), seen.count("Signature Validation:")
