"""PDFs and signatures to send, validated before anything is sent, and downloads as a stream of pieces."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from typing import Self

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
from directsuite.signing.models import DocumentInfo, Signature, Widget
from directsuite.wire.models import require_instance

_MAGIC = b"%PDF-"
_HEAD_BYTES = 1024  # the magic may be anywhere in them (ISO 32000, implementation notes)

NOT_A_PDF = "the content is not a PDF (no %PDF- in its first KB)"

_ENCODED_IMAGE = re.compile(rb"\s*(data:|iVBORw0KGgo|/9j/)")
"""Matches a data URL, and the base64 text of a PNG or JPEG file. No image file begins like that."""


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


def validate_signatures(signatures: list[Signature], document: object) -> None:
    """Raise InvalidArgumentError if there is no signature, or no service could accept one of them.

    The specification has no formats for time zones, offsets and images, so that services may accept any of them.
    """
    if not signatures:
        raise InvalidArgumentError("give at least one Signature", parameter="signatures")
    for signature in signatures:
        _validate_signature(signature, document)


def _validate_signature(signature: Signature, document: object) -> None:
    image, widget = signature.graphical_signature, signature.widget
    if image == b"":
        raise InvalidArgumentError(
            "it is empty: give the bytes of an image, or omit it", parameter="graphical_signature"
        )
    if image is not None and _ENCODED_IMAGE.match(image):
        image = b""  # tracebacks expose local variables
        raise InvalidArgumentError(
            "it is base64 text: give the bytes of the image file, which are encoded when they are sent",
            parameter="graphical_signature",
        )
    if widget is None:
        return
    require_instance(widget, Widget, "widget")
    if widget.page is not None and widget.page < 1:
        raise InvalidArgumentError("give 1 or more: the first page is 1", parameter="widget.page")
    if isinstance(document, DocumentInfo) and document.pages and (widget.page or 1) > len(document.pages):
        raise InvalidArgumentError(
            f"give a page of the document, from 1 to {len(document.pages)}", parameter="widget.page"
        )
    for name, length in (("width", widget.width), ("height", widget.height)):
        if length is not None and length < 0:
            raise InvalidArgumentError("give a number of points, 0 or more", parameter=f"widget.{name}")


def make_rejection_advice(signatures: list[Signature]) -> str:
    """Return what to check after the service has rejected these signatures, without their values."""
    names = [signature.name for signature in signatures if signature.name]
    widgets = [signature.widget for signature in signatures if signature.widget]
    checks = list[str]()
    if len(widgets) == 1:
        checks.append(f"page {widgets[0].page or 1} exists and contains the widget")
    elif widgets:
        checks.append("the pages exist and contain the widgets")
    if len(names) == 1:
        checks.append("the document has no signature of this name")
    elif names:
        checks.append("the names differ, and the document has no signatures of these names")
    if any(signature.graphical_signature for signature in signatures):
        checks.append("graphical_signature is a PNG or JPEG file")
    if any(signature.timezone for signature in signatures):
        checks.append("timezone is a known name such as Europe/Berlin")
    if any(signature.gmt_offset is not None for signature in signatures):
        checks.append("gmt_offset is a number of hours from -12 to 14")
    checks.append("the document exists, is not encrypted and allows signatures")
    return f"check that {'; that '.join(checks)}"


async def stream_pieces(
    transport: Transport,
    options: Options,
    identifier: str,
    max_bytes: int | None,
    meter: ProgressReporter,
    started: asyncio.Event,
) -> AsyncGenerator[bytes]:
    """Yield the bytes of a stored document. Raises ResponseDecodeError if it exceeds `max_bytes`.

    started: set when the first piece is received. If it was set before, an empty piece is yielded before the first one.
    """

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
                    if started.is_set():
                        yield b""
                    started.set()
                meter.advance(len(content))
                yield content
                await asyncio.sleep(0)
            meter.end()
        finally:
            content = b""  # tracebacks expose local variables


@scrub_class
class PieceStream(Listing[bytes]):
    """The pieces of a stored document. Entering `async with` sends the request and waits for the first piece."""

    def __init__(self, generator: AsyncGenerator[bytes], started: asyncio.Event) -> None:
        super().__init__(generator)
        self._started = started

    async def __aenter__(self) -> Self:
        if not self._started.is_set():
            self._started.set()
            with contextlib.suppress(StopAsyncIteration):  # the document is empty, or the stream is closed
                await anext(self)
        return self
