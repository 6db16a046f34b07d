"""Where the bytes that are received go: a file that appears whole, a file object, or a callable that takes each piece.

    begin ─► write … ─► finish ─► keep      `end` after each attempt, `close` after them all; `result` for the caller

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
from typing import Any, BinaryIO, Generic, Protocol, TypeVar

from directsuite.core.blocking import OwnThread
from directsuite.core.system_errors import reason_of
from directsuite.errors import InvalidArgumentError

R = TypeVar("R")


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

    def begin(self) -> None:
        """Be as empty as at first. Raises PartlyPassedOnError where that can't be."""
        if self.spent:
            raise PartlyPassedOnError("its bytes can't be taken back")

    @abc.abstractmethod
    async def write(self, piece: bytes) -> None:
        """Take a piece."""

    async def finish(self) -> None:
        """All pieces have come."""

    def end(self) -> None:
        """The attempt is over, one way or the other."""

    def keep(self) -> None:
        """Put what has come in its place."""

    def close(self) -> None:
        """Leave nothing temporary behind."""


class PathSink(Sink[Path]):
    """A temporary file beside the path that takes its name at last; made at once, so that refusals come early."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO = io.BytesIO()
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

    def begin(self) -> None:
        """Open the temporary file anew."""
        self._file = self._temporary.open("wb")

    async def write(self, piece: bytes) -> None:
        """Write to the temporary file."""
        self._file.write(piece)

    async def finish(self) -> None:
        """Have it on the disk."""
        self._file.flush()
        await asyncio.to_thread(os.fsync, self._file.fileno())

    def end(self) -> None:
        """Close the temporary file: a full disk fails here a second time."""
        self._file.close()

    def keep(self) -> None:
        """Give the temporary file the destination's name."""
        self._temporary.replace(self._path)

    @property
    def result(self) -> Path:
        """The path."""
        return self._path

    def close(self) -> None:
        """Remove the temporary file, where it is still there."""
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)


class FileSink(Sink[R]):
    """A file object, from where it stands. One that can seek is cut off there again for another attempt.

    In the end it is cut off behind what has come. Others, such as pipes, are written in a thread of
    their own, for it may take for ever.
    """

    def __init__(self, file: R) -> None:
        self._given = file
        self._file: Any = file
        self._touched = False
        self._finished = False
        self._start = _start_of(self._file)
        self._thread = OwnThread()

    def begin(self) -> None:
        """Cut off what came before."""
        super().begin()
        self._finished = False
        if self._touched and self._start is not None:
            self._file.seek(self._start)
            self._cut_off()

    async def write(self, piece: bytes) -> None:
        """Write all of it, however little the file takes at a time."""
        self._touched = True
        self.spent = self._start is None
        try:
            if self._start is None:
                await self._thread.start(self._write, piece)
            else:
                self._write(piece)
        finally:
            piece = b""  # the frame may stand in a traceback, and holds nothing of what was answered

    async def finish(self) -> None:
        """Have the file's own buffer written, so that a full disk is told."""
        flush = getattr(self._file, "flush", None)
        if flush is not None and self._start is None:
            await self._thread.start(flush)
        elif flush is not None:
            flush()
        if self._start is not None:
            self._cut_off()
        self._finished = True

    def end(self) -> None:
        """Let go of the thread. After a failure, see whether it can go back: one for compressed writing says so, and
        can't.
        """
        self._thread.end()
        if not self._touched or self._finished or self._start is None:
            return
        try:
            position = self._file.tell()
            self._file.seek(self._start)
            self._file.seek(position)
        except (OSError, ValueError):
            self.spent = True

    @property
    def result(self) -> R:
        """The file."""
        return self._given

    def _cut_off(self) -> None:
        with contextlib.suppress(OSError):  # what can't be cut off, such as a device, has nothing behind
            self._file.truncate()

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
