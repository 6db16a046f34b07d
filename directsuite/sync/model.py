"""What is known of a mailbox, and what a synchronisation tells of it.

Row, Folder       what a store keeps, and Store, which keeps it: rows are read, and a Delta is committed whole
Change, Key       what a sink is told, one change after another, each with a key that stays the same for ever
Report            what a round came to
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
    """Where a message is. generation: 1, and one more each time that the folder numbers its messages anew."""

    mailbox: str
    folder: str
    generation: int
    uid: int

    def __str__(self) -> str:
        return f"{self.mailbox}/{self.folder}/{self.generation}/{self.uid}"

    def __repr__(self) -> str:
        return f"Key(generation={self.generation}, uid={self.uid})"  # a mailbox and a folder may name a patient


@attrs.frozen(kw_only=True, repr=False, eq=False)
class Change(ValueSemantics):
    """One change. A sink that is no transaction may be told the same one twice: by its key and digest it is known.

    Where such a sink failed, or the process ended, while it was told NEW, and the message went on since, it is told
    MOVED with the message, or GONE, of a key that it may not know: MOVED is as good as NEW then, and GONE nothing.
    After MOVED nothing is under `previous` any more, even where the sink has the message under `key` already.

    previous: the key that the message had, for MOVED and RESTORED. message: with its body and attachments, for NEW and
    RESTORED, and for MOVED where it had to be fetched. digest: of the content, the same wherever the message is.
    """

    kind: Kind
    key: Key
    previous: Key | None = None
    message: MessageDetail | None = None
    digest: str | None = None

    def __repr__(self) -> str:
        return f"Change({self.kind}, {self.key!r})"


class StoreError(DirectSuiteError):
    """The store could not be read or written. Of what was to be written nothing is."""


class StaleLeaseError(DirectSuiteError):
    """Another worker has claimed the mailbox since: what this one knows may be out of date, and it writes nothing."""


class State(enum.IntEnum):
    """What a message is to the synchronisation. The numbers stand in stores."""

    LIVE = 1
    """Told of, and listed when it was last looked."""
    LEFT = 2
    """Not listed any more, as two listings say; nobody was told yet, for it may have moved."""
    GONE = 3
    """Told to be gone, or carried over to another key."""
    ORPHAN = 4
    """Of a generation that is over, or about to be told gone: it may turn up under another uid, or come back."""
    POISON = 5
    """Could not be fetched, or taken by the sink, again and again: set aside, and tried once in a while."""
    IN_DOUBT = 6
    """Listed, and a sink that is no part of the store may have been told: it is told again, unless that is noted."""
    POISON_IN_DOUBT = 7
    """POISON, and a sink that is no part of the store may have been told."""


SET_ASIDE = (State.POISON, State.POISON_IN_DOUBT)
LISTED = (State.LIVE, State.IN_DOUBT, *SET_ASIDE)
"""States of messages that were there when their folder was last looked at."""

LEAVING = {
    State.LIVE: State.LEFT,
    State.IN_DOUBT: State.ORPHAN,
    State.POISON: State.GONE,
    State.POISON_IN_DOUBT: State.ORPHAN,
}
"""What becomes of a row whose message isn't listed any more; of a POISON one nobody was told."""


@attrs.frozen(kw_only=True)
class Row:
    """One message. identity, digest: None where nobody could see it, or where another row has taken them over.

    received_ms: milliseconds since 1970. attempts, retry_ms: of what was set aside, how often it was tried, and when
    next.
    """

    folder: int
    generation: int
    uid: int
    state: State
    identity: bytes | None = None
    digest: bytes | None = None
    size: int = -1
    received_ms: int | None = None
    attempts: int = 0
    retry_ms: int | None = None

    @property
    def key(self) -> tuple[int, int, int]:
        """By which it is one row."""
        return self.folder, self.generation, self.uid


@attrs.frozen(kw_only=True)
class Folder:
    """One folder. fingerprint: of the listing up to which everything is done. audited_ms: when all was compared."""

    id: int
    name: str = attrs.field(repr=False)
    generation: int = 1
    fingerprint: bytes | None = None
    audited_ms: int | None = None


@attrs.frozen
class Lease:
    """The right to commit for a mailbox, until somebody claims it anew."""

    mailbox: int
    name: str = attrs.field(repr=False)
    fence: int


def refuse_another(bound: str, sink: str) -> None:
    """Raise ConfigurationError where a store is bound to another sink: what the store knows isn't true for this one."""
    if sink != bound:
        raise ConfigurationError("this store has told its changes to another sink: give this one a store of its own")


@attrs.define
class Delta:
    """What a commit changes.

    orphaned: folders (by id) whose POISON rows become GONE and whose others ORPHAN that aren't GONE, with no more
    tries, before anything else. rows: written as they are, over those of the same folder, generation and uid. folders:
    written as they are.
    """

    orphaned: list[int] = attrs.field(factory=list[int])
    rows: list[Row] = attrs.field(factory=list[Row])
    folders: list[Folder] = attrs.field(factory=list[Folder])


class Wish(enum.StrEnum):
    """What an operator wishes for a mailbox; its next round grants it. The names stand in stores."""

    AUDIT = "audit"
    """That everything is compared with the server."""
    RETRY = "retry"
    """That what was set aside, or fails, is tried again at once."""


@attrs.frozen(kw_only=True)
class FolderStatus:
    """What a store knows of a folder. messages: how many are in which state, those of earlier generations included."""

    name: str = attrs.field(repr=False)
    generation: int
    audited_ms: int | None
    messages: Mapping[State, int]


@attrs.frozen(kw_only=True)
class MailboxStatus:
    """What a store knows of a mailbox. folders: by their names."""

    name: str = attrs.field(repr=False)
    folders: Sequence[FolderStatus]


class Store(Protocol):
    """Keeps what is known of mailboxes. All reads are of what was committed."""

    @property
    def has_sink(self) -> bool:
        """Whether a sink of its own gets the changes."""
        ...

    async def bind(self, sink: str) -> None:
        """Note which sink is told of what the store knows, if none is noted. Raises ConfigurationError for another."""
        ...

    async def claim(self, mailbox: str) -> Lease:
        """The right to commit for a mailbox; earlier leases of it are stale from now on."""
        ...

    async def folder(self, lease: Lease, name: str) -> Folder:
        """A folder, made where there is none."""
        ...

    async def folders(self, lease: Lease) -> Sequence[Folder]:
        """All folders of the mailbox that are known."""
        ...

    async def states(self, folder: Folder) -> Mapping[int, State]:
        """The state of each uid of the folder's generation."""
        ...

    async def rows(self, folder: Folder, uids: Collection[int] | None = None) -> Sequence[Row]:
        """The rows of the folder's generation, by ascending uid: all, or those of these uids."""
        ...

    async def sentinels(self, folder: Folder) -> Sequence[Row]:
        """The newest and the oldest row that is LIVE and has an identity and a date; none, one or two."""
        ...

    async def with_digests(self, lease: Lease, digests: Iterable[bytes]) -> Sequence[tuple[str, Row]]:
        """Rows of the mailbox with one of these digests, each with its folder's name.

        A POISON one has one only if it was told to be gone before.
        """
        ...

    async def in_state(self, lease: Lease, state: State, *, but: Collection[str] = ()) -> Sequence[tuple[str, Row]]:
        """The mailbox's rows in this state, each with its folder's name, by folder, generation and uid.

        but: names of folders that are left out.
        """
        ...

    async def commit(self, lease: Lease, delta: Delta, changes: Sequence[Change]) -> None:
        """Write a delta, and hand the changes to the store's own sink, as one. Raises StaleLeaseError."""
        ...


@runtime_checkable
class GrantsWishes(Protocol):
    """A store in which other processes leave wishes."""

    async def wished(self) -> Sequence[str]:
        """Mailboxes for which there are wishes. Nothing is written."""
        ...

    async def grant(self, mailbox: str) -> bool:
        """Make due what is wished for a mailbox; whether there was anything. Rows and folders are to be read anew."""
        ...


@attrs.define(kw_only=True)
class Report:
    """What a round came to.

    idle: folders that were as before. poison: messages set aside. more: there is more to do at once. waiting: what is
    missing may turn up in another folder; the next round tells. failed: folders that could not be seen, or
    whose messages could not be fetched, and why.
    """

    changes: Counter[Kind] = attrs.field(factory=Counter[Kind])
    poison: int = 0
    idle: int = 0
    more: bool = False
    waiting: bool = False
    failed: dict[str, DirectSuiteError] = attrs.field(factory=dict[str, DirectSuiteError], repr=False)
