"""Where the bytes that are sent come from: memory, a file, or a stream that passes once.

content_of(source) ─► Content ─ pieces() ─► at most 192 KB at a time, each good until the next
                        ├─ InMemory, OnDisk, InFile     size known; as often as needed
                        └─ Passing                      once; size known where the caller gave it
"""

from __future__ import annotations

import abc
import inspect
import io
import os
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, cast

from directsuite.core.blocking import OwnThread
from directsuite.errors import InvalidArgumentError, Outcome, TransportError

PIECE = 192 * 1024
"""Bytes read at a time: a multiple of 3, so that their base64 needs no padding before the end."""

Piece = bytes | memoryview


class BinaryReader(Protocol):
    """A file that was opened for reading bytes, or what reads like one. It is never closed here."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""
        ...


Source = bytes | bytearray | memoryview | str | PathLike[str] | BinaryReader | AsyncIterable[bytes]
"""Bytes to send.

A file object is read from its present position: one that can seek has a size and can be sent again, others pass once
and are read in a thread of their own. An async iterable passes once.
"""


class Content(abc.ABC):
    """The bytes behind a Source. size: how many, None where that isn't known. replayable: `pieces` gives them again."""

    def __init__(self, size: int | None, *, replayable: bool = True) -> None:
        self.size = size
        self.replayable = replayable

    @abc.abstractmethod
    def pieces(self) -> AsyncGenerator[Piece]:
        """All bytes from the start. TransportError where there are not as many as there should be."""

    @abc.abstractmethod
    def head(self, count: int) -> bytes:
        """The first bytes, where they can be looked at without being taken; else none."""

    def refuse_taken(self, parameter: str) -> None:  # noqa: B027  most can be sent again
        """Raise InvalidArgumentError where the bytes have passed already."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, replayable={self.replayable})"


class InMemory(Content):
    """Bytes."""

    def __init__(self, content: bytes) -> None:
        super().__init__(len(content))
        self.content = content

    async def pieces(self) -> AsyncGenerator[Piece]:
        """Slices of them, not copied."""
        for piece in _cut(self.content):
            yield piece

    def head(self, count: int) -> bytes:
        """The first bytes."""
        return self.content[:count]


class OnDisk(Content):
    """A regular file by its path, opened for each time it is sent; what is appended meanwhile is not sent."""

    def __init__(self, path: Path, parameter: str) -> None:
        if not path.is_file():
            raise InvalidArgumentError("no such file", parameter=parameter)
        if not os.access(path, os.R_OK):
            raise InvalidArgumentError("the file can't be read", parameter=parameter)
        self._left = path.stat().st_size
        super().__init__(self._left)
        self._path = path

    async def pieces(self) -> AsyncGenerator[Piece]:
        """The file, through one buffer."""
        left, buffer = self._left, memoryview(bytearray(min(PIECE, self._left)))
        with self._path.open("rb", buffering=0) as file:
            while left > 0:
                count = file.readinto(buffer[: min(PIECE, left)])
                if not count:
                    raise _other_size("the file became shorter while it was sent")
                left -= count
                yield buffer[:count]

    def head(self, count: int) -> bytes:
        """The first bytes."""
        with self._path.open("rb") as file:
            return file.read(count)


class InFile(Content):
    """A file object that can seek, from where it stood. It seeks before it reads: several may read from it."""

    def __init__(self, file: Any, start: int, size: int) -> None:
        super().__init__(size)
        self._file = file
        self._start = start
        self._end = start + size

    async def pieces(self) -> AsyncGenerator[Piece]:
        """The file, read piece by piece."""
        position = self._start
        while position < self._end:
            piece = self._read(position, min(PIECE, self._end - position))
            if not piece:
                raise _other_size("the file became shorter while it was sent")
            position += len(piece)
            yield piece

    def head(self, count: int) -> bytes:
        """The first bytes; the file stands where it stood."""
        piece = self._read(self._start, min(count, self._end - self._start))
        self._file.seek(self._start)
        return piece

    def _read(self, position: int, count: int) -> bytes:
        self._file.seek(position)
        return _checked(self._file.read(count))


class Passing(Content):
    """A stream. Of one that gives more than its size, nothing beyond is sent, nor the end of what is within."""

    def __init__(self, stream: AsyncIterable[bytes], size: int | None) -> None:
        super().__init__(size, replayable=False)
        self._stream = stream
        self._closes = isinstance(stream, AsyncGenerator)
        self._taken = False

    async def pieces(self) -> AsyncGenerator[Piece]:
        """The stream, once; an async generator is closed when this is."""
        self.refuse_taken("source")
        self._taken = True
        left, last = self.size, b""
        try:
            async for given in self._stream:
                for piece in _cut(given):
                    if left is None:
                        yield piece
                        continue
                    left -= len(piece)
                    if left < 0:
                        raise _other_size("its source gives more bytes than the size that was told")
                    if left == 0:
                        last = bytes(piece)  # kept until the end is seen: with it the request would be complete
                    else:
                        yield piece
            if left:
                raise _other_size("its source gave fewer bytes than the size that was told")
            if last:
                yield last
        finally:
            last = given = piece = b""  # the frame may stand in a traceback, and holds nothing of what was sent
            if self._closes:
                await cast("AsyncGenerator[bytes]", self._stream).aclose()

    def head(self, count: int) -> bytes:
        """None: it would have to be taken."""
        return b""

    def refuse_taken(self, parameter: str) -> None:
        """Raise InvalidArgumentError for a stream that was sent before, and would now seem empty."""
        if self._taken:
            raise InvalidArgumentError("this stream was sent already: give another", parameter=parameter)


def content_of(source: Source | Content, *, parameter: str, size: int | None = None) -> Content:
    """The content of what a caller gave. size: bytes, of a stream; of anything else it has to be right."""
    if size is not None and (type(size) is not int or size < 0):
        raise InvalidArgumentError("give a number of bytes", parameter="size")
    content = source if isinstance(source, Content) else _content(source, parameter, size)
    if size is not None and content.size != size:
        raise InvalidArgumentError(f"it has {content.size} bytes", parameter="size")
    return content


def _content(source: Source, parameter: str, size: int | None) -> Content:
    if isinstance(source, bytes | bytearray | memoryview):
        return InMemory(bytes(source))
    if isinstance(source, str | PathLike):
        return OnDisk(Path(source), parameter)
    if isinstance(source, AsyncIterable):
        return Passing(source, size)
    given: object = source
    read: object = getattr(given, "read", None)
    if inspect.iscoroutinefunction(read):
        raise InvalidArgumentError("its read is async: give an async iterable of its bytes", parameter=parameter)
    if callable(read) and not isinstance(given, io.TextIOBase):
        return _in_file(source, parameter) or Passing(_read_through(source), size)
    raise InvalidArgumentError(
        "give bytes, a path, a file opened for reading bytes, or an async iterable of bytes", parameter=parameter
    )


def _in_file(file: Any, parameter: str) -> InFile | None:
    """What stands in a file object from its present position on; None where it can't seek."""
    readable: object = getattr(file, "readable", None)
    try:
        if callable(readable) and not readable():
            raise InvalidArgumentError("open it for reading bytes", parameter=parameter)
        if not file.seekable():
            return None
        start = file.tell()
        end = file.seek(0, os.SEEK_END)
        file.seek(start)
    except InvalidArgumentError:
        raise
    except (AttributeError, OSError):  # io.UnsupportedOperation among them
        return None
    except ValueError:
        raise InvalidArgumentError("the file is closed", parameter=parameter) from None
    if not isinstance(start, int) or not isinstance(end, int):
        return None
    return InFile(file, start, max(end - start, 0))


async def _read_through(file: Any) -> AsyncGenerator[bytes]:
    """A file object that can't seek, such as a pipe: reading it may take for ever, so a thread of its own waits."""
    read: Callable[[int], Any] = getattr(file, "read1", file.read)  # what is there, before a whole piece is
    thread, piece = OwnThread(), b""
    try:
        while piece := _checked(await thread.start(read, PIECE)):
            yield piece
    finally:
        piece = b""  # the frame may stand in a traceback, and holds nothing of what was sent
        thread.end()


def _checked(piece: Any) -> bytes:
    if not isinstance(piece, bytes):
        raise TypeError(f"read() of a file to send must give bytes, not {type(piece).__name__}")
    return piece


def _cut(content: bytes) -> Iterator[Piece]:
    if 0 < len(content) <= PIECE:
        yield content
        return
    view = memoryview(content)
    for start in range(0, len(content), PIECE):
        yield view[start : start + PIECE]


def _other_size(explanation: str) -> TransportError:
    """The request stays incomplete: no server can act upon it."""
    return TransportError(explanation, outcome=Outcome.FAILED)
