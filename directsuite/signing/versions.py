"""What a suite knows of its documents' versions, and so whether a new digest is the work of one call.

    the caller's digest ─► the newest known, no other change under way or left open ─► one never seen is this call's

A digest that only differs from the caller's would prove nothing: the caller may pass an old answer, or have several
requests under way. What other programs do to the same document can't be seen from here.

What happened is read from GetDocInfo, which is taken to spell a version's digest as the answers of Save and the updates
do (letter case apart). If it spelled them otherwise, it would show a digest never seen before for a document that
nothing has happened to. Once GetDocInfo has been seen to do that, a digest from another answer proves nothing any more,
until GetDocInfo has shown the same digest as another answer for some document.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Generator

import attrs

from directsuite.errors import DirectSuiteError, Outcome

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
    """The documents that a suite changes.

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
