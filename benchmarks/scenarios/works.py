"""The works: what a client does in one turn. Each is prepared first, and only the turn itself is measured."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import msgspec

from benchmarks.measuring.gauges import WorkTurn
from benchmarks.peers.work import Client
from benchmarks.scenarios.rows import FLOOR, UNTYPED
from benchmarks.server import responses

_SIGNERS = 32  # documents under way at a time
_PDF_HEAD = b"%PDF-1.7\n"
_KILOBYTE = 1000
_FILLING = bytes(range(256)) * 4096


@attrs.frozen(kw_only=True)
class WorkTask:
    """A work for one client. role: the client's name, which may be a part that an adapter plays. folder: for files."""

    work: str
    role: str
    options: dict[str, int]
    folder: Path

    def make_file(self, size: int) -> Path:
        """A file of so many bytes that looks like a PDF; made at the first asking."""
        path = self.folder / f"{size}.pdf"
        if not path.exists():
            part = path.with_suffix(f".{self.role}")
            with part.open("wb") as file:
                file.write(_PDF_HEAD[:size])
                left = size - file.tell()
                while left > 0:
                    left -= file.write(_FILLING[:left])
            part.replace(path)
        return path

    @property
    def download_path(self) -> Path:
        """Where a turn leaves what it downloaded."""
        return self.folder / f"{self.role}.out"

    def remove_download(self) -> None:
        """Remove what a turn left, which is no part of the work: giving back 100 MB takes the system a while."""
        self.download_path.unlink(missing_ok=True)


def small_calls(client: Client, task: WorkTask) -> WorkTurn:
    """Calls of GetMessageCount by so many callers."""
    calls, callers = task.options["calls"], task.options["callers"]

    async def some() -> None:
        for _ in range(calls // callers):
            await client.message_count()

    async def turn() -> int:
        if callers == 1:
            await some()
        else:
            await asyncio.gather(*(some() for _ in range(callers)))
        return calls // callers * callers

    return turn


def decode_metadata(client: Client, task: WorkTask) -> WorkTurn:
    """An answer with metadata into models, so many times."""
    records, repeats = task.options["records"], task.options["repeats"]
    return _make_decoding_turn(task, client.metadata, responses.make_metadata(records), records, repeats)


def decode_messages(client: Client, task: WorkTask) -> WorkTurn:
    """An answer with attachments into models."""
    records = task.options["records"]
    return _make_decoding_turn(
        task, client.messages, responses.make_messages(records, task.options["attachment"]), records, 1
    )


def _make_decoding_turn(
    task: WorkTask, decode: Callable[[bytes], int], body: bytes, records: int, repeats: int
) -> WorkTurn:
    def untyped(text: bytes) -> int:
        return len(msgspec.json.decode(text)["messages"])

    chosen = untyped if task.role == UNTYPED else decode

    async def turn() -> int:
        for _ in range(repeats):
            found = chosen(body)
            assert found == records, f"{found} records of {records}"
        return records * repeats

    return turn


def upload(client: Any, task: WorkTask) -> WorkTurn:
    """Save with a file as the document."""
    return _make_upload_turn(client, task, lambda path: client.upload(path))


def send(client: Any, task: WorkTask) -> WorkTurn:
    """Send with a file as the attachment."""
    return _make_upload_turn(client, task, lambda path: client.send(path))


def _make_upload_turn(client: Any, task: WorkTask, call: Callable[[Path], Any]) -> WorkTurn:
    size = task.options["bytes"]
    path, coded = task.make_file(size), 4 * -(-size // 3)

    async def turn() -> int:
        await (client.floor_upload(coded) if task.role == FLOOR else call(path))
        return size // _KILOBYTE

    return turn


def download(client: Any, task: WorkTask) -> WorkTurn:
    """GetDoc into a file."""
    size, path = task.options["bytes"], task.download_path

    async def turn() -> int:
        if task.role == FLOOR:
            await client.floor_download(path)
        else:
            await client.download(path)
            assert path.stat().st_size == size
        return size // _KILOBYTE

    return turn


def read_messages(client: Any, task: WorkTask) -> WorkTurn:
    """A whole answer of GetMessages, message by message."""
    records = task.options["records"]

    async def turn() -> int:
        if task.role == FLOOR:
            await client.floor_read_messages()
        else:
            found = await client.read_messages()
            assert found == records, f"{found} messages of {records}"
        return records

    return turn


def batches(client: Client, task: WorkTask) -> WorkTurn:
    """Many batches by uid, in order, on ten connections."""
    count, per = task.options["batches"], task.options["per"]

    async def turn() -> int:
        found = await client.batches(count, per)
        assert found == count * per, f"{found} messages of {count * per}"
        return found

    return turn


def sign(client: Client, task: WorkTask) -> WorkTurn:
    """Documents saved, signed and read back, 32 under way at a time."""
    pdf = task.make_file(task.options["bytes"]).read_bytes()
    documents = task.options["documents"]

    async def turn() -> int:
        waiting = iter(range(documents))

        async def signer() -> None:
            for _ in waiting:
                await client.sign(pdf)

        await asyncio.gather(*(signer() for _ in range(min(_SIGNERS, documents))))
        return documents

    return turn


WORKS: dict[str, Callable[[Any, WorkTask], WorkTurn]] = {
    work.__name__: work
    for work in (small_calls, decode_metadata, decode_messages, upload, send, download, read_messages, batches, sign)
}
"""By name."""
