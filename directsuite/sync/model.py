"""The records of a synchronisation, and the interface of its store.

MessageRow, StoredFolder   what a Store contains; a ChangeSet is committed in one transaction
Change, Key                what a sink receives; a message keeps its key until it moves
RoundReport                the result of a round
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
    """The kind of a change."""

    NEW = "new"
    """It exists, and was never reported before."""
    GONE = "gone"
    """It was deleted: it is missing from two listings in a row, and from all other folders of the mailbox."""
    MOVED = "moved"
    """It has a new key: it is in another folder, or its folder was renumbered."""
    RESTORED = "restored"
    """It exists again after its deletion.

    A sink that is not part of the store may not have received the deletion.
    """


@attrs.frozen(repr=False, eq=False)
class Key(ValueSemantics):
    """The place of a message."""

    mailbox: str
    folder: str
    uid_validity: int
    """Starts at 1, and grows by 1 each time the server renumbers the folder, like UIDVALIDITY in RFC 9051 (2.3.1.1).

    The service does not return this number; the synchronisation detects and counts renumberings.
    """
    uid: int

    def __str__(self) -> str:
        return f"{self.mailbox}/{self.folder}/{self.uid_validity}/{self.uid}"

    def __repr__(self) -> str:
        # Names of mailboxes and folders may identify a patient.
        return f"Key(uid_validity={self.uid_validity}, uid={self.uid})"


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Change(ValueSemantics):
    """One change. A sink that is not part of the store may receive it twice, with the same key and digest.

    If such a sink or the process failed during a NEW, and the message then moved or was deleted, the sink receives
    MOVED with the message, or GONE, with a key that it may not know. Treat such a MOVED as NEW, and ignore such a GONE.
    After MOVED, no message has the key `previous`, even if the sink already has the message under `key`.
    """

    kind: Kind
    key: Key
    previous: Key | None = None
    """The previous key of the message, for MOVED and RESTORED."""
    message: MessageDetail | None = None
    """The message with its body and attachments: for NEW and RESTORED, and for MOVED if it had to be fetched."""
    digest: str | None = None
    """The digest of the content, which does not depend on the message's place."""
    is_read: bool | None = None
    """True if the message was marked as read when it was fetched, False if not; None if that is unknown.

    It is known only to sinks that require it (see `Deliver`), and only if finding it out is not expensive.
    """

    def __repr__(self) -> str:
        return f"Change({self.kind}, {self.key!r})"


class StoreError(DirectSuiteError):
    """The store could not be read or written. A failed commit writes nothing."""


class StaleLeaseError(DirectSuiteError):
    """Another worker has claimed the mailbox. This one has outdated information, and writes nothing."""


class MessageState(enum.IntEnum):
    """The state of a message; `decide` has a table of the transitions. Stores contain the numbers."""

    LIVE = 1
    """The sink has received the message, and the last listing contained it."""
    MISSING = 2
    """Two listings lack it. The deletion is not reported yet, because it may have moved to another folder."""
    DELETED = 3
    """The sink has received its deletion, or its new key."""
    UNRESOLVED = 4
    """Its folder was renumbered, or the sink may be receiving its deletion.

    It may have a new uid, or come back.
    """
    POISON = 5
    """The service can't return it, or the sink rejects it, repeatedly: quarantined, and retried later."""
    IN_DOUBT = 6
    """Listed, and a sink that is not part of the store may have received it: it is sent again."""
    QUARANTINED_UNCONFIRMED = 7
    """Like POISON, but a sink that is not part of the store may have received it."""


QUARANTINED_STATES = (MessageState.POISON, MessageState.QUARANTINED_UNCONFIRMED)
LISTED_STATES = (MessageState.LIVE, MessageState.IN_DOUBT, *QUARANTINED_STATES)
"""States of messages that the last listing of their folder contained."""

STATE_AFTER_LEAVING = {
    MessageState.LIVE: MessageState.MISSING,
    MessageState.IN_DOUBT: MessageState.UNRESOLVED,
    MessageState.POISON: MessageState.DELETED,
    MessageState.QUARANTINED_UNCONFIRMED: MessageState.UNRESOLVED,
}
"""The new state of a row whose message is no longer listed. The sink has no copy of a POISON message."""


@attrs.frozen(kw_only=True)
class MessageRow:
    """One message in a store."""

    folder: int
    """The folder's id."""
    uid_validity: int
    uid: int
    state: MessageState
    identity: bytes | None = None
    """The identity; None if it is unknown, or another row has taken it over."""
    digest: bytes | None = None
    """The digest of the content; None if it is unknown, or another row has taken it over."""
    size: int = -1
    """Bytes; -1 if unknown."""
    received_ms: int | None = None
    """When it was received, in milliseconds since 1970."""
    attempts: int = 0
    """The number of failed attempts of a quarantined message."""
    retry_ms: int | None = None
    """When a quarantined message is retried, in milliseconds since 1970."""

    @property
    def key(self) -> tuple[int, int, int]:
        """The primary key of the row."""
        return self.folder, self.uid_validity, self.uid


@attrs.frozen(kw_only=True)
class StoredFolder:
    """One folder in a store."""

    id: int
    name: str = attrs.field(repr=False)
    uid_validity: int = 1
    fingerprint: bytes | None = None
    """The fingerprint of the last listing that was processed completely."""
    audited_ms: int | None = None
    """When everything was last compared, in milliseconds since 1970."""


@attrs.frozen
class Lease:
    """The right to commit for a mailbox, until another worker claims it."""

    mailbox: int
    """The mailbox's id."""
    name: str = attrs.field(repr=False)
    lease_number: int
    """The fencing number: only commits with the latest one are accepted."""


def validate_bound_sink(bound: str, sink: str) -> None:
    """Raise ConfigurationError if a store is bound to another sink, which has received its changes."""
    if sink != bound:
        raise ConfigurationError(
            f"This store is bound to another sink ({bound}, not {sink}). Use a separate store for each sink."
        )


@attrs.define
class ChangeSet:
    """The rows and folders that a commit writes."""

    renumbered: list[int] = attrs.field(factory=list[int])
    """Ids of folders that were renumbered, written before anything else.

    Their POISON rows become DELETED, and all others except DELETED ones become UNRESOLVED; retries are cancelled.
    """
    rows: list[MessageRow] = attrs.field(factory=list[MessageRow])
    """Rows to insert, or to replace by their keys."""
    problems: dict[tuple[int, int, int], str] = attrs.field(factory=dict[tuple[int, int, int], str])
    """The reasons for new quarantines, by the keys of the rows."""
    folders: list[StoredFolder] = attrs.field(factory=list[StoredFolder])


class OperatorRequest(enum.StrEnum):
    """A request of an operator for a mailbox; its next round applies it. Stores contain the names."""

    AUDIT = "audit"
    """Compare everything with the server."""
    RETRY = "retry"
    """Retry everything quarantined or failing immediately."""


@attrs.frozen(kw_only=True)
class FolderStatus:
    """A folder's status in a store."""

    name: str = attrs.field(repr=False)
    uid_validity: int
    audited_ms: int | None
    """When everything was last compared, in milliseconds since 1970."""
    messages: Mapping[MessageState, int]
    """The number of messages in each state, including earlier numberings."""


@attrs.frozen(kw_only=True)
class MailboxStatus:
    """A mailbox's status in a store."""

    number: int
    """The store's number of the mailbox, which contains no personal data."""
    name: str = attrs.field(repr=False)
    folders: Sequence[FolderStatus]
    """Ordered by name."""


@attrs.frozen(kw_only=True)
class QuarantinedMessage:
    """A message that can't be fetched, or that the sink rejects. It is retried later."""

    number: int
    """The store's number of the mailbox, which contains no personal data."""
    mailbox: str = attrs.field(repr=False)
    """The address."""
    folder: str = attrs.field(repr=False)
    uid_validity: int
    uid: int
    problem: str | None
    """The class of the error, or a sentence without personal data; None if an earlier release quarantined it."""
    attempts: int
    """The number of failed attempts."""
    retry_ms: int | None
    """When it is retried, in milliseconds since 1970."""


@attrs.define(kw_only=True)
class RoundReport:
    """The result of a round."""

    changes: Counter[Kind] = attrs.field(factory=Counter[Kind])
    """The number of delivered changes, by kind."""
    quarantined: int = 0
    """The number of messages quarantined."""
    idle_folders: int = 0
    """The number of unchanged folders."""
    has_more: bool = False
    """True if there is more to do immediately."""
    has_waiting: bool = False
    """True if missing messages may still turn up in another folder; the next round decides."""
    failed_folders: dict[str, DirectSuiteError] = attrs.field(factory=dict[str, DirectSuiteError], repr=False)
    """Folders that could not be read, or whose messages could not be fetched or delivered, and the errors."""


class Store(Protocol):
    """Stores the state of mailboxes. All reads return committed data."""

    @property
    def sink_name(self) -> str | None:
        """The name of the store's own sink, which receives the changes; None if it has none."""
        ...

    async def bind(self, sink: str) -> None:
        """Bind the store to a sink, if it is not bound yet. Raises ConfigurationError if it is bound to another."""
        ...

    async def claim(self, mailbox: str) -> Lease:
        """Return a lease of the mailbox; its earlier leases become stale."""
        ...

    async def folder(self, lease: Lease, name: str) -> StoredFolder:
        """Return a folder of the mailbox. Create it if it is unknown."""
        ...

    async def folders(self, lease: Lease) -> Sequence[StoredFolder]:
        """Return all known folders of the mailbox."""
        ...

    async def states(self, folder: StoredFolder) -> Mapping[int, MessageState]:
        """Return the state of each uid of the folder's current numbering."""
        ...

    async def rows(self, folder: StoredFolder, uids: Collection[int] | None = None) -> Sequence[MessageRow]:
        """Return rows of the folder's current numbering, by ascending uid. uids: None for all."""
        ...

    async def sentinels(self, folder: StoredFolder) -> Sequence[MessageRow]:
        """Return the newest and the oldest row that is LIVE and has an identity and a date; none, one or two."""
        ...

    async def with_digests(self, lease: Lease, digests: Iterable[bytes]) -> Sequence[tuple[str, MessageRow]]:
        """Return rows of the mailbox with one of these digests, each with its folder's name.

        A POISON row has one only if the deletion of its message was reported before.
        """
        ...

    async def in_state(
        self, lease: Lease, state: MessageState, *, but: Collection[str] = ()
    ) -> Sequence[tuple[str, MessageRow]]:
        """Return the mailbox's rows in this state, each with its folder's name, by folder, uid_validity and uid.

        but: names of folders to exclude.
        """
        ...

    async def commit(self, lease: Lease, change_set: ChangeSet, changes: Sequence[Change]) -> None:
        """Write a change_set, and send the changes to the store's own sink, in one transaction.

        Raises StaleLeaseError if another worker has claimed the mailbox since.
        """
        ...


@runtime_checkable
class SupportsOperatorRequests(Protocol):
    """A store in which other processes can put requests of an operator."""

    async def pending_requests(self) -> Sequence[str]:
        """Return the mailboxes with requests, without writing anything."""
        ...

    async def apply_requests(self, mailbox: str) -> bool:
        """Apply the pending requests for a mailbox. Return True if there were any.

        The caller must then reload its rows and folders.
        """
        ...
