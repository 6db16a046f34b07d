"""Destinations of streamed responses: a response is decoded, limited, verified and written while it is received.

ResponseStream ─ base64 text ─► Destination ─ pieces of at most 192 KB ─► Sink
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from directsuite.core.checks import AT_LEAST_ONE
from directsuite.core.clock import is_being_cancelled
from directsuite.core.events import Progress, ProgressReporter
from directsuite.core.files import explain_os_error
from directsuite.core.sinks import Sink
from directsuite.errors import DeadlineExceededError, InvalidArgumentError, Outcome, ResponseDecodeError, TransportError
from directsuite.wire.parsing import MismatchError
from directsuite.wire.values import Base64Decoder

if TYPE_CHECKING:
    from directsuite.core.operation import Operation
    from directsuite.core.session import ResponseStream

R = TypeVar("R")

_CHARS_PER_TURN = 256 * 1024  # maximum number of characters decoded before other tasks run
_SHA256 = re.compile("[0-9a-fA-F]{64}")


class DestinationError(Exception):
    """The response could not be written: the destination or the callback failed, or the document is too large."""

    explanation = ""
    """The reason, as a fragment without file names."""

    def __init__(self, reason: Exception, *, is_partly_read: bool) -> None:
        super().__init__(type(reason).__name__)
        self.reason: Any = reason
        """The error of the file or of the caller's code, or a ResponseDecodeError about the size."""
        self.is_partly_read = is_partly_read
        """True if a part of the response was decoded before the failure."""


class _WrapDestinationErrors:
    """Context manager that raises DestinationError for each exception of its block.

    It is shared, because @contextmanager costs twice as much for each chunk.
    """

    def __init__(self, *, is_partly_read: bool) -> None:
        self._is_partly_read = is_partly_read

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError) and not is_being_cancelled():
            error = TransportError("writing to its destination was cancelled", outcome=Outcome.FAILED)
        if isinstance(error, Exception):
            raise DestinationError(error, is_partly_read=self._is_partly_read) from None


_WRAP_ERRORS_BEFORE_READING, _WRAP_ERRORS_WHILE_READING = (
    _WrapDestinationErrors(is_partly_read=False),
    _WrapDestinationErrors(is_partly_read=True),
)


class DocumentReader:
    """Decodes the base64 text of a document in pieces of at most 192 KB. Implements StreamReader."""

    pending = 0
    """Always 0: at most three retained characters are not counted."""
    skipped: Mapping[str, int] = MappingProxyType({})
    """Always empty: base64 text has no values that can be skipped."""

    def __init__(self, max_bytes: int | None) -> None:
        self._decoder = Base64Decoder()
        self._max_bytes = max_bytes
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the bytes that are decodable now.

        Raises MismatchError if the text is not base64, and ResponseDecodeError after more than `max_bytes`.
        """
        content = b""
        try:
            for start in range(0, len(piece), _CHARS_PER_TURN):
                if content := self._decoder.feed(memoryview(piece)[start : start + _CHARS_PER_TURN]):
                    self._size += len(content)
                    if self._max_bytes is not None and self._size > self._max_bytes:
                        explanation = f"the document is larger than {self._max_bytes} bytes: raise max_bytes"
                        raise ResponseDecodeError(explanation, too_large=True)
                    yield content
        finally:
            piece = content = b""  # tracebacks expose local variables

    def finish(self) -> tuple[()]:
        """Raise MismatchError if the text is incomplete or empty."""
        self._decoder.finish()
        if not self._size:
            raise MismatchError("base64 text")
        return ()


class Destination(Generic[R]):
    """Writes a response to a sink. Use it in `async with`, which removes temporary files.

    sha256: the expected digest in hexadecimal.
    max_bytes: the maximum size of the document. A larger one raises ResponseDecodeError.
    open_timeout: the maximum number of seconds to open the sink. None: no limit.
    operation: the operation of the call, which the error about this limit names.
    publish: False if the caller publishes the sink's content itself.
    """

    def __init__(
        self,
        sink: Sink[R],
        *,
        sha256: str | None = None,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        open_timeout: float | None = None,
        operation: Operation[Any] | None = None,
        publish: bool = True,
    ) -> None:
        self.sink = sink
        self._open_timeout = open_timeout
        self._error_context: Mapping[str, Any] = {} if operation is None else operation.error_context
        self._sha256 = None if sha256 is None else sha256.lower()
        self._max_bytes = max_bytes
        self._meter = ProgressReporter(progress)
        self._publish = publish
        self._has_wrong_digest = False
        self.failure: Exception | None = None
        """The first error of the sink or callback, or the error about a document that is too large. It prevents
        retries.
        """

    @property
    def exhausted(self) -> bool:
        """True if the sink cannot be emptied for another response, or the digest of a response was wrong."""
        return self._has_wrong_digest or self.sink.exhausted

    def detached(self) -> Destination[R]:
        """Return another Destination for the same sink, which neither publishes the content nor verifies the digest."""
        again = Destination(self.sink, max_bytes=self._max_bytes, publish=False)
        again._meter = self._meter
        return again

    def is_callback_error(self, error: Exception) -> bool:
        """Return True if the callback `progress` raised this error."""
        return error is self._meter.failure

    def explain(self, error: Exception) -> str:
        """Return why a response could not be written, as a fragment without file names."""
        if self.is_callback_error(error):
            return f"the progress callback raised {type(error).__name__}"
        if isinstance(error, ResponseDecodeError | TransportError):
            return error.explanation
        if isinstance(error, OSError):
            return f"the PDF could not be written to its destination ({explain_os_error(error)})"
        return f"its destination raised {type(error).__name__}"

    async def __aenter__(self) -> Self:
        limit, now = asyncio.timeout(self._open_timeout), asyncio.get_running_loop().time
        began = now()
        try:
            async with limit:
                await self.sink.open()
            return self
        except BaseException as error:
            await self.sink.close()
            if not (isinstance(error, TimeoutError) and limit.expired()):
                raise
        text = "the call's time is up: its destination was not opened"
        expired = DeadlineExceededError(text, outcome=Outcome.NOT_SENT, **self._error_context)
        raise expired.set_call(None, None, 0, now() - began)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.sink.close()

    async def __call__(self, incoming: ResponseStream, extend_timeout: Callable[[], None]) -> R:
        """Decode the response into the sink. Return the sink's result.

        Raises DestinationError if the sink or callback fails, or the document is too large or has another digest, and
        MismatchError if it is empty or not base64.
        """
        try:
            return await self._receive(incoming, extend_timeout)
        except ResponseDecodeError as error:
            failure = DestinationError(error, is_partly_read=True)
        except DestinationError as error:
            failure = error
        self.failure, failure.explanation = self.failure or failure.reason, self.explain(failure.reason)
        raise failure

    async def _receive(self, incoming: ResponseStream, extend_timeout: Callable[[], None]) -> R:
        meter = self._meter
        meter.total = compute_max_size(incoming.headers)
        with _WRAP_ERRORS_BEFORE_READING:
            await self.sink.begin()
        try:
            with _WRAP_ERRORS_BEFORE_READING:
                meter.begin()
            await self._transfer(incoming, extend_timeout)
            extend_timeout()  # syncing to the disk may take long
            with _WRAP_ERRORS_WHILE_READING:
                await self.sink.finish()
        except BaseException:
            with contextlib.suppress(Exception):  # the first failure is raised instead
                await self.sink.abort()
            raise
        with _WRAP_ERRORS_WHILE_READING:
            meter.end()
            if self._publish:
                await self.sink.publish()
        return self.sink.result

    async def _transfer(self, incoming: ResponseStream, extend_timeout: Callable[[], None]) -> None:
        reader, digest = DocumentReader(self._max_bytes), None if self._sha256 is None else hashlib.sha256()
        since_turn = 0
        chunk = content = b""
        try:
            while chunk := await incoming.read_chunk():
                extend_timeout()
                for content in reader.feed(chunk):
                    if digest is not None:
                        digest.update(content)
                    size = len(content)
                    with _WRAP_ERRORS_WHILE_READING:
                        writing, content = self.sink.write(content), b""
                        await writing
                        self._meter.advance(size)
                    since_turn += size
                    if since_turn + size > _CHARS_PER_TURN // 4 * 3:
                        since_turn = 0
                        await asyncio.sleep(0)
            reader.finish()
        finally:
            chunk = content = b""  # tracebacks expose local variables
        if digest is not None and self._sha256 != digest.hexdigest():
            self._has_wrong_digest = True
            raise ResponseDecodeError("the document's SHA-256 digest is not the given one")


def is_exhausted(receive: object) -> bool:
    """Return True if `receive` is a Destination that is exhausted."""
    return isinstance(receive, Destination) and receive.exhausted


def compute_max_size(headers: Mapping[str, str]) -> int | None:
    """Return the maximum number of bytes whose base64 text fits in a response.

    Return None if the response has no valid Content-Length, or has a Content-Encoding.
    """
    length = headers.get("Content-Length", "")
    if "Content-Encoding" in headers or not length.isdecimal():
        return None
    return int(length) // 4 * 3


def validate_max_bytes(max_bytes: object) -> None:
    """Raise InvalidArgumentError unless this is None or a whole number, 1 or more."""
    if max_bytes is not None and not AT_LEAST_ONE.predicate(max_bytes):
        raise InvalidArgumentError("give a number of bytes, 1 or more, or None", parameter="max_bytes")


def validate_sha256(sha256: object) -> None:
    """Raise InvalidArgumentError unless this is None or a SHA-256 digest in hexadecimal."""
    if sha256 is not None and not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
        raise InvalidArgumentError("give a SHA-256 digest: 64 hexadecimal digits", parameter="sha256")
