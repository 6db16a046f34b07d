"""What is known of a mailbox, and what a synchronisation tells of it.

Row, Folder     what a Store keeps: it is read at any time, and a ChangeSet is committed whole
Change, Key     what a sink is told, one change after another, each with a key that stays the same for ever
RoundReport     what a round came to
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import attrs

from directsuite.errors import ConfigurationError, DirectSuiteError
from directsuite.messaging.models import MessageDetail
from directsuite.wire.models import ValueSemantics


class Kind(enum.StrEnum):
    """What became of a message."""

    NEW = "new"
    """It is there, and was never told of before."""
    GONE = "gone"
    """It was deleted: two listings in a row lack it, and no other folder of the mailbox has it."""
    MOVED = "moved"
    """It has another key: it went to another folder, or the folder numbers its messages anew."""
    RESTORED = "restored"
    """It was told to be gone, and is there again. A sink that is no transaction may not have been told."""


@attrs.frozen(repr=False, eq=False)
class Key(ValueSemantics):
    """Where a message is."""

    mailbox: str
    folder: str
    uid_validity: int
    """1, and one more each time that the folder numbers its messages anew: the UIDVALIDITY of RFC 9051 (2.3.1.1).

    The service tells none; the synchronisation finds out and counts.
    """
    uid: int

    def __str__(self) -> str:
        return f"{self.mailbox}/{self.folder}/{self.uid_validity}/{self.uid}"

    def __repr__(self) -> str:
        return f"Key(uid_validity={self.uid_validity}, uid={self.uid})"  # a mailbox and a folder may name a patient


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Change(ValueSemantics):
    """One change. A sink that is no transaction may be told the same one twice: by its key and digest it is known.

    Where such a sink failed, or the process ended, while it was told NEW, and the message went on since, it is told
    MOVED with the message, or GONE, of a key that it may not know: MOVED is as good as NEW then, and GONE nothing.
    After MOVED nothing is under `previous` any more, even where the sink has the message under `key` already.
    """

    kind: Kind
    key: Key
    previous: Key | None = None
    """The key that the message had, for MOVED and RESTORED."""
    message: MessageDetail | None = None
    """The message with its body and attachments: for NEW and RESTORED, and for MOVED where it had to be fetched."""
    digest: str | None = None
    """The digest of the content, the same wherever the message is."""
    is_read: bool | None = None
    """True if the message was marked as read when it was fetched, False if not; None if that is unknown.

    It is known only to sinks that ask for it (see `Deliver`), and only if finding it out is not expensive.
    """

    def __repr__(self) -> str:
        return f"Change({self.kind}, {self.key!r})"


class StoreError(DirectSuiteError):
    """The store could not be read or written. Of what was to be written nothing is."""


class StaleLeaseError(DirectSuiteError):
    """Another worker has claimed the mailbox since: what this one knows may be out of date, and it writes nothing."""


class MessageState(enum.IntEnum):
    """What a message is to the synchronisation; `decide` has the table of what it becomes. Stores keep the numbers."""

    LIVE = 1
    """The sink was told of it, and the last listing had it."""
    MISSING = 2
    """Two listings lack it. The sink was not told yet, because it may have moved to another folder."""
    DELETED = 3
    """The sink was told that it is gone, or that it has another key."""
    UNRESOLVED = 4
    """Its folder has been renumbered, or the sink is about to be told that it is gone.

    It may turn up under another uid, or come back.
    """
    POISON = 5
    """The service can't return it, or the sink can't take it, again and again: quarantined, and retried later."""
    IN_DOUBT = 6
    """Listed, and a sink that is no part of the store may have been told: it is told again, unless that is noted."""
    QUARANTINED_UNCONFIRMED = 7
    """POISON, and a sink that is no part of the store may have been told."""


QUARANTINED_STATES = (MessageState.POISON, MessageState.QUARANTINED_UNCONFIRMED)
LISTED_STATES = (MessageState.LIVE, MessageState.IN_DOUBT, *QUARANTINED_STATES)
"""States of messages that the last listing of their folder had."""

STATE_AFTER_LEAVING = {
    MessageState.LIVE: MessageState.MISSING,
    MessageState.IN_DOUBT: MessageState.UNRESOLVED,
    MessageState.POISON: MessageState.DELETED,
    MessageState.QUARANTINED_UNCONFIRMED: MessageState.UNRESOLVED,
}
"""What becomes of a row whose message isn't listed any more; of a POISON one nobody was told."""


@attrs.frozen(kw_only=True)
class MessageRow:
    """One message, as a store keeps it."""

    folder: int
    """The folder's id."""
    uid_validity: int
    uid: int
    state: MessageState
    identity: bytes | None = None
    """The identity of its metadata; None where nobody could see them, or another row has taken it over."""
    digest: bytes | None = None
    """The digest of its content; None where nobody could see it, or another row has taken it over."""
    size: int = -1
    """Bytes; -1 where the message doesn't say."""
    received_ms: int | None = None
    """When it was received, in milliseconds since 1970."""
    attempts: int = 0
    """How often a quarantined message was tried."""
    retry_ms: int | None = None
    """When a quarantined message is tried next, in milliseconds since 1970."""

    @property
    def key(self) -> tuple[int, int, int]:
        """By which it is one row."""
        return self.folder, self.uid_validity, self.uid


@attrs.frozen(kw_only=True)
class StoredFolder:
    """One folder, as a store keeps it."""

    id: int
    name: str = attrs.field(repr=False)
    uid_validity: int = 1
    fingerprint: bytes | None = None
    """The fingerprint of the listing up to which everything is done."""
    audited_ms: int | None = None
    """When everything was last compared, in milliseconds since 1970."""


@attrs.frozen
class Lease:
    """The right to commit for a mailbox, until another worker claims it."""

    mailbox: int
    """The mailbox's id."""
    name: str = attrs.field(repr=False)
    lease_number: int
    """The fencing number: a commit with any but the latest is refused."""


def validate_bound_sink(bound: str, sink: str) -> None:
    """Raise ConfigurationError where a store is bound to another sink: what the store knows isn't true for this one."""
    if sink != bound:
        raise ConfigurationError(
            f"this store has told its changes to another sink ({bound}, not {sink}): give this one a store of its own"
        )


@attrs.define
class ChangeSet:
    """What a commit writes."""

    renumbered: list[int] = attrs.field(factory=list[int])
    """Ids of folders that number their messages anew, written before anything else.

    POISON rows of them become DELETED, and all others that aren't DELETED become UNRESOLVED; none is retried.
    """
    rows: list[MessageRow] = attrs.field(factory=list[MessageRow])
    """Rows that take the place of those with the same key."""
    problems: dict[tuple[int, int, int], str] = attrs.field(factory=dict[tuple[int, int, int], str])
    """Why rows are quarantined that weren't before, by their keys."""
    folders: list[StoredFolder] = attrs.field(factory=list[StoredFolder])


class OperatorRequest(enum.StrEnum):
    """What an operator asks of a mailbox; its next round applies it. The names stand in stores."""

    AUDIT = "audit"
    """Everything is compared with the server."""
    RETRY = "retry"
    """What is quarantined, or fails, is tried again at once."""


@attrs.frozen(kw_only=True)
class FolderStatus:
    """What a store knows of a folder."""

    name: str = attrs.field(repr=False)
    uid_validity: int
    audited_ms: int | None
    """When everything was last compared, in milliseconds since 1970."""
    messages: Mapping[MessageState, int]
    """How many messages are in which state, those of earlier numberings included."""


@attrs.frozen(kw_only=True)
class MailboxStatus:
    """What a store knows of a mailbox."""

    number: int
    """The store's own number of it, which names nobody."""
    name: str = attrs.field(repr=False)
    folders: Sequence[FolderStatus]
    """By their names."""


@attrs.frozen(kw_only=True)
class QuarantinedMessage:
    """A message that can't be fetched, or that the sink can't take: it is tried again later."""

    number: int
    """The store's own number of its mailbox, which names nobody."""
    mailbox: str = attrs.field(repr=False)
    """The address."""
    folder: str = attrs.field(repr=False)
    uid_validity: int
    uid: int
    problem: str | None
    """The class of the error, whose text may tell of a patient, or a sentence of ours; None if an earlier release
    quarantined it.
    """
    attempts: int
    """How often it was tried since."""
    retry_ms: int | None
    """When it is tried next, in milliseconds since 1970."""


@attrs.define(kw_only=True)
class RoundReport:
    """What a round came to."""

    changes: Counter[Kind] = attrs.field(factory=Counter[Kind])
    """What the sink was told, by kind."""
    quarantined: int = 0
    """Messages that were quarantined."""
    idle_folders: int = 0
    """Folders that were as before."""
    has_more: bool = False
    """Whether there is more to do at once."""
    has_waiting: bool = False
    """Whether messages that are missing may turn up in another folder; the next round tells."""
    failed_folders: dict[str, DirectSuiteError] = attrs.field(factory=dict[str, DirectSuiteError], repr=False)
    """Folders that could not be seen, or whose messages could not be fetched or delivered, and why."""


class Store(Protocol):
    """Keeps what is known of mailboxes. All reads are of what was committed."""

    @property
    def sink_name(self) -> str | None:
        """The name of the sink of its own that gets the changes; None where it has none."""
        ...

    async def bind(self, sink: str) -> None:
        """Note which sink is told of what the store knows, if none is noted. Raises ConfigurationError for another."""
        ...

    async def claim(self, mailbox: str) -> Lease:
        """The right to commit for a mailbox; earlier leases of it are stale from now on."""
        ...

    async def folder(self, lease: Lease, name: str) -> StoredFolder:
        """A folder, made where there is none."""
        ...

    async def folders(self, lease: Lease) -> Sequence[StoredFolder]:
        """All folders of the mailbox that are known."""
        ...

    async def states(self, folder: StoredFolder) -> Mapping[int, MessageState]:
        """The state of each uid of the folder's present numbering."""
        ...

    async def rows(self, folder: StoredFolder, uids: Collection[int] | None = None) -> Sequence[MessageRow]:
        """The rows of the folder's present numbering, by ascending uid: all, or those of these uids."""
        ...

    async def sentinels(self, folder: StoredFolder) -> Sequence[MessageRow]:
        """The newest and the oldest row that is LIVE and has an identity and a date; none, one or two."""
        ...

    async def with_digests(self, lease: Lease, digests: Iterable[bytes]) -> Sequence[tuple[str, MessageRow]]:
        """Rows of the mailbox with one of these digests, each with its folder's name.

        A POISON row has one only if the sink was told before that the message is gone.
        """
        ...

    async def in_state(
        self, lease: Lease, state: MessageState, *, but: Collection[str] = ()
    ) -> Sequence[tuple[str, MessageRow]]:
        """The mailbox's rows in this state, each with its folder's name, by folder, uid_validity and uid.

        but: names of folders that are left out.
        """
        ...

    async def commit(self, lease: Lease, change_set: ChangeSet, changes: Sequence[Change]) -> None:
        """Write a change_set, and hand the changes to the store's own sink, as one. Raises StaleLeaseError."""
        ...


@runtime_checkable
class SupportsOperatorRequests(Protocol):
    """A store in which other processes leave requests of an operator."""

    async def pending_requests(self) -> Sequence[str]:
        """Mailboxes for which there are requests. Nothing is written."""
        ...

    async def apply_requests(self, mailbox: str) -> bool:
        """Apply the requests for a mailbox; return whether there were any. Rows and folders are to be read anew."""
        ...
