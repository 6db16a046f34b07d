"""What is measured, each in a process of its own: `python -m benchmarks.signing_job.works NAME URL FOLDER`.

It prints JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pybase64

import directsuite as ds
from benchmarks.peers import work
from benchmarks.server import make_scenario_url
from benchmarks.server.pinning import CLIENTS_CORE, pin_to_core
from benchmarks.soak.census import read_resident_bytes
from directsuite.jobs.signing import Folder, SigningJob, SigningJournal, TargetFolder

DOCUMENT_COUNT, DOCUMENT_BYTES, CONCURRENCY = 400, 200_000, 10
LATENCY_SECONDS = 0.05  # seconds of a signature

_HEAD, _END = b"%PDF-1.7\n", b"\n%%EOF\n"

Figures = dict[str, float]


def make_documents(folder: Path) -> None:
    """The documents to sign."""
    content = (
        _HEAD + (bytes(range(256)) * (DOCUMENT_BYTES // 256 + 1))[: DOCUMENT_BYTES - len(_HEAD) - len(_END)] + _END
    )
    for number in range(DOCUMENT_COUNT):
        (folder / f"{number}.pdf").write_bytes(content)


def _make_signing_url(url: str, latency: float = 0.0) -> str:
    return f"{make_scenario_url(url, document=DOCUMENT_BYTES, latency=latency)}/signing"


def _make_suite(url: str) -> ds.DirectSuite:
    settings = ds.Settings(signing_url=url, requests_per_second=1e9, burst=10**9, max_connections=CONCURRENCY)
    return ds.DirectSuite(settings, token=work.TOKEN)


async def job(url: str, folder: Path) -> Figures:
    """With a service that signs at once."""
    return await _run_job(_make_signing_url(url), folder)


async def job_waiting(url: str, folder: Path) -> Figures:
    """With one whose signatures take a while."""
    return await _run_job(_make_signing_url(url, LATENCY_SECONDS), folder)


async def floor(url: str, folder: Path) -> Figures:
    """With a service that signs at once."""
    return await _sign_by_hand(_make_signing_url(url), folder, SafeDisk(folder))


async def floor_waiting(url: str, folder: Path) -> Figures:
    """With one whose signatures take a while."""
    return await _sign_by_hand(_make_signing_url(url, LATENCY_SECONDS), folder, SafeDisk(folder))


async def bare(url: str, folder: Path) -> Figures:
    """With a service that signs at once."""
    return await _sign_by_hand(_make_signing_url(url), folder, Disk(folder))


async def bare_waiting(url: str, folder: Path) -> Figures:
    """With one whose signatures take a while."""
    return await _sign_by_hand(_make_signing_url(url, LATENCY_SECONDS), folder, Disk(folder))


class Disk:
    """Where bare aiohttp writes: it notes nothing, and leaves it to the system when a file is on the disk."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        self.out.mkdir()

    def read(self, file: Path) -> bytes:
        """The document to sign."""
        return file.read_bytes()

    async def note(self, name: str, state: str, value: str = "") -> None:
        """Nothing."""

    def write(self, name: str, content: bytes) -> str:
        """The signed document; nothing is known of it afterwards."""
        (self.out / name).write_bytes(content)
        return ""


class SafeDisk(Disk):
    """The plainest code that knows after a crash what it did: a commit for each step, each output on the disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._lock = threading.Lock()
        self._database = sqlite3.connect(folder / "journal.db", isolation_level=None, check_same_thread=False)
        self._database.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
            "CREATE TABLE documents (name TEXT PRIMARY KEY, state TEXT, source TEXT, value TEXT) WITHOUT ROWID;"
        )

    def read(self, file: Path) -> bytes:
        """The document to sign, whose digest is noted."""
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        with self._lock:
            self._database.execute("INSERT INTO documents VALUES (?, 'read', ?, '')", (file.name, digest))
        return content

    async def note(self, name: str, state: str, value: str = "") -> None:
        """A step, which is on the disk afterwards."""
        await asyncio.to_thread(self._note, name, state, value)

    def write(self, name: str, content: bytes) -> str:
        """The signed document, on the disk under its name; its digest."""
        partial = self.out / f".{name}"
        with partial.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(self.out / name)
        folder = os.open(self.out, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        return hashlib.sha256(content).hexdigest()

    def _note(self, name: str, state: str, value: str) -> None:
        with self._lock:
            self._database.execute("UPDATE documents SET state = ?, value = ? WHERE name = ?", (state, value, name))


async def _run_job(url: str, folder: Path) -> Figures:
    """A job: journal, outputs with their digests and signatures looked at, on the disk under their names."""
    signature = ds.Signature(name=work.SIGNATURE["name"], reason="Approved", gs_name="Alice")
    async with _make_suite(url) as suite, SigningJournal(folder / "journal.db") as journal:
        signing = SigningJob(
            suite.signing,
            Folder(folder.parent / "in"),
            TargetFolder(folder / "out"),
            [signature],
            journal=journal,
            concurrency=CONCURRENCY,
        )
        began, used = time.perf_counter(), time.process_time()
        progress = await signing.run()
        took, used = time.perf_counter() - began, time.process_time() - used
        assert (progress.done, progress.failed) == (DOCUMENT_COUNT, 0)
        assert (await journal.tally()).abandoned == 0
    return {"documents a second": DOCUMENT_COUNT / took, "CPU of a document, ms": 1000 * used / DOCUMENT_COUNT}


async def _sign_by_hand(url: str, folder: Path, disk: Disk) -> Figures:
    """The same three calls by hand: a file read, saved, signed and pulled, written, and deleted."""
    pdf = f"{url}/pdf"
    bearer = {"Authorization": f"Bearer {work.TOKEN}"}
    waiting = iter(sorted((folder.parent / "in").iterdir()))

    async def signer(session: aiohttp.ClientSession) -> None:
        for file in waiting:
            body = pybase64.b64encode(await asyncio.to_thread(disk.read, file))
            async with session.post(pdf, data=body, headers={"Content-Type": "text/plain"}) as answer:
                answer.raise_for_status()
                identifier = msgspec.json.decode(await answer.read())["identifier"]
            await disk.note(file.name, "being signed", str(identifier))
            body, json_type = msgspec.json.encode(work.SIGNATURE), {"Content-Type": "application/json"}
            async with session.patch(f"{pdf}/{identifier}/sign/pull", data=body, headers=json_type) as answer:
                answer.raise_for_status()
                signed = pybase64.b64decode(await answer.read(), validate=True)
            await disk.note(file.name, "signed", await asyncio.to_thread(disk.write, file.name, signed))
            async with session.delete(f"{pdf}/{identifier}") as answer:
                answer.raise_for_status()
                await answer.read()
            await disk.note(file.name, "done")

    connector = aiohttp.TCPConnector(limit=CONCURRENCY)
    async with aiohttp.ClientSession(connector=connector, headers=bearer) as session:
        began, used = time.perf_counter(), time.process_time()
        await asyncio.gather(*(signer(session) for _ in range(CONCURRENCY)))
        took, used = time.perf_counter() - began, time.process_time() - used
    assert len(list(disk.out.iterdir())) == DOCUMENT_COUNT
    return {"documents a second": DOCUMENT_COUNT / took, "CPU of a document, ms": 1000 * used / DOCUMENT_COUNT}


WORKS: dict[str, Callable[[str, Path], Coroutine[Any, Any, Figures]]] = {
    each.__name__: each for each in (job, job_waiting, floor, floor_waiting, bare, bare_waiting)
}
"""By name."""


def main() -> None:
    """Do one and print its figures, with the highest resident memory."""
    pin_to_core(CLIENTS_CORE)
    name, url, folder = sys.argv[1:]
    before = read_resident_bytes(os.getpid())
    figures: dict[str, Any] = asyncio.run(WORKS[name](url, Path(folder)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(figures | {"peak memory above the start, MB": (peak - before) / 1e6}))


if __name__ == "__main__":
    main()
