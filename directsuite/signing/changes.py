"""Changes of stored documents: each is requested once, and verified if its response is lost."""

from __future__ import annotations

import contextlib
import errno
import functools
from collections.abc import Awaitable, Generator, Mapping
from contextlib import AbstractAsyncContextManager
from os import PathLike
from typing import Any, TypeVar

import attrs

from directsuite.core.call import Confirmation, Options
from directsuite.core.download import Destination, validate_max_bytes
from directsuite.core.events import Progress, validate_progress
from directsuite.core.facade import Facade
from directsuite.core.operation import Operation
from directsuite.core.sinks import BinaryWriter, PartialWriteError, PieceWriter, make_sink
from directsuite.core.transport import Transport
from directsuite.core.upload import RequestBody
from directsuite.errors import BadRequestError, InvalidArgumentError, OutcomeUnknownError
from directsuite.signing import operations
from directsuite.signing.arguments import make_rejection_advice
from directsuite.signing.models import DocumentInfo, DocumentUpdate, Signature, StoredDocument
from directsuite.signing.outcome_resolver import (
    STRICT_PATHS,
    DigestHistory,
    DocumentChange,
    Effect,
    OutcomeResolver,
    refine_error,
    unprovable,
)

D = TypeVar("D", DocumentInfo, DocumentUpdate)

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


HINT_SIGN_AGAIN = (
    "call sign_pdf again. The PDF that you passed is unchanged. The stored document, signed or not, is deleted, or "
    "expires after 4 hours."
)


_FREE_SPACE = "free space on the disk of the destination"
_CORRECTIONS: Mapping[int | None, str] = {errno.ENOSPC: _FREE_SPACE, errno.EDQUOT: _FREE_SPACE}
"""What to do about an OSError of the destination, by its errno."""


@attrs.frozen(repr=False)
class ChangeRequest:
    """The request of a change, without the document."""

    operation: Operation[Any]
    effect: Effect | None
    """The effect to verify. None: the change cannot be verified."""
    body: RequestBody | None = None
    signatures: list[Signature] = attrs.field(factory=list[Signature])
    """The signatures in the body, to explain a rejection."""
    timeout: float | None = None
    settle: float | None = None
    """Like `timeout`, as for the public methods."""
    is_temporary: bool = False
    """True if `sign_pdf` deletes the document after the change."""


class ChangingFacade(Facade):
    """The base class of Signing. Its methods change documents."""

    def __init__(self, transport: Transport, options: Options | None = None) -> None:
        super().__init__(transport, options)
        self._digest_history = DigestHistory()  # all views of the facade share it

    async def _update(self, document: Document, request: ChangeRequest) -> DocumentUpdate:
        name, seconds = require_identifier(document), self.resolve_settle(request.settle)
        with self._track_change(document, request) as change:
            resolver = self._make_resolver(name, change, request.effect)
            confirm = None if resolver is None else Confirmation(verify=resolver.resolve_update, seconds=seconds)
            update: DocumentUpdate = await self._call(
                request.operation, name, body=request.body, timeout=request.timeout, confirm=confirm
            )
            change.record_success(
                update.document_digest, from_info=resolver is not None and resolver.digest is not None
            )
        return fill_identifier(update, name)

    async def _pull(
        self,
        document: Document,
        request: ChangeRequest,
        destination: PdfDestination | None,
        max_bytes: int | None,
        progress: Progress | None,
    ) -> Any:
        request.operation.validate_segments((require_identifier(document),))
        async with open_destination(destination, max_bytes, progress) as receiving:
            destination = None  # tracebacks expose local variables, such as a name
            return await self._pull_into(receiving, document, request)

    async def _pull_into(self, receiving: Destination[Any] | None, document: Document, request: ChangeRequest) -> Any:
        """Change the document, and return the bytes, or the result of the destination if there is one."""
        name, seconds = require_identifier(document), self.resolve_settle(request.settle)

        async def fetch() -> Any:
            """Fetch the PDF after the response was lost, without publishing it."""
            call = functools.partial(self._as_nested()._call, operations.GET_DOC, name)
            if receiving is None:
                return await call()
            if receiving.failure is not None:
                raise receiving.failure
            if receiving.sink.exhausted:
                raise PartialWriteError("The response broke off.")
            return await call(receive=receiving.detached())

        def refine(error: OutcomeUnknownError) -> OutcomeUnknownError:
            error = refine_error(error) if resolver is None else resolver.refine_error(error)
            how = HINT_SIGN_AGAIN if request.is_temporary else error.how_to_find_out
            if receiving is not None:
                how = _explain_correction(receiving, None if resolver is None else resolver.cause) + how
            error = error.with_details(error.explanation, how_to_find_out=how)
            if request.is_temporary:
                error.happened = False  # nothing remains of it
            return error

        with self._track_change(document, request) as change:
            resolver = self._make_resolver(name, change, request.effect)
            confirm: Confirmation[Any] = Confirmation(verify=unprovable, reserve=0.0, refine_error=refine)
            if resolver is not None:
                verify = functools.partial(resolver.resolve_pdf, fetch, receiving)
                confirm = Confirmation(verify=verify, seconds=seconds, refine_error=refine)
            try:
                pdf = await self._call(
                    request.operation,
                    name,
                    body=request.body,
                    timeout=request.timeout,
                    receive=receiving,
                    confirm=confirm,
                )
            except OutcomeUnknownError as error:
                if error.happened:
                    change.record_success(None)
                raise
            change.record_success(None if resolver is None else resolver.digest, from_info=True)
        return pdf

    @contextlib.contextmanager
    def _track_change(self, document: Document, request: ChangeRequest) -> Generator[DocumentChange]:
        digest = None if isinstance(document, str) else document.document_digest
        with self._digest_history.track_change(
            require_identifier(document), digest, from_info=isinstance(document, DocumentInfo)
        ) as change:
            try:
                yield change
            except BadRequestError as error:
                if request.signatures and error.operation == request.operation.name:
                    error.advice = make_rejection_advice(request.signatures)
                raise

    def _make_resolver(self, name: str, change: DocumentChange, effect: Effect | None) -> OutcomeResolver | None:
        if effect is None or not change.is_traceable:
            return None

        def get_info() -> Awaitable[DocumentInfo]:
            return self._as_nested().with_strict_paths(STRICT_PATHS)._call(operations.GET_DOC_INFO, name)

        return OutcomeResolver(get_info, name, change, effect)


def _explain_correction(receiving: Destination[Any], cause: Exception | None) -> str:
    """Return the start of a sentence: what to do about the destination if it has failed. cause: its error if known."""
    cause = cause or receiving.failure
    if not isinstance(cause, OSError) or isinstance(cause, PartialWriteError) or receiving.is_callback_error(cause):
        return ""
    return f"{_CORRECTIONS.get(cause.errno, 'correct the destination, or give another one')}, then "


def open_destination(
    destination: PdfDestination | None, max_bytes: int | None = None, progress: Progress | None = None
) -> AbstractAsyncContextManager[Destination[Any] | None]:
    """Return a context manager that opens the destination and yields it, or None for the bytes.

    Raises InvalidArgumentError if an argument is not valid.
    """
    validate_max_bytes(max_bytes)
    validate_progress(progress)
    if destination is not None:
        return Destination[Any](make_sink(destination), max_bytes=max_bytes, progress=progress)
    for name, value in (("max_bytes", max_bytes), ("progress", progress)):
        if value is not None:
            raise InvalidArgumentError("it is only possible with a destination: give one, or omit it", parameter=name)
    return contextlib.nullcontext(None)


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
