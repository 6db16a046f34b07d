"""Answers that go to a destination while they come: decoded, counted, checked, and handed to its sink.

    ResponseStream ─ base64 text ─► Destination ─ at most 192 KB at a time, as they come ─► Sink

What fails here is the destination's own failure, or the caller's, and kept apart from failures of the network.

    open ─► begin ─► write … ─► finish ─► keep    `end` after an attempt that failed, `close` after them all

`begin` empties it for another attempt. One that can't be emptied is `spent` once it has got bytes.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import hashlib
import inspect
import io
import os
import re
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Protocol, Self, TypeVar, TypeVarTuple

from directsuite.core.checks import AT_LEAST_ONE
from directsuite.core.events import Progress, ProgressReporter
from directsuite.core.failures import explain_os_error, is_being_cancelled
from directsuite.core.files import BlockWriter, DedicatedThread, find_file, to_path, wait_briefly
from directsuite.errors import InvalidArgumentError, Outcome, ResponseDecodeError, TransportError
from directsuite.wire import base64
from directsuite.wire.parsing import MismatchError

if TYPE_CHECKING:
    from directsuite.core.response import ResponseStream

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CHARS_PER_TURN = 256 * 1024  # characters decoded at a time, and between two turns of the event loop
_SHA256 = re.compile("[0-9a-fA-F]{64}")


class DestinationError(Exception):
    """What was received could not be kept."""

    def __init__(self, reason: Exception, *, is_partly_read: bool) -> None:
        super().__init__(type(reason).__name__)
        self.reason: Any = reason
        """The file's error, or the caller's own."""
        self.is_partly_read = is_partly_read
        """Anything of the answer was decoded before that; else nobody knows what it says."""


class _WrapDestinationErrors:
    """A block whose errors are the destination's or the caller's own, told from the network's by a DestinationError.

    It keeps nothing of a block, so that one serves all: a class costs each piece of a download half of what a generator
    does.
    """

    def __init__(self, *, is_partly_read: bool) -> None:
        self._is_partly_read = is_partly_read

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError) and not is_being_cancelled():
            error = TransportError("its destination was cancelled", outcome=Outcome.FAILED)
        if isinstance(error, Exception):
            raise DestinationError(error, is_partly_read=self._is_partly_read) from None


_WRAP_ERRORS_BEFORE_READING, _WRAP_ERRORS_WHILE_READING = (
    _WrapDestinationErrors(is_partly_read=False),
    _WrapDestinationErrors(is_partly_read=True),
)


class DocumentReader:
    """Decodes a document's answer while it comes: a StreamReader of pieces of 192 KB at most."""

    pending = 0
    """Bytes that it keeps: never more than three characters."""
    skipped: Mapping[str, int] = MappingProxyType({})
    """Values that could not be read: there are none in base64 text."""

    def __init__(self, max_bytes: int | None) -> None:
        self._decoder = base64.Decoder()
        self._max_bytes = max_bytes
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The bytes that are settled by now. Raises ResponseDecodeError where there are more than `max_bytes`."""
        text: bytes | memoryview = b""
        content = b""
        try:
            for text in _split_chunk(piece):
                if content := self._decoder.feed(text):
                    self._size += len(content)
                    if self._max_bytes is not None and self._size > self._max_bytes:
                        explanation = f"the document is larger than {self._max_bytes} bytes: raise max_bytes"
                        raise ResponseDecodeError(explanation, too_large=True)
                    yield content
        finally:
            piece = text = content = b""  # the frame may stand in a traceback, and holds nothing of what was answered

    def finish(self) -> tuple[()]:
        """Raise MismatchError where the text is not whole, or there was none."""
        self._decoder.finish()
        if not self._size:
            raise MismatchError("base64 text")
        return ()


def _split_chunk(chunk: bytes) -> Sequence[bytes | memoryview]:
    """The chunk in parts between which the event loop gets its turn."""
    if len(chunk) <= _CHARS_PER_TURN:
        return (chunk,)
    view = memoryview(chunk)
    return [view[start : start + _CHARS_PER_TURN] for start in range(0, len(chunk), _CHARS_PER_TURN)]


class Destination(Generic[R]):
    """Receives an answer for a sink. `async with Destination(sink) as destination:` leaves nothing temporary behind.

    sha256: the hexadecimal digest that the bytes must have. max_bytes: the most that the sink gets; an answer with more
    is broken off. keep: whether they are put in their place at once.
    """

    def __init__(
        self,
        sink: Sink[R],
        *,
        sha256: str | None = None,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        publish: bool = True,
    ) -> None:
        self.sink = sink
        self._sha256 = None if sha256 is None else sha256.lower()
        self._max_bytes = max_bytes
        self._progress = progress
        self._publish = publish
        self._has_wrong_digest = False
        self.failure: Exception | None = None
        """What the sink or the caller's callback raised first, or that it is too large: not asked for again."""

    @property
    def exhausted(self) -> bool:
        """It can't receive another answer, or a whole one came that isn't what it should be, as another would be."""
        return self._has_wrong_digest or self.sink.exhausted

    def detached(self) -> Destination[R]:
        """Another for the same sink, which leaves it to the caller to keep what came."""
        return Destination(self.sink, max_bytes=self._max_bytes, progress=self._progress, publish=False)

    async def __aenter__(self) -> Self:
        try:
            await self.sink.open()
        except BaseException:
            await self.sink.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.sink.close()

    async def __call__(self, incoming: ResponseStream, extend_timeout: Callable[[], None]) -> R:
        """Hand on the bytes behind an answer's base64 text, piece by piece; what the caller gets for them."""
        try:
            return await self._receive(incoming, extend_timeout)
        except DestinationError as error:
            self.failure = self.failure or error.reason
            raise
        except ResponseDecodeError as error:  # it is too large, as another would be
            self.failure = self.failure or error
            raise

    async def _receive(self, incoming: ResponseStream, extend_timeout: Callable[[], None]) -> R:
        meter = ProgressReporter(self._progress, compute_max_size(incoming.headers))
        with _WRAP_ERRORS_BEFORE_READING:
            await self.sink.begin()
        try:
            with _WRAP_ERRORS_BEFORE_READING:
                meter.begin()
            await self._transfer(incoming, extend_timeout, meter)
            extend_timeout()  # having it on the disk may take long, and has the time of a pause of its own
            with _WRAP_ERRORS_WHILE_READING:
                await self.sink.finish()
        except BaseException:
            with contextlib.suppress(Exception):  # what is under way is told: a cancellation, or the first failure
                await self.sink.abort()
            raise
        with _WRAP_ERRORS_WHILE_READING:
            meter.end()
            if self._publish:
                await self.sink.publish()
        return self.sink.result

    async def _transfer(
        self, incoming: ResponseStream, extend_timeout: Callable[[], None], meter: ProgressReporter
    ) -> None:
        """Piece by piece as the connection gives them: to gather them first would copy every byte once more."""
        reader, digest = DocumentReader(self._max_bytes), None if self._sha256 is None else hashlib.sha256()
        since_turn = 0
        chunk = content = b""
        try:
            while chunk := await incoming.read_chunk():
                extend_timeout()
                for content in reader.feed(chunk):
                    if digest is not None:
                        digest.update(content)
                    await self._write_piece(content, meter)
                    since_turn += len(content)
                    if since_turn + len(content) > _CHARS_PER_TURN // 4 * 3:
                        since_turn = 0
                        await asyncio.sleep(0)
            reader.finish()
        finally:
            chunk = content = b""  # the frame may stand in a traceback, and holds nothing of what was answered
        if digest is not None and self._sha256 != digest.hexdigest():
            self._has_wrong_digest = True
            raise MismatchError("the bytes whose SHA-256 digest was given")

    async def _write_piece(self, content: bytes, meter: ProgressReporter) -> None:
        size = len(content)
        with _WRAP_ERRORS_WHILE_READING:
            writing, content = self.sink.write(content), b""  # as above
            await writing
            meter.advance(size)


def is_exhausted(receive: object) -> bool:
    """Return True if what receives an answer should not receive another."""
    return isinstance(receive, Destination) and receive.exhausted


def compute_max_size(headers: Mapping[str, str]) -> int | None:
    """The most bytes that can be behind an answer's text: a few more than there are, where it has padding or lines."""
    length = headers.get("Content-Length", "")
    if "Content-Encoding" in headers or not length.isdecimal():
        return None
    return int(length) // 4 * 3


def validate_max_bytes(max_bytes: object) -> None:
    """Raise InvalidArgumentError for what can't be the most bytes of a document."""
    if max_bytes is not None and not AT_LEAST_ONE.predicate(max_bytes):
        raise InvalidArgumentError("give a number of bytes, 1 or more, or None", parameter="max_bytes")


def validate_sha256(sha256: object) -> None:
    """Raise InvalidArgumentError for what can't be a digest."""
    if sha256 is not None and not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
        raise InvalidArgumentError("give a SHA-256 digest: 64 hexadecimal digits", parameter="sha256")


class BinaryWriter(Protocol):
    """A file that was opened for writing bytes, or what writes like one. It is never closed here."""

    def write(self, piece: bytes, /) -> int | None:
        """Take the bytes, or as many of them as the number returned says, which gets the rest in another call."""
        ...


PieceWriter = Callable[[bytes], Awaitable[object]]
"""An async function that takes each piece as it comes, such as the `write` of aiohttp's StreamResponse, or an object
with such a `__call__`. A plain function is refused, for whether it gives an awaitable shows only when it is called.
"""


class PartialWriteError(OSError):
    """Bytes of an answer that broke off have gone where they can't be taken back from."""


class Sink(abc.ABC, Generic[R]):
    """One destination."""

    exhausted = False
    """It has got bytes that can't be taken back."""

    @property
    @abc.abstractmethod
    def result(self) -> R:
        """What the caller gets in the end."""

    async def open(self) -> None:
        """Be ready for an attempt. Raises InvalidArgumentError where nothing can be written there."""

    async def begin(self) -> None:
        """Be as empty as at first. Raises PartlyPassedOnError where that can't be."""
        if self.exhausted:
            raise PartialWriteError("its bytes can't be taken back")

    @abc.abstractmethod
    async def write(self, piece: bytes) -> None:
        """Take a piece."""

    async def finish(self) -> None:
        """All pieces have come."""

    async def abort(self) -> None:
        """The attempt has failed."""

    async def publish(self) -> None:
        """Put what has come in its place."""

    async def close(self) -> None:
        """Leave nothing temporary behind."""


class PathSink(Sink[Path]):
    """A temporary file beside the path that takes its name at last; made at once, so that refusals come early.

    A link stays a link: the file that it leads to is replaced. A FIFO, a device or an open file, such as /dev/stdout,
    is never replaced: it gets the pieces while they come, so that they can't be taken back.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._target: Path | None = path
        self._temporary: Path | None = None
        self._is_published = False
        self._is_aborted = False
        """True after an attempt that failed: a FIFO whose reader comes later gets nothing."""
        self._file: BinaryIO | None = None
        self._thread = DedicatedThread()
        self._blocks = BlockWriter(self._thread, self._write)

    async def open(self) -> None:
        """Make the temporary file."""
        await self._thread.start(self._prepare_target)

    async def begin(self) -> None:
        """Forget what came before: the temporary file is emptied when it is opened."""
        await super().begin()
        self._is_aborted = False
        self._blocks.drop()

    async def write(self, piece: bytes) -> None:
        """Have it written to the temporary file, or to what is not replaced."""
        if self._target is not None:
            adding, piece = self._blocks.add(piece), b""  # the frame may stand in a traceback
            await adding
            return
        self.exhausted = True
        writing, piece = self._thread.start(self._write, [piece]), b""
        await writing

    async def finish(self) -> None:
        """Have it on the disk."""
        await self._blocks.wait_until_written()
        await self._thread.start(self._sync, self._blocks.drop())

    async def abort(self) -> None:
        """Close the temporary file: a full disk fails here a second time."""
        self._is_aborted = self._target is None
        self._blocks.drop()
        await wait_briefly(self._thread.start(self._close))

    async def publish(self) -> None:
        """Give the temporary file the destination's name."""
        await self._thread.start(self._rename)

    @property
    def result(self) -> Path:
        """The path."""
        return self._path

    async def close(self) -> None:
        """Remove the temporary file, where it is still there."""
        try:
            if not self._is_published:
                await wait_briefly(self._thread.start(self._remove))
        finally:
            self._thread.release()

    def _prepare_target(self) -> None:
        try:
            if self._path.is_dir():
                raise InvalidArgumentError("it is a folder: name a file in it", parameter="destination")
            self._target = find_file(self._path)
            if self._target is None:
                _validate_writable(self._path)
        except OSError as error:
            reason = explain_os_error(error)
        else:
            if self._target is not None:
                self._make_temporary(self._target.parent)
            return
        raise InvalidArgumentError(f"no file can be made there ({reason})", parameter="destination")

    def _make_temporary(self, folder: Path) -> None:
        try:
            if not folder.is_dir():
                raise InvalidArgumentError("its folder does not exist: create it first", parameter="destination")
            descriptor, name = tempfile.mkstemp(prefix=".directsuite-", suffix=".part", dir=folder)
        except OSError as error:
            reason = explain_os_error(error)
        else:
            os.close(descriptor)
            self._temporary = Path(name)
            return
        raise InvalidArgumentError(f"no file can be made in its folder ({reason})", parameter="destination")

    def _write(self, pieces: list[bytes]) -> None:
        if self._file is None and self._temporary is not None:
            self._file = self._temporary.open("wb")
        elif self._file is None and self._target is None:
            self._file = os.fdopen(os.open(self._path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0)), "wb")
        if self._file is not None and not self._is_aborted:  # the reader of a FIFO may come late
            self._file.writelines(pieces)
            if self._target is None:
                self._file.flush()
        pieces.clear()  # the frame may stand in a traceback, and holds nothing of what was answered

    def _sync(self, pieces: list[bytes]) -> None:
        self._write(pieces)
        if self._file is not None and self._target is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _rename(self) -> None:
        self._close()
        if self._temporary is not None and self._target is not None:
            self._temporary.replace(self._target)
        self._is_published = True

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            if self._temporary is not None:
                self._temporary.unlink(missing_ok=True)


def _validate_writable(path: Path) -> None:
    """Raise InvalidArgumentError for a socket, and for a pipe or device that may not be written."""
    if stat.S_ISSOCK(path.stat().st_mode):
        raise InvalidArgumentError("it is a socket: give an async function that writes to it", parameter="destination")
    if not os.access(path, os.W_OK):
        raise InvalidArgumentError("it cannot be written: check its permissions", parameter="destination")


class FileSink(Sink[R]):
    """A file object, from where it stands. One that can seek is cut off there again for another attempt.

    In the end it is cut off behind what has come. All but an io.BytesIO are written in a thread: others may be on
    another machine, or a pipe, which may take for ever, and gets each piece at once.
    """

    def __init__(self, file: R) -> None:
        self._caller_file = file
        self._file: Any = file
        self._is_written = False
        self._finished = False
        self._start: int | None = None
        self._thread = DedicatedThread()
        self._blocks = BlockWriter(self._thread, self._write_all)

    async def open(self) -> None:
        """See where it stands."""
        self._start = await self._run_blocking(_find_start, self._file)

    async def begin(self) -> None:
        """Cut off what came before."""
        await super().begin()
        self._finished = False
        self._blocks.drop()
        if self._is_written and self._start is not None:
            await self._run_blocking(self._rewind)

    async def write(self, piece: bytes) -> None:
        """Write all of it, however little the file takes at a time."""
        self._is_written = True
        self.exhausted = self._start is None
        try:
            if self.exhausted:
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
        await self._blocks.wait_until_written()
        await self._run_blocking(self._flush, self._blocks.drop())
        self._finished = True

    async def abort(self) -> None:
        """Write what has come. See whether it can go back: one for compressed writing says so, and can't."""
        pieces = self._blocks.drop()
        if not self._is_written or self._finished or self._start is None:
            return
        if self._in_memory:
            self._write_and_check_rewind(pieces)
        else:
            await wait_briefly(self._thread.start(self._write_and_check_rewind, pieces))

    async def close(self) -> None:
        """Let go of the thread."""
        self._thread.release()

    @property
    def result(self) -> R:
        """The file."""
        return self._caller_file

    @property
    def _in_memory(self) -> bool:
        return type(self._file) is io.BytesIO

    async def _run_blocking(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        return function(*args) if self._in_memory else await self._thread.start(function, *args)

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
        """Call the callable with the piece."""
        self.exhausted = True
        self._size += len(piece)
        await self._write(piece)

    @property
    def result(self) -> int:
        """How many bytes have passed."""
        return self._size


def make_sink(destination: str | PathLike[str] | BinaryWriter | PieceWriter) -> Sink[Any]:
    """The sink of what a caller gave for a destination; InvalidArgumentError where it is none."""
    argument: Any = destination
    if isinstance(destination, str | PathLike):
        return PathSink(to_path(argument, "destination"))
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
    if (inspect.isroutine(argument) or inspect.isclass(argument)) and not inspect.iscoroutinefunction(argument):
        raise InvalidArgumentError("give an async function: nothing says that this is one", parameter="destination")
    if callable(destination):
        return CallableSink(destination)
    raise InvalidArgumentError(
        "give a path, a file opened for writing bytes, or an async callable", parameter="destination"
    )


def _find_start(file: Any) -> int | None:
    """Where a file object stands that can be cut off there again; None for one that can't."""
    writable = getattr(file, "writable", None)
    if getattr(file, "closed", False) is True or (callable(writable) and not writable()):
        raise InvalidArgumentError("open it for writing bytes", parameter="destination")
    try:
        start = file.tell() if file.seekable() and callable(file.truncate) else None
    except (AttributeError, OSError):
        return None
    return start if isinstance(start, int) else None
