"""`python -m benchmarks walks`: how much code a reader passes who follows one piece of work from call to call.

Each piece of work runs once to warm up and once under a profiler of its own thread; the services answer from another
thread, except in the last walk, which follows the sandbox itself. A walk counts the distinct files of the package that
are entered, and the steps from one file into another. Below stands the size of the package, folder by folder.
"""

from __future__ import annotations

import ast
import asyncio
import io
import statistics
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Self

import attrs
import pikepdf

import directsuite as ds
from directsuite.sandbox import Sandbox
from directsuite.testing.loop_thread import LoopThread

_PACKAGE = Path(ds.__file__).resolve().parent
_ADDRESS = "walker@direct.example.test"
_PASSWORD = "a password"


@attrs.frozen
class CallPath:
    """What one piece of work passes through.

    files: distinct files, relative to the package. steps: calls from one of them into another. calls: of functions.
    """

    files: tuple[str, ...]
    steps: int
    calls: int


class CallRecorder:
    """Records the calls into the package, or into a folder of it, while the block runs.

    It follows this thread, and with `threads=True` those that start after the follower was made.
    """

    def __init__(self, folder: Path = _PACKAGE, *, threads: bool = False) -> None:
        self._prefix = f"{folder}/"
        self._recording = False
        self._files: dict[str, None] = {}
        self._steps = 0
        self._calls = 0
        self._entered: set[FrameType] = set()
        if threads:
            threading.setprofile(self._record)

    def __enter__(self) -> Self:
        self._recording = True
        sys.setprofile(self._record)
        return self

    def __exit__(self, *_: object) -> None:
        self._recording = False
        sys.setprofile(None)
        threading.setprofile(None)

    @property
    def walk(self) -> CallPath:
        return CallPath(tuple(self._files), self._steps, self._calls)

    def _record(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not self._recording or not file.startswith(self._prefix) or frame in self._entered:
            return  # a coroutine that is resumed was counted when it began
        self._entered.add(frame)
        self._calls += 1
        self._files[file.removeprefix(self._prefix)] = None
        caller = frame.f_back
        while caller and not caller.f_code.co_filename.startswith(self._prefix):
            caller = caller.f_back
        if caller and caller.f_code.co_filename != file:
            self._steps += 1


Work = Callable[[], Awaitable[object]]


async def _record_work(work: Work, follower: CallRecorder | None = None) -> CallPath:
    await work()
    with follower or CallRecorder() as following:
        await work()
    return following.walk


def make_blank_pdf() -> bytes:
    """A PDF of one blank page."""
    written = io.BytesIO()
    with pikepdf.new() as document:
        document.add_blank_page()
        document.save(written)
    return written.getvalue()


@asynccontextmanager
async def _run_sandbox() -> AsyncGenerator[tuple[ds.DirectSuite, ds.Mailbox, Sandbox, LoopThread]]:
    with LoopThread() as services:
        sandbox = Sandbox()
        services.call(sandbox.__aenter__())
        try:
            services.call(sandbox.add_account(_ADDRESS, _PASSWORD))
            async with ds.DirectSuite.from_env(sandbox.environment) as suite:
                yield suite, suite.mailbox(_ADDRESS, _PASSWORD), sandbox, services
        finally:
            services.call(sandbox.__aexit__(None, None, None))


def _make_message(subject: str) -> ds.Message:
    return ds.Message(sender=_ADDRESS, subject=subject, body="Good morning", recipients=[ds.Recipient(_ADDRESS)])


async def record_walks() -> dict[str, CallPath]:
    """The walks, by the names of what is done."""
    walks: dict[str, CallPath] = {}
    signature = ds.Signature(name="signature", reason="Approved", gs_name="A Walker")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pdf = folder / "in" / "document.pdf"
        pdf.parent.mkdir()
        pdf.write_bytes(make_blank_pdf())
        async with _run_sandbox() as (suite, mailbox, sandbox, services):
            walks["`get_message_count`"] = await _record_work(mailbox.get_message_count)
            walks["`signing.save` of a path"] = await _record_work(lambda: suite.signing.save(pdf))
            for number in range(4):
                raw = f"From: {_ADDRESS}\r\nTo: {_ADDRESS}\r\nSubject: {number}\r\n\r\nGood morning\r\n".encode()
                services.call(sandbox.deliver(_ADDRESS, raw))

            async def iterate() -> None:
                async with mailbox.iter_messages() as messages:
                    async for _ in messages:
                        pass

            walks["`iter_messages`, 4 messages"] = await _record_work(iterate)
            walks["`send_once`"] = await _record_work(lambda: mailbox.send_once(_make_message("Once"), key=None))
            walks["first round of a mailbox into SQLite"] = await _run_first_round(suite, folder)
            walks["one document of a signing job"] = await _sign_one_document(suite, folder, signature)
        walks["Sign within the sandbox"] = await _sign_within_the_sandbox(pdf.read_bytes())
    return walks


async def _run_first_round(suite: ds.DirectSuite, folder: Path) -> CallPath:
    from directsuite.sync import SqliteSink, SqliteStore, Synchronizer

    numbers = iter(range(2))

    async def password(_: str) -> str:
        return _PASSWORD

    async def synchronise() -> None:
        async with SqliteStore(folder / f"sync-{next(numbers)}.db", sink=SqliteSink()) as store:
            await Synchronizer(suite, store, [_ADDRESS], password).once()

    return await _record_work(synchronise)


async def _sign_one_document(suite: ds.DirectSuite, folder: Path, signature: ds.Signature) -> CallPath:
    from directsuite.jobs.signing import Folder, SigningJob, SigningJournal, TargetFolder

    numbers = iter(range(2))

    async def sign() -> None:
        number = next(numbers)
        async with SigningJournal(folder / f"journal-{number}.db") as journal:
            target = TargetFolder(folder / f"out-{number}")
            progress = await SigningJob(
                suite.signing, Folder(folder / "in"), target, [signature], journal=journal
            ).run()
            assert (progress.done, progress.failed) == (1, 0)

    return await _record_work(sign)


async def _sign_within_the_sandbox(pdf: bytes) -> CallPath:
    widget = ds.Widget(x=72, y=72, width=200, height=50, page=1)
    signature = ds.Signature(name="signature", reason="Approved", gs_name="A Walker", widget=widget)
    follower = CallRecorder(_PACKAGE / "sandbox", threads=True)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())  # none of its threads has started yet
    async with Sandbox() as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
        stored = [await suite.signing.save(pdf) for _ in range(2)]

        async def sign() -> None:
            await suite.signing.sign(stored.pop(), signature)

        return await _record_work(sign, follower)


def measure_sizes(package: Path = _PACKAGE) -> dict[str, tuple[int, int, float, int]]:
    """Files, lines, the median of a file's lines, and classes: of each folder of the package, and of the whole."""
    files: dict[str, list[tuple[int, int]]] = {}
    for path in sorted(package.rglob("*.py")):
        text = path.read_text("utf-8")
        classes = sum(isinstance(node, ast.ClassDef) for node in ast.walk(ast.parse(text)))
        parts = path.relative_to(package).parts
        for folder in ("all", parts[0] if len(parts) > 1 else "."):
            files.setdefault(folder, []).append((text.count("\n"), classes))
    return {
        folder: (len(each), sum(n for n, _ in each), statistics.median(n for n, _ in each), sum(n for _, n in each))
        for folder, each in files.items()
    }


def format_page() -> str:
    """Walks and sizes in Markdown."""
    lines = ["| walk | files | steps | calls |", "|---|---|---|---|"]
    lines += [f"| {n} | {len(w.files)} | {w.steps} | {w.calls} |" for n, w in asyncio.run(record_walks()).items()]
    lines += ["", "| folder | files | lines | median | classes |", "|---|---|---|---|---|"]
    lines += [
        f"| {folder} | {files} | {n:,} | {median:g} | {classes} |"
        for folder, (files, n, median, classes) in measure_sizes().items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(format_page())
