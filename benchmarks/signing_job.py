"""`python -m benchmarks signing-job`: documents per second of a signing job, of a floor, and of bare aiohttp.

It writes signing-job.md. `python -m benchmarks.signing_job WORK URL FOLDER LATENCY` does one work.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec
import pybase64

import directsuite as ds
from benchmarks.peers import work
from benchmarks.processes import (
    CLIENTS_CORE,
    PEAK,
    Figures,
    Works,
    compute_ratios,
    compute_spread,
    format_machine,
    pin_to_core,
    print_figures,
    run_work,
    write_page,
)
from benchmarks.server import make_scenario_url, run_server
from directsuite.jobs.signing import Folder, SigningJob, SigningJournal, TargetFolder

DOCUMENT_COUNT, DOCUMENT_BYTES, CONCURRENCY = 400, 200_000, 10
_LATENCY = 0.05  # seconds of a signature by a slow service
_ROUNDS = 9
_RATE, _CPU = "documents per second", "CPU of a document, ms"


def make_documents(folder: Path, count: int) -> None:
    """Create documents to sign."""
    folder.mkdir(exist_ok=True)
    head, end = b"%PDF-1.7\n", b"\n%%EOF\n"
    content = (bytes(range(256)) * (DOCUMENT_BYTES // 256 + 1))[: DOCUMENT_BYTES - len(head) - len(end)]
    for number in range(count):
        (folder / f"{number}.pdf").write_bytes(head + content + end)


class Disk:
    """The files of bare aiohttp. It records nothing, and does not wait until a file is on the disk."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        self.out.mkdir()

    def read(self, file: Path) -> bytes:
        return file.read_bytes()

    async def record(self, name: str, state: str, value: str = "") -> None:
        pass

    def write(self, name: str, content: bytes) -> str:
        (self.out / name).write_bytes(content)
        return ""


class SafeDisk(Disk):
    """The floor: the simplest code that can resume after a crash. It commits each step, and syncs each output."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._lock = threading.Lock()
        self._database = sqlite3.connect(folder / "journal.db", isolation_level=None, check_same_thread=False)
        self._database.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
            "CREATE TABLE documents (name TEXT PRIMARY KEY, state TEXT, source TEXT, value TEXT) WITHOUT ROWID;"
        )

    def read(self, file: Path) -> bytes:
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        with self._lock:
            self._database.execute("INSERT INTO documents VALUES (?, 'read', ?, '')", (file.name, digest))
        return content

    async def record(self, name: str, state: str, value: str = "") -> None:
        await asyncio.to_thread(self._update, name, state, value)

    def write(self, name: str, content: bytes) -> str:
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

    def _update(self, name: str, state: str, value: str) -> None:
        with self._lock:
            self._database.execute("UPDATE documents SET state = ?, value = ? WHERE name = ?", (state, value, name))


async def job(url: str, folder: str, latency: str) -> Figures:
    """A signing job with a journal. It verifies outputs and syncs them to the disk."""
    settings = ds.Settings(
        signing_url=_make_signing_url(url, latency), requests_per_second=1e9, burst=10**9, max_connections=CONCURRENCY
    )
    async with ds.DirectSuite(settings, token=work.TOKEN) as suite:
        start, cpu = time.perf_counter(), time.process_time()
        assert await sign_folder(suite, Path(folder).parent / "in", Path(folder)) == DOCUMENT_COUNT
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {_RATE: DOCUMENT_COUNT / seconds, _CPU: 1000 * cpu / DOCUMENT_COUNT}


async def sign_folder(suite: ds.DirectSuite, source: Path, folder: Path) -> int:
    """Sign the documents of a folder, with journal and outputs in another one. Return the number of documents."""
    signature = ds.Signature(name=work.SIGNATURE["name"], reason="Approved", gs_name="Alice")
    async with SigningJournal(folder / "journal.db") as journal:
        target = TargetFolder(folder / "out")
        job = SigningJob(suite.signing, Folder(source), target, [signature], journal=journal, concurrency=CONCURRENCY)
        progress = await job.run()
        assert (progress.failed, (await journal.tally()).abandoned) == (0, 0)
    return progress.done


async def floor(url: str, folder: str, latency: str) -> Figures:
    return await _sign_by_hand(_make_signing_url(url, latency), Path(folder), SafeDisk(Path(folder)))


async def bare(url: str, folder: str, latency: str) -> Figures:
    return await _sign_by_hand(_make_signing_url(url, latency), Path(folder), Disk(Path(folder)))


def _make_signing_url(url: str, latency: str) -> str:
    return f"{make_scenario_url(url, document=DOCUMENT_BYTES, latency=latency)}/signing"


async def _sign_by_hand(url: str, folder: Path, disk: Disk) -> Figures:
    """Read, save, sign and pull, write, and delete each document, with bare aiohttp."""
    pdf, waiting = f"{url}/pdf", iter(sorted((folder.parent / "in").iterdir()))

    async def signer(session: aiohttp.ClientSession) -> None:
        for file in waiting:
            body = pybase64.b64encode(await asyncio.to_thread(disk.read, file))
            async with session.post(pdf, data=body, headers={"Content-Type": "text/plain"}) as response:
                response.raise_for_status()
                identifier = msgspec.json.decode(await response.read())["identifier"]
            await disk.record(file.name, "being signed", str(identifier))
            body, json_type = msgspec.json.encode(work.SIGNATURE), {"Content-Type": "application/json"}
            async with session.patch(f"{pdf}/{identifier}/sign/pull", data=body, headers=json_type) as response:
                response.raise_for_status()
                signed = pybase64.b64decode(await response.read(), validate=True)
            await disk.record(file.name, "signed", await asyncio.to_thread(disk.write, file.name, signed))
            async with session.delete(f"{pdf}/{identifier}") as response:
                response.raise_for_status()
                await response.read()
            await disk.record(file.name, "done")

    connector, bearer = aiohttp.TCPConnector(limit=CONCURRENCY), {"Authorization": f"Bearer {work.TOKEN}"}
    async with aiohttp.ClientSession(connector=connector, headers=bearer) as session:
        start, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(signer(session) for _ in range(CONCURRENCY)))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    assert len(list(disk.out.iterdir())) == DOCUMENT_COUNT
    return {_RATE: DOCUMENT_COUNT / seconds, _CPU: 1000 * cpu / DOCUMENT_COUNT}


WORKS: Works = {"job": job, "floor": floor, "bare": bare}


def run_signing_job(_: Sequence[str]) -> int:
    """Measure all works, and write signing-job.md."""
    rounds: dict[tuple[str, float], list[Figures]] = {
        (name, latency): [] for latency in (0, _LATENCY) for name in WORKS
    }
    with run_server() as url, tempfile.TemporaryDirectory() as top:
        make_documents(Path(top) / "in", DOCUMENT_COUNT)
        for number in range(_ROUNDS):
            for name, latency in rounds if number % 2 else reversed(rounds):
                with tempfile.TemporaryDirectory(dir=top) as folder:
                    rounds[name, latency].append(run_work("benchmarks.signing_job", name, url, folder, str(latency)))
    lines = list[str]()
    for latency in (0, _LATENCY):
        for figure in (_RATE, _CPU, PEAK):
            values = {name: [each[figure] for each in rounds[name, latency]] for name in WORKS}
            medians = " | ".join(f"{compute_spread(each).median:.1f}" for each in values.values())
            ratios = [compute_spread(compute_ratios(values["job"], values[name])) for name in ("floor", "bare")]
            lines.append(f"| {latency * 1000:.0f} ms | {figure} | {medians} | {ratios[0]} x | {ratios[1]} x |")
    table = "\n".join(lines)
    page = f"""# Signing job

`python -m benchmarks signing-job`, with the server of prepared responses on the same machine: {DOCUMENT_COUNT}
documents of {DOCUMENT_BYTES // 1000} KB from a folder, {CONCURRENCY} at a time. Each is saved, signed and pulled, and
deleted. The job records each step in its journal before the next step, computes digests of source and output, counts
signatures, and syncs each output to the disk. Bare aiohttp makes the same calls, and records nothing. The floor is bare
aiohttp with the simplest code that can resume after a crash: both digests, a commit of SQLite after each step, and a
sync of each output. Measured alternately, {_ROUNDS} times: medians, and quartiles of the ratios within a round. The
client has one core.

| latency of a signature | | job | floor | bare aiohttp | job / floor | job / bare |
|---|---|---|---|---|---|---|
{table}

{format_machine()}"""
    return write_page("signing-job.md", page)


if __name__ == "__main__":
    pin_to_core(CLIENTS_CORE)
    print_figures(WORKS)
