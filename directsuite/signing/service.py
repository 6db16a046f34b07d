"""The facade of the signing service: every operation of section 4.A, in its order."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, cast, overload

import attrs

from directsuite.core.call import SETTLE_TIMEOUT, Confirmation, Options, Receive
from directsuite.core.download import (
    BinaryWriter,
    Destination,
    PartialWriteError,
    PieceWriter,
    make_sink,
    validate_max_bytes,
    validate_sha256,
)
from directsuite.core.events import Progress, ProgressReporter, validate_progress
from directsuite.core.facade import Facade
from directsuite.core.iteration import Listing
from directsuite.core.operation import Operation
from directsuite.core.transport import Transport
from directsuite.core.upload import RequestBody, Source
from directsuite.errors import InvalidArgumentError, OutcomeUnknownError
from directsuite.signing import operations
from directsuite.signing.models import DocumentInfo, DocumentUpdate, MultiSignRequest, Signature, StoredDocument
from directsuite.signing.outcome_resolver import (
    FORM_REMOVED,
    STRICT_PATHS,
    UNSIGNED_FIELDS_REMOVED,
    DigestHistory,
    DocumentChange,
    Effect,
    OutcomeResolver,
    make_signed_effect,
    refine_error,
    unprovable,
)
from directsuite.signing.streams import open_pdf, stream_pieces
from directsuite.wire.models import require_instance, require_instances

R = TypeVar("R")
D = TypeVar("D", DocumentInfo, DocumentUpdate)
F = TypeVar("F", bound=BinaryWriter)

Document = str | StoredDocument | DocumentUpdate
"""A document's identifier, or an answer that carries it, whose digest lets an unknown outcome be settled."""

PdfDestination = str | PathLike[str] | BinaryWriter | PieceWriter
"""Where a PDF is streamed to.

A path gets a file that appears whole or not at all, for its owner's eyes only (mode 0600); the method returns the path.
A file object opened for writing bytes is returned; it is not closed, and keeps what came before a failure. One that can
seek is written from where it stands, and cut off behind the document. An async function is given each piece; the method
returns the number of bytes. What a file that can't seek or a function has got can't be taken back, and so is not asked
for a second time. Neither may take longer than `attempt_timeout` for one piece. Files, save an io.BytesIO, are written
in a thread, and may still get their last piece after the call was cancelled; a function gets none.
"""


class Signing(Facade):
    """PDFs stored, read, flattened and signed in an HSM. `suite.signing`; needs `signing_url` and a token.

    Every method raises TransportError where no usable answer came, ServiceError where the service said no. What changes
    a document is never sent a second time. Should its answer get lost, it is looked for with GetDocInfo for up to 30
    seconds of the call's time, if the newest answer about the document is passed in place of its bare identifier (the
    DocumentUpdate of the change before, or the StoredDocument; after a pull, the answer of `get_doc_info`), no other
    change of it is under way or was left unknown, and signatures have names. Without that, and where nothing shows that
    it happened, it raises OutcomeUnknownError. Several programs that change one document can't be told apart.

    Where a change could be looked for, its request has all but 31 seconds of the time that its call has left, and a
    third at least: 29 of 60 seconds, 10 of 30. A service that signs more slowly needs a longer `timeout`. With the bare
    identifier the request has all of the time.

    Flattening and clearing may leave no trace but a new digest. They are looked for in vain where GetDocInfo was seen,
    in this suite, to tell another digest than Save and the updates, unless the answer passed is one of `get_doc_info`.
    A change whose caller cancelled it counts as left unknown, even one that still waited for its turn: later ones of
    that document are not looked for.

    A pull to a file has no more time than its call until the answer begins; then, without `timeout`, only a pause of
    `attempt_timeout` seconds ends it, and finding out what became of it may take as long as another call.
    """

    def __init__(self, transport: Transport, options: Options | None = None) -> None:
        super().__init__(transport, options)
        self._digest_history = DigestHistory()  # all views of the facade share it

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
        meter = ProgressReporter(progress)

        async def prepare() -> RequestBody:
            """Open the source, and make the body."""
            content = await open_pdf(pdf, size)
            meter.total = content.size
            body = RequestBody.from_content(content, None if progress is None else meter.advance)
            return body if progress is None else attrs.evolve(body, on_begin=meter.begin)

        document = await self._call(operations.SAVE, prepare=prepare, timeout=timeout)
        self._digest_history.record_saved(document.identifier, document.document_digest)
        return document

    async def get_doc(self, identifier: Document, *, timeout: float | None = None) -> bytes:
        """The PDF as it stands now, in memory; `download` takes any size.

        Operation GetDoc (specification 4.A).
        """
        return await self._call(operations.GET_DOC, require_identifier(identifier), timeout=timeout)

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

        Operation GetDoc (specification 4.A). A path that is a link stays a link: the file that it leads to is replaced.
        A pipe, a device or /dev/stdout is not replaced but written to, like a file that can't seek.

        max_bytes: the most that the PDF may have; there is no limit without it. sha256: the digest that the PDF must
        have, in hexadecimal. Where either does not hold, it raises ResponseDecodeError, and no file takes the path's
        name; it is not asked for again. progress: see `Progress`; the total is up to 2 bytes too large until the last
        call. What a file that can't seek, or a callable, has got can't be taken back: a failure after that is not tried
        again. Without `timeout` only a pause of `attempt_timeout` seconds ends it.
        """
        name = require_identifier(identifier)
        operations.GET_DOC.validate_segments((name,))
        validate_max_bytes(max_bytes)
        validate_sha256(sha256)
        validate_progress(progress)
        receiving = Destination[Any](make_sink(destination), sha256=sha256, max_bytes=max_bytes, progress=progress)
        async with receiving:
            return await self._call(_cast_to_streamed(operations.GET_DOC), name, timeout=timeout, receive=receiving)

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
        name = require_identifier(identifier)
        operations.GET_DOC.validate_segments((name,))
        validate_max_bytes(max_bytes)
        return Listing(
            stream_pieces(
                self._transport, self._options_with_timeout(timeout), name, max_bytes, ProgressReporter(progress)
            )
        )

    async def get_doc_info(self, identifier: Document, *, timeout: float | None = None) -> DocumentInfo:
        """Pages, form fields, signatures and metadata.

        Operation GetDocInfo (specification 4.A).
        """
        name = require_identifier(identifier)
        with self._digest_history.track_info_request(name) as digests:
            info = await self._call(operations.GET_DOC_INFO, name, timeout=timeout)
            digests.append(info.document_digest)
        return fill_identifier(info, name)

    async def delete(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Delete the document; the answer's `document_digest` is empty.

        Operation Delete (specification 4.A).
        """
        name = require_identifier(identifier)
        update = await self._call(operations.DELETE, name, timeout=timeout)
        return fill_identifier(update, name)

    async def flatten(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Turn the form's fields into page content.

        Operation Flatten (specification 4.A).
        """
        return await self._update(operations.FLATTEN, identifier, FORM_REMOVED, timeout)

    @overload
    async def flatten_and_pull(
        self, identifier: Document, *, destination: None = None, timeout: float | None = None
    ) -> bytes: ...
    @overload
    async def flatten_and_pull(
        self,
        identifier: Document,
        *,
        destination: str | PathLike[str],
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Path: ...
    @overload
    async def flatten_and_pull(
        self,
        identifier: Document,
        *,
        destination: F,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> F: ...
    @overload
    async def flatten_and_pull(
        self,
        identifier: Document,
        *,
        destination: PieceWriter,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> int: ...
    async def flatten_and_pull(
        self,
        identifier: Document,
        *,
        destination: PdfDestination | None = None,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Any:
        """As `flatten`, and gives the PDF: its bytes, or what `download` gives for that destination.

        Operation "Flatten and pull" (specification 4.A).
        Without `timeout` an answer that is streamed is bounded by its pauses only. max_bytes, progress: as for
        `download`.
        """
        return await self._pull(
            operations.FLATTEN_AND_PULL, identifier, destination, FORM_REMOVED, timeout, max_bytes, progress
        )

    async def clear_unsigned_fields(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Remove signature fields that nobody has signed.

        Operation ClearUnsignedFields (specification 4.A).
        """
        return await self._update(operations.CLEAR_UNSIGNED_FIELDS, identifier, UNSIGNED_FIELDS_REMOVED, timeout)

    @overload
    async def clear_unsigned_fields_and_pull(
        self, identifier: Document, *, destination: None = None, timeout: float | None = None
    ) -> bytes: ...
    @overload
    async def clear_unsigned_fields_and_pull(
        self,
        identifier: Document,
        *,
        destination: str | PathLike[str],
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Path: ...
    @overload
    async def clear_unsigned_fields_and_pull(
        self,
        identifier: Document,
        *,
        destination: F,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> F: ...
    @overload
    async def clear_unsigned_fields_and_pull(
        self,
        identifier: Document,
        *,
        destination: PieceWriter,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> int: ...
    async def clear_unsigned_fields_and_pull(
        self,
        identifier: Document,
        *,
        destination: PdfDestination | None = None,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Any:
        """As `clear_unsigned_fields`, and gives the PDF: its bytes, or what `download` gives for that destination.

        Operation "ClearUnsignedFields and pull" (specification 4.A).
        Without `timeout` an answer that is streamed is bounded by its pauses only. max_bytes, progress: as for
        `download`.
        """
        effect = UNSIGNED_FIELDS_REMOVED
        return await self._pull(
            operations.CLEAR_UNSIGNED_FIELDS_AND_PULL, identifier, destination, effect, timeout, max_bytes, progress
        )

    async def sign(self, identifier: Document, signature: Signature, *, timeout: float | None = None) -> DocumentUpdate:
        """Sign the document.

        Operation Sign (specification 4.A).
        """
        body, effect = self._make_signature_body(signature), make_signed_effect([signature], identifier)
        return await self._update(operations.SIGN, identifier, effect, timeout, body)

    @overload
    async def sign_and_pull(
        self, identifier: Document, signature: Signature, *, destination: None = None, timeout: float | None = None
    ) -> bytes: ...
    @overload
    async def sign_and_pull(
        self,
        identifier: Document,
        signature: Signature,
        *,
        destination: str | PathLike[str],
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Path: ...
    @overload
    async def sign_and_pull(
        self,
        identifier: Document,
        signature: Signature,
        *,
        destination: F,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> F: ...
    @overload
    async def sign_and_pull(
        self,
        identifier: Document,
        signature: Signature,
        *,
        destination: PieceWriter,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> int: ...
    async def sign_and_pull(
        self,
        identifier: Document,
        signature: Signature,
        *,
        destination: PdfDestination | None = None,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Any:
        """As `sign`, and gives the signed PDF: its bytes, or what `download` gives for that destination.

        Operation "Sign and pull" (specification 4.A).
        Without `timeout` an answer that is streamed is bounded by its pauses only. max_bytes, progress: as for
        `download`.
        """
        body, effect = self._make_signature_body(signature), make_signed_effect([signature], identifier)
        return await self._pull(
            operations.SIGN_AND_PULL, identifier, destination, effect, timeout, max_bytes, progress, body
        )

    async def multi_sign(
        self, identifier: Document, signatures: Iterable[Signature], *, timeout: float | None = None
    ) -> DocumentUpdate:
        """Sign the document several times at once.

        Operation MultiSign (specification 4.A).
        """
        listed = _validate_signatures(signatures)
        body, effect = self._encode_body(MultiSignRequest(signatures=listed)), make_signed_effect(listed, identifier)
        return await self._update(operations.MULTI_SIGN, identifier, effect, timeout, body)

    @overload
    async def multi_sign_and_pull(
        self,
        identifier: Document,
        signatures: Iterable[Signature],
        *,
        destination: None = None,
        timeout: float | None = None,
    ) -> bytes: ...
    @overload
    async def multi_sign_and_pull(
        self,
        identifier: Document,
        signatures: Iterable[Signature],
        *,
        destination: str | PathLike[str],
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Path: ...
    @overload
    async def multi_sign_and_pull(
        self,
        identifier: Document,
        signatures: Iterable[Signature],
        *,
        destination: F,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> F: ...
    @overload
    async def multi_sign_and_pull(
        self,
        identifier: Document,
        signatures: Iterable[Signature],
        *,
        destination: PieceWriter,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> int: ...
    async def multi_sign_and_pull(
        self,
        identifier: Document,
        signatures: Iterable[Signature],
        *,
        destination: PdfDestination | None = None,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Any:
        """As `multi_sign`, and gives the signed PDF: its bytes, or what `download` gives for that destination.

        Operation "MultiSign and pull" (specification 4.A).
        Without `timeout` an answer that is streamed is bounded by its pauses only. max_bytes, progress: as for
        `download`.
        """
        listed = _validate_signatures(signatures)
        body, effect = self._encode_body(MultiSignRequest(signatures=listed)), make_signed_effect(listed, identifier)
        return await self._pull(
            operations.MULTI_SIGN_AND_PULL, identifier, destination, effect, timeout, max_bytes, progress, body
        )

    async def _update(
        self,
        operation: Operation[DocumentUpdate],
        document: Document,
        effect: Effect | None,
        timeout: float | None,
        body: RequestBody | None = None,
    ) -> DocumentUpdate:
        name = require_identifier(document)
        with self._track_change(document) as change:
            resolver = self._make_resolver(name, change, effect)
            confirm = None if resolver is None else Confirmation(verify=resolver.resolve_update, seconds=SETTLE_TIMEOUT)
            update = await self._call(operation, name, body=body, timeout=timeout, confirm=confirm)
            change.record_success(
                update.document_digest, from_info=resolver is not None and resolver.digest is not None
            )
        return fill_identifier(update, name)

    async def _pull(
        self,
        operation: Operation[bytes],
        document: Document,
        destination: PdfDestination | None,
        effect: Effect | None,
        timeout: float | None,
        max_bytes: int | None,
        progress: Progress | None,
        body: RequestBody | None = None,
    ) -> Any:
        name = require_identifier(document)
        operation.validate_segments((name,))
        validate_max_bytes(max_bytes)
        validate_progress(progress)
        within_call = self._as_nested()
        if destination is None:
            if max_bytes is not None:
                raise InvalidArgumentError("it bounds a stream: give a destination too", parameter="max_bytes")
            if progress is not None:
                raise InvalidArgumentError("it is told of a stream: give a destination too", parameter="progress")

            async def fetch() -> bytes:
                """The PDF, after its answer got lost."""
                return await within_call._call(operations.GET_DOC, name)

            return await self._change_and_pull(operation, document, effect, timeout, body, fetch=fetch)
        async with Destination[Any](make_sink(destination), max_bytes=max_bytes, progress=progress) as receiving:
            destination = None  # the frame may stand in a traceback, and a file's name may be a patient's
            sink = receiving.sink

            async def stream() -> Any:
                """What the caller gets, after the answer got lost: the sink has the PDF, which isn't kept yet."""
                if receiving.failure is not None:
                    raise receiving.failure
                if sink.exhausted:
                    raise PartialWriteError("the answer broke off")
                return await within_call._call(
                    _cast_to_streamed(operations.GET_DOC), name, receive=receiving.detached()
                )

            return await self._change_and_pull(
                _cast_to_streamed(operation),
                document,
                effect,
                timeout,
                body,
                fetch=stream,
                publish=sink.publish,
                receive=receiving,
            )

    async def _change_and_pull(
        self,
        operation: Operation[R],
        document: Document,
        effect: Effect | None,
        timeout: float | None,
        body: RequestBody | None,
        *,
        fetch: Callable[[], Awaitable[R]],
        publish: Callable[[], Awaitable[None]] | None = None,
        receive: Receive[R] | None = None,
    ) -> R:
        """What a change answers with, or what `fetch` gives and `keep` stores, once it is proven without an answer."""
        name = require_identifier(document)
        with self._track_change(document) as change:
            resolver = self._make_resolver(name, change, effect)
            confirm: Confirmation[R] = Confirmation(verify=unprovable, reserve=0.0, refine_error=refine_error)
            if resolver is not None:
                verify = functools.partial(resolver.resolve_pdf, fetch, publish)
                confirm = Confirmation(verify=verify, seconds=SETTLE_TIMEOUT, refine_error=resolver.refine_error)
            try:
                pdf = await self._call(operation, name, body=body, timeout=timeout, receive=receive, confirm=confirm)
            except OutcomeUnknownError as error:
                if error.happened:
                    change.record_success(None)
                raise
            change.record_success(None if resolver is None else resolver.digest, from_info=True)
        return pdf

    def _track_change(self, document: Document) -> AbstractContextManager[DocumentChange]:
        digest = None if isinstance(document, str) else document.document_digest
        return self._digest_history.track_change(
            require_identifier(document), digest, from_info=isinstance(document, DocumentInfo)
        )

    def _make_resolver(self, name: str, change: DocumentChange, effect: Effect | None) -> OutcomeResolver | None:
        """How to settle the change; None if nothing could prove it, so that the call keeps its time for the answer."""
        if effect is None or not change.is_traceable:
            return None
        view = self._as_nested().with_strict_paths(STRICT_PATHS)
        get_info = functools.partial(view._call, operations.GET_DOC_INFO, name)
        return OutcomeResolver(get_info, name, change, effect)

    def _make_signature_body(self, signature: Signature) -> RequestBody:
        _validate_image(require_instance(signature, Signature, "signature"))
        return self._encode_body(signature)


def fill_identifier(response: D, identifier: str) -> D:
    """The answer, with the identifier of the call if it has none of its own."""
    return response if response.identifier else attrs.evolve(response, identifier=identifier)


def require_identifier(document: object) -> str:
    """The identifier of a document that a caller named; InvalidArgumentError if there is none."""
    name = document.identifier if isinstance(document, StoredDocument | DocumentUpdate) else document
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError("give the identifier that save returned", parameter="identifier")
    return name


def _cast_to_streamed(operation: Operation[bytes]) -> Operation[Any]:
    """The operation with an answer that a Destination receives in place of the bytes, and gives a type of its own."""
    return cast("Operation[Any]", operation)


def _validate_signatures(signatures: Iterable[Signature]) -> list[Signature]:
    listed = require_instances(signatures, Signature, "signatures")
    if not listed:
        raise InvalidArgumentError("list at least one Signature", parameter="signatures")
    for signature in listed:
        _validate_image(signature)
    return listed


def _validate_image(signature: Signature) -> None:
    """Raise InvalidArgumentError for an image without a byte: the service would sign without one."""
    if signature.graphical_signature == b"":
        raise InvalidArgumentError(
            "it is empty: give the bytes of an image, or leave it out", parameter="graphical_signature"
        )
