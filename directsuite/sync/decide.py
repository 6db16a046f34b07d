"""What a round decides without asking anybody: what is recorded of a folder + what the server shows → what to do.

A folder, once it was listed (`next_step`):

    the listing           besides                       step
    ───────────────────   ───────────────────────────   ─────────────────────────────────────────────────────
    any                   suspect, or an audit is due   FULL_RESYNC
    is as it was          sentinels were seen lately    NONE
    is as it was                                        VERIFY, then NONE; FULL_RESYNC where a sentinel differs
    has changed oddly                                   FULL_RESYNC
    has changed                                         VERIFY, then FETCH; FULL_RESYNC where a sentinel differs

A message, by the state of its row (`State`; `missing_rows`, `confirm_deletions`, `kind_of`):

    state             two listings lack its uid         the folder is renumbered   its uid is listed
    ───────────────   ───────────────────────────────   ────────────────────────   ────────────────────────────────
    none                                                                           fetched: NEW, MOVED or RESTORED
    LIVE              MISSING                           UNRESOLVED                 nothing to do
    MISSING           told GONE, a whole round later    UNRESOLVED                 LIVE again, or fetched
    UNRESOLVED        told GONE, a whole round later    UNRESOLVED                 fetched
    DELETED           nothing to do                     DELETED                    fetched: RESTORED
    POISON            DELETED: nobody was told          DELETED                    asked for again when it is due
    IN_DOUBT          UNRESOLVED                        UNRESOLVED                 fetched, and told again
    POISON_IN_DOUBT   UNRESOLVED                        UNRESOLVED                 asked for again when it is due
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import attrs

from directsuite.core.retry import Backoff
from directsuite.sync.identity import Match, Metadata
from directsuite.sync.model import LISTED_STATES, STATE_AFTER_LEAVING, Kind, MessageRow, MessageState, StoredFolder

_MIN_MISSING, _MIN_MISSING_SHARE = (
    3,
    0.3,
)  # messages, and their share of the folder, whose disappearance at once is looked into
_MAX_ROUNDS_WAITING = (
    3  # rounds in which a folder that can't be seen whole keeps the messages of others from being told GONE
)
_BACKOFF = Backoff(900.0, 86_400.0)  # of what was quarantined
_AUDIT_MS = 86_400_000  # between two comparisons of everything
_CLOCK_DIFFERENCE_MS = 60_000
_SAMPLE = 10  # messages at either end whose contents are compared where the metadata tell of none

LEFT_STATES = (MessageState.DELETED, MessageState.UNRESOLVED)
"""States of uids that nobody has to be told gone; an UNRESOLVED one may be of the folder's present numbering."""

_MAYBE_SENT = (MessageState.IN_DOUBT, MessageState.QUARANTINED_UNCONFIRMED)
"""States of a uid's own row that tell nothing of where its message was: it is told as it was, or would have been."""

_T = TypeVar("_T")

FolderRow = tuple[str, MessageRow]
"""A row, after the name of its folder."""


@attrs.define(eq=False, repr=False)
class FolderMemory:
    """What this process remembers of a folder as long as its mailbox is leased. A new process finds it out again."""

    folder: StoredFolder
    """What the store has of it."""
    etag: bytes | None = None
    """The mark of the listing up to which everything is done."""
    verified_at: float | None = None
    """When its sentinels were last what they should be, in monotonic seconds."""
    missed_fetches: Counter[int] = attrs.field(factory=Counter[int])
    """How often a uid was listed, asked for, and missing in the answer."""
    rounds_blocked_by: Counter[str] = attrs.field(factory=Counter[str])
    """In how many rounds in a row another folder, which could not be read, kept this one from being synchronised."""
    needs_resync: bool = False
    """Whether contents were seen to differ under the same uid and identity."""
    has_unconfirmed_missing: bool = True
    """Whether messages that left before this process knew the folder are still to be confirmed as missing."""
    has_lost_message: bool = False
    """Whether another folder has taken over a message since the last snapshot."""

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    def invalidate_listing(self) -> list[StoredFolder]:
        """The folder, to be written with rows of it that change: even the same listing counts as a change from now on.

        It is empty where the store says so already.
        """
        self.etag = None
        if self.folder.fingerprint is None:
            return []
        self.folder = attrs.evolve(self.folder, fingerprint=None)
        return [self.folder]


@attrs.define(eq=False, repr=False)
class FolderSnapshot:
    """What a listing shows of a folder, beside what is recorded of it."""

    state: FolderMemory
    uids: frozenset[int]
    """The uids that are listed."""
    recorded: Mapping[int, MessageState]
    """The states of the uids of which there is a row."""
    fingerprint: bytes
    etag: bytes | None = None
    """The listing's mark; None where the uids are not from a listing."""
    carried_over: int = 0
    """How many messages a full resync has carried over to another numbering."""
    missing_confirmed: bool = True
    """Whether what is missing was missing in a second listing, too."""
    all_fetched: bool = False
    """Whether everything new was fetched."""

    @property
    def uids_to_fetch(self) -> list[int]:
        """Uids never seen before, those that came back, and those of which nobody knows who was told, ascending."""
        return sorted(uid for uid in self.uids if self.recorded.get(uid) in (None, MessageState.IN_DOUBT, *LEFT_STATES))

    @property
    def uids_missing(self) -> set[int]:
        """Uids that were there, as far as anybody was told, and are not listed; if unsure, those that left, too."""
        here = (*LISTED_STATES, MessageState.MISSING) if self.state.has_unconfirmed_missing else LISTED_STATES
        return {uid for uid, state in self.recorded.items() if state in here and uid not in self.uids}

    @property
    def may_be_renumbered(self) -> bool:
        """Whether the folder may number its messages anew: mail that comes and goes one by one doesn't look so."""
        highest = max(self.recorded, default=-1)
        late = any(uid <= highest for uid in self.uids - self.recorded.keys())
        returned = any(self.recorded.get(uid) in (*LEFT_STATES, MessageState.MISSING) for uid in self.uids)
        return late or returned or self.has_lost_many

    @property
    def has_lost_many(self) -> bool:
        """True if the listing lacks all messages of the folder, or at least three and 30 % of them."""
        missing, here = self.uids_missing, sum(state in LISTED_STATES for state in self.recorded.values())
        return bool(missing) and (
            not self.uids or (len(missing) >= _MIN_MISSING and len(missing) >= _MIN_MISSING_SHARE * here)
        )

    def is_confirmed_by(self, second: Iterable[int]) -> bool:
        """Whether a second listing says the same of what is missing: all that it has more is new at its end."""
        listed = frozenset(second)
        highest = max(self.uids | self.recorded.keys(), default=0)
        return self.uids <= listed and all(uid > highest for uid in listed - self.uids)


class FolderStep(enum.Enum):
    """What is to be done with a folder that was listed."""

    NONE = enum.auto()
    """Nothing: it is as it was."""
    VERIFY_SENTINELS = enum.auto()
    """The sentinels are looked at: where they are what they were, the listing is believed."""
    FULL_RESYNC = enum.auto()
    """Everything is compared."""


def next_step(state: FolderMemory, changed: FolderSnapshot | None, *, audit: bool, sentinels_due: bool) -> FolderStep:
    """What to do with a folder. changed: what it shows where its listing isn't what it was."""
    if audit or state.needs_resync or (changed is not None and changed.may_be_renumbered):
        return FolderStep.FULL_RESYNC
    return FolderStep.VERIFY_SENTINELS if changed is not None or sentinels_due else FolderStep.NONE


def may_have_same_numbering(
    rows: Mapping[int, MessageRow], metadata: Mapping[int, Metadata], listed: Collection[int]
) -> bool:
    """Return False if nothing can show that the uids identify the same messages as before.

    That is so if no metadata can be compared, and no content, and the listed uids are not all new ones.
    """
    if not listed or _comparable_rows(rows, metadata):
        return True
    all_gone = all(row.state in LEFT_STATES for row in rows.values())
    return bool(_rows_with_content(rows, listed)) or (all_gone and min(listed) > max(rows, default=-1))


def has_contradicting_metadata(rows: Mapping[int, MessageRow], metadata: Mapping[int, Metadata]) -> bool:
    """Return True if the metadata of any message contradict what was recorded."""
    return any(metadata[row.uid].match is Match.DIFFERENT for row in _comparable_rows(rows, metadata))


def unproven_rows(
    rows: Mapping[int, MessageRow], metadata: Mapping[int, Metadata], *, audit: bool
) -> Sequence[MessageRow]:
    """Return rows whose metadata do not prove that the message is the recorded one: some, or at an audit all.

    If their contents are the same, the service's metadata differ from its messages, and the folder has not changed.
    """
    proofs = (Match.SAME, Match.LIKELY)
    unproven = [row for row in _comparable_rows(rows, metadata) if metadata[row.uid].match not in proofs and row.digest]
    if audit:
        return unproven
    back = [row for row in unproven if row.state is MessageState.MISSING]
    return [*back, *sample([row for row in unproven if row.state is not MessageState.MISSING])]


def rows_to_compare(
    rows: Mapping[int, MessageRow], metadata: Mapping[int, Metadata], listed: Collection[int], *, audit: bool
) -> Sequence[MessageRow]:
    """Rows whose identity proves nothing: those that come back, and all where no other proves anything, or audit."""
    seen = _comparable_rows(rows, metadata)
    if not seen:  # the metadata lack what is listed
        return sample(_rows_with_content(rows, listed))
    every = audit or not any(metadata[row.uid].match is Match.SAME for row in seen)
    back = (MessageState.MISSING, *LEFT_STATES)
    return [row for row in seen if metadata[row.uid].match is Match.LIKELY and (every or row.state in back)]


def _comparable_rows(rows: Mapping[int, MessageRow], metadata: Mapping[int, Metadata]) -> list[MessageRow]:
    """Return the rows with an identity that can be compared with metadata."""
    return [row for uid, row in rows.items() if uid in metadata and row.identity is not None]


def sample(items: Sequence[_T]) -> Sequence[_T]:
    """Return the first items and the last ones."""
    return [*items[:_SAMPLE], *items[_SAMPLE:][-_SAMPLE:]]


def _rows_with_content(rows: Mapping[int, MessageRow], listed: Collection[int]) -> list[MessageRow]:
    """Rows that are listed, and whose contents can be compared."""
    return [row for uid, row in rows.items() if uid in listed and row.digest is not None]


def revived_rows(rows: Mapping[int, MessageRow], listed: Collection[int]) -> list[MessageRow]:
    """Rows of messages that came back before anybody was told: they are what they were."""
    return [
        attrs.evolve(row, state=MessageState.LIVE)
        for uid, row in rows.items()
        if uid in listed and row.state is MessageState.MISSING
    ]


def carried_over_pairs(
    folder: StoredFolder, rows: Mapping[int, MessageRow], metadata: Mapping[int, Metadata]
) -> Iterator[tuple[MessageRow, MessageRow]]:
    """The old and the new row of each message whose identity is strong and nobody else's, in a new numbering."""
    by_identity: defaultdict[bytes, list[MessageRow]] = defaultdict(list)
    for row in rows.values():
        if row.state in (MessageState.LIVE, MessageState.MISSING) and row.identity is not None:
            by_identity[row.identity].append(row)
    times = Counter(each.identity for each in metadata.values())
    for uid, now in sorted(metadata.items()):
        old = by_identity.get(now.identity, [])
        if not now.strong or len(old) != 1 or times[now.identity] != 1:
            continue
        row = MessageRow(
            folder=folder.id,
            uid_validity=folder.uid_validity,
            uid=uid,
            state=MessageState.LIVE,
            identity=now.identity,
            digest=old[0].digest,
            size=now.size,
            received_ms=now.received_ms,
        )
        yield old[0], row


def is_due(due_ms: int, now_ms: int, max_pause_ms: int) -> bool:
    """Return True if a stored time has come, or is further ahead than anything is ever scheduled.

    In the second case, the clock was ahead when the time was stored. longest_pause_ms: how far ahead of the present
    the time can have been when it was stored. Clocks of several machines may differ by a minute.
    """
    return not now_ms < due_ms <= now_ms + max_pause_ms + _CLOCK_DIFFERENCE_MS


def is_audit_due(folder: StoredFolder, now_ms: int) -> bool:
    """Return True if everything in a folder must be compared again. The first complete round counts as an audit."""
    return folder.audited_ms is not None and is_due(folder.audited_ms + _AUDIT_MS, now_ms, _AUDIT_MS)


def is_retry_due(row: MessageRow, now_ms: int) -> bool:
    """Return True if it is time to try again what a row records."""
    return row.retry_ms is None or is_due(row.retry_ms, now_ms, _retry_pause_ms(row.attempts))


def with_failed_attempt(row: MessageRow, now_ms: int) -> MessageRow:
    """A row of what was tried once more, and is tried again later."""
    attempts = row.attempts + 1
    return attrs.evolve(row, attempts=attempts, retry_ms=now_ms + _retry_pause_ms(attempts))


def _retry_pause_ms(attempts: int) -> int:
    return round(1000 * _BACKOFF.compute_wait(attempts))


def rows_after_leaving(rows: Iterable[MessageRow]) -> Iterator[MessageRow]:
    """What becomes of rows whose messages two listings lack."""
    for row in rows:
        if row.state in STATE_AFTER_LEAVING:
            yield attrs.evolve(row, state=STATE_AFTER_LEAVING[row.state], attempts=0, retry_ms=None)


def rank_origins(row: MessageRow, candidates: Iterable[FolderRow]) -> Iterator[FolderRow]:
    """Where a message with this content may have been before: the most likely first.

    Its own old position comes first, then rows not yet told gone, then those of its folder, then those of its uid. A
    row that says only that a sink may have been told of this position is none.
    """

    def distance(origin: FolderRow) -> tuple[bool, bool, bool, bool]:
        """The sort key."""
        other = origin[1]
        return (
            other.key != row.key,
            other.state is MessageState.DELETED,
            other.folder != row.folder,
            other.uid != row.uid,
        )

    for origin in sorted(candidates, key=distance):
        if origin[1].key != row.key or origin[1].state not in _MAYBE_SENT:
            yield origin


def has_surely_left(row: MessageRow, origin: MessageRow) -> bool:
    """Whether a message is no copy of an earlier one, whatever the server shows: that one was not listed any more."""
    return origin.key == row.key or origin.state not in LISTED_STATES


def change_kind(row: MessageRow, origin: MessageRow | None) -> Kind:
    """What a message that was fetched is to a sink. origin: the row of where it was before."""
    if origin is None:
        return Kind.NEW
    was_told_gone = origin.state in (MessageState.DELETED, MessageState.POISON)  # POISON has a digest only for that
    return Kind.RESTORED if was_told_gone or origin.key == row.key else Kind.MOVED


@attrs.frozen
class Deletions:
    """What of the messages that are missing is told to be gone."""

    confirmed: Sequence[FolderRow]
    """Those that are told now."""
    waiting_since: Mapping[tuple[int, int, int], int]
    """In which round the others, by their keys, began to wait: they may turn up in another folder yet."""
    has_retries_later: bool
    """Whether there are some that the sink couldn't take, and that are told when their time comes."""


def confirm_deletions(
    candidates: Iterable[FolderRow],
    waiting_since: Mapping[tuple[int, int, int], int],
    *,
    round_number: int,
    now_ms: int,
    several_folders: bool,
    any_folder_incomplete: bool,
) -> Deletions:
    """Tell what is gone: only what nothing that is fetched from now on can be, somewhere else.

    candidates: MISSING and UNRESOLVED rows of folders that were seen whole. several_folders: a message may have gone to
    another folder, and waits for a whole round in which all are listed. some_incomplete: one of them was not seen
    whole; it holds up the others for a few rounds only.
    """
    confirmed, still_waiting, postponed = list[FolderRow](), dict[tuple[int, int, int], int](), False
    for name, row in candidates:
        since = waiting_since.get(row.key, round_number)
        waited = round_number - since
        if not is_retry_due(row, now_ms):
            postponed = True
        elif several_folders and (waited < 1 or (any_folder_incomplete and waited < _MAX_ROUNDS_WAITING)):
            still_waiting[row.key] = since
        else:
            confirmed.append((name, row))
    return Deletions(confirmed, still_waiting, postponed)
