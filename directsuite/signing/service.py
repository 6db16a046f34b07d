"""The facade of the signing service (specification 4.A)."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, cast, overload

import attrs

from directsuite.core.call import SETTLE_TIMEOUT, Confirmation, Options, Receive
from directsuite.core.download import Destination, validate_max_bytes, validate_sha256
from directsuite.core.events import Progress, ProgressReporter, validate_progress
from directsuite.core.facade import Facade
from directsuite.core.iteration import Listing
from directsuite.core.operation import Operation
from directsuite.core.sinks import BinaryWriter, PartialWriteError, PieceWriter, make_sink
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
"""A document's identifier, or a response that contains it. With its digest, an unknown outcome can be resolved."""

PdfDestination = str | PathLike[str] | BinaryWriter | PieceWriter
"""The place to which a PDF is streamed.

- A path: the file appears only when it is complete, readable by its owner only (mode 0600). Returns the path.
- A file object opened for writing bytes. It is written from its current position, truncated after the document if it
can seek, and not closed. After a failure it retains the bytes written. Returns the file object.
- An async function, called with each piece. Returns the number of bytes.

A file that cannot seek, or a function, gets the PDF only once: a failure after the first byte is not retried. Writing a
piece may take at most `attempt_timeout` seconds. Files other than io.BytesIO are written in a thread, which may write
its last piece after the call was cancelled.
"""


class PullOptions(TypedDict, total=False):
    """The options of the methods that change a document and stream it to a destination."""

    max_bytes: int | None
    progress: Progress | None
    timeout: float | None


class DownloadOptions(PullOptions, total=False):
    """The options of `Signing.download`."""

    sha256: str | None


class Signing(Facade):
    """Store, read, flatten and sign PDFs with the keys of an HSM: `suite.signing`. Requires `signing_url` and a token.

    `directsuite guide methods` lists the operation of each method (specification 4.A). Every method raises
    TransportError if no usable response was received, and ServiceError if the service rejects the request. A change of
    a document is never sent twice. If its response is lost, GetDocInfo is polled for up to 30 seconds of the call's
    time to verify the change. That requires that

    - the newest response about the document is passed instead of its identifier: the DocumentUpdate of the previous
    change, the StoredDocument, or, after a pull, the DocumentInfo;
    - no other change of the document is in progress or has an unknown outcome;
    - all signatures have names.

    Otherwise, or if nothing proves the change, OutcomeUnknownError is raised. Changes of the same document by other
    programs cannot be distinguished from those of this suite.

    For changes that can be verified, 31 seconds of the call's time are reserved, but at most two thirds: of 60 seconds
    the request has 29, of 30 seconds it has 10. Increase `timeout` if the service signs more slowly.

    The only effect of flattening and clearing may be a new digest. They cannot be verified if this suite has seen that
    the digests of GetDocInfo differ from those of Save and the updates, unless a DocumentInfo is passed. A cancelled
    change has an unknown outcome, even if its request was not sent, and prevents the verification of later changes of
    the document.

    A pull to a destination must receive the start of its response within the call's time. After that, without
    `timeout`, it ends only if no data arrives for `attempt_timeout` seconds. Verifying the outcome may take as long as
    another call.
    """

    def __init__(self, transport: Transport, options: Options | None = None) -> None:
        super().__init__(transport, options)
        self._digest_history = DigestHistory()  # all views of the facade share it

    async def save(
        self, pdf: Source, *, size: int | None = None, progress: Progress | None = None, timeout: float | None = None
    ) -> StoredDocument:
        """Store a PDF. It is encoded while it is sent.

        The document is retained for 4 hours after its last use. Raises InvalidArgumentError if a file does not exist,
        or has no `%PDF-` in its first KB.

        pdf: bytes, a path, a file object, or an async iterable of bytes. A stream is sent only once, without retries.
        size: the number of bytes of a stream. If the stream has another number, TransportError is raised and nothing is
            stored.
        progress: see `Progress`. Bytes count as sent once they are in the buffers of the socket.
        timeout: seconds. None: the upload ends only if it makes no progress for `attempt_timeout` seconds, also while
            the server reads the buffered bytes.
        """
        meter = None if progress is None else ProgressReporter(progress)

        async def prepare() -> RequestBody:
            content = await open_pdf(pdf, size)
            if meter is None:
                return RequestBody.from_content(content)
            meter.total = content.size
            return attrs.evolve(RequestBody.from_content(content, meter.advance), on_begin=meter.begin)

        document = await self._call(operations.SAVE, prepare=prepare, timeout=timeout)
        self._digest_history.record_saved(document.identifier, document.document_digest)
        return document

    async def get_doc(self, identifier: Document, *, timeout: float | None = None) -> bytes:
        """Return the current PDF, in memory. Use `download` for large documents."""
        return await self._call(operations.GET_DOC, require_identifier(identifier), timeout=timeout)

    @overload
    async def download(
        self, identifier: Document, destination: str | PathLike[str], **options: Unpack[DownloadOptions]
    ) -> Path: ...
    @overload
    async def download(self, identifier: Document, destination: F, **options: Unpack[DownloadOptions]) -> F: ...
    @overload
    async def download(
        self, identifier: Document, destination: PieceWriter, **options: Unpack[DownloadOptions]
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
        """Stream the current PDF to a destination.

        Return the path or file object or, for a callable, the number of bytes. If the path is a symbolic link, its
        target is replaced. Pipes, devices and /dev/stdout are written directly.

        max_bytes: the maximum size of the PDF. None: no limit.
        sha256: the expected digest of the PDF, in hexadecimal.
        progress: see `Progress`. The total is up to 2 bytes too large until the last call.
        timeout: seconds. None: the download ends only if no data arrives for `attempt_timeout` seconds.

        Raises ResponseDecodeError, without a retry, if the PDF is larger than `max_bytes` or has another digest. No
        file is created or replaced then. A failure after bytes were passed to a callable, or written to a file that
        cannot seek, is not retried.
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
        """Iterate over the current PDF in pieces of at most 192 KB.

        Use it in `async with`, so that leaving the block early ends the request. A failure is retried before the first
        byte, and raised after it.

        max_bytes, progress, timeout: as for `download`.
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
        """Return the pages, form fields, signatures and metadata of a document."""
        name = require_identifier(identifier)
        with self._digest_history.track_info_request(name) as digests:
            info = await self._call(operations.GET_DOC_INFO, name, timeout=timeout)
            digests.append(info.document_digest)
        return fill_identifier(info, name)

    async def delete(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Delete the document. The `document_digest` of the response is empty."""
        name = require_identifier(identifier)
        update = await self._call(operations.DELETE, name, timeout=timeout)
        return fill_identifier(update, name)

    async def flatten(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Turn the fields of the document's form into page content."""
        return await self._update(operations.FLATTEN, identifier, FORM_REMOVED, timeout)

    @overload
    async def flatten_and_pull(
        self, identifier: Document, *, destination: None = None, timeout: float | None = None
    ) -> bytes: ...
    @overload
    async def flatten_and_pull(
        self, identifier: Document, *, destination: str | PathLike[str], **options: Unpack[PullOptions]
    ) -> Path: ...
    @overload
    async def flatten_and_pull(self, identifier: Document, *, destination: F, **options: Unpack[PullOptions]) -> F: ...
    @overload
    async def flatten_and_pull(
        self, identifier: Document, *, destination: PieceWriter, **options: Unpack[PullOptions]
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
        """Flatten the document with one request, and return the PDF or stream it to a destination.

        destination: as for `download`. None: return the bytes.
        max_bytes, progress: as for `download`. Raises InvalidArgumentError without a destination.
        timeout: as for `download`.
        """
        return await self._pull(
            operations.FLATTEN_AND_PULL, identifier, destination, FORM_REMOVED, timeout, max_bytes, progress
        )

    async def clear_unsigned_fields(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Remove the signature fields that are not signed."""
        return await self._update(operations.CLEAR_UNSIGNED_FIELDS, identifier, UNSIGNED_FIELDS_REMOVED, timeout)

    @overload
    async def clear_unsigned_fields_and_pull(
        self, identifier: Document, *, destination: None = None, timeout: float | None = None
    ) -> bytes: ...
    @overload
    async def clear_unsigned_fields_and_pull(
        self, identifier: Document, *, destination: str | PathLike[str], **options: Unpack[PullOptions]
    ) -> Path: ...
    @overload
    async def clear_unsigned_fields_and_pull(
        self, identifier: Document, *, destination: F, **options: Unpack[PullOptions]
    ) -> F: ...
    @overload
    async def clear_unsigned_fields_and_pull(
        self, identifier: Document, *, destination: PieceWriter, **options: Unpack[PullOptions]
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
        """Remove unsigned signature fields with one request, and return the PDF or stream it to a destination.

        Parameters as for `flatten_and_pull`.
        """
        effect = UNSIGNED_FIELDS_REMOVED
        return await self._pull(
            operations.CLEAR_UNSIGNED_FIELDS_AND_PULL, identifier, destination, effect, timeout, max_bytes, progress
        )

    async def sign(self, identifier: Document, signature: Signature, *, timeout: float | None = None) -> DocumentUpdate:
        """Sign the document. Raises InvalidArgumentError if the signature has an empty image."""
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
        **options: Unpack[PullOptions],
    ) -> Path: ...
    @overload
    async def sign_and_pull(
        self, identifier: Document, signature: Signature, *, destination: F, **options: Unpack[PullOptions]
    ) -> F: ...
    @overload
    async def sign_and_pull(
        self, identifier: Document, signature: Signature, *, destination: PieceWriter, **options: Unpack[PullOptions]
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
        """Sign the document with one request, and return the signed PDF or stream it to a destination.

        Parameters as for `flatten_and_pull`.
        """
        body, effect = self._make_signature_body(signature), make_signed_effect([signature], identifier)
        return await self._pull(
            operations.SIGN_AND_PULL, identifier, destination, effect, timeout, max_bytes, progress, body
        )

    async def multi_sign(
        self, identifier: Document, signatures: Iterable[Signature], *, timeout: float | None = None
    ) -> DocumentUpdate:
        """Sign the document several times with one request.

        Raises InvalidArgumentError if there is no signature, or an image is empty.
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
        **options: Unpack[PullOptions],
    ) -> Path: ...
    @overload
    async def multi_sign_and_pull(
        self, identifier: Document, signatures: Iterable[Signature], *, destination: F, **options: Unpack[PullOptions]
    ) -> F: ...
    @overload
    async def multi_sign_and_pull(
        self,
        identifier: Document,
        signatures: Iterable[Signature],
        *,
        destination: PieceWriter,
        **options: Unpack[PullOptions],
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
        """Sign the document several times with one request, and return the PDF or stream it to a destination.

        Parameters as for `flatten_and_pull`.
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
                raise InvalidArgumentError(
                    "it is only possible with a destination: give one, or omit it", parameter="max_bytes"
                )
            if progress is not None:
                raise InvalidArgumentError(
                    "it is only possible with a destination: give one, or omit it", parameter="progress"
                )

            async def fetch() -> bytes:
                return await within_call._call(operations.GET_DOC, name)

            return await self._change_and_pull(operation, document, effect, timeout, body, fetch=fetch)
        async with Destination[Any](make_sink(destination), max_bytes=max_bytes, progress=progress) as receiving:
            destination = None  # tracebacks expose local variables, such as a name
            sink = receiving.sink

            async def stream() -> Any:
                """Fetch the PDF after the response was lost, without publishing it."""
                if receiving.failure is not None:
                    raise receiving.failure
                if sink.exhausted:
                    raise PartialWriteError("The response broke off.")
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
        if effect is None or not change.is_traceable:
            return None

        def get_info() -> Awaitable[DocumentInfo]:
            return self._as_nested().with_strict_paths(STRICT_PATHS)._call(operations.GET_DOC_INFO, name)

        return OutcomeResolver(get_info, name, change, effect)

    def _make_signature_body(self, signature: Signature) -> RequestBody:
        _validate_image(require_instance(signature, Signature, "signature"))
        return self._encode_body(signature)


def fill_identifier(response: D, identifier: str) -> D:
    """Return the response, with the identifier of the call if it has none."""
    return response if response.identifier else attrs.evolve(response, identifier=identifier)


def require_identifier(document: object) -> str:
    """Return the identifier of a document. Raises InvalidArgumentError if it has none."""
    name = document.identifier if isinstance(document, StoredDocument | DocumentUpdate) else document
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(
            "give the identifier that save returned, or a response that contains it", parameter="identifier"
        )
    return name


def _cast_to_streamed(operation: Operation[bytes]) -> Operation[Any]:
    return cast("Operation[Any]", operation)


def _validate_signatures(signatures: Iterable[Signature]) -> list[Signature]:
    listed = require_instances(signatures, Signature, "signatures")
    if not listed:
        raise InvalidArgumentError("give at least one Signature", parameter="signatures")
    for signature in listed:
        _validate_image(signature)
    return listed


def _validate_image(signature: Signature) -> None:
    if signature.graphical_signature == b"":
        raise InvalidArgumentError(
            "it is empty: give the bytes of an image, or omit it", parameter="graphical_signature"
        )
