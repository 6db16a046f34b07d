"""The facade of the signing service (specification 4.A)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Iterable
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, overload

import attrs

from directsuite.core.content import Source
from directsuite.core.download import Destination, validate_max_bytes, validate_sha256
from directsuite.core.events import FIELDS, Progress, ProgressReporter, group_calls, validate_progress
from directsuite.core.iteration import Listing
from directsuite.core.operation import Operation
from directsuite.core.sinks import BinaryWriter, PieceWriter, make_sink
from directsuite.core.upload import RequestBody
from directsuite.errors import DirectSuiteError, DocumentNotFoundError
from directsuite.signing import operations
from directsuite.signing.arguments import PieceStream, open_pdf, stream_pieces, validate_signatures
from directsuite.signing.changes import (
    FORM_REMOVED,
    HINT_SIGN_AGAIN,
    UNSIGNED_FIELDS_REMOVED,
    ChangeRequest,
    ChangingFacade,
    Document,
    PdfDestination,
    fill_identifier,
    make_signed_effect,
    open_destination,
    require_identifier,
)
from directsuite.signing.models import DocumentInfo, DocumentUpdate, MultiSignRequest, Signature, StoredDocument
from directsuite.wire.models import require_instance, require_instances

F = TypeVar("F", bound=BinaryWriter)

_DELETE_TIMEOUT = 10.0  # for the document of `sign_pdf` or `stored`, in addition to the timeout of the call
_NOT_DELETED_TEXT = (
    "a document of sign_pdf or stored could not be deleted from the service (%s). It expires 4 hours after its last use"
)


class ChangeOptions(TypedDict, total=False):
    """The options of the methods that change a document."""

    timeout: float | None
    settle: float | None


class SignPdfOptions(ChangeOptions, total=False):
    """The options of `Signing.sign_pdf`."""

    size: int | None


class PullOptions(ChangeOptions, total=False):
    """The options of the methods that change a document and stream it to a destination."""

    max_bytes: int | None
    progress: Progress | None


class DownloadOptions(TypedDict, total=False):
    """The options of `Signing.download`."""

    max_bytes: int | None
    progress: Progress | None
    timeout: float | None
    sha256: str | None


class Signing(ChangingFacade):
    """Store, read, flatten and sign PDFs with the keys of an HSM: `suite.signing`. Requires `signing_url` and a token.

    `directsuite guide methods` lists the operation of each method (specification 4.A). Every method raises
    TransportError if no usable response was received, and ServiceError if the service rejects the request. A change of
    a document is never sent twice. If its response is lost, GetDocInfo is polled for up to `settle` seconds
    (default 30) of the call's time to verify the change. That requires that

    - the newest response about the document is passed instead of its identifier: the DocumentUpdate of the previous
    change, the StoredDocument, or, after a pull, the DocumentInfo;
    - no other change of the document is in progress or has an unknown outcome;
    - all signatures have names.

    Otherwise, or if nothing proves the change, OutcomeUnknownError is raised. Changes of the same document by other
    programs cannot be distinguished from those of this suite.

    For changes that can be verified, `settle` + 1 seconds of the call's time are reserved, but at most two thirds: of
    60 seconds the request has 29, of 30 seconds it has 10. If the service signs more slowly, increase `timeout`. If it
    certainly processes no request later than a few seconds after it was sent, decrease `settle`.

    The only effect of flattening and clearing may be a new digest. They cannot be verified if this suite has seen that
    the digests of GetDocInfo differ from those of Save and the updates, unless a DocumentInfo is passed. A cancelled
    change has an unknown outcome, even if its request was not sent, and prevents the verification of later changes of
    the document.

    A pull to a destination must receive the start of its response within the call's time. After that, without
    `timeout`, it ends only if no data arrives for `attempt_timeout` seconds. Verifying the outcome may take as long as
    another call.
    """

    @overload
    async def sign_pdf(
        self,
        pdf: Source,
        signatures: Signature | Iterable[Signature],
        destination: None = None,
        **options: Unpack[SignPdfOptions],
    ) -> bytes: ...
    @overload
    async def sign_pdf(
        self,
        pdf: Source,
        signatures: Signature | Iterable[Signature],
        destination: str | PathLike[str],
        **options: Unpack[SignPdfOptions],
    ) -> Path: ...
    @overload
    async def sign_pdf(
        self,
        pdf: Source,
        signatures: Signature | Iterable[Signature],
        destination: F,
        **options: Unpack[SignPdfOptions],
    ) -> F: ...
    @overload
    async def sign_pdf(
        self,
        pdf: Source,
        signatures: Signature | Iterable[Signature],
        destination: PieceWriter,
        **options: Unpack[SignPdfOptions],
    ) -> int: ...
    async def sign_pdf(
        self,
        pdf: Source,
        signatures: Signature | Iterable[Signature],
        destination: PdfDestination | None = None,
        *,
        size: int | None = None,
        timeout: float | None = None,
        settle: float | None = None,
    ) -> Any:
        """Sign a PDF: store it, sign it, receive the signed PDF, and delete it from the service.

        Return the signed PDF, or the result of the destination. The stored document is also deleted after an error or
        a cancellation, which can take 10 more seconds, and if the suite is closed, which can take 5. If the service
        asks for a longer pause, it is deleted after the pause, in the background. If it cannot be deleted before the
        suite is closed, only a warning in the log reports this, and the document expires after 4 hours. If Save is
        cancelled, or gets no response, its document expires without a warning.

        pdf: as for `save`.
        signatures: one signature or several.
        destination: as for `download`. None: return the bytes.
        size: as for `save`.
        timeout: seconds for the complete call, without the deletion. None: each step has the timeout of its method.
        settle: as for `sign`.

        Raises InvalidArgumentError, before anything is sent, if the PDF, a signature or the destination is not valid.
        After OutcomeUnknownError, call `sign_pdf` again: the PDF that you passed is unchanged.
        """
        pull = operations.SIGN_AND_PULL if isinstance(signatures, Signature) else operations.MULTI_SIGN_AND_PULL
        request = self._request_signing(pull, "", signatures, None, settle)
        operation = attrs.evolve(request.operation, how_to_find_out=HINT_SIGN_AGAIN)
        compute_time_left = self.start_timeout(timeout)
        self.resolve_settle(settle)
        steps = self._as_nested()
        with self.environment.session.track_call(nested=self._options.nested):
            async with (
                open_destination(operation, destination, self.resolve_timeout(timeout)) as receiving,
                steps.stored(pdf, size=size, timeout=compute_time_left()) as document,
            ):
                pdf, destination = b"", None  # tracebacks expose local variables
                request = attrs.evolve(request, operation=operation, timeout=compute_time_left(), is_temporary=True)
                return await steps._pull_into(receiving, document, request)

    @contextlib.asynccontextmanager
    async def stored(
        self, pdf: Source, *, size: int | None = None, timeout: float | None = None
    ) -> AsyncGenerator[StoredDocument]:
        """Store a PDF, and delete it when the `async with` block ends, even by an error, or when the suite is closed.

        async with suite.signing.stored(pdf) as document:
            update = await suite.signing.flatten(document)
            signed = await suite.signing.sign_and_pull(update, signature)

        The deletion can take 10 seconds. If it must wait longer or fails, the same applies as for `sign_pdf`. After
        OutcomeUnknownError, start again with the PDF that you passed, which is unchanged. All calls in the block, also
        those of tasks that it creates, have the same `group` in logs and events.

        pdf, size: as for `save`.
        timeout: seconds for storing the PDF, as for `save`.
        """
        with group_calls() as group:
            document = await self.save(pdf, size=size, timeout=timeout)
            pdf = b""  # tracebacks expose local variables
            session = self.environment.session
            deletion = session.add_cleanup(functools.partial(self._try_delete, document, group.number))
            try:
                yield document
            finally:
                # A second cancellation, or that of a scope of anyio, ends only the waiting.
                await asyncio.shield(deletion.start())

    async def _try_delete(self, document: StoredDocument, group: int | None) -> None:
        # An observer would take the response for that of the method.
        service = self._evolve(timeout=_DELETE_TIMEOUT, essential=True, observe=None)
        try:
            await service.delete(document)
        except DocumentNotFoundError:
            pass  # the block itself deleted it
        except BaseException as error:
            pause = error.retry_after if isinstance(error, DirectSuiteError) else None
            environment = self.environment
            if pause is not None and not environment.session.closed:
                session = environment.session
                again = session.add_cleanup(functools.partial(self._try_delete, document, group))
                again.start_after(session.sleep(max(pause, _DELETE_TIMEOUT)))
                return
            fields: dict[str, str | int | None] = {"event": "DocumentNotDeleted", "operation": "Delete"}
            fields |= {"service": "signing", "group": group, "error": type(error).__name__}
            if isinstance(error, DirectSuiteError) and error.call is not None:
                fields["call"] = error.call
            details = ", ".join(
                FIELDS[name].format(fields[name]) for name in ("error", "call", "group") if name in fields
            )
            environment.events.logger.warning(_NOT_DELETED_TEXT, details, extra={"directsuite": fields})
            if not isinstance(error, Exception):
                raise

    async def save(
        self, pdf: Source, *, size: int | None = None, progress: Progress | None = None, timeout: float | None = None
    ) -> StoredDocument:
        """Store a PDF. It is encoded while it is sent.

        The document is retained for 4 hours after its last use. Raises MissingFileError if a file does not exist,
        InvalidArgumentError if it has no `%PDF-` in its first KB.

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
            return RequestBody.from_content(content, meter.advance, meter.begin)

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
        seconds, compute_time_left = self.resolve_timeout(timeout), self.start_timeout(timeout)
        async with Destination[Any](
            make_sink(destination),
            sha256=sha256,
            max_bytes=max_bytes,
            progress=progress,
            open_timeout=seconds,
            operation=operations.GET_DOC,
        ) as receiving:
            return await self._call(operations.GET_DOC, name, timeout=compute_time_left(), receive=receiving)

    def stream_doc(
        self,
        identifier: Document,
        *,
        max_bytes: int | None = None,
        progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Listing[bytes]:
        """Iterate over the current PDF in pieces of at most 192 KB.

        async with suite.signing.stream_doc(document) as pieces:
            async for piece in pieces: ...

        Entering the block sends the request and waits for the first piece, so that errors are raised there. Leaving it
        early ends the request. Without `async with`, the first step of the iteration sends the request. A failure is
        retried before the first byte, and raised after it.

        max_bytes, progress, timeout: as for `download`.
        """
        name = require_identifier(identifier)
        operations.GET_DOC.validate_segments((name,))
        validate_max_bytes(max_bytes)
        started, options = asyncio.Event(), self._options_with_timeout(timeout)
        pieces = stream_pieces(self._transport, options, name, max_bytes, ProgressReporter(progress), started)
        return PieceStream(pieces, started)

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

    async def flatten(
        self, identifier: Document, *, timeout: float | None = None, settle: float | None = None
    ) -> DocumentUpdate:
        """Turn the fields of the document's form into page content.

        timeout: seconds for the complete call. None: the suite's.
        settle: seconds for which the change is verified if its response is lost. None: the suite's. 0: verify once.
        """
        request = ChangeRequest(operations.FLATTEN, FORM_REMOVED, timeout=timeout, settle=settle)
        return await self._update(identifier, request)

    @overload
    async def flatten_and_pull(
        self, identifier: Document, *, destination: None = None, **options: Unpack[ChangeOptions]
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
        settle: float | None = None,
    ) -> Any:
        """Flatten the document with one request, and return the PDF or stream it to a destination.

        destination: as for `download`. None: return the bytes.
        max_bytes, progress: as for `download`. Raises InvalidArgumentError without a destination.
        timeout: as for `download`.
        settle: as for `flatten`.
        """
        request = ChangeRequest(operations.FLATTEN_AND_PULL, FORM_REMOVED, timeout=timeout, settle=settle)
        return await self._pull(identifier, request, destination, max_bytes, progress)

    async def clear_unsigned_fields(
        self, identifier: Document, *, timeout: float | None = None, settle: float | None = None
    ) -> DocumentUpdate:
        """Remove the signature fields that are not signed. Parameters as for `flatten`."""
        request = ChangeRequest(
            operations.CLEAR_UNSIGNED_FIELDS, UNSIGNED_FIELDS_REMOVED, timeout=timeout, settle=settle
        )
        return await self._update(identifier, request)

    @overload
    async def clear_unsigned_fields_and_pull(
        self, identifier: Document, *, destination: None = None, **options: Unpack[ChangeOptions]
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
        settle: float | None = None,
    ) -> Any:
        """Remove unsigned signature fields with one request, and return the PDF or stream it to a destination.

        Parameters as for `flatten_and_pull`.
        """
        request = ChangeRequest(
            operations.CLEAR_UNSIGNED_FIELDS_AND_PULL, UNSIGNED_FIELDS_REMOVED, timeout=timeout, settle=settle
        )
        return await self._pull(identifier, request, destination, max_bytes, progress)

    async def sign(
        self,
        identifier: Document,
        signature: Signature,
        *,
        timeout: float | None = None,
        settle: float | None = None,
    ) -> DocumentUpdate:
        """Sign the document.

        timeout, settle: as for `flatten`.

        Raises InvalidArgumentError if the image is empty or base64 text, or if the page or size of the widget is
        impossible. If a DocumentInfo is passed, the page must exist.
        """
        return await self._update(
            identifier, self._request_signing(operations.SIGN, identifier, signature, timeout, settle)
        )

    @overload
    async def sign_and_pull(
        self, identifier: Document, signature: Signature, *, destination: None = None, **options: Unpack[ChangeOptions]
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
        settle: float | None = None,
    ) -> Any:
        """Sign the document with one request, and return the signed PDF or stream it to a destination.

        Parameters as for `flatten_and_pull`.
        """
        request = self._request_signing(operations.SIGN_AND_PULL, identifier, signature, timeout, settle)
        return await self._pull(identifier, request, destination, max_bytes, progress)

    async def multi_sign(
        self,
        identifier: Document,
        signatures: Iterable[Signature],
        *,
        timeout: float | None = None,
        settle: float | None = None,
    ) -> DocumentUpdate:
        """Sign the document several times with one request.

        timeout, settle: as for `flatten`.

        Raises InvalidArgumentError if there is no signature, and as `sign`.
        """
        request = self._request_signing(operations.MULTI_SIGN, identifier, signatures, timeout, settle)
        return await self._update(identifier, request)

    @overload
    async def multi_sign_and_pull(
        self,
        identifier: Document,
        signatures: Iterable[Signature],
        *,
        destination: None = None,
        **options: Unpack[ChangeOptions],
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
        settle: float | None = None,
    ) -> Any:
        """Sign the document several times with one request, and return the PDF or stream it to a destination.

        Parameters as for `flatten_and_pull`.
        """
        request = self._request_signing(operations.MULTI_SIGN_AND_PULL, identifier, signatures, timeout, settle)
        return await self._pull(identifier, request, destination, max_bytes, progress)

    def _request_signing(
        self,
        operation: Operation[Any],
        document: Document,
        signatures: Signature | Iterable[Signature],
        timeout: float | None,
        settle: float | None,
    ) -> ChangeRequest:
        body: Signature | MultiSignRequest
        if operation in (operations.SIGN, operations.SIGN_AND_PULL):
            body = require_instance(signatures, Signature, "signature")
            listed = [body]
        else:
            listed = require_instances(signatures, Signature, "signatures")
            body = MultiSignRequest(signatures=listed)
        validate_signatures(listed, document)
        return ChangeRequest(
            operation,
            make_signed_effect(listed, document),
            body=self._encode_body(body),
            signatures=listed,
            timeout=timeout,
            settle=settle,
        )
