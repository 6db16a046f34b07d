"""What a suite knows of its documents' versions, and so whether a new digest is the work of one call.

    given digest ─► the newest known, nothing else under way or left open ─► one never seen before is this call's

A digest that only differs from the given one would prove nothing: the caller may give an old answer, or have several
requests under way. What other programs do to the same document can't be seen from here.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Generator

import attrs

from directsuite.errors import DirectSuiteError, Outcome

_KEPT = 4096  # documents; a forgotten one is taken as the caller gives it


@attrs.define(eq=False)
class _Known:
    """One document. newest: its digest, None where no answer told it. seen: every digest that was ever told or given.

    passed: a version came to be whose digest nobody told. left_open: a change may still arrive.
    """

    newest: str | None = None
    seen: set[str] = attrs.field(factory=set[str])
    under_way: list[Change] = attrs.field(factory=list["Change"])
    changes: int = 0
    passed: bool = False
    left_open: bool = False

    def is_newest(self, digest: str) -> bool:
        """Whether the document stood so when it was last told of, as far as is known."""
        return not self.passed and (self.newest is None or digest == self.newest or digest not in self.seen)

    def told(self, digest: str | None) -> None:
        """Note what the document became; without a digest nobody knows."""
        if digest:
            self.seen.add(digest)
        self.newest, self.passed = digest or None, not digest


@attrs.define(eq=False)
class Change:
    """A change of a document under way. traceable: a digest never seen before would be its work.

    shared: another change was under way at the same time, and nobody tells which came last.
    """

    _known: _Known
    traceable: bool
    shared: bool
    happened: bool = False

    def made(self, digest: str | None) -> bool:
        """Whether this digest, told now, shows that the change happened."""
        return self.traceable and bool(digest) and digest not in self._known.seen

    def became(self, digest: str | None) -> None:
        """Note that it happened, and the document's digest after it, where the answer told it."""
        self.happened = True
        self._known.told(digest)
        if self.shared:
            self._known.passed = True


class Versions:
    """The documents that a suite changes."""

    def __init__(self) -> None:
        self._documents: OrderedDict[str, _Known] = OrderedDict()

    @contextlib.contextmanager
    def change(self, identifier: str, digest: str | None) -> Generator[Change]:
        """A change of a document whose digest the caller knew, or didn't."""
        known = self._known(identifier)
        shared = bool(known.under_way)
        certain = not shared and not known.left_open and known.is_newest(digest or "")
        change = Change(known, traceable=certain and bool(digest), shared=shared)
        if digest:
            known.seen.add(digest)
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

    @contextlib.contextmanager
    def reading(self, identifier: str) -> Generator[list[str | None]]:
        """A look at a document: append the digest that it told. It counts where nothing was changed meanwhile."""
        told: list[str | None] = []
        known = self._documents.get(identifier)
        changes = 0 if known is None else known.changes
        yield told
        if known is not None and told and not known.under_way and known.changes == changes:
            known.told(told[-1])

    def _known(self, identifier: str) -> _Known:
        known = self._documents.setdefault(identifier, _Known())
        self._documents.move_to_end(identifier)
        if len(self._documents) > _KEPT:
            self._documents.popitem(last=False)
        return known


def _did_not_happen(error: BaseException) -> bool:
    return isinstance(error, DirectSuiteError) and error.outcome is not Outcome.UNKNOWN
