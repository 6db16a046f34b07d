"""`python -m benchmarks.web_uploads`: the web backends of the guide `web` under many uploads, and the memory they take.

uploads (here) ─► the backend, in a process of its own ─► the sandbox (here, in a thread)
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
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import pikepdf

from directsuite.cli.demo import documents
from directsuite.sandbox import Sandbox
from directsuite.testing.loop_thread import LoopThread

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "directsuite" / "guides" / "web.md"
RESULTS = Path(__file__).parent / "results" / "web-uploads.md"
FRAMEWORKS = {"aiohttp": "aiohttp.web", "fastapi": "FastAPI", "litestar": "Litestar"}
MEGABYTE = 1_000_000
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


@attrs.frozen(kw_only=True)
class UploadLoad:
    """So many uploads at a time, of so many bytes each, and the backend's resident memory: before, and its peak."""

    uploads: int
    size: int
    before: int
    peak: int

    @property
    def growth(self) -> int:
        """Bytes that it took."""
        return self.peak - self.before


def write_example(folder: Path) -> None:
    """The guide's programs as the files that it names."""
    chapter = GUIDE.read_text("utf-8")
    for program in re.findall(r"```python\n(.*?)```", chapter, re.DOTALL):
        (folder / program.partition("\n")[0].removeprefix("# ")).write_text(program, "utf-8")


def make_large_pdf(size: int) -> bytes:
    """A form to sign, with an attachment of so many bytes that nothing compresses."""
    output = io.BytesIO()
    with pikepdf.open(io.BytesIO(documents.build_consent_form(documents.Form.from_number(1)))) as opened:
        document: Any = opened  # for those of its methods that pikepdf types in part only
        document.Root.Attached = document.make_stream(random.Random(1).randbytes(size))
        document.save(output, compress_streams=False)
    return output.getvalue()


@contextmanager
def run_backend(framework: str, folder: Path, environment: dict[str, str]) -> Generator[tuple[str, int]]:
    """A backend in a process of its own: its URL, and the process's number."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        port, descriptor = listening.getsockname()[1], listening.fileno()
        serving = subprocess.Popen(  # noqa: S603  our own interpreter
            [sys.executable, "-c", _SERVE_SCRIPT, framework, str(descriptor)],
            cwd=folder,
            env=os.environ | environment | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])},
            pass_fds=[descriptor],
        )
    try:
        yield f"http://127.0.0.1:{port}/sign", serving.pid
    finally:
        serving.terminate()
        serving.wait()


async def upload(browser: aiohttp.ClientSession, url: str, content: bytes) -> int:
    """Send a PDF in pieces, and take the answer in pieces: how many bytes came back. Raises for any refusal."""

    async def pieces() -> AsyncGenerator[bytes]:
        for start in range(0, len(content), _PIECE_BYTES):
            yield content[start : start + _PIECE_BYTES]

    headers = {"Content-Length": str(len(content))}
    async with browser.post(url, data=pieces(), headers=headers, raise_for_status=True) as answer:
        return sum([len(piece) async for piece in answer.content.iter_any()])


async def measure_load(url: str, process: int, content: bytes, uploads: int) -> UploadLoad:
    """So many uploads, all at a time, and what they did to the backend's memory."""
    before = _reset_peak(process)
    async with _open_session() as browser:
        sizes = await asyncio.gather(*(upload(browser, url, content) for _ in range(uploads)))
    if min(sizes) <= len(content):
        raise RuntimeError("a PDF came back that is no larger than what was sent: it isn't signed")
    return UploadLoad(uploads=uploads, size=len(content), before=before, peak=_read_peak_bytes(process))


def measure_framework(
    framework: str, loads: Iterable[tuple[int, int]], *, warm_up: tuple[int, int]
) -> list[UploadLoad]:
    """One backend under each load, `(uploads, bytes)`, after a first that isn't told: it fills pools and caches."""
    with LoopThread() as thread, tempfile.TemporaryDirectory() as folder:
        write_example(Path(folder))
        sandbox = Sandbox()
        thread.call(sandbox.__aenter__())
        try:
            with run_backend(framework, Path(folder), sandbox.environment) as (url, process):
                told = [
                    asyncio.run(measure_load(url, process, make_large_pdf(size), uploads))
                    for uploads, size in [warm_up, *loads]
                ]
        finally:
            thread.call(sandbox.__aexit__(None, None, None))
    return told[1:]


@asynccontextmanager
async def _open_session() -> AsyncGenerator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        yield session


def _reset_peak(process: int) -> int:
    """Make the present resident memory of a process its peak (proc(5)); bytes."""
    Path(f"/proc/{process}/clear_refs").write_text("5", "ascii")
    return _read_peak_bytes(process)


def _read_peak_bytes(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _format_page(rows: Sequence[tuple[str, list[UploadLoad]]]) -> str:
    heads = ["before", *(f"{told.uploads} of {told.size / MEGABYTE:.0f} MB" for told in rows[0][1])]
    lines = [f"| backend | {' | '.join(heads)} |", "|---" + "|---:" * len(heads) + "|"]
    for name, told in rows:
        sizes = [told[0].before, *(each.peak for each in told)]
        lines.append(f"| {FRAMEWORKS[name]} | {' | '.join(f'{size / MEGABYTE:.0f}' for size in sizes)} |")
    return f"""# Uploads to web backends

Written by `python -m benchmarks.web_uploads`. Each backend of the guide `web` runs in a process of its own, with ten
connections to the service, as many as a suite has unless told otherwise. So many browsers upload a PDF at the same
time, have it signed and download it. The table has the process's resident memory in MB: after one upload, and then its
peak under each load, one after the other.

{chr(10).join(lines)}

What grows with the browsers is what a framework reads ahead of those that wait for a connection. The size of their
PDFs hardly shows.
"""


def main() -> int:
    """Measure each backend, and write the page."""
    loads = [(20, MEGABYTE), (20, 8 * MEGABYTE), (200, MEGABYTE), (200, 4 * MEGABYTE)]
    rows = [(framework, measure_framework(framework, loads, warm_up=(1, MEGABYTE))) for framework in FRAMEWORKS]
    RESULTS.write_text(_format_page(rows), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
