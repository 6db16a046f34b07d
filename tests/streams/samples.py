"""A document, responses, and the sources and destinations of several tests."""

from __future__ import annotations

import io
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pybase64

import directsuite as ds
from tests.core import responses

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 4000
CODED = pybase64.b64encode(PDF)
HALF = responses.respond_in_chunks(CODED[: len(CODED) // 2], length=len(CODED))
MAX_BYTES_PER_PASS = 256 * 1024


class Pipe(io.RawIOBase):
    """A file that cannot seek, transfers few bytes per call, and records its threads."""

    def __init__(self, content: bytes = b"", fails_after: int = 10**9) -> None:
        self._rest = io.BytesIO(content)
        self._calls_left = fails_after
        self.content = b""
        self.threads: set[int] = set()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._record_call()
        return self._rest.readinto(memoryview(buffer)[:70_000])

    def write(self, piece: Any, /) -> int:
        self._record_call()
        self.content += bytes(piece[:50_000])
        return min(len(piece), 50_000)

    def _record_call(self) -> None:
        self.threads.add(threading.get_ident())
        self._calls_left -= 1
        if self._calls_left < 0:
            raise OSError("own")


def split(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


async def stream(content: bytes = PDF, size: int = 100_000) -> AsyncGenerator[bytes]:
    for piece in split(content, size):
        yield piece


def make_message(*attachments: ds.Attachment) -> ds.Message:
    return ds.Message(recipients=[ds.Recipient("bob@direct.example.test")], attachment_list=list(attachments))


class ProgressRecorder(list[tuple[int, int | None]]):
    """Records the reported progress."""

    def __call__(self, done: int, total: int | None) -> None:
        self.append((done, total))
