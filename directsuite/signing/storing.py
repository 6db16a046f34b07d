"""The part of the signing facade that stores documents, gives them back, and removes them."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, overload

import attrs

from directsuite.core.body import RequestBody
from directsuite.core.destination import Destination, refuse_max_bytes, refuse_sha256
from directsuite.core.listing import Listing
from directsuite.core.progress import Meter, Progress, refuse_progress
from directsuite.core.sinks import BinaryWriter, PieceWriter, sink_of
from directsuite.core.source import Source
from directsuite.signing import operations
from directsuite.signing.changing import Changing, Document, PdfDestination, identified, identifier_of, streaming
from directsuite.signing.models import DocumentInfo, DocumentUpdate, StoredDocument
from directsuite.signing.passing import pdf_of, pieces

F = TypeVar("F", bound=BinaryWriter)


class Storing(Changing):
    """Documents that come and go as they are."""

    async def save(
        self, pdf: Source, *, size: int | None = None, progress: Progress | None = None, timeout: float | None = None
    ) -> StoredDocument:
        """Store a PDF: bytes, a path, a file object, or an async iterable of bytes; coded on the way, never whole.

        Operation Save (specification 4.A). The document is kept for 4 hours after its last use. Raises
        InvalidArgumentError for a file that is missing, and for what has no `%PDF-` in the first KB.

        size: the bytes of a stream, so that the service is told how many come; one that gives another number raises
        TransportError, and is not stored. A stream passes once, and so is not sent a second time. progress: see
        `Progress`. Without `timeout` an upload that flows takes as long as it takes: a pause of `attempt_timeout`
        seconds ends it. What the sockets' buffers took counts as sent, in `progress` too: a server that reads those for
        longer than `attempt_timeout` is not waited for.
        """
        content = await pdf_of(pdf, size)
        meter = Meter(progress, content.size)
        body = RequestBody.base64(content, None if progress is None else meter.advance)
        body = body if progress is None else attrs.evolve(body, begin=meter.begin)
        document = await self._call(operations.SAVE, body=body, timeout=timeout)
        self._versions.saved(document.identifier, document.document_digest)
        return document

    async def get_doc(self, identifier: Document, *, timeout: float | None = None) -> bytes:
        """The PDF as it stands now, in memory; `download` takes any size.

        Operation GetDoc (specification 4.A).
        """
        return await self._call(operations.GET_DOC, identifier_of(identifier), timeout=timeout)

    @overload
    async def download(
        self,
        identifier: Document,
        destination: str | PathLike[str],
        *,
        max_bytes: int | None = None,
        sha256: str | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Path: ...
    @overload
    async def download(
        self,
        identifier: Document,
        destination: F,
        *,
        max_bytes: int | None = None,
        sha256: str | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> F: ...
    @overload
    async def download(
        self,
        identifier: Document,
        destination: PieceWriter,
        *,
        max_bytes: int | None = None,
        sha256: str | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> int: ...
    async def download(
        self,
        identifier: Document,
        destination: PdfDestination,
        *,
        max_bytes: int | None = None,
        sha256: str | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Any:
        """The PDF as it stands now, streamed: to a path, which is returned and has a whole file or none, to a file
        object, which is returned, or to an async callable that takes each piece, for which it returns their size.

        Operation GetDoc (specification 4.A). max_bytes: the most that the PDF may have; there is no limit without it.
        sha256: the digest that the PDF must have, in hexadecimal. Where either does not hold, it raises
        ResponseDecodeError, and no file takes the path's name; it is not asked for again. progress: see `Progress`; the
        total is up to 2 bytes too large until the last call. What a file that can't seek, or a callable, has got can't
        be taken back: a failure after that is not tried again. Without `timeout` only a pause of `attempt_timeout`
        seconds ends it.
        """
        name = identifier_of(identifier)
        operations.GET_DOC.check((name,))
        refuse_max_bytes(max_bytes)
        refuse_sha256(sha256)
        refuse_progress(progress)
        receiving = Destination[Any](sink_of(destination), sha256=sha256, max_bytes=max_bytes, progress=progress)
        async with receiving:
            return await self._call(streaming(operations.GET_DOC), name, timeout=timeout, receive=receiving)

    def stream_doc(
        self,
        identifier: Document,
        *,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Listing[bytes]:
        """The PDF as it stands now, piece by piece, each 192 KB at most.

        Operation GetDoc (specification 4.A). Use it in `async with`, so that leaving early ends it at once. A failure
        before its first byte is tried again, one after that raises where the document breaks off. Without `timeout`
        only a pause of `attempt_timeout` seconds ends it. max_bytes, progress: as for `download`.
        """
        name = identifier_of(identifier)
        operations.GET_DOC.check((name,))
        refuse_max_bytes(max_bytes)
        return Listing(pieces(self._transport, self._timed(timeout), name, max_bytes, Meter(progress)))

    async def get_doc_info(self, identifier: Document, *, timeout: float | None = None) -> DocumentInfo:
        """Pages, form fields, signatures and metadata.

        Operation GetDocInfo (specification 4.A).
        """
        name = identifier_of(identifier)
        with self._versions.reading(name) as told:
            info = await self._call(operations.GET_DOC_INFO, name, timeout=timeout)
            told.append(info.document_digest)
        return identified(info, name)

    async def delete(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Delete the document; the answer's `document_digest` is empty.

        Operation Delete (specification 4.A).
        """
        name = identifier_of(identifier)
        update = await self._call(operations.DELETE, name, timeout=timeout)
        return identified(update, name)
