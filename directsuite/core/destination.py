"""Answers that go to a destination while they come: decoded, counted, checked, and handed to its sink.

    Incoming ─ base64 text ─► Destination ─ at most 192 KB at a time, as they come ─► Sink

What fails here is the destination's own failure, or the caller's, and kept apart from failures of the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from directsuite.core.cancellation import is_being_cancelled
from directsuite.core.checks import AT_LEAST_ONE
from directsuite.core.progress import Meter, Progress
from directsuite.core.sinks import Sink
from directsuite.errors import InvalidArgumentError, Outcome, ResponseDecodeError, TransportError
from directsuite.wire import base64
from directsuite.wire.parsing import MismatchError

if TYPE_CHECKING:
    from directsuite.core.answer import Incoming

R = TypeVar("R")

_TURN = 256 * 1024  # characters decoded between two turns of the event loop
_SHA256 = re.compile("[0-9a-fA-F]{64}")


class DestinationError(Exception):
    """What was received could not be kept; `reason` is why: the file's error, or the caller's own.

    read: whether anything of the answer was decoded before that; else nobody knows what it says.
    """

    def __init__(self, reason: Exception, *, read: bool) -> None:
        super().__init__(type(reason).__name__)
        self.reason: Any = reason
        self.read = read


class _Local:
    """A block whose errors are the destination's or the caller's own, told from the network's by a DestinationError.

    read: as there.
    """

    def __init__(self, *, read: bool) -> None:
        self._read = read

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError) and not is_being_cancelled():
            error = TransportError("its destination was cancelled", outcome=Outcome.FAILED)
        if isinstance(error, Exception):
            raise DestinationError(error, read=self._read) from None


_BEFORE_READING, _ONCE_READ = _Local(read=False), _Local(read=True)


class Destination(Generic[R]):
    """Receives an answer for a sink. `async with Destination(sink) as destination:` leaves nothing temporary behind.

    sha256: the hexadecimal digest that the bytes must have. max_bytes: the most that the sink gets; an answer with more
    is broken off. keep: whether they are put in their place at once.
    spent: it can't receive another answer, or a whole one came that isn't what was asked for, as another would be.
    """

    def __init__(
        self,
        sink: Sink[R],
        *,
        sha256: str | None = None,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        keep: bool = True,
    ) -> None:
        self.sink = sink
        self._sha256 = None if sha256 is None else sha256.lower()
        self._max_bytes = max_bytes
        self._progress = progress
        self._keep = keep
        self._refused = False
        self.failure: Exception | None = None
        """What the sink or the caller's callback raised first, or that it is too large: not asked for again."""

    @property
    def spent(self) -> bool:
        """Whether asking for another answer is of no use."""
        return self._refused or self.sink.spent

    def apart(self) -> Destination[R]:
        """Another for the same sink, which leaves it to the caller to keep what came."""
        return Destination(self.sink, max_bytes=self._max_bytes, progress=self._progress, keep=False)

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

    async def __call__(self, incoming: Incoming, alive: Callable[[], None]) -> R:
        """Hand on the bytes behind an answer's base64 text, piece by piece; what the caller gets for them."""
        try:
            return await self._receive(incoming, alive)
        except DestinationError as error:
            self.failure = self.failure or error.reason
            raise
        except ResponseDecodeError as error:  # it is too large, as another would be
            self.failure = self.failure or error
            raise

    async def _receive(self, incoming: Incoming, alive: Callable[[], None]) -> R:
        meter = Meter(self._progress, size_told(incoming.headers))
        with _BEFORE_READING:
            await self.sink.begin()
        try:
            with _BEFORE_READING:
                meter.begin()
            await self._pass_on(incoming, alive, meter)
            alive()  # having it on the disk may take long, and has the time of a pause of its own
            with _ONCE_READ:
                await self.sink.finish()
        except BaseException:
            with contextlib.suppress(Exception):  # what is under way is told: a cancellation, or the first failure
                await self.sink.end()
            raise
        with _ONCE_READ:
            meter.end()
            if self._keep:
                await self.sink.keep()
        return self.sink.result

    async def _pass_on(self, incoming: Incoming, alive: Callable[[], None], meter: Meter) -> None:
        """Piece by piece as the connection gives them: to gather them first would copy every byte once more."""
        decoder, digest = base64.Decoder(), None if self._sha256 is None else hashlib.sha256()
        written = since_turn = 0
        chunk = content = b""
        piece: bytes | memoryview = b""
        try:
            while chunk := await incoming.chunk():
                alive()
                for piece in in_turns(chunk):
                    if since_turn + len(piece) > _TURN:
                        since_turn = 0
                        await asyncio.sleep(0)
                    since_turn += len(piece)
                    if content := decoder.feed(piece):
                        refuse_larger(written + len(content), self._max_bytes)
                        if digest is not None:
                            digest.update(content)
                        await self._hand_on(content, meter)
                        written += len(content)
            decoder.finish()
        finally:
            chunk = content = piece = b""  # the frame may stand in a traceback, and holds nothing of what was answered
        if not written:
            raise MismatchError("base64 text")
        if digest is not None and self._sha256 != digest.hexdigest():
            self._refused = True
            raise MismatchError("the bytes whose SHA-256 digest was given")

    async def _hand_on(self, content: bytes, meter: Meter) -> None:
        size = len(content)
        with _ONCE_READ:
            writing, content = self.sink.write(content), b""  # as above
            await writing
            meter.advance(size)


def is_spent(receive: object) -> bool:
    """Whether what receives an answer should not receive another."""
    return isinstance(receive, Destination) and receive.spent


def in_turns(chunk: bytes) -> Iterator[bytes | memoryview]:
    """The chunk in pieces between which the event loop gets its turn."""
    if len(chunk) <= _TURN:
        yield chunk
        return
    view = memoryview(chunk)
    for start in range(0, len(chunk), _TURN):
        yield view[start : start + _TURN]


def size_told(headers: Mapping[str, str]) -> int | None:
    """The most bytes that can be behind an answer's text: a few more than there are, where it has padding or lines."""
    length = headers.get("Content-Length", "")
    if "Content-Encoding" in headers or not length.isdecimal():
        return None
    return int(length) // 4 * 3


def refuse_larger(size: int, max_bytes: int | None) -> None:
    """Raise ResponseDecodeError where a document has more bytes than its caller takes."""
    if max_bytes is not None and size > max_bytes:
        raise ResponseDecodeError(f"the document is larger than {max_bytes} bytes: raise max_bytes", too_large=True)


def refuse_max_bytes(max_bytes: object) -> None:
    """Raise InvalidArgumentError for what can't be the most bytes of a document."""
    if max_bytes is not None and not AT_LEAST_ONE.fits(max_bytes):
        raise InvalidArgumentError("give a number of bytes, 1 or more, or None", parameter="max_bytes")


def refuse_sha256(sha256: object) -> None:
    """Raise InvalidArgumentError for what can't be a digest."""
    if sha256 is not None and not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
        raise InvalidArgumentError("give a SHA-256 digest: 64 hexadecimal digits", parameter="sha256")
