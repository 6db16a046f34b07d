"""The bytes to send: a source that the caller passes, and the content that is made of it.

Source               bytes, a path, a file object or a stream
  └─ make_content ─► Content          yields pieces of at most 252 KB
"""

from __future__ import annotations

import abc
import contextlib
import errno
import inspect
import io
import os
import stat
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, cast
from weakref import WeakValueDictionary

from directsuite.core.files import (
    PIECE_BYTES,
    DedicatedThread,
    FileReader,
    PathReader,
    Piece,
    explain_os_error,
    make_size_error,
    read_file,
    read_in_memory,
    run_in_thread,
    split_pieces,
    to_path,
)
from directsuite.errors import InvalidArgumentError, MissingFileError, Outcome, UnreadableFileError


class BinaryReader(Protocol):
    """A file object opened for reading bytes, or an object with the same `read`. It is never closed."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, or b"" at the end."""
        ...


Source = bytes | bytearray | memoryview | str | PathLike[str] | BinaryReader | AsyncIterable[bytes]
"""Bytes to send.

A file object is read from its current position, which sending moves; it is rejected at its end. So give each call a
separate file object, or the path. If a file object can seek, its size is known and the call can send it again. Paths
and files other than io.BytesIO are read in a thread. An async iterable or a file that cannot seek is sent only once.
"""


class Content(abc.ABC):
    """The bytes of a Source."""

    def __init__(self, size: int | None, *, replayable: bool = True) -> None:
        self.size = size
        """The number of bytes. None if unknown."""
        self.replayable = replayable
        """True if `pieces` can be called again."""

    @abc.abstractmethod
    def pieces(self) -> AsyncGenerator[Piece]:
        """Yield the bytes from the start. Raises TransportError if there are fewer than `size`."""

    @abc.abstractmethod
    def head(self, count: int) -> bytes:
        """Return the first `count` bytes, or all if there are fewer. Return b"" if reading would consume them."""

    def validate_unconsumed(self, parameter: str) -> None:  # noqa: B027  most contents can be sent again
        """Raise InvalidArgumentError if the bytes were already sent and cannot be sent again."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, replayable={self.replayable})"


class MemoryContent(Content):
    """Bytes in memory."""

    def __init__(self, content: bytes) -> None:
        super().__init__(len(content))
        self.content = content

    async def pieces(self) -> AsyncGenerator[Piece]:
        """Yield slices without copying."""
        for piece in split_pieces(self.content):
            yield piece

    def head(self, count: int) -> bytes:
        """Return the first bytes."""
        return self.content[:count]


class PathContent(Content):
    """A regular file, opened each time it is sent. Bytes that are appended later are not sent.

    Must be created in a thread. It reads a file of at most PIECE_BYTES immediately. A file that reports size 0 but has
    content is read to its end.
    """

    def __init__(self, path: Path, parameter: str) -> None:
        super().__init__(None)
        size = _find_size(path, parameter)
        if isinstance(size, InvalidArgumentError):
            raise size
        self._path = path
        self._parameter = parameter
        self._complete_content: bytes | None = None
        self.size = size
        if size <= PIECE_BYTES:
            try:
                content = self.head(PIECE_BYTES + 1)
            except OSError:  # sending reads the file again and raises the error
                content = None
            if content is not None and len(content) <= PIECE_BYTES:
                self._complete_content, self.size = content, len(content)
            elif size == 0:  # procfs and some FUSE file systems report size 0
                self.size = None

    def pieces(self) -> AsyncGenerator[Piece]:
        """Yield the content of the file. Raises UnreadableFileError if it was removed, for example."""
        if self._complete_content is not None:
            return MemoryContent(self._complete_content).pieces()
        return self._read_pieces()

    async def _read_pieces(self) -> AsyncGenerator[Piece]:
        try:
            async with contextlib.aclosing(read_file(PathReader(self._path), self.size)) as pieces:
                async for piece in pieces:
                    yield piece
                    del piece  # releases its memory before the next one is read
            return
        except OSError as error:
            failure = _make_read_error(error, self._path, self._parameter)
        failure.outcome = Outcome.FAILED  # another attempt would fail again
        raise failure

    def head(self, count: int) -> bytes:
        """Return the first bytes."""
        if self._complete_content is not None:
            return self._complete_content[:count]
        head = bytearray()
        with self._path.open("rb", buffering=0) as file:
            while len(head) < count and (some := file.read(count - len(head))):
                head += some
        return bytes(head)


def _find_size(path: Path, parameter: str) -> int | InvalidArgumentError:
    """Return the size of a regular file that can be read, or the error, because tracebacks would expose the path."""
    try:
        status = path.stat()
    except OSError as error:
        return _make_read_error(error, path, parameter)
    if stat.S_ISDIR(status.st_mode):
        return InvalidArgumentError("the path is a folder: give the path of a file", parameter=parameter)
    if not stat.S_ISREG(status.st_mode):
        return InvalidArgumentError(
            "the path is a pipe or a device: open it and give the file object", parameter=parameter
        )
    if not os.access(path, os.R_OK):
        return UnreadableFileError(
            "the file can't be read", parameter=parameter, errno=errno.EACCES, filename=str(path)
        )
    return status.st_size


def _make_read_error(error: OSError, path: Path, parameter: str) -> UnreadableFileError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return MissingFileError(
            "the file does not exist: check the path, which is in .filename", parameter=parameter, filename=str(path)
        )
    text = f"the file can't be read ({explain_os_error(error)})"  # for example: the name is too long
    return UnreadableFileError(text, parameter=parameter, errno=error.errno, filename=str(path))


class FileContent(Content):
    """A file object that can seek, from its position at creation. Several calls may read from it.

    size: the number of bytes. None: read to the end.
    """

    def __init__(self, file: Any, start: int, size: int | None) -> None:
        super().__init__(size)
        self._file = file
        self._start = start
        self._lock = _get_lock(file)

    def pieces(self) -> AsyncGenerator[Piece]:
        """Yield the content of the file."""
        reader = FileReader(self._read, self._start)
        if type(self._file) is io.BytesIO and self.size is not None:
            return read_in_memory(reader, self.size)
        return read_file(reader, self.size)

    def head(self, count: int) -> bytes:
        """Return the first bytes and restore the position."""
        return self._read(self._start, count if self.size is None else min(count, self.size), restore=True)

    def _read(self, position: int, count: int, *, restore: bool = False) -> bytes:
        with self._lock:
            self._file.seek(position)
            piece = _check_bytes(self._file.read(count))
            if restore:
                self._file.seek(position)
            return piece


_LOCKS: WeakValueDictionary[int, threading.Lock] = WeakValueDictionary()
"""The locks of file objects that several threads read, by the id of the object, which may not be hashable."""
_LOCKS_LOCK = threading.Lock()


def _get_lock(file: object) -> threading.Lock:
    with _LOCKS_LOCK:
        return _LOCKS.setdefault(id(file), threading.Lock())


class StreamContent(Content):
    """A stream, which can be sent once."""

    def __init__(self, stream: AsyncIterable[bytes], size: int | None) -> None:
        super().__init__(size, replayable=False)
        self._stream = stream
        self._closes_stream = isinstance(stream, AsyncGenerator)
        self._is_consumed = False

    async def pieces(self) -> AsyncGenerator[Piece]:
        """Yield the bytes of the stream. Closing this closes a stream that is an async generator.

        Raises InvalidArgumentError if the stream was already sent, and TransportError if the number of bytes is not
        `size`.
        """
        self.validate_unconsumed("source")
        self._is_consumed = True
        left, last = self.size, b""
        try:
            async for chunk in self._stream:
                for piece in split_pieces(chunk):
                    if left is None:
                        yield piece
                        continue
                    left -= len(piece)
                    if left < 0:
                        raise make_size_error("its source has more bytes than the given size")
                    if left == 0:
                        last = bytes(piece)  # held back in case more bytes follow
                    else:
                        yield piece
            if left:
                raise make_size_error("its source has fewer bytes than the given size")
            if last:
                yield last
        finally:
            last = chunk = piece = b""  # tracebacks expose local variables
            if self._closes_stream:
                await cast("AsyncGenerator[bytes]", self._stream).aclose()

    def head(self, count: int) -> bytes:
        """Return b"": reading would consume the stream."""
        return b""

    def validate_unconsumed(self, parameter: str) -> None:
        """Raise InvalidArgumentError if the stream was already sent."""
        if self._is_consumed:
            raise InvalidArgumentError("this stream was already sent: give a new one", parameter=parameter)


async def inspect_source(source: Source, *, head: int, parameter: str, size: int | None) -> tuple[Content, bytes]:
    """Return the content of a source and its first `head` bytes, b"" if reading would consume them.

    Files are read in a thread. Raises InvalidArgumentError if the source cannot be sent, and exceptions of reading.
    """

    def inspect_content() -> tuple[Content, bytes]:
        content = make_content(source, parameter=parameter, size=size)
        return content, content.head(head) if head else b""

    if isinstance(source, bytes | bytearray | memoryview | AsyncIterable) or type(source) is io.BytesIO:
        return inspect_content()
    return await run_in_thread(inspect_content)


def make_content(source: Source | Content, *, parameter: str, size: int | None = None) -> Content:
    """Return the content of a source. Raises InvalidArgumentError if it cannot be sent, or `size` is wrong.

    size: the size of a stream in bytes. For other sources it must be their size. None if unknown.
    """
    if size is not None and (type(size) is not int or size < 0):
        raise InvalidArgumentError("give a number of bytes, 0 or more", parameter="size")
    content = source if isinstance(source, Content) else _create_content(source, parameter, size)
    if size is not None and content.size is None:
        raise InvalidArgumentError("the file does not report its size: omit this argument", parameter="size")
    if size is not None and content.size != size:
        raise InvalidArgumentError(f"the content has {content.size} bytes: omit this argument", parameter="size")
    return content


def _create_content(source: Source, parameter: str, size: int | None) -> Content:
    if isinstance(source, bytes | bytearray | memoryview):
        return MemoryContent(bytes(source))
    if isinstance(source, str | PathLike):
        return PathContent(to_path(source, parameter), parameter)
    if isinstance(source, AsyncIterable):
        return StreamContent(source, size)
    argument: object = source
    read: object = getattr(argument, "read", None)
    if inspect.iscoroutinefunction(read):
        raise InvalidArgumentError("its read method is async: give an async iterable of bytes", parameter=parameter)
    if callable(read) and not isinstance(argument, io.TextIOBase):
        with _get_lock(source):  # another call may be reading the file in a thread
            return _make_file_content(source, parameter) or StreamContent(_read_unseekable(source), size)
    raise InvalidArgumentError(
        "give bytes, a path, a file opened for reading bytes, or an async iterable of bytes", parameter=parameter
    )


def _make_file_content(file: Any, parameter: str) -> FileContent | None:
    """Return the content from the current position, or None if the file cannot seek.

    Raises InvalidArgumentError if the file is closed, at its end, or not open for reading bytes.
    """
    readable: object = getattr(file, "readable", None)
    try:
        if callable(readable) and not readable():
            raise InvalidArgumentError(
                "the file is not open for reading bytes: open it in binary mode", parameter=parameter
            )
        if not file.seekable():
            return None
        start = file.tell()
        end = file.seek(0, os.SEEK_END)
        file.seek(start)
        if end == 0 and file.read(1):  # procfs and some FUSE file systems report size 0
            end = None
            file.seek(start)
    except InvalidArgumentError:
        raise
    except (AttributeError, OSError):  # including io.UnsupportedOperation
        return None
    except ValueError:
        raise InvalidArgumentError("the file is closed: open it again", parameter=parameter) from None
    if not isinstance(start, int) or not isinstance(end, int | None):
        return None
    if end is not None and 0 < start >= end:  # as after an earlier call that sent it
        raise InvalidArgumentError(
            "the file is at its end, so nothing would be sent: call seek(0) to send all of it", parameter=parameter
        )
    return FileContent(file, start, None if end is None else end - start)


async def _read_unseekable(file: Any) -> AsyncGenerator[bytes]:
    """Yield the bytes of a file that cannot seek, such as a pipe. A thread reads them, because this may block."""
    read: Callable[[int], Any] = getattr(file, "read1", file.read)  # read1 does not wait for a complete piece
    thread, piece = DedicatedThread(), b""
    try:
        while piece := _check_bytes(await thread.start(read, PIECE_BYTES)):
            yield piece
    finally:
        piece = b""  # tracebacks expose local variables
        thread.release()


def _check_bytes(piece: Any) -> bytes:
    if not isinstance(piece, bytes):
        raise TypeError(f"read() of a file to send must return bytes, not {type(piece).__name__}.")
    return piece
