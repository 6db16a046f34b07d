"""`python -m benchmarks walks`: the code that a reader passes who follows a piece of work from call to call.

Each piece of work runs once, and again with a profiler. A walk counts the files of the package, and the steps from one
file to another.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

import attrs

import directsuite as ds
from benchmarks.processes import format_table
from benchmarks.soak.load import run_sandbox
from directsuite.jobs.signing import Folder, SigningJob, SigningJournal, TargetFolder
from directsuite.sandbox.samples import DOMAIN
from directsuite.sync import SqliteSink, SqliteStore, Synchronizer
from tests.consent_form import build_consent_form

_PACKAGE = Path(ds.__file__).resolve().parent
_ADDRESS = f"walker@{DOMAIN}"
_PASSWORD = "a password"
_SIGNATURE = ds.Signature(name="signature", reason="Approved", gs_name="A Walker")


@attrs.frozen
class CallPath:
    """The files that a piece of work enters, the steps from one file to another, and the number of calls."""

    files: tuple[str, ...]
    steps: int
    calls: int


class CallRecorder:
    """Records the calls of this thread into a folder while the block runs."""

    def __init__(self, folder: Path = _PACKAGE) -> None:
        self._prefix = f"{folder}/"
        self._files: dict[str, None] = {}
        self._steps = 0
        self._entered: set[FrameType] = set()

    def __enter__(self) -> Self:
        sys.setprofile(self._record)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    @property
    def path(self) -> CallPath:
        """The recorded calls."""
        return CallPath(tuple(self._files), self._steps, len(self._entered))

    def _record(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(self._prefix) or frame in self._entered:
            return  # a resumed coroutine was counted when it started
        self._entered.add(frame)
        self._files[file.removeprefix(self._prefix)] = None
        caller = frame.f_back
        while caller and not caller.f_code.co_filename.startswith(self._prefix):
            caller = caller.f_back
        if caller and caller.f_code.co_filename != file:
            self._steps += 1


async def _walk(work: Callable[[], Awaitable[object]]) -> CallPath:
    await work()
    with CallRecorder() as recorder:
        await work()
    return recorder.path


async def record_walks() -> dict[str, CallPath]:
    """Return the walks by name."""
    walks, numbers = dict[str, CallPath](), itertools.count()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (pdf := folder / "in" / "document.pdf").parent.mkdir()
        pdf.write_bytes(build_consent_form(1))
        async with run_sandbox() as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
            await sandbox.control.add_account(_ADDRESS, _PASSWORD)
            for number in range(4):
                raw = f"From: {_ADDRESS}\r\nTo: {_ADDRESS}\r\nSubject: {number}\r\n\r\nGood morning\r\n"
                await sandbox.control.deliver(_ADDRESS, raw.encode())
            mailbox = suite.mailbox(_ADDRESS, _PASSWORD)

            async def iterate() -> None:
                async with mailbox.iter_messages() as messages:
                    async for _ in messages:
                        pass

            async def send() -> None:
                recipients = [ds.Recipient(_ADDRESS)]
                message = ds.Message(sender=_ADDRESS, subject="Once", body="Good morning", recipients=recipients)
                await mailbox.send_once(message, key=None)

            async def get_password(_: str) -> str:
                return _PASSWORD

            async def synchronise() -> None:
                async with SqliteStore(folder / f"sync-{next(numbers)}.db", sink=SqliteSink()) as store:
                    await Synchronizer(suite, store, [_ADDRESS], get_password).once()

            async def sign() -> None:
                out = folder / f"out-{next(numbers)}"
                async with SigningJournal(out.with_suffix(".db")) as journal:
                    source, target = Folder(folder / "in"), TargetFolder(out)
                    progress = await SigningJob(suite.signing, source, target, [_SIGNATURE], journal=journal).run()
                    assert (progress.done, progress.failed) == (1, 0)

            walks["`get_message_count`"] = await _walk(mailbox.get_message_count)
            walks["`signing.save` of a path"] = await _walk(lambda: suite.signing.save(pdf))
            walks["`iter_messages`, 4 messages"] = await _walk(iterate)
            walks["`send_once`"] = await _walk(send)
            walks["first round of a mailbox into SQLite"] = await _walk(synchronise)
            walks["one document of a signing job"] = await _walk(sign)
    return walks


def print_walks(_: object) -> int:
    """Print the table in Markdown."""
    walks = asyncio.run(record_walks()).items()
    rows = [(name, len(path.files), path.steps, path.calls) for name, path in walks]
    print(format_table(("walk", "files", "steps", "calls"), rows))
    return 0
