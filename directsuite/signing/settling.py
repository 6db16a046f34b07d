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

from directsuite.core.facade import NothingMoreToSeeError
from directsuite.errors import DirectSuiteError, Outcome, OutcomeUnknownError, ResponseDecodeError
from directsuite.signing.models import DocumentInfo, DocumentUpdate, Signature

R = TypeVar("R")

_PDF_AS_IT_STANDS = (
    "get_doc(identifier), or download(identifier, destination), gives the PDF as it stands now; the change need not "
    "be made again."
)


@attrs.frozen
class Effect:
    """What a change does."""

    is_shown: Callable[[DocumentInfo], bool]
    """Whether a document looks as the change leaves it."""
    is_common: bool
    """Whether many documents look so before the change."""


STRICT_PATHS = frozenset({"$.signatures[]", "$.signatures[].isSigned", "$.formFields[]"})
"""What GetDocInfo must show to prove a change: a field that cannot be read may be one that the change removes."""

FORM_GONE = Effect(lambda info: not info.form_fields, is_common=True)
"""No form field is left, as after Flatten."""

UNSIGNED_FIELDS_GONE = Effect(lambda info: not any(each.is_signed is False for each in info.signatures), is_common=True)
"""No signature field is left unsigned, as after ClearUnsignedFields."""


def signed(signatures: Iterable[Signature], document: object) -> Effect | None:
    """These signatures are there beside those that the caller's document had. None if one of them has no name."""
    names = [signature.name for signature in signatures]
    if not all(names):
        return None
    before = _signed_names(document) if isinstance(document, DocumentInfo) else None

    def is_shown(info: DocumentInfo) -> bool:
        """Whether each name is there, signed, as often as it has to be."""
        expected, signed_names = Counter(names), _signed_names(info)
        if before is not None:
            expected += Counter({name: times for name, times in before.items() if name in expected})
        return all(signed_names[name] >= times for name, times in expected.items())

    return Effect(is_shown, is_common=False)


def _signed_names(info: DocumentInfo) -> Counter[str | None]:
    return Counter(signature.name for signature in info.signatures if signature.is_signed)


@attrs.define(eq=False, repr=False)
class Settling:
    """Finds out what became of one change of a document whose answer got lost."""

    get_info: Callable[[], Awaitable[DocumentInfo]]
    """Calls GetDocInfo within the change's call."""
    identifier: str
    change: Change
    effect: Effect
    digest: str | None = None
    """The document's digest after the change, once it is proven to have happened."""
    hindrance: str = "the PDF could not be fetched"
    """Why a pull can't give its PDF although the change happened."""
    cause: Exception | None = None
    """What `hindrance` comes from, where that is an error of the destination's."""

    async def update(self) -> DocumentUpdate | None:
        """What the lost answer would have been, if the change is proven."""
        if not await self._proven():
            return None
        return DocumentUpdate(identifier=self.identifier, document_digest=self.digest)

    async def pdf(
        self, fetch: Callable[[], Awaitable[R]], keep: Callable[[], Awaitable[None]] | None = None
    ) -> R | None:
        """What `fetch` gives, once `keep` has stored it, if it is the version that the change was proven to make."""
        if not await self._proven():
            return None
        try:
            fetched = await fetch()
            if (await self.get_info()).document_digest != self.digest:
                self.hindrance = "the document was changed again before its PDF could be fetched"
                raise NothingMoreToSeeError
            if keep is not None:
                await keep()
        except ResponseDecodeError as error:
            if not error.too_large:
                raise
            self.hindrance, self.cause = error.explanation, error
            raise NothingMoreToSeeError from None
        except (DirectSuiteError, NothingMoreToSeeError):
            raise
        except Exception as error:  # noqa: BLE001  the destination's or the callback's own, of whatever kind
            self.hindrance, self.cause = f"its answer could not be kept ({type(error).__name__})", error
            raise NothingMoreToSeeError from None
        return fetched

    def verdict(self, error: OutcomeUnknownError) -> OutcomeUnknownError:
        """The error for the caller of a pull that could not give its PDF, whether or not the change is proven."""
        if self.digest is None:
            return verdict(error)
        knowing = error.knowing(f"it happened, but {self.hindrance}", how_to_find_out=_PDF_AS_IT_STANDS)
        knowing.happened = True
        knowing.__cause__ = self.cause or error.__cause__
        return knowing

    async def _proven(self) -> bool:
        if self.digest is None:
            info = await self.get_info()
            made = self.change.made(info.document_digest) and (self.change.comparable or not self.effect.is_common)
            if made and self.effect.is_shown(info):
                self.digest = info.document_digest
        return self.digest is not None


async def nothing_to_see() -> None:
    """End the looking at once: nothing could prove this call."""
    raise NothingMoreToSeeError


def verdict(error: OutcomeUnknownError) -> OutcomeUnknownError:
    """The error for the caller of a pull without proof: if the answer came, and could not be kept, it did happen."""
    return error.knowing(error.explanation, how_to_find_out=_PDF_AS_IT_STANDS) if error.happened else error


_KEPT = 512  # documents at rest; a forgotten one is taken as the caller gives it
_KEPT_OPEN = 4096  # documents left open: more than can be left open in the hours in which a change might still arrive


@attrs.define(eq=False, repr=False)
class _Document:
    """What is known of one document."""

    newest: str | None = None
    """Its digest; None if no answer held it."""
    seen: set[str] = attrs.field(factory=set[str])
    """Every digest that an answer or the caller ever named."""
    from_info: set[str] = attrs.field(factory=set[str])
    """Those that GetDocInfo gave."""
    from_others: set[str] = attrs.field(factory=set[str])
    """Those that Save and the updates gave."""
    under_way: list[Change] = attrs.field(factory=list["Change"])
    changes: int = 0
    """How many were begun."""
    outdated: bool = False
    """Whether a version came after `newest` whose digest no answer held."""
    left_open: bool = False
    """Whether a change of unknown outcome may still arrive."""

    def is_newest(self, digest: str) -> bool:
        """Return True if this is the digest of the newest version, as far as is known."""
        return not self.outdated and (self.newest is None or digest == self.newest or digest not in self.seen)

    def became(self, digest: str) -> None:
        """Note the digest of a new version, empty where no answer held it."""
        if digest:
            self.seen.add(digest)
        self.newest, self.outdated = digest or None, not digest


@attrs.define(eq=False, repr=False)
class Change:
    """A change of a document under way."""

    _versions: Versions
    _document: _Document
    base: str
    """The digest that the caller knew."""
    traceable: bool
    """Whether a digest never seen before would be its work."""
    shared: bool
    """Whether another change was under way at the same time, so that nobody can tell which came last."""
    happened: bool = False

    @property
    def comparable(self) -> bool:
        """Whether GetDocInfo spells `base` as the caller does, as far as was seen."""
        return self.base in self._document.from_info or self._versions.alike

    def made(self, digest: str | None) -> bool:
        """Return True if this digest, which GetDocInfo gives now, shows that the change happened. See `comparable`."""
        current = _folded(digest)
        if current:
            self._versions.note_info(self._document, current)
        return self.traceable and bool(current) and current not in self._document.seen

    def became(self, digest: str | None, *, from_info: bool = False) -> None:
        """Note that it happened, and the document's digest after it, where an answer held one.

        from_info: that answer was GetDocInfo's.
        """
        self.happened = True
        current = _folded(digest)
        self._document.became(current)
        if current and not from_info:
            self._versions.note_other(self._document, current)
        if self.shared:
            self._document.outdated = True


class Versions:
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
        self.alike = True
        """Whether GetDocInfo spells digests as other answers do, as far as was seen."""
        self._under_way: dict[str, _Document] = {}
        self._left_open: OrderedDict[str, _Document] = OrderedDict()
        self._at_rest: OrderedDict[str, _Document] = OrderedDict()

    @contextlib.contextmanager
    def change(self, identifier: str, digest: str | None, *, from_info: bool = False) -> Generator[Change]:
        """A change of a document whose digest the caller knew, or didn't. from_info: it is from GetDocInfo."""
        document = self._under_way[identifier] = self._taken(identifier) or _Document()
        base = _folded(digest)
        shared = bool(document.under_way)
        certain = not shared and not document.left_open and document.is_newest(base)
        change = Change(self, document, base, traceable=certain and bool(base), shared=shared)
        if base:
            document.seen.add(base)
            if from_info:
                self.note_info(document, base)
        for other in document.under_way:
            other.traceable, other.shared = False, True
        document.under_way.append(change)
        document.changes += 1
        try:
            yield change
        except BaseException as error:
            if not change.happened and not _did_not_happen(error):
                document.left_open = True
            raise
        finally:
            document.under_way.remove(change)
            if not document.under_way:
                self._rest(identifier, self._under_way.pop(identifier))

    @contextlib.contextmanager
    def reading(self, identifier: str) -> Generator[list[str | None]]:
        """A GetDocInfo: append the digest that it gives. It counts if nothing was changed meanwhile."""
        digests: list[str | None] = []
        document = self._kept(identifier)
        changes = 0 if document is None else document.changes
        yield digests
        if document is None or not digests:
            return
        digest = _folded(digests[-1])
        if digest:
            self.note_info(document, digest)
        if not document.under_way and document.changes == changes:
            if (
                digest
                and document.newest
                and digest != document.newest
                and not (document.outdated or document.left_open)
            ):
                self.alike = False  # nothing of ours happened to it: another spelling, or another program
            document.became(digest)

    def saved(self, identifier: str, digest: str | None) -> None:
        """Note a document that was stored."""
        current = _folded(digest)
        if current and self._kept(identifier) is None:
            document = _Document(newest=current, seen={current})
            self.note_other(document, current)
            self._rest(identifier, document)

    def note_info(self, document: _Document, digest: str) -> None:
        """Note a digest that GetDocInfo gave, whoever made that version."""
        document.from_info.add(digest)
        self.alike = self.alike or digest in document.from_others

    def note_other(self, document: _Document, digest: str) -> None:
        """Note a digest that Save or an update gave."""
        document.from_others.add(digest)
        self.alike = self.alike or digest in document.from_info

    def _kept(self, identifier: str) -> _Document | None:
        for kept in (self._under_way, self._left_open, self._at_rest):
            if identifier in kept:
                return kept[identifier]
        return None

    def _taken(self, identifier: str) -> _Document | None:
        document = self._kept(identifier)
        self._left_open.pop(identifier, None)
        self._at_rest.pop(identifier, None)
        return document

    def _rest(self, identifier: str, document: _Document) -> None:
        kept, most = (self._left_open, _KEPT_OPEN) if document.left_open else (self._at_rest, _KEPT)
        kept[identifier] = document
        if len(kept) > most:
            kept.popitem(last=False)


def _folded(digest: str | None) -> str:
    return (digest or "").casefold()


def _did_not_happen(error: BaseException) -> bool:
    return isinstance(error, DirectSuiteError) and error.outcome is not Outcome.UNKNOWN
