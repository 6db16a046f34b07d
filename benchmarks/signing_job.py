"""Signing all documents of a folder: by a job of directsuite, by a floor, and by bare aiohttp.

Each document is saved, signed and pulled, and deleted. The job records each step in its journal before the next step,
computes digests of source and output, counts signatures, and syncs each output to the disk.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
import threading
from pathlib import Path

import directsuite as ds
from benchmarks.peers import bare, work
from directsuite.jobs.signing import Folder, SigningJob, SigningJournal, TargetFolder


def make_documents(folder: Path, count: int, size: int) -> None:
    """Create documents to sign."""
    folder.mkdir(exist_ok=True)
    head, end = b"%PDF-1.7\n", b"\n%%EOF\n"
    content = (bytes(range(256)) * (size // 256 + 1))[: size - len(head) - len(end)]
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


async def sign_in_job(suite: ds.DirectSuite, source: Path, folder: Path) -> int:
    """Sign the documents with journal and outputs in a folder. Return their number."""
    signature = ds.Signature(name=work.SIGNATURE["name"], reason="Approved", gs_name="Alice")
    async with SigningJournal(folder / "journal.db") as journal:
        target = TargetFolder(folder / "out")
        job = SigningJob(
            suite.signing, Folder(source), target, [signature], journal=journal, concurrency=work.CONNECTIONS
        )
        progress = await job.run()
        assert (progress.failed, (await journal.tally()).abandoned) == (0, 0)
    return progress.done


async def sign_by_hand(client: bare.Client, source: Path, disk: Disk) -> int:
    """Sign the documents with bare aiohttp. Return the number of outputs."""
    waiting = iter(sorted(source.iterdir()))  # noqa: ASYNC240

    async def signer() -> None:
        for file in waiting:
            pdf = await asyncio.to_thread(disk.read, file)
            identifier = await client.save(pdf)
            await disk.record(file.name, "being signed", identifier)
            signed = await client.sign_and_pull(identifier)
            await disk.record(file.name, "signed", await asyncio.to_thread(disk.write, file.name, signed))
            await client.delete(identifier)
            await disk.record(file.name, "done")

    await asyncio.gather(*(signer() for _ in range(work.CONNECTIONS)))
    return len(list(disk.out.iterdir()))
