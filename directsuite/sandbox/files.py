"""Files for documents and for messages that are too large for a database row.

Each content has its own file, which is not modified after a row names it. A file that no row names is deleted when
it is no longer being read, and after a crash at the next start.

    request ──► Base64Decoder ──► file ──► FileRange ──► PiecesPayload ──► response
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sqlite3
import stat
import tempfile
import threading
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pybase64
from aiohttp.payload import Payload

from directsuite.sandbox.calls import BODY_PREFIX, MAX_RECORDED_BYTES
from directsuite.sandbox.database import lock_file
from directsuite.sandbox.rejections import BodyTooLargeError

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable

    from aiohttp import web
    from aiohttp.abc import AbstractStreamWriter

    from directsuite.sandbox.database import SandboxDatabase

T = TypeVar("T")

_PIECE_BYTES = 3 * 2**18  # a multiple of 3, so that base64 of the pieces can be joined
_RECEIVE_BATCH_BYTES = 2**20  # of a body, passed to a thread at once
_MAX_SMALL_BODY_BYTES = 2**20
_LINE_BREAKS = b"\r\n"


def make_abandoned_schema(table: str) -> str:
    """Return SQL that inserts into {table}_abandoned each name removed from the column `name` of a table."""
    return f"""
CREATE TEMP TABLE {table}_abandoned(name TEXT NOT NULL);
CREATE TEMP TRIGGER {table}_deleted AFTER DELETE ON {table}
  BEGIN INSERT INTO {table}_abandoned VALUES(OLD.name); END;
CREATE TEMP TRIGGER {table}_replaced AFTER UPDATE OF name ON {table}
  BEGIN INSERT INTO {table}_abandoned VALUES(OLD.name); END;
"""


_FOLDER_PREFIX = "directsuite-sandbox-"
_LOCK_NAME = "lock"
"""A file in a temporary folder, locked while its sandbox is running."""


_MIN_LEFTOVER_AGE = 60.0
"""The folder of a starting sandbox may not be locked yet."""


def _remove_leftover_folders() -> None:  # of sandboxes that were killed
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        lock = folder / _LOCK_NAME
        with suppress(OSError, sqlite3.Error):  # the folder is in use, or belongs to another user
            if not _is_own(folder, stat.S_IFDIR) or not _is_own(lock, stat.S_IFREG):
                continue
            if time.time() - lock.stat().st_mtime < _MIN_LEFTOVER_AGE:
                continue
            with closing(lock_file(lock)):
                shutil.rmtree(folder, ignore_errors=True)


def _is_own(path: Path, kind: int) -> bool:
    found = path.lstat()
    return stat.S_IFMT(found.st_mode) == kind and (os.name != "posix" or found.st_uid == os.getuid())


class StoredFiles:
    """The files of a folder. Only creating the folder and methods that say so are thread-safe.

    folder: None for a temporary folder, which close() removes.
    table: the table whose rows name the files, with the schema of make_abandoned_schema.
    """

    def __init__(self, folder: Path | None, table: str = "") -> None:
        self._permanent_folder = folder
        self._created_folder: Path | None = None
        self._lock: sqlite3.Connection | None = None
        self._folder_lock = threading.Lock()
        self._table = table
        self._readers = Counter[str]()
        self._abandoned = set[str]()

    @property
    def _folder(self) -> Path:
        with self._folder_lock:
            if self._created_folder is None and self._permanent_folder is not None:
                self._permanent_folder.mkdir(0o700, parents=True, exist_ok=True)
                self._created_folder = self._permanent_folder
            if self._created_folder is None:
                _remove_leftover_folders()
                self._created_folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX))
                self._lock = lock_file(self._created_folder / _LOCK_NAME)
                weakref.finalize(self, shutil.rmtree, self._created_folder, ignore_errors=True)
            return self._created_folder

    def close(self) -> None:
        """Remove the folder if it is temporary."""
        if self._lock is not None and self._created_folder is not None:
            shutil.rmtree(self._created_folder, ignore_errors=True)
            self._lock.close()

    async def write(
        self, database: SandboxDatabase, work: Callable[[sqlite3.Connection], T], created: Iterable[str] = ()
    ) -> T:
        """Run `work` in a write transaction, delete the files that no row names any more, and return the result.

        created: files that were created for `work`; also deleted if no row names them.
        """

        def work_and_collect(connection: sqlite3.Connection) -> tuple[T, set[str]]:
            result = work(connection)
            rows = connection.execute(f"DELETE FROM {self._table}_abandoned RETURNING name").fetchall()  # noqa: S608
            unnamed = {row["name"] for row in rows}.union(created)
            query = f"SELECT 1 FROM {self._table} WHERE name = ?"  # noqa: S608  a table of ours
            return result, {name for name in unnamed if connection.execute(query, (name,)).fetchone() is None}

        result, unnamed = await database.write(work_and_collect)
        self.abandon(unnamed)
        return result

    async def remove_unreferenced(self, database: SandboxDatabase, *, at_start: bool = False) -> None:
        """Delete the files that no row names any more.

        at_start: also delete the files left by a sandbox that was killed.
        """
        if at_start:
            query = f"SELECT name FROM {self._table}"  # noqa: S608  a table of ours
            names = await database.read(lambda connection: {row["name"] for row in connection.execute(query)})
            self._remove(file.name for file in [*self._folder.iterdir()] if file.name not in names)
        await self.write(database, lambda _: None)

    def __getitem__(self, name: str) -> Path:
        return self._folder / name

    @contextmanager
    def create_file(self) -> Generator[Path]:
        """Yield a new, empty file. An exception in the block deletes it. Cancellation does not: a row may name it."""
        file = self[uuid.uuid4().hex]
        file.touch(0o600)
        try:
            yield file
        except Exception:
            self._remove([file.name])
            raise

    @contextmanager
    def hold_file(self, name: str) -> Generator[Path]:
        """Yield a file, not deleted in the block. Raises FileNotFoundError if it does not exist."""
        with self.hold_files([name]):
            yield self[name]

    @contextmanager
    def hold_files(self, names: Collection[str]) -> Generator[None]:
        """Delay the deletion of files until the block ends. Raises FileNotFoundError if one does not exist."""
        if not all(self[name].exists() for name in names):
            raise FileNotFoundError
        self._readers.update(names)
        try:
            yield
        finally:
            self._readers -= Counter(names)
            self._remove(self._abandoned - self._readers.keys())

    def abandon(self, names: Iterable[str]) -> None:
        """Delete these files, which no row names, immediately or when they are no longer held."""
        unnamed = {*names}
        self._abandoned |= unnamed & self._readers.keys()
        self._remove(unnamed - self._readers.keys())

    def make_payload(self, parts: Iterable[bytes | FileRange], *, base64: bool = True) -> PiecesPayload:
        """Return a response body of bytes and file ranges. The files are not deleted before it is sent.

        base64: True to send the ranges, but not the bytes, in base64.
        Raises FileNotFoundError if a file does not exist.
        """
        every = [*parts]
        sizes = (len(each) if isinstance(each, bytes) else each.base64_size if base64 else each.size for each in every)

        def iter_pieces() -> Iterator[bytes]:
            for each in every:
                yield from (each,) if isinstance(each, bytes) else each.iter_base64() if base64 else each.iter_octets()

        with ExitStack() as reading:
            reading.enter_context(self.hold_files({each.file.name for each in every if isinstance(each, FileRange)}))
            return PiecesPayload(iter_pieces, sum(sizes), reading.pop_all().close)

    def _remove(self, names: Iterable[str]) -> None:
        for name in [*names]:
            self._abandoned.discard(name)
            with suppress(OSError):  # open on Windows: the next start deletes it
                self[name].unlink()


def compute_digest(content: bytes | Path) -> tuple[str, int]:
    """Return the SHA-256 digest and the size of bytes or of a file."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest(), len(content)
    with content.open("rb") as read:
        return hashlib.file_digest(read, "sha256").hexdigest(), read.tell()


class FileRange:
    """Octets in a range of a file.

    size: the number of octets if the range contains them as base64 with line breaks. None: it contains them unchanged.
    """

    def __init__(self, file: Path, start: int, end: int, size: int | None = None) -> None:
        self.file, self.start, self.end = file, start, end
        self.size = end - start if size is None else size
        self._is_base64 = size is not None

    @property
    def base64_size(self) -> int:
        """The number of base64 characters of the octets, without line breaks."""
        return (self.size + 2) // 3 * 4

    @classmethod
    def from_file(cls, file: Path) -> FileRange:
        """Return the range of an entire file."""
        return cls(file, 0, file.stat().st_size)

    def read_as_base64(self) -> FileRange | None:
        """Return the range of the octets that this range encodes in base64, or None if it is not base64."""
        decoder, size = Base64Decoder(), 0
        try:
            for piece in self._iter_pieces():
                size += len(decoder.decode(piece.translate(None, _LINE_BREAKS)))
            size += len(decoder.decode(b"", last=True))
        except ValueError:
            return None
        return FileRange(self.file, self.start, self.end, size)

    def to_list(self) -> list[int | None]:
        """Return the arguments start, end and size of __init__."""
        return [self.start, self.end, self.size if self._is_base64 else None]

    def iter_octets(self) -> Iterator[bytes]:
        """Yield the octets in pieces."""
        if not self._is_base64:
            return self._iter_pieces()
        decoder = Base64Decoder()
        return (decoder.decode(piece.translate(None, _LINE_BREAKS)) for piece in self._iter_pieces())

    def iter_base64(self) -> Iterator[bytes]:
        """Yield the octets in base64 without line breaks, in pieces."""
        if self._is_base64:
            return (piece.translate(None, _LINE_BREAKS) for piece in self._iter_pieces())
        return map(pybase64.b64encode, self._iter_pieces())

    def _iter_pieces(self) -> Iterator[bytes]:
        remaining = self.end - self.start
        with self.file.open("rb") as read:
            read.seek(self.start)
            while remaining and (piece := read.read(min(_PIECE_BYTES, remaining))):
                remaining -= len(piece)
                yield piece


class Base64Decoder:
    """Decodes base64 text piece by piece."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_padded = False

    def decode(self, text: bytes, *, last: bool = False) -> bytes:
        """Return the octets of the complete groups so far; an incomplete group waits for the next piece.

        last: True for the last piece. Raises ValueError if the text is not base64.
        """
        text = self._rest + text
        end = len(text) if last else len(text) // 4 * 4
        text, self._rest = text[:end], text[end:]
        octets = pybase64.b64decode(text, validate=True)
        if octets and self._is_padded:
            raise ValueError("there is base64 after its padding")
        self._is_padded = self._is_padded or text.endswith(b"=")
        return octets


def has_small_body(request: web.Request) -> bool:
    """Return True if the Content-Length is at most 1 MiB, False if it is larger or absent."""
    return request.content_length is not None and request.content_length <= _MAX_SMALL_BODY_BYTES


async def receive_body(request: web.Request, limit: int, consume: Callable[[bytes], Any]) -> None:
    """Pass a request's body to `consume` in pieces, in threads, and store its start as BODY_PREFIX.

    Raises BodyTooLargeError if it has more than `limit` bytes.
    """
    if (request.content_length or 0) > limit:
        raise BodyTooLargeError(limit)
    beginning, size, pending = b"", 0, bytearray()
    async for piece in request.content.iter_any():
        size += len(piece)
        if size > limit:
            raise BodyTooLargeError(limit)
        beginning += piece[: MAX_RECORDED_BYTES - len(beginning)]
        pending += piece
        if len(pending) >= _RECEIVE_BATCH_BYTES:
            await asyncio.to_thread(consume, bytes(pending))
            pending.clear()
    await asyncio.to_thread(consume, bytes(pending))
    request[BODY_PREFIX] = beginning, size


class PiecesPayload(Payload):
    """A response body whose pieces are produced in threads while it is sent.

    release: called after the body was sent, or when the payload is garbage-collected.
    """

    def __init__(self, iter_pieces: Callable[[], Iterator[bytes]], size: int, release: Callable[[], object]) -> None:
        super().__init__(None)
        self._iter_pieces = iter_pieces
        self._length = size
        self._release = weakref.finalize(self, release)

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self._length

    @classmethod
    def from_bytes(cls, body: bytes) -> PiecesPayload:
        """Return a payload of one piece."""
        return cls(lambda: iter([body]), len(body), bytes)

    def cut(self, size: int, before: bytes = b"", after: bytes = b"") -> PiecesPayload:
        """Return another payload: `before`, the first `size` bytes of this one, and `after`."""
        size = min(size, self.size)

        def iter_pieces() -> Iterator[bytes]:
            yield before
            remaining = size
            for piece in self._iter_pieces():
                yield piece[:remaining]
                remaining -= len(piece)
                if remaining <= 0:
                    break
            yield after

        return PiecesPayload(iter_pieces, len(before) + size + len(after), self._release)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the entire body as text."""
        return b"".join(self._iter_pieces()).decode(encoding, errors)

    async def read(self) -> bytes:
        """Return the entire body."""
        return await asyncio.to_thread(lambda: b"".join(self._iter_pieces()))

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the body."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Send the body. The length is ignored, because the headers always contain it."""
        pieces = self._iter_pieces()
        try:
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                await writer.write(piece)
        finally:
            self._release()
