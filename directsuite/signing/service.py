"""The facade of the signing service."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any, overload

from directsuite.core.body import RequestBody
from directsuite.core.progress import Progress
from directsuite.core.sinks import PieceWriter
from directsuite.errors import InvalidArgumentError
from directsuite.signing import operations
from directsuite.signing.changing import Document, PdfDestination
from directsuite.signing.models import DocumentUpdate, MultiSignRequest, Signature
from directsuite.signing.settling import FORM_GONE, UNSIGNED_FIELDS_GONE, signed
from directsuite.signing.storing import F, Storing
from directsuite.wire import given


class Signing(Storing):
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

    async def flatten(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Turn the form's fields into page content.

        Operation Flatten (specification 4.A).
        """
        return await self._update(operations.FLATTEN, identifier, FORM_GONE, timeout)

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
            operations.FLATTEN_AND_PULL, identifier, destination, FORM_GONE, timeout, max_bytes, progress
        )

    async def clear_unsigned_fields(self, identifier: Document, *, timeout: float | None = None) -> DocumentUpdate:
        """Remove signature fields that nobody has signed.

        Operation ClearUnsignedFields (specification 4.A).
        """
        return await self._update(operations.CLEAR_UNSIGNED_FIELDS, identifier, UNSIGNED_FIELDS_GONE, timeout)

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
        effect = UNSIGNED_FIELDS_GONE
        return await self._pull(
            operations.CLEAR_UNSIGNED_FIELDS_AND_PULL, identifier, destination, effect, timeout, max_bytes, progress
        )

    async def sign(self, identifier: Document, signature: Signature, *, timeout: float | None = None) -> DocumentUpdate:
        """Sign the document.

        Operation Sign (specification 4.A).
        """
        body, effect = self._signature_body(signature), signed([signature], identifier)
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
        body, effect = self._signature_body(signature), signed([signature], identifier)
        return await self._pull(
            operations.SIGN_AND_PULL, identifier, destination, effect, timeout, max_bytes, progress, body
        )

    async def multi_sign(
        self, identifier: Document, signatures: Iterable[Signature], *, timeout: float | None = None
    ) -> DocumentUpdate:
        """Sign the document several times at once.

        Operation MultiSign (specification 4.A).
        """
        listed = _listed(signatures)
        body, effect = self._body(MultiSignRequest(signatures=listed)), signed(listed, identifier)
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
        listed = _listed(signatures)
        body, effect = self._body(MultiSignRequest(signatures=listed)), signed(listed, identifier)
        return await self._pull(
            operations.MULTI_SIGN_AND_PULL, identifier, destination, effect, timeout, max_bytes, progress, body
        )

    def _signature_body(self, signature: Signature) -> RequestBody:
        return self._body(given.instance(signature, Signature, "signature"))


def _listed(signatures: Iterable[Signature]) -> list[Signature]:
    listed = given.instances(signatures, Signature, "signatures")
    if not listed:
        raise InvalidArgumentError("list at least one Signature", parameter="signatures")
    return listed
