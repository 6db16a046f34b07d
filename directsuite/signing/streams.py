"""PDFs on their way in and out: what is no PDF is refused by its head, and a document is read while it comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import attrs

from directsuite.core.call import ExchangeInfo, Options
from directsuite.core.download import DocumentReader, compute_max_size
from directsuite.core.events import ProgressReporter
from directsuite.core.files import Piece
from directsuite.core.transport import Transport
from directsuite.core.upload import Content, Source, inspect_source
from directsuite.errors import InvalidArgumentError
from directsuite.signing import operations

_MAGIC = b"%PDF-"
_HEAD_BYTES = 1024  # the magic stands somewhere in the first KB (ISO 32000, implementation notes)

NOT_A_PDF = "this is not a PDF: no %PDF- in its first KB"


async def open_pdf(pdf: Source, size: int | None) -> Content:
    """The content to store. What is no PDF raises InvalidArgumentError here, or as a stream before anything is sent."""
    content, head = await inspect_source(pdf, head=_HEAD_BYTES, parameter="pdf", size=size)
    if not content.replayable:
        return _ValidatedPdf(content)
    _validate_pdf_head(head)
    return content


class _ValidatedPdf(Content):
    """A stream whose head is looked at in passing."""

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
                head = piece = b""  # the frame may stand in a traceback, and holds nothing of what was sent

    def head(self, count: int) -> bytes:
        return self._content.head(count)


def _validate_pdf_head(head: bytes) -> None:
    if _MAGIC not in head:
        raise InvalidArgumentError(NOT_A_PDF, parameter="pdf")


async def stream_pieces(
    transport: Transport, options: Options, identifier: str, max_bytes: int | None, meter: ProgressReporter
) -> AsyncGenerator[bytes]:
    """A stored document's bytes, each piece followed by a turn of the event loop."""

    observe = options.observe
    has_begun = False

    def handle_head(exchanged: ExchangeInfo) -> None:
        """Take the size, and call the facade's own observer.

        An error of the caller's `progress` would be taken for the network's here.
        """
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
            content = b""  # the frame may stand in a traceback, and holds nothing of what was answered
