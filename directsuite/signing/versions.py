"""What a suite knows of its documents' versions, and so whether a new digest is the work of one call.

    given digest ─► the newest known, nothing else under way or left open ─► one never seen before is this call's

A digest that only differs from the given one would prove nothing: the caller may give an old answer, or have several
requests under way. What other programs do to the same document can't be seen from here.

Only GetDocInfo is asked later, and taken to spell a version's digest as Save and the updates do (letter case apart).
Were it otherwise, it would tell a digest never seen before of a document that nothing has happened to. Where it is seen
to do that, a digest of theirs proves nothing any more, until GetDocInfo has told the same as they of some document.
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
class _Known:
    """One document. newest: its digest, None where no answer told it. seen: every digest that was ever told or given.

    looked: those that GetDocInfo told. answered: those that other answers told. passed: a version came to be whose
    digest nobody told. left_open: a change may still arrive.
    """

    newest: str | None = None
    seen: set[str] = attrs.field(factory=set[str])
    looked: set[str] = attrs.field(factory=set[str])
    answered: set[str] = attrs.field(factory=set[str])
    under_way: list[Change] = attrs.field(factory=list["Change"])
    changes: int = 0
    passed: bool = False
    left_open: bool = False

    def is_newest(self, digest: str) -> bool:
        """Whether the document stood so when it was last told of, as far as is known."""
        return not self.passed and (self.newest is None or digest == self.newest or digest not in self.seen)

    def became(self, digest: str) -> None:
        """Note what the document became; without a digest nobody knows."""
        if digest:
            self.seen.add(digest)
        self.newest, self.passed = digest or None, not digest


@attrs.define(eq=False, repr=False)
class Change:
    """A change of a document under way. base: the digest that the caller knew.

    traceable: a digest never seen before would be its work. shared: another change was under way at the same time, and
    nobody tells which came last.
    """

    _versions: Versions
    _known: _Known
    base: str
    traceable: bool
    shared: bool
    happened: bool = False

    @property
    def comparable(self) -> bool:
        """Whether GetDocInfo spells the base as it was given, as far as was seen."""
        return self.base in self._known.looked or self._versions.alike

    def made(self, digest: str | None) -> bool:
        """Whether this digest, told by GetDocInfo now, shows that the change happened, if both are comparable."""
        told = _folded(digest)
        if told:
            self._versions.looked(self._known, told)
        return self.traceable and bool(told) and told not in self._known.seen

    def became(self, digest: str | None, *, looked: bool = False) -> None:
        """Note that it happened, and the document's digest after it, where one was told. looked: by GetDocInfo."""
        self.happened = True
        told = _folded(digest)
        self._known.became(told)
        if told and not looked:
            self._versions.answered(self._known, told)
        if self.shared:
            self._known.passed = True


class Versions:
    """The documents that a suite changes. alike: GetDocInfo spells digests as other answers do, as far as was seen.

    Those under way are kept as long as it takes, of the others the latest, and more of those left open.
    """

    def __init__(self) -> None:
        self.alike = True
        self._under_way: dict[str, _Known] = {}
        self._left_open: OrderedDict[str, _Known] = OrderedDict()
        self._at_rest: OrderedDict[str, _Known] = OrderedDict()

    @contextlib.contextmanager
    def change(self, identifier: str, digest: str | None, *, looked: bool = False) -> Generator[Change]:
        """A change of a document whose digest the caller knew, or didn't. looked: it is from GetDocInfo."""
        known = self._under_way[identifier] = self._taken(identifier) or _Known()
        base = _folded(digest)
        shared = bool(known.under_way)
        certain = not shared and not known.left_open and known.is_newest(base)
        change = Change(self, known, base, traceable=certain and bool(base), shared=shared)
        if base:
            known.seen.add(base)
            if looked:
                self.looked(known, base)
        for other in known.under_way:
            other.traceable, other.shared = False, True
        known.under_way.append(change)
        known.changes += 1
        try:
            yield change
        except BaseException as error:
            if not change.happened and not _did_not_happen(error):
                known.left_open = True
            raise
        finally:
            known.under_way.remove(change)
            if not known.under_way:
                self._rest(identifier, self._under_way.pop(identifier))

    @contextlib.contextmanager
    def reading(self, identifier: str) -> Generator[list[str | None]]:
        """A look at a document: append the digest that it told. It counts where nothing was changed meanwhile."""
        told: list[str | None] = []
        known = self._kept(identifier)
        changes = 0 if known is None else known.changes
        yield told
        if known is None or not told:
            return
        digest = _folded(told[-1])
        if digest:
            self.looked(known, digest)
        if not known.under_way and known.changes == changes:
            if digest and known.newest and digest != known.newest and not (known.passed or known.left_open):
                self.alike = False  # nothing of ours happened to it: another spelling, or another program
            known.became(digest)

    def saved(self, identifier: str, digest: str | None) -> None:
        """Note a document that was stored."""
        told = _folded(digest)
        if told and self._kept(identifier) is None:
            known = _Known(newest=told, seen={told})
            self.answered(known, told)
            self._rest(identifier, known)

    def looked(self, known: _Known, digest: str) -> None:
        """Note a digest that GetDocInfo told; whether the change under way made it is not said by that."""
        known.looked.add(digest)
        self.alike = self.alike or digest in known.answered

    def answered(self, known: _Known, digest: str) -> None:
        """Note a digest that Save or an update told."""
        known.answered.add(digest)
        self.alike = self.alike or digest in known.looked

    def _kept(self, identifier: str) -> _Known | None:
        for kept in (self._under_way, self._left_open, self._at_rest):
            if identifier in kept:
                return kept[identifier]
        return None

    def _taken(self, identifier: str) -> _Known | None:
        known = self._kept(identifier)
        self._left_open.pop(identifier, None)
        self._at_rest.pop(identifier, None)
        return known

    def _rest(self, identifier: str, known: _Known) -> None:
        kept, most = (self._left_open, _KEPT_OPEN) if known.left_open else (self._at_rest, _KEPT)
        kept[identifier] = known
        if len(kept) > most:
            kept.popitem(last=False)


def _folded(digest: str | None) -> str:
    return (digest or "").casefold()


def _did_not_happen(error: BaseException) -> bool:
    return isinstance(error, DirectSuiteError) and error.outcome is not Outcome.UNKNOWN
