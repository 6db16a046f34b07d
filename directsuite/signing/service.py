"""The facade of the signing service."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import overload

import attrs

from directsuite.core import destination as files
from directsuite.core.body import RequestBody, Source, size_of
from directsuite.errors import InvalidArgumentError
from directsuite.signing import operations
from directsuite.signing.changing import Changing, Destination, Document, identifier_of, to_file
from directsuite.signing.models import DocumentInfo, DocumentUpdate, MultiSignRequest, Signature, StoredDocument
from directsuite.signing.settling import FORM_GONE, UNSIGNED_FIELDS_GONE, signed
from directsuite.wire import codec, given

_MAGIC = b"%PDF-"
_HEAD = 1024  # the magic stands somewhere in the first KB (ISO 32000, implementation notes)


class Signing(Changing):
    """PDFs stored, read, flattened and signed in an HSM. `suite.signing`; needs `signing_url` and a token.

    Every method raises TransportError where no usable answer came, ServiceError where the service said no. What changes
    a document is never sent a second time. Should its answer get lost, it is looked for with GetDocInfo for up to 30
    seconds of the call's time, if the newest answer about the document is passed in place of its bare identifier (the
    DocumentUpdate of the change before, or the StoredDocument; after a pull, the answer of `get_doc_info`), no other
    change of it is under way or was left unknown, and signatures have names. Without that, and where nothing shows that
    it happened, it raises OutcomeUnknownError. Several programs that change one document can't be told apart.

    Flattening and clearing may leave no trace but a new digest. They are looked for in vain where GetDocInfo was seen,
    in this suite, to tell another digest than Save and the updates, unless the answer passed is one of `get_doc_info`.
    A change whose caller cancelled it counts as left unknown, even one that still waited for its turn: later ones of
    that document are not looked for.

    A pull to a file has no more time than its call until the answer begins; then, without `timeout`, only a pause of
    `attempt_timeout` seconds ends it, and looking what became of it may take as long as another call.
    """

    async def save(self, pdf: Source, *, timeout: float | None = None) -> StoredDocument:
        """Store a PDF: bytes, a path, or an async iterable of bytes; coded on the way, never whole in memory.

        Operation Save (specification 4.A). The document is kept for 4 hours after its last use. Raises
        InvalidArgumentError for a file that is missing, and for bytes or a file without `%PDF-` in the first KB.
        """
        _refuse_other_than_pdf(pdf)
        body = RequestBody.base64(pdf, parameter="pdf")
        document = await self._call(operations.SAVE, body=body, timeout=timeout)
        self._versions.saved(document.identifier, document.document_digest)
        return document

    async def get_doc(self, identifier: Document, *, timeout: float | None = None) -> bytes:
        """The PDF as it stands now, in memory; `download` takes any size.

        Operation GetDoc (specification 4.A).
        """
        return await self._call(operations.GET_DOC, identifier_of(identifier), timeout=timeout)

    async def download(self, identifier: Document, destination: Destination, *, timeout: float | None = None) -> Path:
        """The PDF as it stands now, streamed to a file that appears whole or not at all; returns its path.

        Operation GetDoc (specification 4.A). Without `timeout` only a pause of `attempt_timeout` seconds ends it.
        """
        name = identifier_of(identifier)
        operations.GET_DOC.check((name,))
        with files.Destination(destination) as file:
            return await self._call(to_file(operations.GET_DOC), name, timeout=timeout, receive=file.receive)

    async def get_doc_info(self, identifier: Document, *, timeout: float | None = None) -> DocumentInfo:
        """Pages, form fields, signatures and metadata.

        Operation GetDocInfo (specification 4.A).
        """
        name = identifier_of(identifier)
        with self._versions.reading(name) as told:
            info = await self._call(operations.GET_DOC_INFO, name, timeout=timeout)
            told.append(info.document_digest)
        return info

    async def delete(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Delete the document; the answer's `document_digest` is empty.

        Operation Delete (specification 4.A).
        """
        name = identifier_of(identifier)
        update = await self._call(operations.DELETE, name, timeout=timeout)
        return attrs.evolve(update, identifier=update.identifier or name)

    async def flatten(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Turn the form's fields into page content.

        Operation Flatten (specification 4.A).
        """
        return await self._update(operations.FLATTEN, identifier, FORM_GONE, timeout)

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
        Without `timeout` an answer that goes to a file is bounded by its pauses only.
        """
        return await self._pull(operations.FLATTEN_AND_PULL, identifier, destination, FORM_GONE, timeout)

    async def clear_unsigned_fields(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Remove signature fields that nobody has signed.

        Operation ClearUnsignedFields (specification 4.A).
        """
        return await self._update(operations.CLEAR_UNSIGNED_FIELDS, identifier, UNSIGNED_FIELDS_GONE, timeout)

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
        Without `timeout` an answer that goes to a file is bounded by its pauses only.
        """
        effect = UNSIGNED_FIELDS_GONE
        return await self._pull(operations.CLEAR_UNSIGNED_FIELDS_AND_PULL, identifier, destination, effect, timeout)

    async def sign(self, identifier: Document, signature: Signature, *, timeout: float | None = None) -> DocumentUpdate:
        """Sign the document.

        Operation Sign (specification 4.A).
        """
        body, effect = _sign_body(signature), signed([signature], identifier)
        return await self._update(operations.SIGN, identifier, effect, timeout, body)

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
        Without `timeout` an answer that goes to a file is bounded by its pauses only.
        """
        body, effect = _sign_body(signature), signed([signature], identifier)
        return await self._pull(operations.SIGN_AND_PULL, identifier, destination, effect, timeout, body)

    async def multi_sign(
        self, identifier: Document, signatures: Iterable[Signature], *, timeout: float | None = None
    ) -> DocumentUpdate:
        """Sign the document several times at once.

        Operation MultiSign (specification 4.A).
        """
        listed = _listed(signatures)
        body, effect = _multi_sign_body(listed), signed(listed, identifier)
        return await self._update(operations.MULTI_SIGN, identifier, effect, timeout, body)

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
        Without `timeout` an answer that goes to a file is bounded by its pauses only.
        """
        listed = _listed(signatures)
        body, effect = _multi_sign_body(listed), signed(listed, identifier)
        return await self._pull(operations.MULTI_SIGN_AND_PULL, identifier, destination, effect, timeout, body)


def _sign_body(signature: Signature) -> RequestBody:
    return RequestBody.of(codec.encode(given.instance(signature, Signature, "signature")))


def _listed(signatures: Iterable[Signature]) -> list[Signature]:
    listed = given.instances(signatures, Signature, "signatures")
    if not listed:
        raise InvalidArgumentError("list at least one Signature", parameter="signatures")
    return listed


def _multi_sign_body(signatures: list[Signature]) -> RequestBody:
    return RequestBody.of(codec.encode(MultiSignRequest(signatures=signatures)))


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
