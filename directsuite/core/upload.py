"""Request bodies: each knows its size, whether it can be sent again, and whether anything of it has left.

    Source               what a caller gives: bytes, a path, a file object, a stream
      └─ content_of() ─► Content          at most 192 KB at a time; how many, and whether they can be had again
    RequestBody          what an operation sends: bytes, base64 of a content, JSON with contents inside
      └─ open() ───────► RequestPayload   one attempt's copy, an aiohttp payload; `started` is set before its first byte

A request whose body hasn't started can't have been acted upon: that, not a guess from exceptions, is what says that
nothing was sent. For this reason operations without a body send an empty one.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import inspect
import io
import os
import stat
import threading
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, cast
from weakref import WeakValueDictionary

import attrs
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter
from aiohttp.payload import Payload

from directsuite.core.failures import explain_os_error, is_being_cancelled
from directsuite.core.files import (
    PIECE_BYTES,
    DedicatedThread,
    FileReader,
    PathReader,
    Piece,
    make_size_error,
    read_ahead,
    read_in_memory,
    run_in_thread,
    split_pieces,
    to_path,
)
from directsuite.errors import InvalidArgumentError, Outcome, TransportError
from directsuite.wire import base64

MAX_UNINTERRUPTED_BYTES = 256 * 1024
"""Bytes in memory that are coded without a turn of the event loop."""

_ENCODED_BYTES_PER_STEP = (
    72 * 1024
)  # of them coded at a time: larger texts are pages that the system has to find anew for each
_BYTES_PER_TURN = 256 * 1024  # bytes written between two turns of the event loop
_MIN_CHUNK_BYTES = 48 * 1024  # bytes below which pieces are gathered: each chunk has its costs
_MAX_GATHER_SECONDS = 0.05  # seconds that a piece waits for others at the most, counted when the next comes
_SMALL_PIECES_PER_TURN = 64  # small pieces between two turns of the event loop


def do_nothing() -> None:
    """Do nothing."""


@attrs.frozen(kw_only=True, repr=False)
class RequestBody:
    """A body as its chunks, or as content that is in memory."""

    chunks: Callable[[], AsyncGenerator[bytes]] | None = None
    on_begin: Callable[[], None] = do_nothing
    """Called when an attempt begins to send a body in chunks."""
    content: bytes = b""
    needs_base64: bool = False
    """The content is sent as its base64, made only then: calls that wait for a connection hold nothing of it."""
    size: int | None = None
    """Bytes on the wire; None where it isn't known."""
    replayable: bool = True
    """It can be sent again."""

    @classmethod
    def from_bytes(cls, content: bytes) -> RequestBody:
        """A body that is in memory."""
        return cls(content=content, size=len(content))

    @classmethod
    def join(cls, parts: list[RequestBody], on_begin: Callable[[], None] = do_nothing) -> RequestBody:
        """Several bodies as one, each sent after the other."""
        sizes = [part.size for part in parts]

        async def chunks() -> AsyncGenerator[bytes]:
            """The chunks of each part in turn."""
            for part in parts:
                async with contextlib.aclosing(part.stream()) as stream:
                    async for chunk in stream:
                        yield chunk

        size = None if None in sizes else sum(size for size in sizes if size is not None)
        return cls(chunks=chunks, on_begin=on_begin, size=size, replayable=all(part.replayable for part in parts))

    @classmethod
    def from_content(cls, content: Content, on_accepted: Callable[[int], None] | None = None) -> RequestBody:
        """The base64 text of a content, coded while it is sent.

        accepted: called with the number of bytes of each piece that the connection has taken.
        """
        size = None if content.size is None else base64.compute_encoded_size(content.size)
        if (
            isinstance(content, MemoryContent)
            and len(content.content) <= MAX_UNINTERRUPTED_BYTES
            and on_accepted is None
        ):
            return cls(content=content.content, needs_base64=True, size=size)
        return cls(chunks=lambda: _encode_content(content, on_accepted), size=size, replayable=content.replayable)

    async def stream(self) -> AsyncGenerator[bytes]:
        """The chunks from the start; closing it closes their source."""
        if self.chunks is None:
            for text in self.iter_memory_chunks():
                yield text
            return
        self.on_begin()
        async with contextlib.aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                yield chunk

    def iter_memory_chunks(self) -> Iterator[bytes]:
        """What goes on the wire of a body that is in memory."""
        if not self.needs_base64:
            yield self.content
            return
        view = memoryview(self.content)
        for start in range(0, len(view), _ENCODED_BYTES_PER_STEP):
            yield base64.encode(view[start : start + _ENCODED_BYTES_PER_STEP])

    def open(self, media_type: str | None) -> RequestPayload:
        """A copy for one attempt."""
        return RequestPayload(self, media_type or "application/json")

    def __repr__(self) -> str:
        return f"RequestBody(size={self.size}, replayable={self.replayable})"


EMPTY_BODY = RequestBody.from_bytes(b"")


async def _encode_content(content: Content, on_accepted: Callable[[int], None] | None) -> AsyncGenerator[bytes]:
    encoder = base64.Encoder()
    async with contextlib.aclosing(_coalesce_pieces(content)) as pieces:
        async for piece in pieces:
            if coded := encoder.feed(piece):
                yield coded
            if on_accepted is not None:
                on_accepted(len(piece))
    if rest := encoder.finish():
        yield rest


async def _coalesce_pieces(content: Content) -> AsyncGenerator[Piece]:
    """The pieces, with those that are small and come soon after each other in one."""
    time = asyncio.get_running_loop().time
    small, since, count = bytearray(), time(), 0
    piece: Piece = b""
    try:
        async with contextlib.aclosing(content.pieces()) as pieces:
            async for piece in pieces:
                if len(piece) < _MIN_CHUNK_BYTES:
                    count += 1
                    if not count % _SMALL_PIECES_PER_TURN:
                        await asyncio.sleep(0)
                    small += piece
                    if len(small) < _MIN_CHUNK_BYTES and time() - since < _MAX_GATHER_SECONDS:
                        continue
                if small:
                    yield bytes(small)
                    small.clear()
                if len(piece) >= _MIN_CHUNK_BYTES:
                    yield piece
                since = time()
        if small:
            yield bytes(small)
    finally:
        small, piece = bytearray(), b""  # the frame may stand in a traceback, and holds nothing of what was sent


class RequestPayload(Payload):
    """One attempt's body."""

    _autoclose = True

    def __init__(self, body: RequestBody, media_type: str) -> None:
        super().__init__(body, content_type=media_type)
        self._body = body
        self._size = body.size
        self._is_source_opened = False
        self.started = False
        """Any byte may have left."""
        self.waiting_on_source = False
        """The source was asked for more, and gives nothing yet."""
        self.failure: Exception | None = None
        """What reading the source raised."""
        self.on_progress: Callable[[], None] = do_nothing
        """Called whenever the connection has taken another chunk of a body that comes in chunks."""

    @property
    def exhausted(self) -> bool:
        """The body can't be sent again."""
        return self._is_source_opened and not self._body.replayable

    def __repr__(self) -> str:
        return f"RequestPayload({self._body!r}, started={self.started})"

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Never: a body goes on the wire and nowhere else."""
        raise TypeError("a request body is not for reading")

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write everything, giving way to other tasks at every 256 KB."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write everything: the length announced is the body's own. Nothing, where the connection has ended already."""
        _raise_if_disconnected(writer)
        if self._body.chunks is None:
            self.started = True
            if self._body.content:
                for text in self._body.iter_memory_chunks():
                    await writer.write(text)
            return
        self._is_source_opened = True
        async with contextlib.aclosing(self._body.stream()) as chunks:
            await self._write_stream(writer, chunks)

    async def _write_stream(self, writer: AbstractStreamWriter, chunks: AsyncIterator[bytes]) -> None:
        """Nothing has left before the first chunk is there: aiohttp holds the head back until then."""
        since_turn = largest = 0
        while (chunk := await self._read_chunk(chunks)) is not None:
            if not self.started:
                _raise_if_disconnected(writer)  # a source may have taken its time
                self.started = True
            await writer.write(chunk)
            self.on_progress()
            since_turn += len(chunk)
            largest = max(largest, len(chunk))
            if since_turn + largest > _BYTES_PER_TURN:
                since_turn = 0
                await asyncio.sleep(0)
        self.started = True

    async def _read_chunk(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        self.waiting_on_source = True  # until it gives: who gives up meanwhile sees whose silence it was
        try:
            chunk = await anext(chunks, None)
            self.waiting_on_source = False
            return chunk
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
        except Exception as error:
            self.failure = error
            raise
        # Something that the source waited for was cancelled, not this call; the request stays incomplete.
        self.failure = TransportError("its source was cancelled", outcome=Outcome.FAILED)
        raise self.failure


def _raise_if_disconnected(writer: AbstractStreamWriter) -> None:
    if isinstance(writer, StreamWriter) and (writer.transport is None or writer.transport.is_closing()):
        raise ConnectionResetError("the connection ended before the request")


class BinaryReader(Protocol):
    """A file that was opened for reading bytes, or what reads like one. It is never closed here."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""
        ...


Source = bytes | bytearray | memoryview | str | PathLike[str] | BinaryReader | AsyncIterable[bytes]
"""Bytes to send.

A file object is read from its present position: one that can seek has a size and can be sent again, others pass once.
Paths and files, save an io.BytesIO, are read in a thread, a block ahead. An async iterable passes once.
"""


class Content(abc.ABC):
    """The bytes behind a Source."""

    def __init__(self, size: int | None, *, replayable: bool = True) -> None:
        self.size = size
        """How many there are; None where that isn't known."""
        self.replayable = replayable
        """`pieces` gives them again."""

    @abc.abstractmethod
    def pieces(self) -> AsyncGenerator[Piece]:
        """All bytes from the start. TransportError where there are not as many as there should be."""

    @abc.abstractmethod
    def head(self, count: int) -> bytes:
        """The first bytes, where they can be looked at without being taken; else none."""

    def validate_unconsumed(self, parameter: str) -> None:  # noqa: B027  most can be sent again
        """Raise InvalidArgumentError where the bytes have passed already."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, replayable={self.replayable})"


class MemoryContent(Content):
    """Bytes."""

    def __init__(self, content: bytes) -> None:
        super().__init__(len(content))
        self.content = content

    async def pieces(self) -> AsyncGenerator[Piece]:
        """Slices of them, not copied."""
        for piece in split_pieces(self.content):
            yield piece

    def head(self, count: int) -> bytes:
        """The first bytes."""
        return self.content[:count]


class PathContent(Content):
    """A regular file by its path, opened for each time it is sent; what is appended meanwhile is not sent.

    It is made, and its head read, in a thread; so is the rest. A small one is read whole then: another job in a thread
    would take longer than sending it. One that does not know its size is read to its end.
    """

    def __init__(self, path: Path, parameter: str) -> None:
        super().__init__(None)
        size, problem = _find_size_and_problem(path)
        if problem is not None:
            raise InvalidArgumentError(problem, parameter=parameter)
        if not os.access(path, os.R_OK):
            raise InvalidArgumentError("the file can't be read", parameter=parameter)
        self._path = path
        self._complete_content: bytes | None = None
        self.size = size
        if size <= PIECE_BYTES:
            try:
                content = self.head(PIECE_BYTES + 1)
            except OSError:  # sending reads the file again, and raises
                content = None
            if content is not None and len(content) <= PIECE_BYTES:
                self._complete_content, self.size = content, len(content)
            elif size == 0:  # procfs and some FUSE file systems do not know the size
                self.size = None

    def pieces(self) -> AsyncGenerator[Piece]:
        """The file, through two buffers."""
        if self._complete_content is not None:
            return MemoryContent(self._complete_content).pieces()
        return read_ahead(PathReader(self._path), self.size)

    def head(self, count: int) -> bytes:
        """The first bytes."""
        if self._complete_content is not None:
            return self._complete_content[:count]
        head = bytearray()
        with self._path.open("rb", buffering=0) as file:
            while len(head) < count and (some := file.read(count - len(head))):
                head += some
        return bytes(head)


def _find_size_and_problem(path: Path) -> tuple[int, str | None]:
    """Return the size of a regular file, and None; if the path has none, the reason."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return 0, "no such file"
    except OSError as error:  # such as a name that is too long
        return 0, f"the file can't be read ({explain_os_error(error)})"
    if stat.S_ISDIR(status.st_mode):
        return 0, "it is a folder: give a file"
    if not stat.S_ISREG(status.st_mode):
        return 0, "it is a pipe or a device: open it, and give the file object"
    return status.st_size, None


class FileContent(Content):
    """A file object that can seek, from where it stood. It seeks before it reads: several may read from it.

    size: None if the file does not know its size, and is read to its end.
    """

    def __init__(self, file: Any, start: int, size: int | None) -> None:
        super().__init__(size)
        self._file = file
        self._start = start
        self._lock = _get_lock(file)

    def pieces(self) -> AsyncGenerator[Piece]:
        """The file, block by block."""
        reader = FileReader(self._read, self._start)
        if type(self._file) is io.BytesIO and self.size is not None:
            return read_in_memory(reader, self.size)
        return read_ahead(reader, self.size)

    def head(self, count: int) -> bytes:
        """The first bytes; the file stands where it stood."""
        piece = self._read(self._start, count if self.size is None else min(count, self.size))
        self._file.seek(self._start)
        return piece

    def _read(self, position: int, count: int) -> bytes:
        with self._lock.lock:
            self._file.seek(position)
            return _check_bytes(self._file.read(count))


class _FileLock:
    """Held by the thread that seeks in a file object and reads: calls that send the same one have a thread each."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_LOCKS: WeakValueDictionary[int, _FileLock] = WeakValueDictionary()
"""The lock of each file object by its identity: not every file object has a hash."""
_LOCKS_LOCK = threading.Lock()


def _get_lock(file: object) -> _FileLock:
    with _LOCKS_LOCK:
        return _LOCKS.setdefault(id(file), _FileLock())


class StreamContent(Content):
    """A stream. Of one that gives more than its size, nothing beyond is sent, nor the end of what is within."""

    def __init__(self, stream: AsyncIterable[bytes], size: int | None) -> None:
        super().__init__(size, replayable=False)
        self._stream = stream
        self._closes_stream = isinstance(stream, AsyncGenerator)
        self._is_consumed = False

    async def pieces(self) -> AsyncGenerator[Piece]:
        """The stream, once; an async generator is closed when this is."""
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
                        raise make_size_error("its source gives more bytes than the size that was told")
                    if left == 0:
                        last = bytes(piece)  # kept until the end is seen: with it the request would be complete
                    else:
                        yield piece
            if left:
                raise make_size_error("its source gave fewer bytes than the size that was told")
            if last:
                yield last
        finally:
            last = chunk = piece = b""  # the frame may stand in a traceback, and holds nothing of what was sent
            if self._closes_stream:
                await cast("AsyncGenerator[bytes]", self._stream).aclose()

    def head(self, count: int) -> bytes:
        """None: it would have to be taken."""
        return b""

    def validate_unconsumed(self, parameter: str) -> None:
        """Raise InvalidArgumentError for a stream that was sent before, and would now seem empty."""
        if self._is_consumed:
            raise InvalidArgumentError("this stream was sent already: give another", parameter=parameter)


async def inspect_source(source: Source, *, head: int, parameter: str, size: int | None) -> tuple[Content, bytes]:
    """As `content_of`, and the first bytes, where they can be looked at; in a thread, unless it is in memory."""

    def inspect_content() -> tuple[Content, bytes]:
        """The content, with its head."""
        content = make_content(source, parameter=parameter, size=size)
        return content, content.head(head) if head else b""

    if isinstance(source, bytes | bytearray | memoryview | AsyncIterable) or type(source) is io.BytesIO:
        return inspect_content()
    return await run_in_thread(inspect_content)


def make_content(source: Source | Content, *, parameter: str, size: int | None = None) -> Content:
    """The content of what a caller gave. size: bytes, of a stream; of anything else it has to be right."""
    if size is not None and (type(size) is not int or size < 0):
        raise InvalidArgumentError("give a number of bytes", parameter="size")
    content = source if isinstance(source, Content) else _create_content(source, parameter, size)
    if size is not None and content.size is None:
        raise InvalidArgumentError("leave it out: the file does not know its size", parameter="size")
    if size is not None and content.size != size:
        raise InvalidArgumentError(f"it has {content.size} bytes", parameter="size")
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
        raise InvalidArgumentError("its read is async: give an async iterable of its bytes", parameter=parameter)
    if callable(read) and not isinstance(argument, io.TextIOBase):
        return _make_file_content(source, parameter) or StreamContent(_read_unseekable(source), size)
    raise InvalidArgumentError(
        "give bytes, a path, a file opened for reading bytes, or an async iterable of bytes", parameter=parameter
    )


def _make_file_content(file: Any, parameter: str) -> FileContent | None:
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
        if end == 0 and file.read(1):  # procfs and some FUSE file systems do not know the size
            end = None
            file.seek(start)
    except InvalidArgumentError:
        raise
    except (AttributeError, OSError):  # io.UnsupportedOperation among them
        return None
    except ValueError:
        raise InvalidArgumentError("the file is closed", parameter=parameter) from None
    if not isinstance(start, int) or not isinstance(end, int | None):
        return None
    return FileContent(file, start, None if end is None else max(end - start, 0))


async def _read_unseekable(file: Any) -> AsyncGenerator[bytes]:
    """A file object that can't seek, such as a pipe: reading it may take for ever, so a thread of its own waits."""
    read: Callable[[int], Any] = getattr(file, "read1", file.read)  # what is there, before a whole piece is
    thread, piece = DedicatedThread(), b""
    try:
        while piece := _check_bytes(await thread.start(read, PIECE_BYTES)):
            yield piece
    finally:
        piece = b""  # the frame may stand in a traceback, and holds nothing of what was sent
        thread.release()


def _check_bytes(piece: Any) -> bytes:
    if not isinstance(piece, bytes):
        raise TypeError(f"read() of a file to send must give bytes, not {type(piece).__name__}")
    return piece
