"""Writing the state of one mailbox, and delivering its changes to the sink.

    the store's own sink    changes and rows in one transaction
    any other sink          rows in doubt ──► delivered ──► final rows

A row in doubt says that the sink may have received the change. After a crash, the change is sent again if the message
still exists. If not, the sink receives what became of it, even if it never received the change.

A batch that the sink rejects is halved until the rejected changes are alone. Such a change is quarantined if the
sink has accepted others since its first rejection. Until then, it is sent again in each round.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

import attrs

from directsuite.core.clock import Clock, is_being_cancelled
from directsuite.durable.sqlite import is_about_no_row
from directsuite.errors import ClosedError
from directsuite.sync.decide import split_in_half, with_failed_attempt
from directsuite.sync.model import (
    Change,
    ChangeSet,
    Key,
    Kind,
    Lease,
    MessageRow,
    MessageState,
    RoundReport,
    SinkError,
    StaleLeaseError,
    StoredFolder,
    StoreError,
)
from directsuite.sync.store import Store

_BATCH_CHANGES = 500
_QUARANTINE_REJECTIONS = 3  # attempts with a change alone before it is quarantined
_MAX_REJECTIONS_IN_A_ROW = 5  # of changes not quarantined before; with more, the sink counts as the cause

SYSTEM_ERRNOS = frozenset(
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "EIO", "EMFILE", "ENFILE", "ENOMEM")
    if hasattr(errno, name)
)
"""Operating system errors that no message causes."""


class Deliver(Protocol):
    """An async callable that receives each change at least once.

        async def deliver(changes: Sequence[Change]) -> None:
            for change in changes:
                ...  # may be a repetition: identify it by its key and digest

    Optional attributes: `sink_name` identifies the sink to the store, which is bound to one sink. If `needs_read_state`
    is True, new messages have `is_read` if possible, for one or two more requests per folder with new messages.
    """

    def __call__(self, changes: Sequence[Change], /) -> Awaitable[object]:
        """Receive changes of one mailbox, in order. Returning confirms them.

        If this raises an exception, all of them are sent again, in halves to find a rejected change.
        """
        ...


class UndecidedRejectionError(SinkError):
    """The sink rejected a change on its own, and has not accepted any other since."""


@attrs.frozen(kw_only=True)
class ChangeStep:
    """One change, and its rows."""

    change: Change
    row: MessageRow
    """The row of `change.key`: the current one for GONE, else the new one."""
    origin: MessageRow | None = None
    """The current row of `change.previous`."""

    @property
    def _left_row(self) -> MessageRow | None:
        return self.row if self.change.kind is Kind.GONE else self.origin

    @property
    def _was_reported_gone(self) -> bool:
        return self.origin is not None and self.origin.key == self.row.key

    def final_rows(self) -> list[MessageRow]:
        """Return the rows to write after the delivery."""
        rows, left = list[MessageRow](), self._left_row
        if left is not None:
            digest = left.digest if left is self.row else None
            rows.append(attrs.evolve(left, state=MessageState.DELETED, digest=digest, attempts=0, retry_ms=None))
        if left is not self.row:
            rows.append(attrs.evolve(self.row, attempts=0) if self.row.attempts else self.row)
        return rows

    def rows_in_doubt(self) -> list[MessageRow]:
        """Return the changed rows to write before the delivery."""
        rows, left = list[MessageRow](), self._left_row
        if left is not None and left.state in _KNOWN_TO_SINK_STATES:
            rows.append(attrs.evolve(left, state=MessageState.UNRESOLVED))
        if left is not self.row:
            state = MessageState.UNRESOLVED if self._was_reported_gone else MessageState.IN_DOUBT
            rows.append(attrs.evolve(self.row, state=state))
        return rows

    def make_quarantine_row(self, now_ms: int, *, maybe_sent: bool) -> MessageRow:
        """Return the row that schedules the next attempt. maybe_sent: True if the sink may have received the change."""
        row = self.row
        if self.change.kind is not Kind.GONE:
            state = MessageState.QUARANTINED_UNCONFIRMED if maybe_sent else MessageState.POISON
            # If it was not sent, the digest stays only if a deletion was reported under this key.
            digest = row.digest if maybe_sent or self._was_reported_gone else None
            row = attrs.evolve(row, state=state, digest=digest)
        elif maybe_sent:  # MISSING would say that the sink was not notified
            row = attrs.evolve(row, state=MessageState.UNRESOLVED)
        return with_failed_attempt(row, now_ms)


_KNOWN_TO_SINK_STATES = (
    MessageState.LIVE,
    MessageState.MISSING,
    MessageState.IN_DOUBT,
    MessageState.QUARANTINED_UNCONFIRMED,
)


@attrs.define
class Rejection:
    """A change that the sink rejects when delivered alone."""

    has_message: bool
    """If True, only batches with messages count as accepted, because many sinks ignore all other changes."""
    accepted: int
    """Batches that the sink accepted before the first rejection."""


@attrs.define(eq=False)
class SinkHealth:
    """A record of this process's deliveries, for all mailboxes."""

    accepted: Counter[bool] = attrs.field(factory=Counter[bool])
    """The number of accepted batches. True: those with messages; False: all."""
    rejections: dict[Key, Rejection] = attrs.field(factory=dict[Key, Rejection])

    def record_accepted(self, changes: Sequence[Change]) -> None:
        """Record an accepted batch."""
        self.accepted[False] += 1
        self.accepted[True] += any(change.message is not None for change in changes)
        for change in changes if self.rejections else ():
            self.rejections.pop(change.key, None)

    def record_rejected(self, change: Change, accepted: Counter[bool]) -> None:
        """Record that the sink rejected a change delivered alone. accepted: `self.accepted` before its batch."""
        has_message = change.message is not None
        self.rejections.setdefault(change.key, Rejection(has_message, accepted[has_message]))

    def has_accepted_others_since(self, key: Key) -> bool:
        """Return True if the sink rejected this change, delivered alone, and accepted others since."""
        rejection = self.rejections.get(key)
        return rejection is not None and self.accepted[rejection.has_message] > rejection.accepted


@attrs.define(eq=False, repr=False, slots=False)
class Commits:
    """Writes of a mailbox while its lease is valid. deliver: None if the store has its own sink."""

    store: Store
    lease: Lease
    _deliver: Deliver | None = attrs.field(alias="deliver")
    clock: Clock
    now_ms: Callable[[], int]
    health: SinkHealth

    def begin_round(self) -> RoundReport:
        """Begin a round, and return its report, to which this adds."""
        self.report = RoundReport()
        self.undecided: dict[str, UndecidedRejectionError] = {}
        """The error of each folder with a rejected change whose cause is undecided."""
        self._rejections_in_a_row = 0
        # Known rejections raise the limit, because many of them would block the mailbox.
        known = sum(key.mailbox == self.lease.name for key in self.health.rejections)
        self._max_rejections_in_a_row = _MAX_REJECTIONS_IN_A_ROW + 2 * known
        return self.report

    @property
    def needs_read_state(self) -> bool:
        """True if the sink has asked for `Change.is_read`."""
        return getattr(self._deliver, "needs_read_state", False)

    async def write(self, change_set: ChangeSet) -> None:
        """Commit rows and folders, without changes for the sink."""
        await self.store.commit(self.lease, change_set, ())

    async def write_batches(self, rows: Iterable[MessageRow], folders: Sequence[StoredFolder] = ()) -> None:
        """Commit rows in batches. Folders are written even without rows."""
        remaining = iter(rows)
        while (some := list(itertools.islice(remaining, _BATCH_CHANGES))) or folders:
            await self.write(ChangeSet(rows=some, folders=list(folders)))
            folders = ()

    async def deliver(self, steps: Iterable[ChangeStep], folders: Sequence[StoredFolder] = ()) -> int:
        """Deliver changes, commit their rows, in batches, and report them. Return the number of delivered changes.

        A rejected change is quarantined, or its folder is recorded in `undecided`. Raises SinkError if the sink is the
        cause, and errors of the store.

        folders: written with the first batch, even if it is rejected.
        """
        remaining, count = iter(steps), 0
        while some := list(itertools.islice(remaining, _BATCH_CHANGES)):
            try:
                await self._deliver_batch(some, folders)
            except SinkError as error:
                if error.is_general:
                    raise
                await self.write(ChangeSet(folders=list(folders)))  # the caller relies on them
                some = await self._deliver_one_by_one(some)
            self.report.changes.update(step.change.kind for step in some)
            count += len(some)
            folders = ()
        return count

    async def _deliver_batch(self, steps: Sequence[ChangeStep], folders: Sequence[StoredFolder] = ()) -> None:
        changes = [step.change for step in steps]
        done = ChangeSet(rows=[row for step in steps for row in step.final_rows()])
        if self._deliver is None:
            done.folders += folders
        else:
            rows = [row for step in steps for row in step.rows_in_doubt()]
            await self.write(ChangeSet(rows=rows, folders=list(folders)))
        try:
            if self._deliver is None:
                await self.store.commit(self.lease, done, changes)
            else:
                await self._deliver(changes)
        except (ClosedError, SinkError, StaleLeaseError, StoreError):
            raise
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            text = (
                f"The sink raised {type(error).__name__}. Fix the sink. All changes of this batch will be sent again."
            )
            raise SinkError(text, is_general=_is_general(error)) from error
        if self._deliver is not None:
            await self.write(done)
        self.health.record_accepted(changes)
        self._rejections_in_a_row = 0

    async def _deliver_one_by_one(self, steps: Sequence[ChangeStep]) -> list[ChangeStep]:
        accepted = self.health.accepted.copy()
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
                if not step.row.attempts:
                    self.health.record_rejected(step.change, accepted)
                    self._rejections_in_a_row += 1
                if self._rejections_in_a_row > self._max_rejections_in_a_row:
                    raise error
        return delivered + await self._retry_rejected(rejected)

    async def _retry_rejected(self, rejected: Sequence[tuple[ChangeStep, SinkError]]) -> list[ChangeStep]:
        """Quarantine rejected changes, or record their folders in `undecided`. Return those accepted in a retry."""
        accepted, quarantine = list[ChangeStep](), ChangeSet()
        for step, error in rejected:
            change = step.change
            if not step.row.attempts and not self.health.has_accepted_others_since(change.key):
                self.undecided[change.key.folder] = UndecidedRejectionError(error.explanation)
                self.undecided[change.key.folder].__cause__ = error.__cause__
            elif not step.row.attempts and await self._find_rejection([step], times=_QUARANTINE_REJECTIONS - 1) is None:
                accepted.append(step)
            else:
                row = step.make_quarantine_row(self.now_ms(), maybe_sent=self._deliver is not None)
                quarantine.rows.append(row)
                quarantine.problems[row.key] = _describe_problem(error)
                self.report.quarantined += not step.row.attempts
                self.health.rejections.pop(change.key, None)
        if quarantine.rows:
            await self.write(quarantine)
        return accepted

    async def _find_rejection(self, part: Sequence[ChangeStep], times: int = 1) -> SinkError | None:
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
        """Return a message's key. folder: its name."""
        return Key(self.lease.name, folder, row.uid_validity, row.uid)


def _describe_problem(error: SinkError) -> str:
    # The text of the sink's own error may contain data of a patient.
    return error.explanation if error.__cause__ is None else type(error.__cause__).__name__


def _is_general(error: BaseException) -> bool:
    if isinstance(error, sqlite3.Error):
        return is_about_no_row(error)
    number: object = getattr(error, "errno", None)
    return isinstance(error, MemoryError) or (type(number) is int and number in SYSTEM_ERRNOS)
