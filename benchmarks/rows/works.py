"""The work that a client does in one turn. A function prepares the work; the turn that it returns is measured."""

from __future__ import annotations

import asyncio
import importlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from benchmarks.gauges import Turn
from benchmarks.rows.table import FLOOR, OURS
from benchmarks.server import responses

_SIGNERS = 32
_FILLING = bytes(range(256)) * 4096


@attrs.frozen(kw_only=True)
class WorkTask:
    """A work for one client. role: the name of the client or of a role. folder: for files.

    output: a file or folder that a turn creates, and that is removed outside the measurement.
    """

    role: str
    options: Mapping[str, int]
    folder: Path

    def make_file(self, size: int) -> Path:
        """Return a file of the given size that starts as a PDF. Create it when it is first used."""
        path = self.folder / f"{size}.pdf"
        if not path.exists():
            part = path.with_suffix(f".{self.role}")
            with part.open("wb") as file:
                file.write(b"%PDF-1.7\n"[:size])
                left = size - file.tell()
                while left > 0:
                    left -= file.write(_FILLING[:left])
            part.replace(path)
        return path

    @property
    def output(self) -> Path:
        return self.folder / f"{self.role}.out"

    def remove_output(self) -> None:
        """Remove the output if there is one."""
        if self.output.is_dir():
            shutil.rmtree(self.output)
        self.output.unlink(missing_ok=True)


def small_calls(client: Any, task: WorkTask) -> Turn:
    callers, each = task.options["callers"], max(1, task.options["calls"] // task.options["callers"])

    async def call() -> None:
        for _ in range(each):
            await client.message_count()

    async def turn() -> int:
        await asyncio.gather(*(call() for _ in range(callers)))
        return each * callers

    return turn


def decode_metadata(client: Any, task: WorkTask) -> Turn:
    body, records = responses.make_metadata(task.options["messages"]), task.options["messages"]

    async def turn() -> int:
        for _ in range(task.options["repeats"]):
            _check(client.metadata(body), records)
        return records * task.options["repeats"]

    return turn


def _check(found: int, messages: int) -> int:
    assert found == messages, f"{found} messages of {messages}"
    return found


def upload(client: Any, task: WorkTask) -> Turn:
    return _make_upload_turn(client, task, client.upload)


def send(client: Any, task: WorkTask) -> Turn:
    return _make_upload_turn(client, task, client.send)


def _make_upload_turn(client: Any, task: WorkTask, call: Callable[[Path], Any]) -> Turn:
    size = task.options["document"]
    path = task.make_file(size)

    async def turn() -> int:
        await (client.floor_upload(path) if task.role == FLOOR else call(path))
        return size // 1000

    return turn


def download(client: Any, task: WorkTask) -> Turn:
    size, path = task.options["document"], task.output

    async def turn() -> int:
        if task.role == FLOOR:
            await client.floor_download(path)
        else:
            await client.download(path)
            assert path.stat().st_size == size
        return size // 1000

    return turn


def read_messages(client: Any, task: WorkTask) -> Turn:
    async def turn() -> int:
        found = await (client.floor_read_messages() if task.role == FLOOR else client.read_messages())
        return _check(found, task.options["messages"])

    return turn


def get_messages(client: Any, task: WorkTask) -> Turn:
    async def turn() -> int:
        return _check(await client.get_messages(), task.options["messages"])

    return turn


def synchronise(client: Any, task: WorkTask) -> Turn:
    canned: Any = importlib.import_module("benchmarks.sync.canned")  # not part of other works
    mailboxes, messages = task.options["mailboxes"], task.options["messages"]

    async def turn() -> int:
        task.output.mkdir()
        await canned.synchronise(client.suite, task.output, mailboxes, messages)
        return mailboxes * messages

    return turn


def sign_folder(client: Any, task: WorkTask) -> Turn:
    jobs: Any = importlib.import_module("benchmarks.signing_job")  # not part of other works
    documents, source = task.options["documents"], task.folder / f"{task.options['documents']} documents"
    jobs.make_documents(source, documents, task.options["document"])

    async def turn() -> int:
        task.output.mkdir()
        if task.role == OURS:
            signed: int = await jobs.sign_in_job(client.suite, source, task.output)
        else:
            disk = jobs.SafeDisk(task.output) if task.role == FLOOR else jobs.Disk(task.output)
            signed = await jobs.sign_by_hand(client, source, disk)
        assert signed == documents
        return documents

    return turn


def batches(client: Any, task: WorkTask) -> Turn:
    count, per = task.options["batches"], task.options["per"]

    async def turn() -> int:
        return _check(await client.batches(count, per), count * per)

    return turn


def sign(client: Any, task: WorkTask) -> Turn:
    pdf, documents = task.make_file(task.options["document"]).read_bytes(), task.options["documents"]

    async def turn() -> int:
        waiting = iter(range(documents))

        async def signer() -> None:
            for _ in waiting:
                await client.sign(pdf)

        await asyncio.gather(*(signer() for _ in range(min(_SIGNERS, documents))))
        return documents

    return turn


WORKS: dict[str, Callable[[Any, WorkTask], Turn]] = {
    work.__name__: work
    for work in (
        *(small_calls, decode_metadata, upload, send, download, read_messages, batches, sign),
        *(get_messages, synchronise, sign_folder),
    )
}
