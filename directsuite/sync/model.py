"""The records of a synchronisation.

Fields named `…_ms` are times in milliseconds since 1970. `number` is the store's number of a mailbox. A folder is
renumbered when the server assigns new uids to its messages: a new *numbering*, counted by `uid_validity`.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence

import attrs

from directsuite.errors import DirectSuiteError
from directsuite.messaging.models import MessageDetail
from directsuite.wire.models import ValueSemantics


class Kind(enum.StrEnum):
    """The kind of a change."""

    NEW = "new"
    """It exists, and was never reported before."""
    GONE = "gone"
    """It was deleted: two listings in a row and all other folders of the mailbox lack it."""
    MOVED = "moved"
    """It has a new key: it is in another folder, or its folder was renumbered."""
    RESTORED = "restored"
    """It exists again after its deletion, which a sink outside the store may not have received."""


@attrs.frozen(repr=False, eq=False)
class Key(ValueSemantics):
    """The place of a message."""

    mailbox: str
    folder: str
    uid_validity: int
    """Counts the folder's numberings from 1, like UIDVALIDITY in RFC 9051. The service has no such number."""
    uid: int

    def __str__(self) -> str:
        return f"{self.mailbox}/{self.folder}/{self.uid_validity}/{self.uid}"

    def __repr__(self) -> str:
        # Names of mailboxes and folders may identify a patient.
        return f"Key(uid_validity={self.uid_validity}, uid={self.uid})"


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Change(ValueSemantics):
    """One change. A sink outside the store may receive it twice, with the same key and digest.

    If that sink or the process failed during a NEW, and the message then moved or was deleted, the sink receives MOVED
    with the message, or GONE, with a key that it may not know. Treat such a MOVED as NEW, and ignore such a GONE. After
    MOVED, no message has the key `previous`, even if the sink already has the message under `key`.
    """

    kind: Kind
    key: Key
    previous: Key | None = None
    """The previous key, for MOVED and RESTORED."""
    message: MessageDetail | None = None
    """The complete message: for NEW and RESTORED, and for MOVED if it had to be fetched."""
    digest: str | None = None
    """The digest of the content. It does not depend on the message's place."""
    is_read: bool | None = None
    """True if the message was read when it was fetched; None if unknown (see `Deliver`)."""

    def __repr__(self) -> str:
        return f"Change({self.kind}, {self.key!r})"


class StoreError(DirectSuiteError):
    """The store could not be read or written. A failed commit writes nothing."""


class StaleLeaseError(DirectSuiteError):
    """Another worker has claimed the mailbox, so nothing was written."""


class SinkError(DirectSuiteError):
    """The sink failed; its own error is the cause. The changes are sent again in a later round.

    is_general: True if no single message can be the cause, as with a full disk.
    """

    def __init__(self, explanation: str, *, is_general: bool = False) -> None:
        super().__init__(explanation)
        self.is_general = is_general


class MessageState(enum.IntEnum):
    """The state of a message; `decide` has a table of the transitions. Stores contain the numbers."""

    LIVE = 1
    """The sink has it, and the last listing contained it."""
    MISSING = 2
    """Two listings lack it. Its deletion is not reported yet, because it may be in another folder."""
    DELETED = 3
    """The sink has received its deletion, or its new key."""
    UNRESOLVED = 4
    """Its folder was renumbered, or the sink may have received its deletion. It may have a new uid, or return."""
    POISON = 5
    """The service repeatedly can't return it, or the sink rejects it: quarantined, and retried later."""
    IN_DOUBT = 6
    """Listed, and a sink outside the store may have received it: it is sent again."""
    QUARANTINED_UNCONFIRMED = 7
    """Like POISON, but a sink outside the store may have received it."""


QUARANTINED_STATES = (MessageState.POISON, MessageState.QUARANTINED_UNCONFIRMED)
UNFINISHED_STATES = (MessageState.MISSING, MessageState.UNRESOLVED, *QUARANTINED_STATES)
LISTED_STATES = (MessageState.LIVE, MessageState.IN_DOUBT, *QUARANTINED_STATES)

STATE_AFTER_LEAVING = {
    MessageState.LIVE: MessageState.MISSING,
    MessageState.IN_DOUBT: MessageState.UNRESOLVED,
    MessageState.POISON: MessageState.DELETED,
    MessageState.QUARANTINED_UNCONFIRMED: MessageState.UNRESOLVED,
}
"""The new state of a row whose message is no longer listed. The sink has no copy of a POISON message."""


@attrs.frozen
class MessageRow:
    """One message in a store."""

    folder: int
    uid_validity: int
    uid: int
    state: MessageState
    identity: bytes | None = None
    """The identity, or None if it is unknown, or another row has taken it over."""
    digest: bytes | None = None
    """The digest, or None if it is unknown, or another row has taken it over."""
    size: int = -1
    """Bytes; -1 if unknown."""
    received_ms: int | None = None
    attempts: int = 0
    """Failed fetches and rejections by the sink."""
    retry_ms: int | None = None
    """When it is tried again; None if nothing failed."""

    @property
    def key(self) -> tuple[int, int, int]:
        """The primary key: folder, uid_validity and uid."""
        return self.folder, self.uid_validity, self.uid


@attrs.frozen
class StoredFolder:
    """One folder in a store."""

    id: int
    name: str = attrs.field(repr=False)
    uid_validity: int = 1
    fingerprint: bytes | None = None
    """The fingerprint of the last listing that was processed completely."""
    audited_ms: int | None = None
    """When everything was last compared."""


@attrs.frozen
class Lease:
    """The right to commit for a mailbox, until a later claim."""

    mailbox: int
    name: str = attrs.field(repr=False)
    lease_number: int
    """Counts the claims of the mailbox."""


@attrs.define
class ChangeSet:
    """The rows and folders that a commit writes."""

    renumbered: list[int] = attrs.field(factory=list[int])
    """Ids of renumbered folders. First, POISON rows become DELETED, and the others, except DELETED, UNRESOLVED."""
    rows: list[MessageRow] = attrs.field(factory=list[MessageRow])
    """Rows to insert, or to replace by their keys."""
    problems: dict[tuple[int, int, int], str] = attrs.field(factory=dict[tuple[int, int, int], str])
    """The reasons for new quarantines, by row."""
    folders: list[StoredFolder] = attrs.field(factory=list[StoredFolder])


class OperatorRequest(enum.StrEnum):
    """A request of an operator for a mailbox; its next round applies it. Stores contain the names."""

    AUDIT = "audit"
    """Compare everything with the server."""
    RETRY = "retry"
    """Retry quarantined messages and rejected deletions immediately."""


@attrs.frozen(kw_only=True)
class FolderStatus:
    """A folder's status in a store."""

    name: str = attrs.field(repr=False)
    uid_validity: int
    audited_ms: int | None
    messages: Mapping[MessageState, int]
    """The number of messages in each state, including earlier numberings."""


@attrs.frozen(kw_only=True)
class MailboxStatus:
    """A mailbox's status in a store."""

    number: int
    name: str = attrs.field(repr=False)
    folders: Sequence[FolderStatus]


@attrs.frozen
class QuarantinedMessage:
    """A message that can't be fetched, or that the sink rejects. It is retried later."""

    number: int
    mailbox: str = attrs.field(repr=False)
    folder: str = attrs.field(repr=False)
    uid_validity: int
    uid: int
    problem: str | None
    """The class of the error, or a text without personal data; None if an earlier release quarantined it."""
    attempts: int
    retry_ms: int | None


@attrs.define(kw_only=True)
class RoundReport:
    """The result of a round."""

    changes: Counter[Kind] = attrs.field(factory=Counter[Kind])
    quarantined: int = 0
    """Newly quarantined messages."""
    idle_folders: int = 0
    """Unchanged folders."""
    has_more: bool = False
    """True if the next round should follow immediately."""
    has_waiting: bool = False
    """True if missing messages may still turn up in another folder."""
    failed_folders: dict[str, DirectSuiteError] = attrs.field(factory=dict[str, DirectSuiteError], repr=False)
    """The error of each folder that was not read, fetched or delivered completely."""
