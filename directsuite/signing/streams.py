"""PDFs on their way in and out: what is no PDF is refused by its head, and a document is read while it comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import attrs

from directsuite.core.call import Exchanged, Options
from directsuite.core.download import DocumentReader, size_told
from directsuite.core.events import Meter
from directsuite.core.files import Piece
from directsuite.core.transport import Transport
from directsuite.core.upload import Content, Source, examine
from directsuite.errors import InvalidArgumentError
from directsuite.signing import operations

_MAGIC = b"%PDF-"
_HEAD = 1024  # the magic stands somewhere in the first KB (ISO 32000, implementation notes)

NOT_A_PDF = "this is not a PDF: no %PDF- in its first KB"


async def pdf_of(pdf: Source, size: int | None) -> Content:
    """The content to store. What is no PDF raises InvalidArgumentError here, or as a stream before anything is sent."""
    content, head = await examine(pdf, head=_HEAD, parameter="pdf", size=size)
    if not content.replayable:
        return _Checked(content)
    _refuse_other_than_pdf(head)
    return content


class _Checked(Content):
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
                    if _MAGIC in head[:_HEAD] or len(head) >= _HEAD:
                        _refuse_other_than_pdf(head[:_HEAD])
                        checked = True
                        yield head
                if not checked:
                    _refuse_other_than_pdf(head)
                    yield head
            finally:
                head = piece = b""  # the frame may stand in a traceback, and holds nothing of what was sent

    def head(self, count: int) -> bytes:
        return self._content.head(count)


def _refuse_other_than_pdf(head: bytes) -> None:
    if _MAGIC not in head:
        raise InvalidArgumentError(NOT_A_PDF, parameter="pdf")


async def pieces(
    transport: Transport, options: Options, identifier: str, max_bytes: int | None, meter: Meter
) -> AsyncGenerator[bytes]:
    """A stored document's bytes, each piece followed by a turn of the event loop."""

    observe = options.observe
    begun = False

    def head_came(exchanged: Exchanged) -> None:
        """Take the size, and call the facade's own observer.

        An error of the caller's `progress` would be taken for the network's here.
        """
        meter.total = size_told(exchanged.answer.headers)
        if observe is not None:
            observe(exchanged)

    options = attrs.evolve(options, observe=head_came)
    stream = transport.stream(operations.GET_DOC, identifier, options=options, reader=DocumentReader(max_bytes))
    async with contextlib.aclosing(stream) as contents:
        try:
            async for content in contents:
                if not begun:
                    begun = True
                    meter.begin()
                meter.advance(len(content))
                yield content
                await asyncio.sleep(0)
            meter.end()
        finally:
            content = b""  # the frame may stand in a traceback, and holds nothing of what was answered
