"""Settling a change of a document whose answer got lost: GetDocInfo shows whether it happened.

    digest never seen before, and what the change does is to be seen ─► it happened
                                                                          ├─ an update: the new digest
                                                                          └─ a pull: GetDoc, then GetDocInfo once more
    otherwise ─► look again, for the settle time ─► OutcomeUnknownError

What a change does: signatures of these names are there and signed (more than there were, where the caller passed a
DocumentInfo), no form field is left, no unsigned signature field is left. A signature without a name can't be told
from another. With the bare identifier, or a digest that isn't the newest, nothing is looked for.

Many a document has no form field, or no unsigned signature field, to begin with: there the digest alone is proof, and
has to be comparable (see Versions). A name that is there, signed, is taken for this call's work even if it was there
before: a caller who has the same name signed twice in one document passes the DocumentInfo.
"""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import TypeVar

import attrs

from directsuite.core.facade import StopPolling
from directsuite.errors import DirectSuiteError, Outcome, OutcomeUnknownError, ResponseDecodeError
from directsuite.signing.models import DocumentInfo, DocumentUpdate, Signature

R = TypeVar("R")

_HINT_FETCH_PDF = (
    "get_doc(identifier), or download(identifier, destination), gives the PDF as it stands now; the change need not "
    "be made again."
)


@attrs.frozen
class Effect:
    """What a change does."""

    is_shown: Callable[[DocumentInfo], bool]
    """Whether a document looks as the change leaves it."""
    is_ambiguous: bool
    """Whether many documents look so before the change."""


STRICT_PATHS = frozenset({"$.signatures[]", "$.signatures[].isSigned", "$.formFields[]"})
"""What GetDocInfo must show to prove a change: a field that cannot be read may be one that the change removes."""

FORM_REMOVED = Effect(lambda info: not info.form_fields, is_ambiguous=True)
"""No form field is left, as after Flatten."""

UNSIGNED_FIELDS_REMOVED = Effect(
    lambda info: not any(each.is_signed is False for each in info.signatures), is_ambiguous=True
)
"""No signature field is left unsigned, as after ClearUnsignedFields."""


def make_signed_effect(signatures: Iterable[Signature], document: object) -> Effect | None:
    """These signatures are there beside those that the caller's document had. None if one of them has no name."""
    names = [signature.name for signature in signatures]
    if not all(names):
        return None
    before = _count_signed_names(document) if isinstance(document, DocumentInfo) else None

    def is_shown(info: DocumentInfo) -> bool:
        """Whether each name is there, signed, as often as it has to be."""
        expected, signed_names = Counter(names), _count_signed_names(info)
        if before is not None:
            expected += Counter({name: times for name, times in before.items() if name in expected})
        return all(signed_names[name] >= times for name, times in expected.items())

    return Effect(is_shown, is_ambiguous=False)


def _count_signed_names(info: DocumentInfo) -> Counter[str | None]:
    return Counter(signature.name for signature in info.signatures if signature.is_signed)


@attrs.define(eq=False, repr=False)
class OutcomeResolver:
    """Finds out what became of one change of a document whose answer got lost."""

    get_info: Callable[[], Awaitable[DocumentInfo]]
    """Calls GetDocInfo within the change's call."""
    identifier: str
    change: DocumentChange
    effect: Effect
    digest: str | None = None
    """The document's digest after the change, once it is proven to have happened."""
    failure_reason: str = "the PDF could not be fetched"
    """Why a pull can't give its PDF although the change happened."""
    cause: Exception | None = None
    """What `hindrance` comes from, where that is an error of the destination's."""

    async def resolve_update(self) -> DocumentUpdate | None:
        """What the lost answer would have been, if the change is proven."""
        if not await self._verify_change():
            return None
        return DocumentUpdate(identifier=self.identifier, document_digest=self.digest)

    async def resolve_pdf(
        self, fetch: Callable[[], Awaitable[R]], publish: Callable[[], Awaitable[None]] | None = None
    ) -> R | None:
        """What `fetch` gives, once `keep` has stored it, if it is the version that the change was proven to make."""
        if not await self._verify_change():
            return None
        try:
            fetched = await fetch()
            if (await self.get_info()).document_digest != self.digest:
                self.failure_reason = "the document was changed again before its PDF could be fetched"
                raise StopPolling
            if publish is not None:
                await publish()
        except ResponseDecodeError as error:
            if not error.too_large:
                raise
            self.failure_reason, self.cause = error.explanation, error
            raise StopPolling from None
        except (DirectSuiteError, StopPolling):
            raise
        except Exception as error:  # noqa: BLE001  the destination's or the callback's own, of whatever kind
            self.failure_reason, self.cause = f"its answer could not be kept ({type(error).__name__})", error
            raise StopPolling from None
        return fetched

    def refine_error(self, error: OutcomeUnknownError) -> OutcomeUnknownError:
        """The error for the caller of a pull that could not give its PDF, whether or not the change is proven."""
        if self.digest is None:
            return refine_error(error)
        knowing = error.with_details(f"it happened, but {self.failure_reason}", how_to_find_out=_HINT_FETCH_PDF)
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
    """End the looking at once: nothing could prove this call."""
    raise StopPolling


def refine_error(error: OutcomeUnknownError) -> OutcomeUnknownError:
    """The error for the caller of a pull without proof: if the answer came, and could not be kept, it did happen."""
    return error.with_details(error.explanation, how_to_find_out=_HINT_FETCH_PDF) if error.happened else error


_MAX_INACTIVE_DOCUMENTS = 512  # documents at rest; a forgotten one is taken as the caller gives it
_MAX_UNRESOLVED_DOCUMENTS = (
    4096  # documents left open: more than can be left open in the hours in which a change might still arrive
)


@attrs.define(eq=False, repr=False)
class _DocumentDigests:
    """What is known of one document."""

    newest_digest: str | None = None
    """Its digest; None if no answer held it."""
    seen_digests: set[str] = attrs.field(factory=set[str])
    """Every digest that an answer or the caller ever named."""
    info_digests: set[str] = attrs.field(factory=set[str])
    """Those that GetDocInfo gave."""
    other_digests: set[str] = attrs.field(factory=set[str])
    """Those that Save and the updates gave."""
    changes_in_progress: list[DocumentChange] = attrs.field(factory=list["DocumentChange"])
    change_count: int = 0
    """How many were begun."""
    has_unknown_version: bool = False
    """Whether a version came after `newest` whose digest no answer held."""
    has_unresolved_change: bool = False
    """Whether a change of unknown outcome may still arrive."""

    def is_newest(self, digest: str) -> bool:
        """Return True if this is the digest of the newest version, as far as is known."""
        return not self.has_unknown_version and (
            self.newest_digest is None or digest == self.newest_digest or digest not in self.seen_digests
        )

    def record_version(self, digest: str) -> None:
        """Note the digest of a new version, empty where no answer held it."""
        if digest:
            self.seen_digests.add(digest)
        self.newest_digest, self.has_unknown_version = digest or None, not digest


@attrs.define(eq=False, repr=False)
class DocumentChange:
    """A change of a document under way."""

    _history: DigestHistory
    _document: _DocumentDigests
    base_digest: str
    """The digest that the caller knew."""
    is_traceable: bool
    """Whether a digest never seen before would be its work."""
    is_concurrent: bool
    """Whether another change was under way at the same time, so that nobody can tell which came last."""
    happened: bool = False

    @property
    def has_comparable_digest(self) -> bool:
        """Whether GetDocInfo spells `base` as the caller does, as far as was seen."""
        return self.base_digest in self._document.info_digests or self._history.has_consistent_spelling

    def is_proven_by(self, digest: str | None) -> bool:
        """Return True if this digest, which GetDocInfo gives now, shows that the change happened. See `comparable`."""
        current = _fold_case(digest)
        if current:
            self._history.record_info_digest(self._document, current)
        return self.is_traceable and bool(current) and current not in self._document.seen_digests

    def record_success(self, digest: str | None, *, from_info: bool = False) -> None:
        """Note that it happened, and the document's digest after it, where an answer held one.

        from_info: that answer was GetDocInfo's.
        """
        self.happened = True
        current = _fold_case(digest)
        self._document.record_version(current)
        if current and not from_info:
            self._history.record_other_digest(self._document, current)
        if self.is_concurrent:
            self._document.has_unknown_version = True


class DigestHistory:
    """What a suite knows of the versions of its documents, and so whether a new digest is the work of one call.

        the caller's digest ─► the newest known, no other change under way or left open ─► one never seen is this call's

    A digest that only differs from the caller's would prove nothing: the caller may pass an old answer, or have several
    requests under way. What other programs do to the same document can't be seen from here.

    What happened is read from GetDocInfo, which is taken to spell a version's digest as the answers of Save and the
    updates do (letter case apart). If it spelled them otherwise, it would show a digest never seen before for a
    document that nothing has happened to. Once GetDocInfo has been seen to do that, a digest from another answer proves
    nothing any more, until GetDocInfo has shown the same digest as another answer for some document.

    Those under way are kept as long as it takes, of the others the latest, and more of those left open.
    """

    def __init__(self) -> None:
        self.has_consistent_spelling = True
        """Whether GetDocInfo spells digests as other answers do, as far as was seen."""
        self._in_progress: dict[str, _DocumentDigests] = {}
        self._unresolved: OrderedDict[str, _DocumentDigests] = OrderedDict()
        self._inactive: OrderedDict[str, _DocumentDigests] = OrderedDict()

    @contextlib.contextmanager
    def track_change(
        self, identifier: str, digest: str | None, *, from_info: bool = False
    ) -> Generator[DocumentChange]:
        """A change of a document whose digest the caller knew, or didn't. from_info: it is from GetDocInfo."""
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
        """A GetDocInfo: append the digest that it gives. It counts if nothing was changed meanwhile."""
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
                self.has_consistent_spelling = (
                    False  # nothing of ours happened to it: another spelling, or another program
                )
            document.record_version(digest)

    def record_saved(self, identifier: str, digest: str | None) -> None:
        """Note a document that was stored."""
        current = _fold_case(digest)
        if current and self._find_document(identifier) is None:
            document = _DocumentDigests(newest_digest=current, seen_digests={current})
            self.record_other_digest(document, current)
            self._retire_document(identifier, document)

    def record_info_digest(self, document: _DocumentDigests, digest: str) -> None:
        """Note a digest that GetDocInfo gave, whoever made that version."""
        document.info_digests.add(digest)
        self.has_consistent_spelling = self.has_consistent_spelling or digest in document.other_digests

    def record_other_digest(self, document: _DocumentDigests, digest: str) -> None:
        """Note a digest that Save or an update gave."""
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
