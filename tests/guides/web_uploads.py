"""Many uploads to the web backends of the guide `web`, and the memory that a backend needs.

The uploads and the sandbox run in this process, the backend in a separate process.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pikepdf

from benchmarks.gauges import read_peak_bytes, reset_peak_bytes
from directsuite.sandbox import Sandbox
from directsuite.testing.loop_thread import LoopThread
from tests.consent_form import build_consent_form
from tests.guides.documents import ROOT

FRAMEWORKS = ("aiohttp", "fastapi", "litestar")
MEGABYTE = 1_000_000
_GUIDE = ROOT / "directsuite" / "guides" / "web.md"
_PIECE_BYTES = 64 * 1024
_SERVE_SCRIPT = """
import importlib, runpy, socket, sys
listening = socket.socket(fileno=int(sys.argv[2]))
if sys.argv[1] == "aiohttp":
    from aiohttp import web
    run_app = web.run_app
    web.run_app = lambda app, **options: run_app(app, sock=listening, print=None, **options)
    runpy.run_module("web_aiohttp", run_name="__main__")
else:
    import uvicorn
    app = importlib.import_module("web_" + sys.argv[1]).app
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
"""


def write_example(folder: Path) -> None:
    """Write the programs of the guide into files with the names that their first lines have."""
    for program in re.findall(r"```python\n(.*?)```", _GUIDE.read_text("utf-8"), re.DOTALL):
        (folder / program.partition("\n")[0].removeprefix("# ")).write_text(program, "utf-8")


def make_large_pdf(size: int) -> bytes:
    """Return a form to sign with an incompressible stream of the given size."""
    output = io.BytesIO()
    with pikepdf.open(io.BytesIO(build_consent_form(1))) as opened:
        document: Any = opened  # pikepdf has types for a part of these methods
        document.Root.Attached = document.make_stream(random.Random(1).randbytes(size))
        document.save(output, compress_streams=False)
    return output.getvalue()


@contextmanager
def run_backend(framework: str, folder: Path, environment: dict[str, str]) -> Generator[tuple[str, int]]:
    """Run a backend in a separate process, and yield its URL and the process identifier."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        port, descriptor = listening.getsockname()[1], listening.fileno()
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE_SCRIPT, framework, str(descriptor)],
            cwd=folder,
            env=os.environ | environment | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])},
            pass_fds=[descriptor],
        )
    try:
        yield f"http://127.0.0.1:{port}/sign", process.pid
    finally:
        process.terminate()
        process.wait()


async def upload(session: aiohttp.ClientSession, url: str, content: bytes) -> int:
    """Upload a PDF in pieces, and download the result in pieces. Return its size. Raises for any other status."""

    async def pieces() -> AsyncGenerator[bytes]:
        for start in range(0, len(content), _PIECE_BYTES):
            yield content[start : start + _PIECE_BYTES]

    headers = {"Content-Length": str(len(content))}
    async with session.post(url, data=pieces(), headers=headers, raise_for_status=True) as response:
        return sum([len(piece) async for piece in response.content.iter_any()])


async def measure_growth(url: str, process: int, content: bytes, uploads: int) -> int:
    """Run simultaneous uploads. Return by how many bytes the backend's resident memory grows."""
    before, connector = reset_peak_bytes(process), aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=600)) as session:
        sizes = await asyncio.gather(*(upload(session, url, content) for _ in range(uploads)))
    assert min(sizes) > len(content), "a returned PDF is not larger than the uploaded one, so it is not signed"
    return read_peak_bytes(process) - before


def measure_framework(framework: str, uploads: int, size: int) -> int:
    """Return the growth of a backend's memory during simultaneous uploads of this size, after a first one."""
    with LoopThread() as thread, tempfile.TemporaryDirectory() as folder:
        write_example(Path(folder))
        sandbox = Sandbox()
        thread.call(sandbox.__aenter__())
        try:
            with run_backend(framework, Path(folder), sandbox.environment) as (url, process):
                asyncio.run(measure_growth(url, process, make_large_pdf(MEGABYTE), 1))
                return asyncio.run(measure_growth(url, process, make_large_pdf(size), uploads))
        finally:
            thread.call(sandbox.__aexit__(None, None, None))
