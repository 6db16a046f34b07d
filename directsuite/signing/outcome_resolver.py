"""Verification of a document's change whose response was lost: GetDocInfo shows whether it happened.

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
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Any, TypeVar

import attrs

from directsuite.core.download import Destination
from directsuite.core.facade import StopPolling
from directsuite.errors import DirectSuiteError, Outcome, OutcomeUnknownError, ResponseDecodeError
from directsuite.signing.models import DocumentInfo, DocumentUpdate, Signature

R = TypeVar("R")

_HINT_FETCH_PDF = (
    "call get_doc(identifier) or download(identifier, destination), which returns the current PDF. Do not repeat the "
    "change."
)


@attrs.frozen
class Effect:
    """The visible effect of a change."""

    is_shown: Callable[[DocumentInfo], bool]
    is_ambiguous: bool
    """True if many documents show the effect before the change."""


STRICT_PATHS = frozenset({"$.signatures[]", "$.signatures[].isSigned", "$.formFields[]"})
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
    effect: Effect
    digest: str | None = None
    """The digest after the change. None until the change is proven."""
    failure_reason: str = "the PDF could not be fetched"
    """Why a pull cannot return its PDF although the change happened."""
    cause: Exception | None = None
    """The error of the destination or size limit that caused it, or None."""

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
        """Return the error that a pull raises. If the change is proven, it says why the PDF is missing."""
        if self.digest is None:
            return refine_error(error)
        knowing = error.with_details(
            f"the operation succeeded, but {self.failure_reason}", how_to_find_out=_HINT_FETCH_PDF
        )
        knowing.happened = True
        knowing.__cause__ = self.cause or error.__cause__
        return knowing

    async def _verify_change(self) -> bool:
        if self.digest is None:
            info = await self.get_info()
            is_proven = self.change.is_proven_by(info.document_digest) and (
                self.change.has_comparable_digest or not self.effect.is_ambiguous
            )
            if is_proven and self.effect.is_shown(info):
                self.digest = info.document_digest
        return self.digest is not None


async def unprovable() -> None:
    """Raise StopPolling: the `verify` of a change that nothing could prove."""
    raise StopPolling


def refine_error(error: OutcomeUnknownError) -> OutcomeUnknownError:
    """Return the error that a pull raises: if `error.happened`, a copy that says how to fetch the PDF."""
    return error.with_details(error.explanation, how_to_find_out=_HINT_FETCH_PDF) if error.happened else error


_MAX_INACTIVE_DOCUMENTS = 512  # for others, the caller's digest is trusted
_MAX_UNRESOLVED_DOCUMENTS = 4096  # for hours, in which a change may take effect


@attrs.define(eq=False, repr=False)
class _DocumentDigests:
    newest_digest: str | None = None
    """None if no response contained it."""
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

    def is_newest(self, digest: str) -> bool:
        return not self.has_unknown_version and (
            self.newest_digest is None or digest == self.newest_digest or digest not in self.seen_digests
        )

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
        if current:
            self._history.record_info_digest(self._document, current)
        return self.is_traceable and bool(current) and current not in self._document.seen_digests

    def record_success(self, digest: str | None, *, from_info: bool = False) -> None:
        """Record that the change happened.

        digest: the digest after the change. None: unknown.
        from_info: True if GetDocInfo returned it.
        """
        self.happened = True
        current = _fold_case(digest)
        self._document.record_version(current)
        if current and not from_info:
            self._history.record_other_digest(self._document, current)
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

    Documents with a change in progress are always retained, others up to a limit, which is higher for unresolved ones.
    """

    def __init__(self) -> None:
        self.has_consistent_spelling = True
        """False if GetDocInfo was seen to return digests in a different form than other responses."""
        self._in_progress: dict[str, _DocumentDigests] = {}
        self._unresolved: OrderedDict[str, _DocumentDigests] = OrderedDict()
        self._inactive: OrderedDict[str, _DocumentDigests] = OrderedDict()

    @contextlib.contextmanager
    def track_change(
        self, identifier: str, digest: str | None, *, from_info: bool = False
    ) -> Generator[DocumentChange]:
        """Track a change while it is in progress.

        After an error with an unknown outcome, later changes of the document cannot be proven.

        digest: the digest known to the caller, or None.
        from_info: True if GetDocInfo returned it.
        """
        document = self._in_progress[identifier] = self._take_document(identifier) or _DocumentDigests()
        base = _fold_case(digest)
        shared = bool(document.changes_in_progress)
        certain = not shared and not document.has_unresolved_change and document.is_newest(base)
        change = DocumentChange(self, document, base, is_traceable=certain and bool(base), is_concurrent=shared)
        if base:
            document.seen_digests.add(base)
            if from_info:
                self.record_info_digest(document, base)
        for other in document.changes_in_progress:
            other.is_traceable, other.is_concurrent = False, True
        document.changes_in_progress.append(change)
        document.change_count += 1
        try:
            yield change
        except BaseException as error:
            if not change.happened and not _did_not_happen(error):
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
        if digest:
            self.record_info_digest(document, digest)
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
            self.record_other_digest(document, current)
            self._retire_document(identifier, document)

    def record_info_digest(self, document: _DocumentDigests, digest: str) -> None:
        """Record a digest returned by GetDocInfo."""
        document.info_digests.add(digest)
        self.has_consistent_spelling = self.has_consistent_spelling or digest in document.other_digests

    def record_other_digest(self, document: _DocumentDigests, digest: str) -> None:
        """Record a digest returned by Save or an update."""
        document.other_digests.add(digest)
        self.has_consistent_spelling = self.has_consistent_spelling or digest in document.info_digests

    def _find_document(self, identifier: str) -> _DocumentDigests | None:
        for documents in (self._in_progress, self._unresolved, self._inactive):
            if identifier in documents:
                return documents[identifier]
        return None

    def _take_document(self, identifier: str) -> _DocumentDigests | None:
        document = self._find_document(identifier)
        self._unresolved.pop(identifier, None)
        self._inactive.pop(identifier, None)
        return document

    def _retire_document(self, identifier: str, document: _DocumentDigests) -> None:
        documents, max_documents = (
            (self._unresolved, _MAX_UNRESOLVED_DOCUMENTS)
            if document.has_unresolved_change
            else (self._inactive, _MAX_INACTIVE_DOCUMENTS)
        )
        documents[identifier] = document
        if len(documents) > max_documents:
            documents.popitem(last=False)


def _fold_case(digest: str | None) -> str:
    return (digest or "").casefold()


def _did_not_happen(error: BaseException) -> bool:
    return isinstance(error, DirectSuiteError) and error.outcome is not Outcome.UNKNOWN
