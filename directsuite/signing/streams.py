"""PDFs to upload, verified by their first KB, and downloads as a stream of pieces."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Self

import attrs

from directsuite.core.call import ExchangeInfo, Options
from directsuite.core.content import Content, Source, inspect_source
from directsuite.core.download import DocumentReader, compute_max_size
from directsuite.core.events import ProgressReporter
from directsuite.core.files import Piece
from directsuite.core.iteration import Listing
from directsuite.core.privacy import scrub_class
from directsuite.core.transport import Transport
from directsuite.errors import InvalidArgumentError
from directsuite.signing import operations

_MAGIC = b"%PDF-"
_HEAD_BYTES = 1024  # the magic may be anywhere in them (ISO 32000, implementation notes)

NOT_A_PDF = "the content is not a PDF (no %PDF- in its first KB)"


async def open_pdf(pdf: Source, size: int | None) -> Content:
    """Return the content to store. Raises InvalidArgumentError if it is not a PDF.

    A stream that can be read only once is checked while it is sent, before its first byte.
    """
    if isinstance(pdf, str) and pdf.startswith("%PDF-"):
        pdf = b""  # tracebacks expose local variables
        raise InvalidArgumentError("a str is the path of a file: give the content as bytes", parameter="pdf")
    content, head = await inspect_source(pdf, head=_HEAD_BYTES, parameter="pdf", size=size)
    if not content.replayable:
        return _ValidatedPdf(content)
    _validate_pdf_head(head)
    return content


class _ValidatedPdf(Content):
    def __init__(self, content: Content) -> None:
        super().__init__(content.size, replayable=content.replayable)
        self._content = content

    async def pieces(self) -> AsyncGenerator[Piece]:
        head = b""
        checked = False
        async with contextlib.aclosing(self._content.pieces()) as stream:
            try:
                async for piece in stream:
                    if checked:
                        yield piece
                        continue
                    head += piece
                    if _MAGIC in head[:_HEAD_BYTES] or len(head) >= _HEAD_BYTES:
                        _validate_pdf_head(head[:_HEAD_BYTES])
                        checked = True
                        yield head
                if not checked:
                    _validate_pdf_head(head)
                    yield head
            finally:
                head = piece = b""  # tracebacks expose local variables

    def head(self, count: int) -> bytes:
        return self._content.head(count)


def _validate_pdf_head(head: bytes) -> None:
    if _MAGIC not in head:
        raise InvalidArgumentError(NOT_A_PDF, parameter="pdf")


async def stream_pieces(
    transport: Transport, options: Options, identifier: str, max_bytes: int | None, meter: ProgressReporter
) -> AsyncGenerator[bytes]:
    """Yield the bytes of a stored document. Raises ResponseDecodeError if it exceeds `max_bytes`."""

    observe = options.observe
    has_begun = False

    def handle_head(exchanged: ExchangeInfo) -> None:
        # Do not call `progress` here: its error would be reported as one of the network.
        meter.total = compute_max_size(exchanged.response.headers)
        if observe is not None:
            observe(exchanged)

    options = attrs.evolve(options, observe=handle_head)
    stream = transport.stream(operations.GET_DOC, identifier, options=options, reader=DocumentReader(max_bytes))
    async with contextlib.aclosing(stream) as contents:
        try:
            async for content in contents:
                if not has_begun:
                    has_begun = True
                    meter.begin()
                meter.advance(len(content))
                yield content
                await asyncio.sleep(0)
            meter.end()
        finally:
            content = b""  # tracebacks expose local variables


@scrub_class
class PieceStream(Listing[bytes]):
    """The pieces of a stored document. Entering `async with` sends the request and waits for the first piece."""

    def __init__(self, generator: AsyncGenerator[bytes]) -> None:
        super().__init__(generator)
        self._first_piece: bytes | None = None

    async def __aenter__(self) -> Self:
        if self._first_piece is None:  # otherwise it was already entered
            with contextlib.suppress(StopAsyncIteration):  # it was read before
                self._first_piece = await super().__anext__()
        return self

    async def __anext__(self) -> bytes:
        return self._take_first_piece() or await super().__anext__()

    async def asend(self, value: None) -> bytes:
        """Return the next piece. Raises TransportError if an earlier step failed or was cancelled."""
        return self._take_first_piece() or await super().asend(value)

    async def athrow(self, *args: Any) -> bytes:
        """Throw an exception into the generator. Raises TransportError if an earlier step failed or was cancelled."""
        self._first_piece = None
        return await super().athrow(*args)

    async def aclose(self) -> None:
        """End the request."""
        self._first_piece = None
        await super().aclose()

    def _take_first_piece(self) -> bytes | None:
        piece, self._first_piece = self._first_piece, None
        return piece
