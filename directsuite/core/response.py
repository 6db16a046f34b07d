"""What comes back: an answer while it is coming, an answer that was read, and what it says.

Objects here show nothing of what they hold, so that no frame's locals do.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import aiohttp
import attrs

from directsuite.core import outcome
from directsuite.core.operation import Operation
from directsuite.errors import DirectSuiteError, ResponseDecodeError
from directsuite.secret import Secret
from directsuite.wire import base64
from directsuite.wire.codec import Codec
from directsuite.wire.models import Model, unread_list, wire_name
from directsuite.wire.parsing import BROKEN, MismatchError, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from directsuite.core.limits import Limits

R = TypeVar("R")

_NAME = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"  # RFC 6838 (4.2)
_MEDIA_TYPE = re.compile(f"{_NAME}/{_NAME}")

_MOST_EXPANDED = 20
"""Times its size that a compressed answer of base64 text may expand to: more than documents do, and less than bombs."""
_SMALL = 2**20
"""Bytes that it may expand to in any case."""


class ResponseStream:
    """The answer to a request that may be sent. `close` gives its connection back, or ends it where it wasn't read."""

    def __init__(self, reading: set[ResponseStream], limits: Limits | None, *, is_base64: bool = False) -> None:
        """reading: the answers that are being read, closed where the suite is. limits: gets the connection back."""
        self._is_base64 = is_base64
        self._response: aiohttp.ClientResponse | None = None
        self._reading = reading
        self._limits = limits
        self._closed = False
        self.status = 0

    def begin(self, response: aiohttp.ClientResponse) -> None:
        """Its head has come."""
        self._response = response
        self.status = response.status
        self._reading.add(self)

    @property
    def headers(self) -> Mapping[str, str]:
        """The head's lines."""
        return self._begun.headers

    @property
    def _begun(self) -> aiohttp.ClientResponse:
        if self._response is None:
            raise RuntimeError("no answer has begun")
        return self._response

    async def read(self, limit: int) -> Answer:
        """The whole answer; the beginning of one that has more than `limit` bytes."""
        content = self._begun.content
        pieces: list[bytes] = []
        size = 0
        piece = body = b""
        try:
            while size <= limit and (piece := await self.chunk()):
                pieces.append(piece)
                size += len(piece)
                if content.at_eof():
                    break
            kept = size
            while size > limit and kept - len(pieces[-1]) >= outcome.KEPT:
                kept -= len(pieces.pop())
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            return Answer(self.status, self.headers, body, too_large=size > limit, size=size)
        finally:
            pieces.clear()  # the frame may stand in a traceback, and holds nothing of what was answered
            piece = body = b""

    async def chunk(self) -> bytes:
        """The next piece of the body, empty at its end. Raises ResponseDecodeError for a compression bomb."""
        content = self._begun.content
        size = content.total_bytes if self._is_base64 else 0
        if size > _SMALL and size > _MOST_EXPANDED * content.total_raw_bytes:
            text = (
                f"the compressed answer expands to more than {_MOST_EXPANDED} times its size, as no document should: "
                "have the service, or the proxy before it, send documents uncompressed"
            )
            raise ResponseDecodeError(text, too_large=True)
        return await content.readany()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces, as they come."""
        while piece := await self.chunk():
            yield piece

    def close(self) -> None:
        """Let go of the connection, once."""
        if self._closed:
            return
        self._closed = True
        self._reading.discard(self)
        if self._response is not None:
            content = self._response.content
            if not content.at_eof() and content.exception() is None:
                # aiohttp raises one shared exception in whoever reads on, and that keeps the frames of all such calls.
                content.set_exception(aiohttp.ClientConnectionError("the connection was closed"))
            self._response.close()
        if self._limits is not None:
            self._limits.release()

    def __repr__(self) -> str:
        return f"ResponseStream(status={self.status})"


@attrs.define(repr=False, eq=False)
class Answer:
    """An answer that was read. too_large: it went past the limit, and was broken off; of `size` bytes it has some."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    too_large: bool = False
    size: int = attrs.field(default=attrs.Factory(lambda answer: len(answer.body), takes_self=True))

    def __repr__(self) -> str:
        return f"Answer(status={self.status}, bytes={self.size})"


def interpret(
    operation: Operation[R],
    answer: Answer,
    limit: int,
    codec: Codec,
    skipped: Callable[[int], None] | None = None,
) -> R | DirectSuiteError:
    """The response, or the typed error that the answer is: returned, so that no traceback holds what was answered.

    skipped: told how many elements of lists were null, and passed over.
    """
    about = operation.about
    if answer.too_large:
        hint = f"read it with {operation.streaming_method}, or raise" if operation.streaming_method else "raise"
        text = f"the answer is larger than {limit} bytes: {hint} max_response_bytes"
        return ResponseDecodeError(text, body=answer.body[: outcome.KEPT], too_large=True, **about)
    if operation.response is not bytes or answer.status >= 300:
        document = _parsed(operation, answer, codec)
        refusal = outcome.judge(operation, answer.status, answer.headers, document, answer.body)
        if refusal is not None:
            return refusal
    else:
        document = None
    try:
        return _read(operation, answer, document, codec, skipped)
    except MismatchError as mismatch:
        expected, path = mismatch.expected, mismatch.path
    except RecursionError:  # a reader needs a few frames more than the parser, which had just enough
        expected, path = "nested less deeply", "$"
    got = _media_type(answer.headers.get("Content-Type", ""))
    text = f"the answer ({got}, {len(answer.body)} bytes) does not fit the operation: {path} should be {expected}"
    return ResponseDecodeError(text, path=path, body=answer.body[: outcome.KEPT], **about)


def _read(
    operation: Operation[R], answer: Answer, document: Any, codec: Codec, skipped: Callable[[int], None] | None
) -> R:
    if answer.status < 200:
        raise MismatchError("of a final status")
    if operation.response is bytes:
        if not answer.body:
            raise MismatchError("base64 text")
        return cast("R", base64.decode(answer.body))
    if document is None:
        raise MismatchError("JSON")
    if not operation.refusals.says_yes(document):
        raise MismatchError("true", f"$.{operation.refusals.flag}")
    model = cast("type[Model]", operation.response)
    response = codec.structure(model, document, skipped)
    for name in operation.essential:
        value = getattr(response, name)
        value = value.reveal() if isinstance(value, Secret) else value
        whole = not isinstance(value, str) or BROKEN not in value  # with another in its place it would name another
        if value is None or value == "" or not whole:
            value = None  # the frame may stand in a traceback
            raise MismatchError("present" if whole else "whole", f"$.{wire_name(model, name)}")
    odd = getattr(response, "extra", True) or any(type(member) is dict for member in document.values())
    if odd and (unread := unread_list(model, document)) is not None:
        raise MismatchError("present", f"$.{unread}")
    return cast("R", response)


def _media_type(header: str) -> str:
    """The bare media type for an error's text, which takes nothing that a log could stumble over."""
    bare = header.partition(";")[0].strip()
    return bare if _MEDIA_TYPE.fullmatch(bare) else "no media type"


def _parsed(operation: Operation[Any], answer: Answer, codec: Codec) -> Any:
    # In parts, what spoils the last one is found after the rest was believed: not where that decides what happened.
    try:
        if operation.response is not bytes and operation.may_repeat and answer.status < 300:
            return codec.parse_for(operation.response, answer.body)
        return parse(answer.body)
    except MismatchError:
        return None


def unreadable(operation: Operation[Any], mismatch: MismatchError) -> ResponseDecodeError:
    """The typed error for a part of an answer that is not what it should be."""
    text = f"the answer does not fit the operation: {mismatch}"
    return ResponseDecodeError(text, path=mismatch.path, operation=operation.name, service=operation.service)
