"""Changes of stored documents: each is requested once, and verified if its response is lost.

GetDocInfo shows whether a change happened:

    unseen digest, and the effect is visible ─► it happened
                                                  ├─ update: return the new digest
                                                  └─ pull: GetDoc, then GetDocInfo again
    otherwise ─► poll until the time is over ─► OutcomeUnknownError

An effect is one of: the named signatures are present and signed (in addition to existing ones if the caller passed a
DocumentInfo), no form field is left, no unsigned signature field is left. A signature without a name cannot be
distinguished from others. If the caller passed only the identifier, or a digest that is not the newest, nothing is
verified.

An effect is *ambiguous* if many documents show it before the change. Then only the digest is proof, which must
be comparable (see DigestHistory). A signed name counts as this call's signature even if it was present before. A caller
who signs a document twice with the same name must pass the DocumentInfo.
"""

from __future__ import annotations

import contextlib
import errno
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from os import PathLike
from typing import Any, TypeVar

import attrs

from directsuite.core.call import Confirmation, Options
from directsuite.core.download import Destination, validate_max_bytes
from directsuite.core.events import Progress, validate_progress
from directsuite.core.facade import Facade, StopPolling
from directsuite.core.operation import Operation
from directsuite.core.sinks import BinaryWriter, PartialWriteError, PieceWriter, make_sink
from directsuite.core.transport import Transport
from directsuite.core.upload import RequestBody
from directsuite.errors import (
    BadRequestError,
    DirectSuiteError,
    InvalidArgumentError,
    Outcome,
    OutcomeUnknownError,
    ResponseDecodeError,
)
from directsuite.signing import operations
from directsuite.signing.arguments import make_rejection_advice
from directsuite.signing.models import DocumentInfo, DocumentUpdate, Signature, StoredDocument

D = TypeVar("D", DocumentInfo, DocumentUpdate)
R = TypeVar("R")

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
_HINT_FETCH_PDF = (
    "call get_doc(identifier) or download(identifier, destination), which returns the current PDF. Do not repeat the "
    "change."
)


@attrs.frozen(repr=False, eq=False)
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
        with self._track_change(document, request) as resolver:
            confirm = Confirmation(verify=resolver.resolve_update, seconds=seconds) if resolver.is_provable else None
            update: DocumentUpdate = await self._call(
                request.operation, name, body=request.body, timeout=request.timeout, confirm=confirm
            )
            resolver.change.record_success(update.document_digest, from_info=resolver.digest is not None)
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
        seconds, compute_time_left = self.resolve_timeout(request.timeout), self.start_timeout(request.timeout)
        async with open_destination(request.operation, destination, seconds, max_bytes, progress) as receiving:
            destination = None  # tracebacks expose local variables, such as a name
            request = attrs.evolve(request, timeout=compute_time_left())
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
            error = resolver.refine_error(error)
            how = HINT_SIGN_AGAIN if request.is_temporary else error.how_to_find_out
            if receiving is not None:
                how = _explain_correction(receiving, resolver.cause) + how
            error = error.with_details(error.explanation, how_to_find_out=how)
            if request.is_temporary:
                error.happened = False  # nothing remains of it
            return error

        with self._track_change(document, request) as resolver:
            confirm: Confirmation[Any] = Confirmation(
                verify=functools.partial(resolver.resolve_pdf, fetch, receiving),
                seconds=seconds,
                reserve=None if resolver.is_provable else 0.0,
                refine_error=refine,
            )
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
                    resolver.change.record_success(None)
                raise
            resolver.change.record_success(resolver.digest, from_info=True)
        return pdf

    @contextlib.contextmanager
    def _track_change(self, document: Document, request: ChangeRequest) -> Generator[OutcomeResolver]:
        name, digest = require_identifier(document), None if isinstance(document, str) else document.document_digest

        def get_info() -> Awaitable[DocumentInfo]:
            return self._as_nested().with_strict_paths(_STRICT_PATHS)._call(operations.GET_DOC_INFO, name)

        from_info = isinstance(document, DocumentInfo)
        with self._digest_history.track_change(name, digest, from_info=from_info) as change:
            try:
                yield OutcomeResolver(get_info, name, change, request.effect if change.is_traceable else None)
            except BadRequestError as error:
                if request.signatures and error.operation == request.operation.name:
                    error.advice = make_rejection_advice(request.signatures)
                raise


def _explain_correction(receiving: Destination[Any], cause: Exception | None) -> str:
    """Return the start of a sentence: what to do about the destination if it has failed. cause: its error if known."""
    cause = cause or receiving.failure
    if not isinstance(cause, OSError) or isinstance(cause, PartialWriteError) or receiving.is_callback_error(cause):
        return ""
    return f"{_CORRECTIONS.get(cause.errno, 'correct the destination, or give another one')}, then "


def open_destination(
    operation: Operation[Any],
    destination: PdfDestination | None,
    timeout: float,
    max_bytes: int | None = None,
    progress: Progress | None = None,
) -> AbstractAsyncContextManager[Destination[Any] | None]:
    """Return a context manager that opens the destination and yields it, or None for the bytes.

    operation, timeout: the operation of the call, and the maximum number of seconds to open the destination.

    Raises InvalidArgumentError if an argument is not valid.
    """
    validate_max_bytes(max_bytes)
    validate_progress(progress)
    if destination is not None:
        sink = make_sink(destination)
        return Destination[Any](sink, max_bytes=max_bytes, progress=progress, open_timeout=timeout, operation=operation)
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


@attrs.frozen(repr=False, eq=False)
class Effect:
    """The visible effect of a change."""

    is_shown: Callable[[DocumentInfo], bool]
    is_ambiguous: bool
    """True if many documents show the effect before the change."""


_STRICT_PATHS = frozenset({"$.signatures[]", "$.signatures[].isSigned", "$.formFields[]"})
"""Values of GetDocInfo that must be readable, because the change may remove an unreadable field."""

FORM_REMOVED = Effect(lambda info: not info.form_fields, is_ambiguous=True)

UNSIGNED_FIELDS_REMOVED = Effect(
    lambda info: not any(each.is_signed is False for each in info.signatures), is_ambiguous=True
)


def make_signed_effect(signatures: Iterable[Signature], document: object) -> Effect | None:
    """Return the effect of signing, or None if a signature has no name.

    document: what the caller passed as `identifier`. Signatures of a DocumentInfo with the same names are also
        expected.
    """
    names = [signature.name for signature in signatures]
    if not all(names):
        return None
    before = _count_signed_names(document) if isinstance(document, DocumentInfo) else None

    def is_shown(info: DocumentInfo) -> bool:
        expected, signed_names = Counter(names), _count_signed_names(info)
        if before is not None:
            expected += Counter({name: times for name, times in before.items() if name in expected})
        return all(signed_names[name] >= times for name, times in expected.items())

    return Effect(is_shown, is_ambiguous=False)


def _count_signed_names(info: DocumentInfo) -> Counter[str | None]:
    return Counter(signature.name for signature in info.signatures if signature.is_signed)


@attrs.define(eq=False, repr=False)
class OutcomeResolver:
    """Determines whether a change happened after its response was lost."""

    get_info: Callable[[], Awaitable[DocumentInfo]]
    """Calls GetDocInfo."""
    identifier: str
    change: DocumentChange
    effect: Effect | None
    """None: nothing could prove the change."""
    digest: str | None = None
    """The digest after the change. None until the change is proven."""
    failure_reason: str = "the PDF could not be fetched"
    """Why a pull cannot return its PDF although the change happened."""
    cause: Exception | None = None
    """The error of the destination or size limit that caused it, or None."""

    @property
    def is_provable(self) -> bool:
        """True if GetDocInfo can show that the change happened."""
        return self.effect is not None

    async def resolve_update(self) -> DocumentUpdate | None:
        """Return a replacement for the lost response, or None if the change is not proven yet."""
        if not await self._verify_change():
            return None
        return DocumentUpdate(identifier=self.identifier, document_digest=self.digest)

    async def resolve_pdf(
        self, fetch: Callable[[], Awaitable[R]], receiving: Destination[Any] | None = None
    ) -> R | None:
        """Return the result of `fetch`, or None if the change is not proven yet.

        receiving: the destination, to which the PDF is moved unless the document was changed again.

        Raises StopPolling if the change happened but its PDF cannot be returned.
        """
        if not await self._verify_change():
            return None
        try:
            fetched = await fetch()
            if (await self.get_info()).document_digest != self.digest:
                self.failure_reason = "the document was changed again before its PDF was fetched"
                raise StopPolling
            if receiving is not None:
                await receiving.sink.publish()
        except ResponseDecodeError as error:
            if not error.too_large:
                raise
            self.failure_reason, self.cause = error.explanation, error
            raise StopPolling from None
        except (DirectSuiteError, StopPolling):
            raise
        except Exception as error:  # noqa: BLE001  any error of the destination or the callback
            self.cause = error
            if receiving is not None:
                self.failure_reason = receiving.explain(error)
            raise StopPolling from None
        return fetched

    def refine_error(self, error: OutcomeUnknownError) -> OutcomeUnknownError:
        """Return the error that a pull raises. If the change has happened, it says how to fetch the PDF."""
        if self.digest is None:
            fetched = error.with_details(error.explanation, how_to_find_out=_HINT_FETCH_PDF)
            return fetched if error.happened else error
        knowing = error.with_details(
            f"the operation succeeded, but {self.failure_reason}", how_to_find_out=_HINT_FETCH_PDF
        )
        knowing.happened = True
        knowing.__cause__ = self.cause or error.__cause__
        return knowing

    async def _verify_change(self) -> bool:
        if self.effect is None:
            raise StopPolling
        if self.digest is None:
            info = await self.get_info()
            is_proven = self.change.is_proven_by(info.document_digest) and (
                self.change.has_comparable_digest or not self.effect.is_ambiguous
            )
            if is_proven and self.effect.is_shown(info):
                self.digest = info.document_digest
        return self.digest is not None


_MAX_IDLE_DOCUMENTS = 4096  # for others, the caller's digest is trusted


@attrs.define(eq=False, repr=False)
class _DocumentDigests:
    newest_digest: str | None = None
    """The newest digest, or None if no response contained one."""
    seen_digests: set[str] = attrs.field(factory=set[str])
    """Digests in responses, or passed by the caller."""
    info_digests: set[str] = attrs.field(factory=set[str])
    """Digests in responses of GetDocInfo."""
    other_digests: set[str] = attrs.field(factory=set[str])
    """Digests in responses of Save and the updates."""
    changes_in_progress: list[DocumentChange] = attrs.field(factory=list["DocumentChange"])
    change_count: int = 0
    has_unknown_version: bool = False
    """True if the digest of the newest version is unknown."""
    has_unresolved_change: bool = False
    """True if a change of unknown outcome may still take effect."""

    def record_version(self, digest: str) -> None:
        """Record the digest of a new version, empty if it is unknown."""
        if digest:
            self.seen_digests.add(digest)
        self.newest_digest, self.has_unknown_version = digest or None, not digest


@attrs.define(eq=False, repr=False)
class DocumentChange:
    """A change of a document that is in progress."""

    _history: DigestHistory
    _document: _DocumentDigests
    base_digest: str
    """The digest known to the caller, or an empty string."""
    is_traceable: bool
    """True if an unseen digest would prove this change."""
    is_concurrent: bool
    """True if another change was in progress, so that their order is unknown."""
    happened: bool = False

    @property
    def has_comparable_digest(self) -> bool:
        """True if GetDocInfo is expected to return digests in the form of `base_digest`."""
        return self.base_digest in self._document.info_digests or self._history.has_consistent_spelling

    def is_proven_by(self, digest: str | None) -> bool:
        """Record this digest of GetDocInfo. Return True if it is unseen, and `is_traceable` is True."""
        current = _fold_case(digest)
        self._history.record_digest(self._document, current, from_info=True)
        return self.is_traceable and bool(current) and current not in self._document.seen_digests

    def record_success(self, digest: str | None, *, from_info: bool = False) -> None:
        """Record that the change happened.

        digest: the digest after the change. None: unknown.
        from_info: True if GetDocInfo returned it.
        """
        self.happened = True
        current = _fold_case(digest)
        self._document.record_version(current)
        if not from_info:
            self._history.record_digest(self._document, current, from_info=False)
        if self.is_concurrent:
            self._document.has_unknown_version = True


class DigestHistory:
    """The digests of a suite's documents, used to attribute an unseen digest to one call.

    An unseen digest is attributed to a call if the caller passed the newest known digest and no other change is in
    progress or unresolved. A different digest is not enough, because the caller's may be old. Changes by other programs
    cannot be detected.

    GetDocInfo is expected to return the same digests as Save and the updates, apart from letter case. Otherwise, an
    unchanged document would appear changed. Once that has been observed, digests of other responses prove nothing until
    GetDocInfo returns the same digest as another response for some document.

    Documents with a change in progress are always retained, others up to a limit, unresolved ones longer.
    """

    def __init__(self) -> None:
        self.has_consistent_spelling = True
        """False if GetDocInfo was seen to return digests in a different form than other responses."""
        self._in_progress: dict[str, _DocumentDigests] = {}
        self._idle: dict[str, _DocumentDigests] = {}  # those changed last are at the end

    @contextlib.contextmanager
    def track_change(
        self, identifier: str, digest: str | None, *, from_info: bool = False
    ) -> Generator[DocumentChange]:
        """Track a change while it is in progress.

        After an error with an unknown outcome, later changes of the document cannot be proven.

        digest: the digest known to the caller, or None.
        from_info: True if GetDocInfo returned it.
        """
        document = self._in_progress[identifier] = self._find_document(identifier) or _DocumentDigests()
        self._idle.pop(identifier, None)
        base = _fold_case(digest)
        shared = bool(document.changes_in_progress)
        is_newest = document.newest_digest in (None, base) or base not in document.seen_digests
        certain = is_newest and not (shared or document.has_unknown_version or document.has_unresolved_change)
        change = DocumentChange(self, document, base, is_traceable=certain and bool(base), is_concurrent=shared)
        if base:
            document.seen_digests.add(base)
        if from_info:
            self.record_digest(document, base, from_info=True)
        for other in document.changes_in_progress:
            other.is_traceable, other.is_concurrent = False, True
        document.changes_in_progress.append(change)
        document.change_count += 1
        try:
            yield change
        except BaseException as error:
            is_known = isinstance(error, DirectSuiteError) and error.outcome is not Outcome.UNKNOWN
            if not change.happened and not is_known:
                document.has_unresolved_change = True
            raise
        finally:
            document.changes_in_progress.remove(change)
            if not document.changes_in_progress:
                self._retire_document(identifier, self._in_progress.pop(identifier))

    @contextlib.contextmanager
    def track_info_request(self, identifier: str) -> Generator[list[str | None]]:
        """Track a GetDocInfo. The caller appends the digest of its response to the list.

        Without concurrent changes, it is recorded as the digest of the newest version.
        """
        digests: list[str | None] = []
        document = self._find_document(identifier)
        changes = 0 if document is None else document.change_count
        yield digests
        if document is None or not digests:
            return
        digest = _fold_case(digests[-1])
        self.record_digest(document, digest, from_info=True)
        if not document.changes_in_progress and document.change_count == changes:
            if (
                digest
                and document.newest_digest
                and digest != document.newest_digest
                and not (document.has_unknown_version or document.has_unresolved_change)
            ):
                # Not this suite's change: a different form of digest, or another program.
                self.has_consistent_spelling = False
            document.record_version(digest)

    def record_saved(self, identifier: str, digest: str | None) -> None:
        """Record the digest of a stored document, unless the document is known."""
        current = _fold_case(digest)
        if current and self._find_document(identifier) is None:
            document = _DocumentDigests(newest_digest=current, seen_digests={current})
            self.record_digest(document, current, from_info=False)
            self._retire_document(identifier, document)

    def record_digest(self, document: _DocumentDigests, digest: str, *, from_info: bool) -> None:
        """Record a digest, if it is not empty. from_info: GetDocInfo returned it, otherwise Save or an update."""
        digests = (document.other_digests, document.info_digests)
        if digest:
            digests[from_info].add(digest)
            self.has_consistent_spelling = self.has_consistent_spelling or digest in digests[not from_info]

    def _find_document(self, identifier: str) -> _DocumentDigests | None:
        return self._in_progress.get(identifier) or self._idle.get(identifier)

    def _retire_document(self, identifier: str, document: _DocumentDigests) -> None:
        """Record that no change is in progress. If there are too many such documents, forget resolved and old ones."""
        self._idle[identifier] = document
        if len(self._idle) > _MAX_IDLE_DOCUMENTS:
            names = sorted(self._idle, key=lambda name: self._idle[name].has_unresolved_change)
            for name in names[: _MAX_IDLE_DOCUMENTS // 2]:
                del self._idle[name]


def _fold_case(digest: str | None) -> str:
    return (digest or "").casefold()
