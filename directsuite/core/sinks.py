"""Where the bytes that are received go: a file that appears whole, a file object, or a callable that takes each piece.

    open ─► begin ─► write … ─► finish ─► keep    `end` after an attempt that failed, `close` after them all

`begin` empties it for another attempt. One that can't be emptied is `spent` once it has got bytes.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import inspect
import io
import os
import tempfile
from collections.abc import Awaitable, Callable
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Generic, Protocol, TypeVar, TypeVarTuple

from directsuite.core.blocking import BLOCK, OwnThread, forget, patiently
from directsuite.core.system_errors import reason_of
from directsuite.errors import InvalidArgumentError

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class BinaryWriter(Protocol):
    """A file that was opened for writing bytes, or what writes like one. It is never closed here."""

    def write(self, piece: bytes, /) -> int | None:
        """Take the bytes, or as many of them as the number returned says, which gets the rest in another call."""
        ...


PieceWriter = Callable[[bytes], Awaitable[object]]
"""An async function that takes each piece as it comes, such as the `write` of aiohttp's StreamResponse, or an object
with such a `__call__`. A plain function is refused, for whether it gives an awaitable shows only when it is called.
"""


class PartlyPassedOnError(OSError):
    """Bytes of an answer that broke off have gone where they can't be taken back from."""


class Sink(abc.ABC, Generic[R]):
    """One destination. spent: it has got bytes that can't be taken back. result: what the caller gets in the end."""

    spent = False

    @property
    @abc.abstractmethod
    def result(self) -> R:
        """What the caller gets in the end."""

    async def open(self) -> None:
        """Be ready for an attempt. Raises InvalidArgumentError where nothing can be written there."""

    async def begin(self) -> None:
        """Be as empty as at first. Raises PartlyPassedOnError where that can't be."""
        if self.spent:
            raise PartlyPassedOnError("its bytes can't be taken back")

    @abc.abstractmethod
    async def write(self, piece: bytes) -> None:
        """Take a piece."""

    async def finish(self) -> None:
        """All pieces have come."""

    async def end(self) -> None:
        """The attempt has failed."""

    async def keep(self) -> None:
        """Put what has come in its place."""

    async def close(self) -> None:
        """Leave nothing temporary behind."""


class _Blocks:
    """Gathers pieces into blocks, each of which is written in a thread while the next one comes."""

    def __init__(self, thread: OwnThread, write: Callable[[list[bytes]], None]) -> None:
        self._thread = thread
        self._write = write
        self._writing: asyncio.Future[None] | None = None
        self._size = 0
        self.pieces: list[bytes] = []

    async def add(self, piece: bytes) -> None:
        """Take a piece. Raises what writing the block before has raised."""
        self.pieces.append(piece)
        self._size += len(piece)
        piece = b""  # the frame may stand in a traceback, and holds nothing of what was answered
        if self._size >= BLOCK:
            await self.written()
            self._writing, self.pieces, self._size = self._thread.start(self._write, self.pieces), [], 0

    async def written(self) -> None:
        """Return when all blocks are written; the pieces after them are the caller's to write."""
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing

    def drop(self) -> list[bytes]:
        """Forget everything; the pieces that were not written."""
        if self._writing is not None:
            forget(self._writing)
        pieces, self.pieces, self._writing, self._size = self.pieces, [], None, 0
        return pieces


class PathSink(Sink[Path]):
    """A temporary file beside the path that takes its name at last; made at once, so that refusals come early."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary: Path | None = None
        self._kept = False
        self._file: BinaryIO | None = None
        self._thread = OwnThread()
        self._blocks = _Blocks(self._thread, self._write)

    async def open(self) -> None:
        """Make the temporary file."""
        await self._thread.start(self._make)

    async def begin(self) -> None:
        """Forget what came before: the temporary file is emptied when it is opened."""
        self._blocks.drop()

    async def write(self, piece: bytes) -> None:
        """Have it written to the temporary file."""
        await self._blocks.add(piece)

    async def finish(self) -> None:
        """Have it on the disk."""
        await self._blocks.written()
        await self._thread.start(self._sync, self._blocks.drop())

    async def end(self) -> None:
        """Close the temporary file: a full disk fails here a second time."""
        self._blocks.drop()
        await patiently(self._thread.start(self._close))

    async def keep(self) -> None:
        """Give the temporary file the destination's name."""
        await self._thread.start(self._rename)

    @property
    def result(self) -> Path:
        """The path."""
        return self._path

    async def close(self) -> None:
        """Remove the temporary file, where it is still there."""
        try:
            if not self._kept:
                await patiently(self._thread.start(self._remove))
        finally:
            self._thread.end()

    def _make(self) -> None:
        if not self._path.parent.is_dir():
            raise InvalidArgumentError("its folder does not exist: create it first", parameter="destination")
        if self._path.is_dir():
            raise InvalidArgumentError("it is a folder: name a file in it", parameter="destination")
        try:
            descriptor, name = tempfile.mkstemp(prefix=".directsuite-", suffix=".part", dir=self._path.parent)
        except OSError as error:
            reason = reason_of(error)
        else:
            os.close(descriptor)
            self._temporary = Path(name)
            return
        raise InvalidArgumentError(f"no file can be made in its folder ({reason})", parameter="destination")

    def _write(self, pieces: list[bytes]) -> None:
        if self._file is None and self._temporary is not None:
            self._file = self._temporary.open("wb")
        if self._file is not None:
            self._file.writelines(pieces)
        pieces.clear()  # the frame may stand in a traceback, and holds nothing of what was answered

    def _sync(self, pieces: list[bytes]) -> None:
        self._write(pieces)
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _rename(self) -> None:
        self._close()
        if self._temporary is not None:
            self._temporary.replace(self._path)
            self._kept = True

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            if self._temporary is not None:
                self._temporary.unlink(missing_ok=True)


class FileSink(Sink[R]):
    """A file object, from where it stands. One that can seek is cut off there again for another attempt.

    In the end it is cut off behind what has come. All but an io.BytesIO are written in a thread: others may be on
    another machine, or a pipe, which may take for ever, and gets each piece at once.
    """

    def __init__(self, file: R) -> None:
        self._given = file
        self._file: Any = file
        self._touched = False
        self._finished = False
        self._start: int | None = None
        self._thread = OwnThread()
        self._blocks = _Blocks(self._thread, self._write_all)

    async def open(self) -> None:
        """See where it stands."""
        self._start = await self._do(_start_of, self._file)

    async def begin(self) -> None:
        """Cut off what came before."""
        await super().begin()
        self._finished = False
        self._blocks.drop()
        if self._touched and self._start is not None:
            await self._do(self._rewind)

    async def write(self, piece: bytes) -> None:
        """Write all of it, however little the file takes at a time."""
        self._touched = True
        self.spent = self._start is None
        try:
            if self.spent:
                await self._thread.start(self._write, piece)
            elif self._in_memory:
                self._write(piece)
            else:
                adding, piece = self._blocks.add(piece), b""
                await adding
        finally:
            piece = b""  # the frame may stand in a traceback, and holds nothing of what was answered

    async def finish(self) -> None:
        """Have the file's own buffer written, so that a full disk is told."""
        await self._blocks.written()
        await self._do(self._complete, self._blocks.drop())
        self._finished = True

    async def end(self) -> None:
        """Write what has come. See whether it can go back: one for compressed writing says so, and can't."""
        pieces = self._blocks.drop()
        if not self._touched or self._finished or self._start is None:
            return
        if self._in_memory:
            self._try_back(pieces)
        else:
            await patiently(self._thread.start(self._try_back, pieces))

    async def close(self) -> None:
        """Let go of the thread."""
        self._thread.end()

    @property
    def result(self) -> R:
        """The file."""
        return self._given

    @property
    def _in_memory(self) -> bool:
        return type(self._file) is io.BytesIO

    async def _do(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return function(*args) if self._in_memory else await self._thread.start(function, *args)

    def _rewind(self) -> None:
        self._file.seek(self._start)
        self._cut_off()

    def _complete(self, pieces: list[bytes]) -> None:
        self._write_all(pieces)
        flush = getattr(self._file, "flush", None)
        if flush is not None:
            flush()
        if self._start is not None:
            self._cut_off()

    def _try_back(self, pieces: list[bytes]) -> None:
        try:
            self._write_all(pieces)
            position = self._file.tell()
            self._file.seek(self._start)
            self._file.seek(position)
        except (OSError, ValueError):
            self.spent = True

    def _cut_off(self) -> None:
        with contextlib.suppress(OSError):  # what can't be cut off, such as a device, has nothing behind
            self._file.truncate()

    def _write_all(self, pieces: list[bytes]) -> None:
        try:
            for piece in pieces:
                self._write(piece)
        finally:
            piece = b""  # as above
            pieces.clear()

    def _write(self, piece: bytes) -> None:
        file = self._file
        try:
            if self._start is None and type(file) is io.BufferedWriter:
                file.flush()
                file = file.raw  # while that waits, whoever closes the file need not, nor an interpreter that exits
            written = file.write(piece)
            while type(written) is int and 0 < written < len(piece):
                piece = piece[written:]
                written = file.write(piece)
            nothing = written is None and isinstance(file, io.RawIOBase)  # others say nothing of what they took
            if nothing or (type(written) is int and written < len(piece)):
                raise BlockingIOError("the file took only a part: is it non-blocking?")
        finally:
            piece = b""  # as above


class CallableSink(Sink[int]):
    """An async callable; the caller gets the number of bytes."""

    def __init__(self, write: PieceWriter) -> None:
        self._write = write
        self._size = 0

    async def write(self, piece: bytes) -> None:
        """Pass it on."""
        self.spent = True
        self._size += len(piece)
        await self._write(piece)

    @property
    def result(self) -> int:
        """How many bytes have passed."""
        return self._size


def sink_of(destination: str | PathLike[str] | BinaryWriter | PieceWriter) -> Sink[Any]:
    """The sink of what a caller gave for a destination; InvalidArgumentError where it is none."""
    given: Any = destination
    if isinstance(destination, str | PathLike):
        return PathSink(Path(given))
    write = getattr(destination, "write", None)
    if callable(write):
        if isinstance(destination, asyncio.StreamWriter) or hasattr(destination, "drain"):
            raise InvalidArgumentError(
                "give an async function that writes to it and drains it", parameter="destination"
            )
        if inspect.iscoroutinefunction(write):
            raise InvalidArgumentError("give its write method itself", parameter="destination")
        if isinstance(destination, io.TextIOBase):
            raise InvalidArgumentError("open it for writing bytes", parameter="destination")
        return FileSink(destination)
    if (inspect.isroutine(given) or inspect.isclass(given)) and not inspect.iscoroutinefunction(given):
        raise InvalidArgumentError("give an async function: nothing says that this is one", parameter="destination")
    if callable(destination):
        return CallableSink(destination)
    raise InvalidArgumentError(
        "give a path, a file opened for writing bytes, or an async callable", parameter="destination"
    )


def _start_of(file: Any) -> int | None:
    """Where a file object stands that can be cut off there again; None for one that can't."""
    writable = getattr(file, "writable", None)
    if getattr(file, "closed", False) is True or (callable(writable) and not writable()):
        raise InvalidArgumentError("open it for writing bytes", parameter="destination")
    try:
        start = file.tell() if file.seekable() and callable(file.truncate) else None
    except (AttributeError, OSError):
        return None
    return start if isinstance(start, int) else None
