"""Sinks: the places to which a response is written: a path, a file object or an async callable.

The methods of a Sink are called in this order:

    open ─► begin ─► write … ─► finish ─► publish    `abort` after a failed attempt, `close` at the end

`begin` empties the sink for another attempt. A sink that cannot be emptied is `exhausted` once it has received bytes.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import inspect
import io
import os
import stat
import tempfile
from collections.abc import Awaitable, Callable
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Generic, Protocol, TypeVar, TypeVarTuple

from directsuite.core.files import DedicatedThread, explain_os_error, find_file, to_path, wait_briefly
from directsuite.errors import InvalidArgumentError

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_MIN_WRITTEN_BYTES = 504 * 1024
"""Bytes that are collected before a thread writes them."""


class BinaryWriter(Protocol):
    """A file object opened for writing bytes, or an object with the same `write`. It is never closed."""

    def write(self, piece: bytes, /) -> int | None:
        """Write the bytes. Return the number written, or None if all were. The rest is passed to another call."""
        ...


PieceWriter = Callable[[bytes], Awaitable[object]]
"""An async function that receives each piece, such as the `write` of aiohttp's StreamResponse, or an object with an
async `__call__`. Plain functions are rejected, because only a call would show whether they return an awaitable.
"""


class PartialWriteError(OSError):
    """The response broke off after bytes were written that cannot be removed."""


class Sink(abc.ABC, Generic[R]):
    """The place to which a response is written."""

    exhausted = False
    """True if bytes were written that cannot be removed."""

    @property
    @abc.abstractmethod
    def result(self) -> R:
        """The value that the caller receives at the end."""

    async def open(self) -> None:
        """Open the destination before the first attempt. Raises InvalidArgumentError if it is not writable."""

    async def begin(self) -> None:
        """Remove the bytes of earlier attempts. Raises PartialWriteError if that is impossible."""
        if self.exhausted:
            raise PartialWriteError("the bytes already written cannot be removed")

    @abc.abstractmethod
    async def write(self, piece: bytes) -> None:
        """Write a piece."""

    async def finish(self) -> None:
        """Complete the content after the last piece."""

    async def abort(self) -> None:
        """Clean up after a failed attempt."""

    async def publish(self) -> None:
        """Move the content to its final place."""

    async def close(self) -> None:
        """Remove temporary files."""


class FileSink(Sink[R]):
    """Writes to a file object from its current position, and truncates it after the document.

    For another attempt, a file that can seek is truncated to that position. All files except io.BytesIO are written in
    a thread, because writing can block: a block of pieces at a time, or each piece immediately if the file cannot seek.
    """

    def __init__(self, destination: R) -> None:
        self._destination = destination
        self._file: Any = destination
        self._start: int | None = None
        """The position of the document. None if the file cannot seek."""
        self._is_written = False
        self._pieces: list[bytes] = []  # of the next block
        self._pieces_size = 0
        self._thread = DedicatedThread()

    async def open(self) -> None:
        """Determine the position of the file. Raises InvalidArgumentError if it is not open for writing bytes."""
        self._start = await self._run_blocking(_find_start, self._file)

    async def begin(self) -> None:
        """Discard collected pieces and truncate the file to its first position."""
        await super().begin()
        self._take_pieces()
        if self._is_written and self._start is not None:
            await self._run_blocking(self._rewind)

    async def write(self, piece: bytes) -> None:
        """Write or collect a piece. Raises BlockingIOError if the file accepts only a part."""
        self._is_written = True
        self.exhausted = self._start is None
        self._pieces.append(piece)
        self._pieces_size += len(piece)
        piece = b""  # tracebacks expose local variables
        if self.exhausted or self._in_memory or self._pieces_size >= _MIN_WRITTEN_BYTES:
            await self._run_blocking(self._write_all, self._take_pieces())

    async def finish(self) -> None:
        """Flush the file, so that a full disk raises an error."""
        await self._run_blocking(self._flush, self._take_pieces())

    async def abort(self) -> None:
        """Write the collected pieces, then check whether the file can seek back. Some compressed files cannot."""
        pieces = self._take_pieces()
        if not self._is_written or self._start is None:
            return
        if self._in_memory:
            self._write_and_check_rewind(pieces)
        else:
            await wait_briefly(self._thread.start(self._write_and_check_rewind, pieces))

    async def close(self) -> None:
        """Release the thread."""
        self._thread.release()

    @property
    def result(self) -> R:
        """The caller's destination."""
        return self._destination

    @property
    def _in_memory(self) -> bool:
        return type(self._file) is io.BytesIO

    async def _run_blocking(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return function(*args) if self._in_memory else await self._thread.start(function, *args)

    def _take_pieces(self) -> list[bytes]:
        pieces, self._pieces, self._pieces_size = self._pieces, [], 0
        return pieces

    def _rewind(self) -> None:
        self._file.seek(self._start)
        self._truncate()

    def _flush(self, pieces: list[bytes]) -> None:
        self._write_all(pieces)
        flush = getattr(self._file, "flush", None)
        if flush is not None:
            flush()
        if self._start is not None:
            self._truncate()

    def _write_and_check_rewind(self, pieces: list[bytes]) -> None:
        try:
            self._write_all(pieces)
            position = self._file.tell()
            self._file.seek(self._start)
            self._file.seek(position)
        except (OSError, ValueError):
            self.exhausted = True

    def _truncate(self) -> None:
        with contextlib.suppress(OSError):  # devices cannot be truncated
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
                file = file.raw  # BufferedWriter.write holds a lock that close() and the exit of Python wait for
            written = file.write(piece)
            while type(written) is int and 0 < written < len(piece):
                piece = piece[written:]
                written = file.write(piece)
            nothing = written is None and isinstance(file, io.RawIOBase)  # other files do not return a count
            if nothing or (type(written) is int and written < len(piece)):
                raise BlockingIOError("the file accepted only a part of the bytes. Is it non-blocking?")
        finally:
            piece = b""  # as above


class PathSink(FileSink[Path]):
    """Writes a temporary file beside the path, and renames it at the end.

    An unwritable folder is reported by `open`. If the path is a symbolic link, its target is replaced. FIFOs, devices
    and open files such as /dev/stdout are written directly. A file is open only from the first write of an attempt to
    its end, so that calls that wait for a connection need no file descriptors.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file: BinaryIO | None = None
        self._target: Path | None = None
        """The file to replace. None if the path is written directly."""
        self._temporary: Path | None = None
        self._is_published = False
        self._is_aborted = False
        """True after a failed attempt to write directly: a FIFO whose reader opens it later then gets nothing."""

    async def open(self) -> None:
        """Create the temporary file, unless the path is written directly.

        Raises InvalidArgumentError if the path is a folder, or no file can be written there.
        """
        await self._thread.start(self._prepare_target)

    async def abort(self) -> None:
        """Discard the collected pieces and close the file."""
        self._is_aborted = self.exhausted
        self._take_pieces()
        await wait_briefly(self._thread.start(self._close))

    async def publish(self) -> None:
        """Rename the temporary file to the destination, if there is one."""
        await self._thread.start(self._rename)
        self._is_published = True

    async def close(self) -> None:
        """Remove the temporary file. Do not wait after `publish`: cancelling the call would lose its result."""
        try:
            if not self._is_published:
                await wait_briefly(self._thread.start(self._remove))
        finally:
            await super().close()

    def _prepare_target(self) -> None:
        place = "there"
        try:
            if self._destination.is_dir():
                raise InvalidArgumentError("the path is a folder: give the path of a file", parameter="destination")
            self._target = find_file(self._destination)
            if self._target is None:
                if stat.S_ISSOCK(self._destination.stat().st_mode):
                    reason = "the path is a socket: give an async function that writes to it"
                    raise InvalidArgumentError(reason, parameter="destination")
                if not os.access(self._destination, os.W_OK):
                    reason = "the path is not writable: check its permissions"
                    raise InvalidArgumentError(reason, parameter="destination")
                return
            place, folder = "in its folder", self._target.parent
            if not folder.is_dir():
                raise InvalidArgumentError("its folder does not exist: create it first", parameter="destination")
            descriptor, name = tempfile.mkstemp(prefix=".directsuite-", suffix=".part", dir=folder)
            os.close(descriptor)
            self._temporary, self._start = Path(name), 0
            return
        except OSError as error:
            reason = explain_os_error(error)
        raise InvalidArgumentError(f"no file can be created {place} ({reason})", parameter="destination")

    def _write(self, piece: bytes) -> None:
        try:
            if self._file is None:  # opening a FIFO waits for its reader
                path, flags = self._destination, os.O_APPEND
                if self._temporary is not None:  # missing if an earlier attempt timed out while it was renamed
                    path, flags = self._temporary, os.O_CREAT | os.O_TRUNC
                flags |= os.O_WRONLY | getattr(os, "O_BINARY", 0)
                self._file = os.fdopen(os.open(path, flags, 0o600), "wb")
            if not self._is_aborted:
                super()._write(piece)
        finally:
            piece = b""  # as above

    def _flush(self, pieces: list[bytes]) -> None:
        super()._flush(pieces)
        if self._file is not None and self._temporary is not None:
            os.fsync(self._file.fileno())
        self._close()

    def _rewind(self) -> None:
        """Do nothing: opening the temporary file truncates it."""

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _rename(self) -> None:
        self._close()
        if self._temporary is not None and self._target is not None:
            self._temporary.replace(self._target)

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            if self._temporary is not None:
                self._temporary.unlink(missing_ok=True)


class CallableSink(Sink[int]):
    """Calls an async callable with each piece. The result is the number of bytes."""

    def __init__(self, write: PieceWriter) -> None:
        self._write = write
        self._size = 0

    async def write(self, piece: bytes) -> None:
        """Call the callable."""
        self.exhausted = True
        self._size += len(piece)
        await self._write(piece)

    @property
    def result(self) -> int:
        """The number of bytes written."""
        return self._size


def make_sink(destination: str | PathLike[str] | BinaryWriter | PieceWriter) -> Sink[Any]:
    """Return the sink for a destination. Raises InvalidArgumentError if it is of another type, or open for text."""
    argument: Any = destination
    if isinstance(destination, str | PathLike):
        return PathSink(to_path(argument, "destination"))
    write = getattr(destination, "write", None)
    if callable(write):
        if isinstance(destination, asyncio.StreamWriter) or hasattr(destination, "drain"):
            raise InvalidArgumentError(
                "the destination is a stream: give an async function that writes to it and drains it",
                parameter="destination",
            )
        if inspect.iscoroutinefunction(write):
            raise InvalidArgumentError("its write method is async: give that method", parameter="destination")
        if isinstance(destination, io.TextIOBase):
            raise InvalidArgumentError(
                "the file is not open for writing bytes: open it in binary mode", parameter="destination"
            )
        return FileSink(destination)
    if (inspect.isroutine(argument) or inspect.isclass(argument)) and not inspect.iscoroutinefunction(argument):
        raise InvalidArgumentError("give an async function: this one is not declared as async", parameter="destination")
    if callable(destination):
        return CallableSink(destination)
    raise InvalidArgumentError(
        "give a path, a file opened for writing bytes, or an async callable", parameter="destination"
    )


def _find_start(file: Any) -> int | None:
    """Return the position of a file object, or None if it cannot seek or be truncated.

    Raises InvalidArgumentError if it is not open for writing bytes.
    """
    writable = getattr(file, "writable", None)
    if getattr(file, "closed", False) is True or (callable(writable) and not writable()):
        raise InvalidArgumentError(
            "the file is not open for writing bytes: open it in binary mode", parameter="destination"
        )
    try:
        start = file.tell() if file.seekable() and callable(file.truncate) else None
    except (AttributeError, OSError):
        return None
    return start if isinstance(start, int) else None
