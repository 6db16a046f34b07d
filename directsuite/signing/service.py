"""The facade of the signing service."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import cast, overload

import attrs

from directsuite.core import destination as files
from directsuite.core.body import RequestBody, Source, size_of
from directsuite.core.call import Receive
from directsuite.core.facade import Facade
from directsuite.core.operation import Operation
from directsuite.errors import InvalidArgumentError
from directsuite.signing import operations
from directsuite.signing.models import DocumentInfo, DocumentUpdate, MultiSignRequest, Signature, StoredDocument
from directsuite.wire import codec, given

Document = str | StoredDocument | DocumentUpdate
"""A document's identifier, or an answer that carries it."""

Destination = str | PathLike[str]

_MAGIC = b"%PDF-"
_HEAD = 1024  # the magic stands somewhere in the first KB (ISO 32000, implementation notes)


class Signing(Facade):
    """PDFs stored, read, flattened and signed in an HSM. `suite.signing`; needs `signing_url` and a token.

    Every method raises TransportError where no usable answer came, ServiceError where the service said no. What changes
    a document is never sent a second time: it raises OutcomeUnknownError where it may or may not have happened.
    """

    async def save(self, pdf: Source, *, timeout: float | None = None) -> StoredDocument:
        """Store a PDF: bytes, a path, or an async iterable of bytes; coded on the way, never whole in memory.

        Operation Save (specification 4.A). The document is kept for 4 hours after its last use. Raises
        InvalidArgumentError for a file that is missing, and for bytes or a file without `%PDF-` in the first KB.
        """
        _refuse_other_than_pdf(pdf)
        return await self._call(operations.SAVE, body=RequestBody.base64(pdf, parameter="pdf"), timeout=timeout)

    async def get_doc(self, identifier: Document, *, timeout: float | None = None) -> bytes:
        """The PDF as it stands now, in memory; `download` takes any size.

        Operation GetDoc (specification 4.A).
        """
        return await self._call(operations.GET_DOC, _identifier(identifier), timeout=timeout)

    async def download(self, identifier: Document, destination: Destination, *, timeout: float | None = None) -> Path:
        """The PDF as it stands now, streamed to a file that appears whole or not at all; returns its path.

        Operation GetDoc (specification 4.A). Without `timeout` only a pause of `attempt_timeout` seconds ends it.
        """
        return await self._to_file(operations.GET_DOC, identifier, destination, None, timeout)

    async def get_doc_info(self, identifier: Document, *, timeout: float | None = None) -> DocumentInfo:
        """Pages, form fields, signatures and metadata.

        Operation GetDocInfo (specification 4.A).
        """
        return await self._call(operations.GET_DOC_INFO, _identifier(identifier), timeout=timeout)

    async def delete(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Delete the document; the answer's `document_digest` is empty.

        Operation Delete (specification 4.A).
        """
        return await self._update(operations.DELETE, identifier, None, timeout)

    async def flatten(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Turn the form's fields into page content.

        Operation Flatten (specification 4.A).
        """
        return await self._update(operations.FLATTEN, identifier, None, timeout)

    @overload
    async def flatten_and_pull(self, identifier: Document, *, timeout: float | None = None) -> bytes: ...
    @overload
    async def flatten_and_pull(
        self, identifier: Document, *, destination: Destination, timeout: float | None = None
    ) -> Path: ...
    async def flatten_and_pull(
        self, identifier: Document, *, destination: Destination | None = None, timeout: float | None = None
    ) -> bytes | Path:
        """As `flatten`, and gives the PDF: its bytes, or the path that it was streamed to.

        Operation "Flatten and pull" (specification 4.A).
        """
        return await self._pull(operations.FLATTEN_AND_PULL, identifier, destination, None, timeout)

    async def clear_unsigned_fields(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Remove signature fields that nobody has signed.

        Operation ClearUnsignedFields (specification 4.A).
        """
        return await self._update(operations.CLEAR_UNSIGNED_FIELDS, identifier, None, timeout)

    @overload
    async def clear_unsigned_fields_and_pull(self, identifier: Document, *, timeout: float | None = None) -> bytes: ...
    @overload
    async def clear_unsigned_fields_and_pull(
        self, identifier: Document, *, destination: Destination, timeout: float | None = None
    ) -> Path: ...
    async def clear_unsigned_fields_and_pull(
        self, identifier: Document, *, destination: Destination | None = None, timeout: float | None = None
    ) -> bytes | Path:
        """As `clear_unsigned_fields`, and gives the PDF: its bytes, or the path that it was streamed to.

        Operation "ClearUnsignedFields and pull" (specification 4.A).
        """
        return await self._pull(operations.CLEAR_UNSIGNED_FIELDS_AND_PULL, identifier, destination, None, timeout)

    async def sign(self, identifier: Document, signature: Signature, *, timeout: float | None = None) -> DocumentUpdate:
        """Sign the document.

        Operation Sign (specification 4.A).
        """
        return await self._update(operations.SIGN, identifier, _sign_body(signature), timeout)

    @overload
    async def sign_and_pull(
        self, identifier: Document, signature: Signature, *, timeout: float | None = None
    ) -> bytes: ...
    @overload
    async def sign_and_pull(
        self, identifier: Document, signature: Signature, *, destination: Destination, timeout: float | None = None
    ) -> Path: ...
    async def sign_and_pull(
        self,
        identifier: Document,
        signature: Signature,
        *,
        destination: Destination | None = None,
        timeout: float | None = None,
    ) -> bytes | Path:
        """As `sign`, and gives the signed PDF: its bytes, or the path that it was streamed to.

        Operation "Sign and pull" (specification 4.A).
        """
        return await self._pull(operations.SIGN_AND_PULL, identifier, destination, _sign_body(signature), timeout)

    async def multi_sign(
        self, identifier: Document, signatures: Iterable[Signature], *, timeout: float | None = None
    ) -> DocumentUpdate:
        """Sign the document several times at once.

        Operation MultiSign (specification 4.A).
        """
        return await self._update(operations.MULTI_SIGN, identifier, _multi_sign_body(signatures), timeout)

    @overload
    async def multi_sign_and_pull(
        self, identifier: Document, signatures: Iterable[Signature], *, timeout: float | None = None
    ) -> bytes: ...
    @overload
    async def multi_sign_and_pull(
        self,
        identifier: Document,
        signatures: Iterable[Signature],
        *,
        destination: Destination,
        timeout: float | None = None,
    ) -> Path: ...
    async def multi_sign_and_pull(
        self,
        identifier: Document,
        signatures: Iterable[Signature],
        *,
        destination: Destination | None = None,
        timeout: float | None = None,
    ) -> bytes | Path:
        """As `multi_sign`, and gives the signed PDF: its bytes, or the path that it was streamed to.

        Operation "MultiSign and pull" (specification 4.A).
        """
        body = _multi_sign_body(signatures)
        return await self._pull(operations.MULTI_SIGN_AND_PULL, identifier, destination, body, timeout)

    async def _update(
        self,
        operation: Operation[DocumentUpdate],
        identifier: Document,
        body: RequestBody | None,
        timeout: float | None,
    ) -> DocumentUpdate:
        name = _identifier(identifier)
        update = await self._call(operation, name, body=body, timeout=timeout)
        return attrs.evolve(update, identifier=update.identifier or name)

    async def _pull(
        self,
        operation: Operation[bytes],
        identifier: Document,
        destination: Destination | None,
        body: RequestBody | None,
        timeout: float | None,
    ) -> bytes | Path:
        if destination is not None:
            return await self._to_file(operation, identifier, destination, body, timeout)
        return await self._call(operation, _identifier(identifier), body=body, timeout=timeout)

    async def _to_file(
        self,
        operation: Operation[bytes],
        identifier: Document,
        destination: Destination,
        body: RequestBody | None,
        timeout: float | None,
    ) -> Path:
        name = _identifier(identifier)
        operation.check((name,))
        with files.Destination(destination) as file:
            written = await self._call(
                operation,
                name,
                body=body,
                timeout=timeout,
                receive=cast("Receive[bytes]", file.receive),  # gives the path in place of the bytes
            )
        return cast("Path", written)


def _identifier(document: object) -> str:
    name = document.identifier if isinstance(document, StoredDocument | DocumentUpdate) else document
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError("give the identifier that save returned", parameter="identifier")
    return name


def _sign_body(signature: Signature) -> RequestBody:
    return RequestBody.of(codec.encode(given.instance(signature, Signature, "signature")))


def _multi_sign_body(signatures: Iterable[Signature]) -> RequestBody:
    listed = given.instances(signatures, Signature, "signatures")
    if not listed:
        raise InvalidArgumentError("list at least one Signature", parameter="signatures")
    return RequestBody.of(codec.encode(MultiSignRequest(signatures=listed)))


def _refuse_other_than_pdf(pdf: Source) -> None:
    if isinstance(pdf, bytes | bytearray | memoryview):
        head = bytes(pdf[:_HEAD])
    elif isinstance(pdf, str | PathLike):
        path = Path(pdf)
        size_of(path, "pdf")
        with path.open("rb") as file:
            head = file.read(_HEAD)
    else:
        return
    if _MAGIC not in head:
        raise InvalidArgumentError("this is not a PDF: no %PDF- in its first KB", parameter="pdf")
