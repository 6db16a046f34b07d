"""PDFs on their way in and out: what is no PDF is refused by its head, and a document is read while it comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator

import attrs

from directsuite.core.call import Exchanged, Options
from directsuite.core.download import in_turns, refuse_larger, size_told
from directsuite.core.events import Meter
from directsuite.core.files import Piece
from directsuite.core.transport import Transport
from directsuite.core.upload import Content, Source, examine
from directsuite.errors import InvalidArgumentError
from directsuite.signing import operations
from directsuite.wire import base64
from directsuite.wire.parsing import MismatchError

_MAGIC = b"%PDF-"
_HEAD = 1024  # the magic stands somewhere in the first KB (ISO 32000, implementation notes)


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
        raise InvalidArgumentError("this is not a PDF: no %PDF- in its first KB", parameter="pdf")


class _DocumentReader:
    """Decodes a document's answer while it comes."""

    def __init__(self, max_bytes: int | None) -> None:
        self._decoder = base64.Decoder()
        self._max_bytes = max_bytes
        self._size = 0

    @property
    def pending(self) -> int:
        """0: never more than three characters are kept."""
        return 0

    @property
    def skipped(self) -> int:
        """0: the answer has no lists."""
        return 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The bytes that are settled by now."""
        for text in in_turns(piece):
            if content := self._decoder.feed(text):
                self._size += len(content)
                refuse_larger(self._size, self._max_bytes)
                yield content

    def finish(self) -> None:
        """Raise MismatchError where the text is not whole, or there was none."""
        self._decoder.finish()
        if not self._size:
            raise MismatchError("base64 text")


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
    stream = transport.stream(operations.GET_DOC, identifier, options=options, reader=_DocumentReader(max_bytes))
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
