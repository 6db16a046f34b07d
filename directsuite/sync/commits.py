"""A mailbox's right to write, and the way of each change into the sink and the store.

the store's own sink    changes and rows in one transaction
any other               in doubt ──► told ──► done: three steps, and whoever dies between two leaves rows that say so

A row in doubt says that the sink may have been told. Where its message is still there, it is told again; where it is
not, the sink is told what became of it, whether it knew it or not.

A batch that a sink refuses is halved until the message is alone that it can't take, as with messages that can't be
fetched. Whether that one is to blame, and is quarantined, or the sink itself, is decided by `is_to_blame`:

    since it was refused first, the sink          and before                 to blame
    ───────────────────────────────────────────   ────────────────────────   ──────────────────────────────────────────
    took others                                                              the change
    took none, and refused this one alone         it took others             the change, after three rounds in a minute
    took none, and refused others                                            the sink
    took none                                     it took none               the sink
"""

from __future__ import annotations

import errno
import itertools
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

import attrs

from directsuite.core.clock import Clock
from directsuite.durable.sqlite import is_about_no_row
from directsuite.errors import ClosedError, DirectSuiteError
from directsuite.sync.decide import with_failed_attempt
from directsuite.sync.model import (
    Change,
    ChangeSet,
    Key,
    Lease,
    MessageRow,
    MessageState,
    StaleLeaseError,
    Store,
    StoredFolder,
    StoreError,
)
from directsuite.sync.remote import split_in_half

_BATCH_CHANGES = 500
"""Changes of a commit."""
_QUARANTINE_REJECTIONS = 3
"""Times that a change is told alone before it is quarantined, all but the first of them once others were taken.

Or the rounds in which it is, where nothing else is told.
"""
_MIN_REJECTED_SECONDS = (
    60.0  # seconds for which a change alone is refused until it is to blame: a sink may be restarted
)
_MAX_REJECTIONS_IN_A_ROW = 5  # refused changes in a row, none quarantined before, until the sink itself is to blame

SYSTEM_ERRNOS = frozenset(
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "EIO", "EMFILE", "ENFILE", "ENOMEM")
    if hasattr(errno, name)
)
"""Numbers of errors that are about no message."""


class Deliver(Protocol):
    """An async callable that takes changes, at least once each.

        async def deliver(changes: Sequence[Change]) -> None:
            for change in changes:
                ...  # a second time, too: it is known by its key and digest

    An attribute `sink_name`, if it has one, tells it from other sinks: a store is for one of them. If an attribute
    `needs_read_state` is True, changes with new messages have `is_read` if possible: that costs one request for each
    folder and round that has new messages, and a second one if few messages are unread.
    """

    def __call__(self, changes: Sequence[Change], /) -> Awaitable[object]:
        """Take changes of one mailbox, in their order. They count as done when this returns.

        If it raises, all of them are told again, in halves to find the one that can't be taken.
        """
        ...


class SinkError(DirectSuiteError):
    """A sink failed; its own error is the cause. What it was given is given to it again, in a later round.

    is_general: whether it can't be about one message, as with a full disk.
    """

    def __init__(self, explanation: str, *, is_general: bool = False) -> None:
        super().__init__(explanation)
        self.is_general = is_general


class UndecidedRejectionError(SinkError):
    """A sink refused a change on its own, and nothing has shown yet that it takes any other."""


@attrs.frozen(kw_only=True)
class ChangeStep:
    """One change, and what is known once it is told.

    The attempts of either row count how often the sink has refused the change, or the service the message.
    """

    change: Change
    old_row: MessageRow | None = None
    """The row of the key that the message has no more, as it is until then."""
    new_row: MessageRow | None = None
    """The row of the key that it has."""

    def final_rows(self) -> list[MessageRow]:
        """The rows once it is told."""
        rows = list[MessageRow]()
        if self.old_row is not None:
            digest = self.old_row.digest if self.new_row is None else None
            rows.append(
                attrs.evolve(self.old_row, state=MessageState.DELETED, digest=digest, attempts=0, retry_ms=None)
            )
        if self.new_row is not None:
            rows.append(attrs.evolve(self.new_row, attempts=0) if self.new_row.attempts else self.new_row)
        return rows

    def rows_in_doubt(self) -> list[MessageRow]:
        """The rows while it is told; those that are not the same already."""
        rows = list[MessageRow]()
        if self.old_row is not None and self.old_row.state in _KNOWN_TO_SINK_STATES:
            rows.append(attrs.evolve(self.old_row, state=MessageState.UNRESOLVED))
        if self.new_row is not None:
            was_told_gone = self.old_row is not None and self.old_row.key == self.new_row.key
            rows.append(
                attrs.evolve(self.new_row, state=MessageState.UNRESOLVED if was_told_gone else MessageState.IN_DOUBT)
            )
        return rows

    @property
    def attempts(self) -> int:
        """How often it was in vain before."""
        row = self.new_row or self.old_row
        return 0 if row is None else row.attempts

    def make_quarantine_row(self, now_ms: int, *, maybe_sent: bool) -> MessageRow | None:
        """The row that says when it is tried again. in_doubt: whether the sink may have been told nevertheless."""
        if self.new_row is None:
            row = self.old_row
            if row is not None and maybe_sent:
                row = attrs.evolve(row, state=MessageState.UNRESOLVED)  # MISSING says that nobody was told
            return None if row is None else with_failed_attempt(row, now_ms)
        digest = self.new_row.digest
        if not maybe_sent:  # what was told gone is known by its content, as for what can't be fetched
            digest = digest if self.old_row is not None and self.old_row.key == self.new_row.key else None
        state = MessageState.QUARANTINED_UNCONFIRMED if maybe_sent else MessageState.POISON
        return with_failed_attempt(attrs.evolve(self.new_row, state=state, digest=digest), now_ms)


_KNOWN_TO_SINK_STATES = (
    MessageState.LIVE,
    MessageState.MISSING,
    MessageState.IN_DOUBT,
    MessageState.QUARANTINED_UNCONFIRMED,
)


@attrs.define(kw_only=True)
class Rejection:
    """How a sink refuses a change alone."""

    accepted: int
    """How often the sink had taken others when it refused this one for the first time."""
    since: float
    """When that was, in monotonic seconds."""
    rounds: int = 0
    """In how many rounds in a row it refused this one."""
    has_message: bool = True
    """Whether it is about a message: then only others that are, too, count as taken, for many sinks ignore the rest."""


def is_item_scoped(rejection: Rejection, *, accepted: int, other_rejections: int, now: float) -> bool:
    """Whether a change is to blame for its refusal, and not the sink.

    taken: how often the sink has taken others by now. others: changes that it refused likewise, and nothing since. now:
    monotonic seconds.
    """
    if accepted > rejection.accepted:
        return True
    is_alone = (
        not other_rejections
        and rejection.rounds >= _QUARANTINE_REJECTIONS
        and now - rejection.since >= _MIN_REJECTED_SECONDS
    )
    return is_alone and accepted > 0


@attrs.define(eq=False)
class SinkHealth:
    """What a process has seen of its sink, in all mailboxes."""

    accepted_with_messages: int = 0
    """How often it took changes of which some had messages."""
    accepted_without: int = 0
    """How often it took changes without messages."""
    rejections: dict[Key, Rejection] = attrs.field(factory=dict[Key, Rejection])
    """Changes that it refused alone, by their keys, until it took others since: one of them may be quarantined."""

    def record_accepted(self, changes: Sequence[Change]) -> None:
        """Note that the sink took these."""
        if any(change.message is not None for change in changes):
            self.accepted_with_messages += 1
        else:
            self.accepted_without += 1
        for change in changes if self.rejections else ():
            self.rejections.pop(change.key, None)

    def record_rejected(self, change: Change, *, accepted: int, now: float) -> None:
        """Note that the sink refused this one alone in a round. taken: how often it had taken others before that."""
        first = Rejection(accepted=accepted, since=now, has_message=change.message is not None)
        self.rejections.setdefault(change.key, first).rounds += 1

    def is_item_rejection(self, key: Key, now: float) -> bool:
        """Whether this change is to blame for its refusal, and not the sink."""
        rejection = self.rejections[key]
        others = sum(other != key and not self.has_accepted_others_since(other) for other in self.rejections)
        return is_item_scoped(
            rejection, accepted=self.count_accepted(rejection.has_message), other_rejections=others, now=now
        )

    def has_accepted_others_since(self, key: Key) -> bool:
        """Return True if the sink has refused this change alone, and took others since."""
        rejection = self.rejections.get(key)
        return rejection is not None and self.count_accepted(rejection.has_message) > rejection.accepted

    def forget_rejection(self, key: Key) -> None:
        """Forget that the sink rejected a change, because its message can no longer be fetched to send it again."""
        self.rejections.pop(key, None)

    def count_accepted(self, has_message: bool) -> int:
        """How often the sink took anything that is as much to it as a change with a message, or without."""
        return self.accepted_with_messages + (0 if has_message else self.accepted_without)


class Commits:
    """Writes for one mailbox while its lease holds. deliver: None where the store's own sink gets the changes."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        deliver: Deliver | None,
        *,
        clock: Clock,
        now_ms: Callable[[], int],
        health: SinkHealth,
    ) -> None:
        self.store = store
        self.lease = lease
        self.now_ms = now_ms
        self._clock = clock
        self._deliver = deliver
        self.needs_read_state: bool = getattr(deliver, "needs_read_state", False)
        """True if the sink wants to know which new messages are unread."""
        self.health = health
        self.begin()

    def begin(self) -> None:
        """Begin a round. What is known to be refused from earlier ones leaves room for more: else many are for ever."""
        self.quarantined = 0
        """Changes that were quarantined in this round."""
        self.undecided = dict[str, UndecidedRejectionError]()
        """Why folders have changes that the sink refused while nothing showed that it takes any other."""
        self._rejections_in_a_row = 0
        self._max_rejections_in_a_row = _MAX_REJECTIONS_IN_A_ROW + 2 * sum(
            key.mailbox == self.lease.name for key in self.health.rejections
        )

    async def write(self, change_set: ChangeSet) -> None:
        """Commit what no sink is told of."""
        await self.store.commit(self.lease, change_set, ())

    async def write_batches(self, rows: Iterable[MessageRow], folders: Sequence[StoredFolder] = ()) -> None:
        """Commit rows that no sink is told of, so many at a time. folders: written with the first, or without any."""
        remaining = iter(rows)
        while (some := list(itertools.islice(remaining, _BATCH_CHANGES))) or folders:
            await self.write(ChangeSet(rows=some, folders=list(folders)))
            folders = ()

    async def deliver(self, steps: Iterable[ChangeStep], folders: Sequence[StoredFolder] = ()) -> list[Change]:
        """Tell the sink of changes, and commit that, so many at a time; those told. Others are quarantined, or unsure.

        folders: written before the sink is told. Raises SinkError where the sink itself is to blame.
        """
        remaining, delivered = iter(steps), list[Change]()
        while some := list(itertools.islice(remaining, _BATCH_CHANGES)):
            try:
                await self._deliver_batch(some, folders)
            except SinkError as error:
                if error.is_general:
                    raise
                await self.write(ChangeSet(folders=list(folders)))  # who sent them takes them for written
                delivered += [step.change for step in await self._deliver_one_by_one(some)]
            else:
                delivered += [step.change for step in some]
            folders = ()
        return delivered

    async def _deliver_batch(self, steps: Sequence[ChangeStep], folders: Sequence[StoredFolder] = ()) -> None:
        """Tell of these and commit that, all or, as far as anybody knows, none."""
        changes = [step.change for step in steps]
        done = ChangeSet(rows=[row for step in steps for row in step.final_rows()])
        if self._deliver is not None:
            await self._write_rows_in_doubt(steps, folders)
        try:
            if self._deliver is not None:
                await self._deliver(changes)
            else:
                done.folders += folders
                await self.store.commit(self.lease, done, changes)
        except (ClosedError, SinkError, StaleLeaseError, StoreError):
            raise
        except Exception as error:
            text = f"the sink raised {type(error).__name__}: nothing of this batch counts as done"
            raise SinkError(text, is_general=_is_general(error)) from error
        if self._deliver is not None:
            await self.store.commit(self.lease, done, ())
        self.health.record_accepted(changes)
        self._rejections_in_a_row = 0

    async def _write_rows_in_doubt(self, steps: Sequence[ChangeStep], folders: Sequence[StoredFolder]) -> None:
        """Commit what the sink is going to be told; nobody is told by one whose lease is stale."""
        rows = [row for step in steps for row in step.rows_in_doubt()]
        await self.store.commit(self.lease, ChangeSet(rows=rows, folders=list(folders)), ())

    async def _deliver_one_by_one(self, steps: Sequence[ChangeStep]) -> list[ChangeStep]:
        """Tell of changes that the sink refused together; those that it took."""
        accepted = {has_message: self.health.count_accepted(has_message) for has_message in (True, False)}
        parts, delivered, rejected = split_in_half(steps), list[ChangeStep](), list[tuple[ChangeStep, SinkError]]()
        while parts:
            part = parts.pop()
            error = await self._find_rejection(part)
            if error is None:
                delivered += part
            elif len(part) > 1:
                parts += split_in_half(part)
            else:
                (step,) = part
                rejected.append((step, error))
                if not step.attempts:
                    before = accepted[step.change.message is not None]
                    self.health.record_rejected(step.change, accepted=before, now=self._clock.monotonic())
                self._rejections_in_a_row += not step.attempts
                if self._rejections_in_a_row > self._max_rejections_in_a_row:
                    raise error
        return delivered + await self._retry_rejected(rejected)

    async def _retry_rejected(self, rejected: Sequence[tuple[ChangeStep, SinkError]]) -> list[ChangeStep]:
        """Tell once more of what the sink refused alone, if it is to blame; what the sink takes now.

        The rest is quarantined, as is what was before; where the sink may be to blame, it is unsure.
        """
        accepted, quarantine = list[ChangeStep](), ChangeSet()
        for step, error in rejected:
            change = step.change
            if not step.attempts and not self.health.is_item_rejection(change.key, self._clock.monotonic()):
                self.undecided[change.key.folder] = UndecidedRejectionError(error.explanation)
                self.undecided[change.key.folder].__cause__ = error.__cause__
            elif not step.attempts and await self._find_rejection([step], times=_QUARANTINE_REJECTIONS - 1) is None:
                accepted.append(step)
            else:
                row = step.make_quarantine_row(self.now_ms(), maybe_sent=self._deliver is not None)
                if row is not None:
                    quarantine.rows.append(row)
                    quarantine.problems[row.key] = _describe_problem(error)
                self.quarantined += not step.attempts
                if self.health.has_accepted_others_since(change.key):
                    del self.health.rejections[change.key]
        if quarantine.rows:
            await self.write(quarantine)
        return accepted

    async def _find_rejection(self, part: Sequence[ChangeStep], times: int = 1) -> SinkError | None:
        """Why the sink can't take these, told so many times. Raises what is about no change."""
        rejection = None
        for _ in range(times):
            try:
                await self._deliver_batch(part)
            except SinkError as error:
                if error.is_general:
                    raise
                rejection = error
            else:
                return None
        return rejection

    def make_key(self, folder: str, row: MessageRow) -> Key:
        """Where the message of a row is, or was."""
        return Key(self.lease.name, folder, row.uid_validity, row.uid)


def _describe_problem(error: SinkError) -> str:
    """What a store keeps of it. The text of the sink's own error may tell of a patient."""
    return error.explanation if error.__cause__ is None else type(error.__cause__).__name__


def _is_general(error: Exception) -> bool:
    if isinstance(error, sqlite3.Error):
        return is_about_no_row(error)
    return isinstance(error, MemoryError) or getattr(error, "errno", None) in SYSTEM_ERRNOS
