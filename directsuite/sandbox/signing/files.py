"""The bytes of stored documents: each version is a file of its own, which is not written again once a row names it.

A version that no row names any more goes as soon as nobody reads it. What a crash leaves behind goes at the next start.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
import tempfile
import uuid
import weakref
from collections import Counter
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pybase64
from aiohttp.payload import Payload

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from aiohttp.abc import AbstractStreamWriter

_PIECE = 3 * 2**18  # bytes; whole groups of base64


class DocumentFiles:
    """The files of a folder, or of a temporary one where it is None; used in the event loop's thread."""

    def __init__(self, folder: Path | None) -> None:
        self._kept = folder
        self._readers = Counter[str]()
        self._abandoned = set[str]()

    @cached_property
    def _folder(self) -> Path:
        if self._kept is not None:
            self._kept.mkdir(0o700, parents=True, exist_ok=True)
            return self._kept
        folder = Path(tempfile.mkdtemp(prefix="directsuite-sandbox-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    def close(self) -> None:
        """Remove the folder, if it is a temporary one."""
        if self._kept is None and "_folder" in self.__dict__:
            shutil.rmtree(self._folder, ignore_errors=True)

    def keep_only(self, names: Iterable[str]) -> None:
        """Remove all files but these: what a sandbox that was killed has left."""
        self._remove(file.name for file in [*self._folder.iterdir()] if file.name not in {*names})

    def __getitem__(self, name: str) -> Path:
        """The file of this name."""
        return self._folder / name

    @contextmanager
    def making(self) -> Generator[Path]:
        """A file to write. An error removes it; a cancellation doesn't, for a row may name it by then."""
        file = self[uuid.uuid4().hex]
        file.touch(0o600)
        try:
            yield file
        except Exception:
            self._remove([file.name])
            raise

    @contextmanager
    def reading(self, name: str) -> Generator[Path]:
        """A file that stays until it has been read. Raises FileNotFoundError if it has gone."""
        file = self[name]
        if not file.exists():
            raise FileNotFoundError
        self._readers[name] += 1
        try:
            yield file
        finally:
            self._readers[name] -= 1
            if not self._readers[name]:
                del self._readers[name]
                self._remove(self._abandoned & {name})

    def abandon(self, names: Iterable[str]) -> None:
        """Remove files that no row names any more, once they are not read."""
        gone = {*names}
        self._abandoned |= gone & self._readers.keys()
        self._remove(gone - self._readers.keys())

    def seal(self, file: Path) -> tuple[str, str, int]:
        """Return documentDigest, name and size of a written file, which a power loss no longer takes.

        Runs in any thread.
        """
        with file.open("r+b") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
            if self._kept is not None:
                os.fsync(written.fileno())
        if self._kept is not None and sys.platform != "win32":
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        return digest, file.name, file.stat().st_size

    def _remove(self, names: Iterable[str]) -> None:
        for name in [*names]:
            self._abandoned.discard(name)
            with suppress(OSError):  # Windows keeps what is open: the next start removes it
                self[name].unlink()


class FilePayload(Payload):
    """A file as the body of an answer, as it stands or as base64, read while it is sent.

    It is opened at once, so that it can be sent to its end even where it is removed meanwhile.
    """

    def __init__(self, file: Path, *, base64: bool = False) -> None:
        self._descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._descriptor)
        self._base64 = base64
        self._length = os.fstat(self._descriptor).st_size
        super().__init__(None)

    @property
    def size(self) -> int:
        """Bytes that are sent."""
        return (self._length + 2) // 3 * 4 if self._base64 else self._length

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The whole body as text."""
        return self._all().decode(encoding, errors)

    async def as_bytes(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """The whole body."""
        return await asyncio.to_thread(self._all)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the body."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Send the body, which is as long as the headers say."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        while piece := await asyncio.to_thread(self._read):
            await writer.write(piece)

    def _read(self) -> bytes:
        piece = os.read(self._descriptor, _PIECE)
        while len(piece) % 3 and (more := os.read(self._descriptor, _PIECE - len(piece))):
            piece += more
        return pybase64.b64encode(piece) if self._base64 else piece

    def _all(self) -> bytes:
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return b"".join(iter(self._read, b""))
