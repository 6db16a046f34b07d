"""The decisions of a sync round, without I/O: recorded state + server listing → what to do.

Terms: the *sink* receives the changes. A *listing* is the server's list of a folder's uids. A folder is *renumbered*
when the server assigns new uids to its messages. *Sentinels* are its newest and oldest recorded message.

A folder, once it has been listed (`needs_full_resync`):

    listing                    condition                            step
    ────────────────────────   ──────────────────────────────────   ────────────────────────────────────────────────
    any                        SUSPECT, or an audit is due          full resync: everything is compared
    unchanged                  sentinels verified recently          none
    unchanged                  verification is due                  none if the sentinels match, else full resync
    changed, maybe renumbered                                       full resync
    changed                                                         fetch if the sentinels match, else full resync

What the process knows about the listing of a folder (`Certainty`):

    event                                      before          after
    ────────────────────────────────────────   ─────────────   ─────────────────────────────────────────────────────
    listed, or compared by a full resync       any             COMPLETE if unchanged, else UNCONFIRMED
    nothing is missing, or confirmed missing   UNCONFIRMED     CONFIRMED
    everything is fetched                      CONFIRMED       COMPLETE: the listing is recorded
    a message moved to another folder          all but SUSPECT UNCONFIRMED: the next listing counts as changed
    a uid seems to have another message        any             SUSPECT: full resync, without a comparison

    Deletions in a folder are reported only while it is COMPLETE.

A message, by the state of its row (`MessageState`; `rows_after_leaving`, `confirm_deletions`, `change_kind`):

    state                     not in two listings in a row        folder is renumbered   uid is listed
    ───────────────────────   ─────────────────────────────────   ────────────────────   ──────────────────────────────
    no row                                                                               fetched: NEW, MOVED, RESTORED
    LIVE                      MISSING                             UNRESOLVED             nothing to do
    MISSING                   GONE, after one complete round (1)  UNRESOLVED             LIVE again, or fetched (2)
    UNRESOLVED                GONE, after one complete round (1)  UNRESOLVED             fetched
    DELETED                   nothing to do                       DELETED                fetched: RESTORED
    POISON                    DELETED: the sink has no copy       DELETED                retried when due
    IN_DOUBT                  UNRESOLVED                          UNRESOLVED             fetched, and sent again
    QUARANTINED_UNCONFIRMED   UNRESOLVED                          UNRESOLVED             retried when due

    (1) immediately if the mailbox has only one folder; up to _MAX_ROUNDS_WAITING rounds if a folder is incomplete
    (2) fetched if a full resync found the folder renumbered
"""

from __future__ import annotations

import enum
import hashlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import msgspec

from directsuite.core.retry import Backoff
from directsuite.messaging.models import MessageDetail
from directsuite.sync.model import LISTED_STATES, STATE_AFTER_LEAVING, Kind, MessageRow, MessageState, StoredFolder

# If at least this many messages, and this share of the folder, are missing at once, the folder may be renumbered.
_MIN_MISSING, _MIN_MISSING_SHARE = 3, 0.3
_MAX_ROUNDS_WAITING = 3
_BACKOFF = Backoff(900.0, 86_400.0)
_AUDIT_MS = 86_400_000
_CLOCK_DIFFERENCE_MS = 60_000
_SAMPLE = 10
IDENTITY_BYTES, DIGEST_BYTES = 12, 16
_DATE_PRECISION_MS = 1000

LEFT_STATES = (MessageState.DELETED, MessageState.UNRESOLVED)
"""States of messages already known to have left: if such a uid is listed again, its message is fetched."""

_MAYBE_SENT = (MessageState.IN_DOUBT, MessageState.QUARANTINED_UNCONFIRMED)
"""States of messages whose change the sink may have received. It is sent again, with the same kind."""

_T = TypeVar("_T")

FolderRow = tuple[str, MessageRow]
"""A folder name, and a row of that folder."""


class Certainty(enum.Enum):
    """How far the last listing of a folder is confirmed and processed."""

    UNCONFIRMED = enum.auto()
    """Messages may be missing only from this listing, or have moved to another folder since."""
    CONFIRMED = enum.auto()
    """A second listing has confirmed what is missing. Some listed messages may not be fetched yet."""
    COMPLETE = enum.auto()
    """The listing is processed completely."""
    SUSPECT = enum.auto()
    """A uid seems to have another message than recorded."""


@attrs.define(eq=False, repr=False)
class FolderMemory:
    """What this process knows about a folder while it holds the lease. It is not stored."""

    folder: StoredFolder
    etag: bytes | None = None
    """The ETag of the last listing that was processed completely."""
    verified_at: float | None = None
    """When its sentinels last matched, in monotonic seconds."""
    missed_fetches: Counter[int] = attrs.field(factory=Counter[int])
    """How often each uid was listed and requested, but missing from the response."""
    rounds_blocked_by: Counter[str] = attrs.field(factory=Counter[str])
    """The number of rounds in a row in which an unreadable folder, by its name, blocked this one."""
    certainty: Certainty = Certainty.UNCONFIRMED

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    def invalidate_listing(self) -> list[StoredFolder]:
        """Make the next listing count as changed, even if it is identical.

        Return the folder to write with the changed rows; an empty list if it needs no change.
        """
        self.etag = None
        if self.folder.fingerprint is None:
            return []
        self.folder = attrs.evolve(self.folder, fingerprint=None)
        return [self.folder]


@attrs.frozen(repr=False)
class UidListing:
    """The listed uids of a folder. etag: a hash of the response."""

    uids: frozenset[int] = frozenset()
    etag: bytes = b""
    unusable_count: int = 0
    """Listed values that are not uids. Any message may be missing because of them."""

    @property
    def fingerprint(self) -> bytes:
        """A hash of the uids."""
        return compute_sha256(array("q", sorted(self.uids)).tobytes(), DIGEST_BYTES)


@attrs.define(eq=False, repr=False)
class FolderSnapshot:
    """A folder's listing, and the recorded states of its messages."""

    state: FolderMemory
    listing: UidListing
    recorded: Mapping[int, MessageState]

    @property
    def uids(self) -> frozenset[int]:
        """The listed uids."""
        return self.listing.uids

    @property
    def uids_to_fetch(self) -> list[int]:
        """The listed uids without a row, in `LEFT_STATES` or IN_DOUBT, ascending."""
        return sorted(uid for uid in self.uids if self.recorded.get(uid) in (None, MessageState.IN_DOUBT, *LEFT_STATES))

    @property
    def uids_missing(self) -> set[int]:
        """The uids in `LISTED_STATES` or MISSING that are not listed."""
        here = (*LISTED_STATES, MessageState.MISSING)
        return {uid for uid, state in self.recorded.items() if state in here and uid not in self.uids}

    @property
    def may_be_renumbered(self) -> bool:
        """True if a new uid is below the highest recorded one, a uid came back, or many messages are missing."""
        highest = max(self.recorded, default=-1)
        late = any(uid <= highest for uid in self.uids - self.recorded.keys())
        returned = any(self.recorded.get(uid) in (*LEFT_STATES, MessageState.MISSING) for uid in self.uids)
        return late or returned or self.has_lost_many

    @property
    def has_lost_many(self) -> bool:
        """True if the listing lacks all messages of the folder, or at least three and 30 % of them."""
        if not self.uids:
            return bool(self.uids_missing)
        here = {uid for uid, state in self.recorded.items() if state in LISTED_STATES}
        return len(here - self.uids) >= max(_MIN_MISSING, _MIN_MISSING_SHARE * len(here))

    def is_confirmed_by(self, listed: frozenset[int]) -> bool:
        """Return True if a second listing has the same uids, and additional ones only above the highest known uid."""
        highest = max(self.uids | self.recorded.keys(), default=0)
        return self.uids <= listed and all(uid > highest for uid in listed - self.uids)


class Match(enum.Enum):
    """The result of comparing a message's metadata with the row of the same uid."""

    SAME = enum.auto()
    """The Message-ID is equal, and the dates do not differ."""
    LIKELY = enum.auto()
    """There is no Message-ID; date, size, sender and subject are equal. Another message may have the same."""
    UNPROVEN = enum.auto()
    """The metadata lack values of the identity."""
    DIFFERENT = enum.auto()
    """The Message-ID or date differs: another message, or metadata that differ from the message."""


@attrs.frozen
class Metadata:
    """The metadata of a listed message."""

    row: MessageRow
    """The row that the message would have if it were new."""
    strong: bool
    """True if a Message-ID makes the identity unique."""
    match: Match = Match.UNPROVEN
    """The result of comparing it with the recorded row of the same uid."""


def make_row(
    message: MessageDetail, folder: StoredFolder, uid: int, digest: bytes | None = None, attempts: int = 0
) -> MessageRow:
    """Return the LIVE row of a message."""
    received, size = read_received_ms(message), read_size(message)
    identity = compute_identity(message, received, size)
    return MessageRow(
        folder.id, folder.uid_validity, uid, MessageState.LIVE, identity, digest, size, received, attempts
    )


def needs_full_resync(state: FolderMemory, changed: FolderSnapshot | None, *, audit: bool) -> bool:
    """Return True if everything must be compared. changed: the folder's snapshot if the listing has changed."""
    return audit or state.certainty is Certainty.SUSPECT or (changed is not None and changed.may_be_renumbered)


@attrs.frozen(repr=False)
class Comparison:
    """The recorded rows and the listed messages of a folder, by uid: is it renumbered?

    audit: True to compare all contents that metadata do not prove.
    """

    rows: Mapping[int, MessageRow]
    metadata: Mapping[int, Metadata]
    listed: Collection[int]
    audit: bool

    @property
    def _comparable_rows(self) -> list[MessageRow]:
        return [row for uid, row in self.rows.items() if uid in self.metadata and row.identity is not None]

    @property
    def _rows_with_content(self) -> list[MessageRow]:
        return [row for uid, row in self.rows.items() if uid in self.listed and row.digest is not None]

    @property
    def is_possible(self) -> bool:
        """True if a comparison can decide whether the folder is renumbered, or none is needed.

        None is needed if nothing is listed, or all recorded messages have left and all listed uids are higher.
        """
        if not self.listed or self._comparable_rows or self._rows_with_content:
            return True
        all_gone = all(row.state in LEFT_STATES for row in self.rows.values())
        return all_gone and min(self.listed) > max(self.rows, default=-1)

    @property
    def has_contradicting_metadata(self) -> bool:
        """True if the metadata of any message contradict its row."""
        return any(self.metadata[row.uid].match is Match.DIFFERENT for row in self._comparable_rows)

    @property
    def unproven_rows(self) -> Sequence[MessageRow]:
        """Rows to compare by their contents, because their metadata do not prove that the message is the same.

        All of them for an audit, otherwise a sample and all MISSING ones.
        """
        proofs, rows = (Match.SAME, Match.LIKELY), self._comparable_rows
        unproven = [row for row in rows if self.metadata[row.uid].match not in proofs and row.digest]
        if self.audit:
            return unproven
        back = [row for row in unproven if row.state is MessageState.MISSING]
        return [*back, *sample([row for row in unproven if row.state is not MessageState.MISSING])]

    @property
    def weakly_proven_rows(self) -> Sequence[MessageRow]:
        """Rows to compare by their contents, because their identity is weak.

        These are the LIKELY matches: all for an audit or if none is SAME, otherwise those MISSING or in `LEFT_STATES`.
        If no metadata can be compared, a sample of the listed rows.
        """
        seen = self._comparable_rows
        if not seen:
            return sample(self._rows_with_content)
        every = self.audit or not any(self.metadata[row.uid].match is Match.SAME for row in seen)
        back = (MessageState.MISSING, *LEFT_STATES)
        return [row for row in seen if self.metadata[row.uid].match is Match.LIKELY and (every or row.state in back)]

    @property
    def revived_rows(self) -> list[MessageRow]:
        """The MISSING rows that are listed again, as LIVE."""
        missing = [row for uid, row in self.rows.items() if uid in self.listed and row.state is MessageState.MISSING]
        return [attrs.evolve(row, state=MessageState.LIVE) for row in missing]

    def carried_over_pairs(self, folder: StoredFolder) -> Iterator[tuple[MessageRow, MessageRow]]:
        """Yield the old and the new row of each message recognised in the renumbered folder, by ascending uid.

        Its identity must be strong, and unique among the recorded and the listed messages.
        """
        by_identity: defaultdict[bytes | None, list[MessageRow]] = defaultdict(list)
        for row in self.rows.values():
            if row.state in (MessageState.LIVE, MessageState.MISSING):
                by_identity[row.identity].append(row)
        times = Counter(each.row.identity for each in self.metadata.values())
        for _, now in sorted(self.metadata.items()):
            old = by_identity[now.row.identity]
            if now.strong and len(old) == 1 and times[now.row.identity] == 1:
                yield old[0], attrs.evolve(now.row, uid_validity=folder.uid_validity, digest=old[0].digest)


def sample(items: Sequence[_T]) -> Sequence[_T]:
    """Return the first and the last items, at most `_SAMPLE` of each."""
    return [*items[:_SAMPLE], *items[_SAMPLE:][-_SAMPLE:]]


def split_in_half(items: Sequence[_T]) -> list[Sequence[_T]]:
    """Return the second half of the items, then the first, to push on a stack. A single item is one part."""
    half = len(items) // 2
    return [items[half:], items[:half]] if half else [items]


def can_be_sentinel(row: MessageRow) -> bool:
    """Return True if a row can be a sentinel: LIVE, with an identity and a date."""
    return row.state is MessageState.LIVE and row.identity is not None and row.received_ms is not None


def is_due(due_ms: int, now_ms: int, max_pause_ms: int) -> bool:
    """Return True if a stored time has passed, or was stored while a clock was ahead.

    max_pause_ms: how far ahead the time can have been when it was stored. Clocks may differ by a minute.
    """
    return not now_ms < due_ms <= now_ms + max_pause_ms + _CLOCK_DIFFERENCE_MS


def is_audit_due(folder: StoredFolder, now_ms: int) -> bool:
    """Return True if everything in a folder must be compared again. The first complete round counts as an audit."""
    return folder.audited_ms is not None and is_due(folder.audited_ms + _AUDIT_MS, now_ms, _AUDIT_MS)


def is_retry_due(row: MessageRow, now_ms: int) -> bool:
    """Return True if it is time to retry a row."""
    return row.retry_ms is None or is_due(row.retry_ms, now_ms, _retry_pause_ms(row.attempts))


def with_failed_attempt(row: MessageRow, now_ms: int) -> MessageRow:
    """Return the row with one more failed attempt, and the time of the next one."""
    attempts = row.attempts + 1
    return attrs.evolve(row, attempts=attempts, retry_ms=now_ms + _retry_pause_ms(attempts))


def _retry_pause_ms(attempts: int) -> int:
    return round(1000 * _BACKOFF.compute_wait(attempts))


def rows_after_leaving(rows: Iterable[MessageRow]) -> Iterator[MessageRow]:
    """Yield the new version of each row whose message was missing from two listings in a row."""
    for row in rows:
        if row.state in STATE_AFTER_LEAVING:
            yield attrs.evolve(row, state=STATE_AFTER_LEAVING[row.state], attempts=0, retry_ms=None)


def rank_origins(row: MessageRow, candidates: Iterable[FolderRow]) -> Iterator[FolderRow]:
    """Yield the rows of a message's possible earlier places, most likely first. candidates: rows with its digest.

    The order: its own row, rows whose deletion was not reported, rows of the same folder, rows with the same uid. Its
    own row is skipped if it is in `_MAYBE_SENT`.
    """

    def distance(origin: FolderRow) -> tuple[bool, bool, bool, bool]:
        other, is_deleted = origin[1], origin[1].state is MessageState.DELETED
        return other.key != row.key, is_deleted, other.folder != row.folder, other.uid != row.uid

    for origin in sorted(candidates, key=distance):
        if origin[1].key != row.key or origin[1].state not in _MAYBE_SENT:
            yield origin


def has_surely_left(row: MessageRow, origin: MessageRow) -> bool:
    """Return True if `origin` isn't listed, or has the same key. If not, `row` may be a copy: ask the server."""
    return origin.key == row.key or origin.state not in LISTED_STATES


def change_kind(row: MessageRow, origin: MessageRow | None) -> Kind:
    """Return NEW for a fetched message without an earlier row (`origin`).

    Else RESTORED if its deletion was reported or it has the same key, else MOVED.
    """
    if origin is None:
        return Kind.NEW
    # A POISON row has a digest only if a deletion was reported for it.
    was_reported_gone = origin.state in (MessageState.DELETED, MessageState.POISON)
    return Kind.RESTORED if was_reported_gone or origin.key == row.key else Kind.MOVED


def confirm_deletions(
    candidates: Iterable[FolderRow],
    waiting_since: Mapping[tuple[int, int, int], int],
    *,
    round_number: int,
    now_ms: int,
    several_folders: bool,
    any_folder_incomplete: bool,
) -> tuple[list[FolderRow], dict[tuple[int, int, int], int]]:
    """Return the missing messages to report as GONE, and the round in which each of the others began to wait.

    A message waits because it may turn up in another folder. Rejected deletions that are not due are in neither result.

    candidates: the MISSING and UNRESOLVED rows of folders that this round processed completely.
    waiting_since: the second result of the previous round.
    several_folders: True if a message waits for one complete round.
    any_folder_incomplete: True if a folder was not processed completely, so that it waits up to `_MAX_ROUNDS_WAITING`
    rounds.
    """
    confirmed, still_waiting = list[FolderRow](), dict[tuple[int, int, int], int]()
    for name, row in candidates:
        since = waiting_since.get(row.key, round_number)
        waited = round_number - since
        if not is_retry_due(row, now_ms):
            continue
        if several_folders and (waited < 1 or (any_folder_incomplete and waited < _MAX_ROUNDS_WAITING)):
            still_waiting[row.key] = since
        else:
            confirmed.append((name, row))
    return confirmed, still_waiting


def compute_identity(message: MessageDetail, received: int | None, size: int) -> bytes:
    """Return a hash of Message-ID, date and size; without a Message-ID, of date, size, sender and subject."""
    if message.msg_id:
        return _hash_values((message.msg_id, received, size), IDENTITY_BYTES)
    return _hash_values((received, size, message.sender, message.subject), IDENTITY_BYTES)


def find_match(message: MessageDetail, row: MessageRow) -> Match:
    """Compare a message's metadata with a row. Ignores an unknown date, and the size if there is a Message-ID."""
    received, recorded = read_received_ms(message), row.received_ms
    if row.identity == compute_identity(message, received, read_size(message)):
        return Match.SAME if message.msg_id else Match.LIKELY
    if received is not None and recorded is not None and abs(received - recorded) >= _DATE_PRECISION_MS:
        return Match.DIFFERENT
    if not message.msg_id:
        return Match.UNPROVEN
    # With the row's date and size, the identities differ only if the Message-IDs differ.
    return Match.SAME if row.identity == compute_identity(message, row.received_ms, row.size) else Match.DIFFERENT


def compute_digest(message: MessageDetail) -> bytes:
    """Hash a complete message. Moving or reading it does not change the hash."""
    return _compute_content_digest(message, read_received_ms(message), read_size(message))


def _compute_content_digest(message: MessageDetail, received: int | None, size: int) -> bytes:
    attachments = [
        (each.filename, each.content_type, compute_sha256(each.content, DIGEST_BYTES)) for each in message.attachments
    ]
    recipients = [(each.email, each.type) for each in message.recipients]
    content = (message.msg_id, received, size, message.sender, message.subject, recipients)
    return _hash_values((*content, message.body, message.html_body, attachments), DIGEST_BYTES)


def has_content(message: MessageDetail, row: MessageRow) -> bool:
    """Return True if a complete message has the content of a row. An unknown date or size is not compared."""
    received, size = read_received_ms(message), read_size(message)
    if row.digest == _compute_content_digest(message, received, size):
        return True
    if None not in (received, row.received_ms) and -1 not in (size, row.size):
        return False
    if None in (received, row.received_ms):
        received = row.received_ms
    return row.digest == _compute_content_digest(message, received, row.size if -1 in (size, row.size) else size)


def read_size(message: MessageDetail) -> int:
    """Return the size in bytes; -1 if it is missing, or too large for a database."""
    return message.size if message.size is not None and is_storable(message.size) else -1


def is_storable(number: int) -> bool:
    """Return True if a number fits into a 64-bit column."""
    return -(2**63) <= number < 2**63


def read_received_ms(message: MessageDetail) -> int | None:
    """Return the received date in milliseconds, or None if the message has none."""
    return None if message.received_date is None else round(message.received_date.timestamp() * 1000)


def to_hex(digest: bytes | None) -> str | None:
    """Return a digest in hex, as sinks receive it. None remains None."""
    return None if digest is None else digest.hex()


def compute_sha256(content: bytes, size: int) -> bytes:
    """Return the first `size` bytes of the SHA-256 hash, which SHA instructions make faster than BLAKE2."""
    return hashlib.sha256(content).digest()[:size]


def _hash_values(values: tuple[Any, ...], size: int) -> bytes:
    return compute_sha256(msgspec.msgpack.encode(values), size)
