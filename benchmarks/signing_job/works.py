"""What is measured, each in a process of its own: `python -m benchmarks.signing_job.works NAME URL FOLDER`.

It prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pybase64

import directsuite as ds
from benchmarks.peers import work
from benchmarks.server import at
from benchmarks.server.pinning import CLIENTS, pin
from benchmarks.soak.census import resident
from directsuite.jobs.signing import Folder, Journal, SigningJob, TargetFolder

DOCUMENTS, SIZE, AT_A_TIME = 400, 200_000, 10
LATENCY = 0.05  # seconds of a signature

_HEAD = b"%PDF-1.7\n"

Figures = dict[str, float]


def make_documents(folder: Path) -> None:
    """The documents to sign."""
    content = _HEAD + (bytes(range(256)) * (SIZE // 256 + 1))[: SIZE - len(_HEAD)]
    for number in range(DOCUMENTS):
        (folder / f"{number}.pdf").write_bytes(content)


def _signing(url: str, latency: float = 0.0) -> str:
    return f"{at(url, document=SIZE, latency=latency)}/signing"


def _suite(url: str) -> ds.DirectSuite:
    settings = ds.Settings(signing_url=url, requests_per_second=1e9, burst=10**9, max_connections=AT_A_TIME)
    return ds.DirectSuite(settings, token=work.TOKEN)


async def job(url: str, folder: Path) -> Figures:
    """With a service that signs at once."""
    return await _job(_signing(url), folder)


async def job_waiting(url: str, folder: Path) -> Figures:
    """With one whose signatures take a while."""
    return await _job(_signing(url, LATENCY), folder)


async def bare(url: str, folder: Path) -> Figures:
    """With a service that signs at once."""
    return await _bare(_signing(url), folder)


async def bare_waiting(url: str, folder: Path) -> Figures:
    """With one whose signatures take a while."""
    return await _bare(_signing(url, LATENCY), folder)


async def _job(url: str, folder: Path) -> Figures:
    """A job: journal, outputs with their digests and signatures looked at, on the disk under their names."""
    signature = ds.Signature(name=work.SIGNATURE["name"], reason="Approved", gs_name="Alice")
    async with _suite(url) as suite, Journal(folder / "journal.db") as journal:
        signing = SigningJob(
            suite.signing,
            Folder(folder.parent / "in"),
            TargetFolder(folder / "out"),
            [signature],
            journal=journal,
            concurrency=AT_A_TIME,
        )
        began, used = time.perf_counter(), time.process_time()
        progress = await signing.run()
        took, used = time.perf_counter() - began, time.process_time() - used
        assert (progress.done, progress.failed) == (DOCUMENTS, 0)
        assert (await journal.tally()).abandoned == 0
    return {"documents a second": DOCUMENTS / took, "CPU of a document, ms": 1000 * used / DOCUMENTS}


async def _bare(url: str, folder: Path) -> Figures:
    """The same three calls by hand: a file read, saved, signed and pulled, written, and deleted. Nothing is noted."""
    pdf = f"{url}/pdf"
    bearer = {"Authorization": f"Bearer {work.TOKEN}"}
    (folder / "out").mkdir()
    waiting = iter(sorted((folder.parent / "in").iterdir()))

    async def signer(session: aiohttp.ClientSession) -> None:
        for file in waiting:
            body = pybase64.b64encode(await asyncio.to_thread(file.read_bytes))
            async with session.post(pdf, data=body, headers={"Content-Type": "text/plain"}) as answer:
                answer.raise_for_status()
                identifier = msgspec.json.decode(await answer.read())["identifier"]
            body, json_type = msgspec.json.encode(work.SIGNATURE), {"Content-Type": "application/json"}
            async with session.patch(f"{pdf}/{identifier}/sign/pull", data=body, headers=json_type) as answer:
                answer.raise_for_status()
                signed = pybase64.b64decode(await answer.read(), validate=True)
            await asyncio.to_thread((folder / "out" / file.name).write_bytes, signed)
            async with session.delete(f"{pdf}/{identifier}") as answer:
                answer.raise_for_status()
                await answer.read()

    connector = aiohttp.TCPConnector(limit=AT_A_TIME)
    async with aiohttp.ClientSession(connector=connector, headers=bearer) as session:
        began, used = time.perf_counter(), time.process_time()
        await asyncio.gather(*(signer(session) for _ in range(AT_A_TIME)))
        took, used = time.perf_counter() - began, time.process_time() - used
    assert len(list((folder / "out").iterdir())) == DOCUMENTS
    return {"documents a second": DOCUMENTS / took, "CPU of a document, ms": 1000 * used / DOCUMENTS}


WORKS: dict[str, Callable[[str, Path], Coroutine[Any, Any, Figures]]] = {
    each.__name__: each for each in (job, job_waiting, bare, bare_waiting)
}
"""By name."""


def main() -> None:
    """Do one and print its figures, with the highest resident memory."""
    pin(CLIENTS)
    name, url, folder = sys.argv[1:]
    before = resident(os.getpid())
    figures: dict[str, Any] = asyncio.run(WORKS[name](url, Path(folder)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(figures | {"peak memory above the start, MB": (peak - before) / 1e6}))


if __name__ == "__main__":
    main()
