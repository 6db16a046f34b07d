"""An answer: while it is coming, and read.

Objects here show nothing of what they hold, so that no frame's locals do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import attrs

from directsuite.errors import ResponseDecodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from directsuite.core.limits import Limits

KEPT = 64 * 1024
"""Bytes of an answer that hang on its error."""
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
        return self._started.headers

    @property
    def _started(self) -> aiohttp.ClientResponse:
        if self._response is None:
            raise RuntimeError("no answer has begun")
        return self._response

    async def read(self, limit: int) -> Answer:
        """The whole answer; the beginning of one that has more than `limit` bytes."""
        content = self._started.content
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
            while size > limit and kept - len(pieces[-1]) >= KEPT:
                kept -= len(pieces.pop())
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            return Answer(self.status, self.headers, body, too_large=size > limit, size=size)
        finally:
            pieces.clear()  # the frame may stand in a traceback, and holds nothing of what was answered
            piece = body = b""

    async def chunk(self) -> bytes:
        """The next piece of the body, empty at its end. Raises ResponseDecodeError for a compression bomb."""
        content = self._started.content
        size = content.total_bytes if self._is_base64 else 0
        if size > _SMALL and size > _MOST_EXPANDED * content.total_raw_bytes:
            text = (
                f"the compressed answer expands to more than {_MOST_EXPANDED} times its size, as no document should: "
                "have the service, or the proxy before it, send documents uncompressed"
            )
            raise ResponseDecodeError(text, too_large=True)
        return await content.readany()

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
    """An answer that was read."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    too_large: bool = False
    """It went past the limit, and was broken off."""
    size: int = attrs.field(default=attrs.Factory(lambda answer: len(answer.body), takes_self=True))
    """Bytes that came; `body` has fewer of an answer that is too large."""

    def __repr__(self) -> str:
        return f"Answer(status={self.status}, bytes={self.size})"
