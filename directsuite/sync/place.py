"""One folder under synchronisation: what a process remembers of it, and what a look at it found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from directsuite.sync.model import LISTED, Folder, State

_MANY, _MOST_OF_IT = 3, 0.3  # messages, and their share of the folder, whose disappearance at once is looked into

TOLD_GONE = (State.GONE, State.ORPHAN)
"""States of uids that nobody has to be told gone; of an ORPHAN one of the folder's own generation perhaps."""


@attrs.define(eq=False, repr=False)
class Place:
    """A folder, as long as its mailbox is leased. What stands here is not kept: it is found out again.

    mark: of the listing up to which everything is done. looked_at: when canaries were last seen well (monotonic
    seconds). not_returned: how often a uid was listed, asked for, and not in the answer. suspect: contents were seen to
    differ under the same uid and identity. unsure: what had left before this process knew the folder, or before it was
    there again, wants to be confirmed. outdated: another folder has taken over a message since the last look.
    """

    folder: Folder
    mark: bytes | None = None
    looked_at: float | None = None
    not_returned: Counter[int] = attrs.field(factory=Counter[int])
    suspect: bool = False
    unsure: bool = True
    outdated: bool = False

    def reopened(self) -> list[Folder]:
        """The folder, to be written with rows of it that change: should it be listed as it was, that is a change, too.

        None where it says so already.
        """
        self.mark = None
        if self.folder.fingerprint is None:
            return []
        self.folder = attrs.evolve(self.folder, fingerprint=None)
        return [self.folder]


@attrs.define(eq=False, repr=False)
class Look:
    """What a look at a folder found. mark: None where the uids are not from a listing.

    uids: those listed. states: of those known. carried_over: how many moved to another generation. settled: what is
    gone was seen to be gone twice. complete: everything new was fetched.
    """

    place: Place
    uids: frozenset[int]
    states: Mapping[int, State]
    fingerprint: bytes
    mark: bytes | None = None
    carried_over: int = 0
    settled: bool = True
    complete: bool = False

    @property
    def new(self) -> list[int]:
        """Uids never seen before, those that came back, and those of which nobody knows who was told, ascending."""
        return sorted(uid for uid in self.uids if self.states.get(uid) in (None, State.IN_DOUBT, *TOLD_GONE))

    @property
    def missing(self) -> set[int]:
        """Uids that were there, as far as anybody was told, and are not listed; if unsure, those that left, too."""
        here = (*LISTED, State.LEFT) if self.place.unsure else LISTED
        return {uid for uid, state in self.states.items() if state in here and uid not in self.uids}

    @property
    def is_odd(self) -> bool:
        """Whether the folder may number its messages anew: mail that comes and goes one by one doesn't look so."""
        highest = max(self.states, default=0)
        late = any(uid <= highest for uid in self.uids - self.states.keys())
        returned = any(self.states.get(uid) in (*TOLD_GONE, State.LEFT) for uid in self.uids)
        return late or returned or self._many(self.missing)

    def _many(self, missing: set[int]) -> bool:
        here = sum(state in LISTED for state in self.states.values())
        return bool(missing) and (not self.uids or (len(missing) >= _MANY and len(missing) >= _MOST_OF_IT * here))

    def confirms(self, second: Iterable[int]) -> bool:
        """Whether a second listing says the same of what is missing: all that it has more is new at its end."""
        listed = frozenset(second)
        highest = max(self.uids | self.states.keys(), default=0)
        return self.uids <= listed and all(uid > highest for uid in listed - self.uids)
