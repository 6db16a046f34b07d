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
from directsuite.sync.decide import tried_in_vain
from directsuite.sync.model import Change, ChangeSet, Folder, Key, Lease, Row, StaleLeaseError, State, Store, StoreError
from directsuite.sync.remote import halves

_AT_A_TIME = 500
"""Changes of a commit."""
_STRIKES = 3
"""Times that a change is told alone before it is quarantined, all but the first of them once others were taken.

Or the rounds in which it is, where nothing else is told.
"""
_ALONE_FOR = 60.0  # seconds for which a change alone is refused until it is to blame: a sink may be restarted
_IN_VAIN = 5  # refused changes in a row, none quarantined before, until the sink itself is to blame

OF_THE_SYSTEM = frozenset(
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


class RefusedError(SinkError):
    """A sink refused a change on its own, and nothing has shown yet that it takes any other."""


@attrs.frozen(kw_only=True)
class Step:
    """One change, and what is known once it is told.

    The attempts of either row count how often the sink has refused the change, or the service the message.
    """

    change: Change
    before: Row | None = None
    """The row of the key that the message has no more, as it is until then."""
    here: Row | None = None
    """The row of the key that it has."""

    def done(self) -> list[Row]:
        """The rows once it is told."""
        rows = list[Row]()
        if self.before is not None:
            digest = self.before.digest if self.here is None else None
            rows.append(attrs.evolve(self.before, state=State.DELETED, digest=digest, attempts=0, retry_ms=None))
        if self.here is not None:
            rows.append(attrs.evolve(self.here, attempts=0) if self.here.attempts else self.here)
        return rows

    def in_doubt(self) -> list[Row]:
        """The rows while it is told; those that are not the same already."""
        rows = list[Row]()
        if self.before is not None and self.before.state in _KNOWN_TO_THE_SINK:
            rows.append(attrs.evolve(self.before, state=State.UNRESOLVED))
        if self.here is not None:
            was_told_gone = self.before is not None and self.before.key == self.here.key
            rows.append(attrs.evolve(self.here, state=State.UNRESOLVED if was_told_gone else State.IN_DOUBT))
        return rows

    @property
    def attempts(self) -> int:
        """How often it was in vain before."""
        row = self.here or self.before
        return 0 if row is None else row.attempts

    def quarantined(self, now_ms: int, *, in_doubt: bool) -> Row | None:
        """The row that says when it is tried again. in_doubt: whether the sink may have been told nevertheless."""
        if self.here is None:
            row = self.before
            if row is not None and in_doubt:
                row = attrs.evolve(row, state=State.UNRESOLVED)  # MISSING says that nobody was told
            return None if row is None else tried_in_vain(row, now_ms)
        digest = self.here.digest
        if not in_doubt:  # what was told gone is known by its content, as for what can't be fetched
            digest = digest if self.before is not None and self.before.key == self.here.key else None
        state = State.POISON_IN_DOUBT if in_doubt else State.POISON
        return tried_in_vain(attrs.evolve(self.here, state=state, digest=digest), now_ms)


_KNOWN_TO_THE_SINK = (State.LIVE, State.MISSING, State.IN_DOUBT, State.POISON_IN_DOUBT)


@attrs.define(kw_only=True)
class Refusal:
    """How a sink refuses a change alone."""

    taken: int
    """How often the sink had taken others when it refused this one for the first time."""
    since: float
    """When that was, in monotonic seconds."""
    rounds: int = 0
    """In how many rounds in a row it refused this one."""
    has_message: bool = True
    """Whether it is about a message: then only others that are, too, count as taken, for many sinks ignore the rest."""


def is_to_blame(refusal: Refusal, *, taken: int, others: int, now: float) -> bool:
    """Whether a change is to blame for its refusal, and not the sink.

    taken: how often the sink has taken others by now. others: changes that it refused likewise, and nothing since. now:
    monotonic seconds.
    """
    if taken > refusal.taken:
        return True
    is_alone = not others and refusal.rounds >= _STRIKES and now - refusal.since >= _ALONE_FOR
    return is_alone and taken > 0


@attrs.define(eq=False)
class SinkHealth:
    """What a process has seen of its sink, in all mailboxes."""

    passed: int = 0
    """How often it took changes of which some had messages."""
    passed_without: int = 0
    """How often it took changes without messages."""
    refused: dict[Key, Refusal] = attrs.field(factory=dict[Key, Refusal])
    """Changes that it refused alone, by their keys, until it took others since: one of them may be quarantined."""

    def note_taken(self, changes: Sequence[Change]) -> None:
        """Note that the sink took these."""
        if any(change.message is not None for change in changes):
            self.passed += 1
        else:
            self.passed_without += 1
        for change in changes if self.refused else ():
            self.refused.pop(change.key, None)

    def note_refused(self, change: Change, *, taken: int, now: float) -> None:
        """Note that the sink refused this one alone in a round. taken: how often it had taken others before that."""
        first = Refusal(taken=taken, since=now, has_message=change.message is not None)
        self.refused.setdefault(change.key, first).rounds += 1

    def is_to_blame(self, key: Key, now: float) -> bool:
        """Whether this change is to blame for its refusal, and not the sink."""
        refusal = self.refused[key]
        others = sum(other != key and not self.has_taken_others_since(other) for other in self.refused)
        return is_to_blame(refusal, taken=self.taken(refusal.has_message), others=others, now=now)

    def has_taken_others_since(self, key: Key) -> bool:
        """Return True if the sink has refused this change alone, and took others since."""
        refusal = self.refused.get(key)
        return refusal is not None and self.taken(refusal.has_message) > refusal.taken

    def forget_rejection(self, key: Key) -> None:
        """Forget that the sink rejected a change, because its message can no longer be fetched to send it again."""
        self.refused.pop(key, None)

    def taken(self, has_message: bool) -> int:
        """How often the sink took anything that is as much to it as a change with a message, or without."""
        return self.passed + (0 if has_message else self.passed_without)


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
        self.unsure = dict[str, RefusedError]()
        """Why folders have changes that the sink refused while nothing showed that it takes any other."""
        self._in_vain = 0
        self._most_in_vain = _IN_VAIN + 2 * sum(key.mailbox == self.lease.name for key in self.health.refused)

    async def write(self, change_set: ChangeSet) -> None:
        """Commit what no sink is told of."""
        await self.store.commit(self.lease, change_set, ())

    async def write_each(self, rows: Iterable[Row], folders: Sequence[Folder] = ()) -> None:
        """Commit rows that no sink is told of, so many at a time. folders: written with the first, or without any."""
        remaining = iter(rows)
        while (some := list(itertools.islice(remaining, _AT_A_TIME))) or folders:
            await self.write(ChangeSet(rows=some, folders=list(folders)))
            folders = ()

    async def tell(self, steps: Iterable[Step], folders: Sequence[Folder] = ()) -> list[Change]:
        """Tell the sink of changes, and commit that, so many at a time; those told. Others are quarantined, or unsure.

        folders: written before the sink is told. Raises SinkError where the sink itself is to blame.
        """
        remaining, told = iter(steps), list[Change]()
        while some := list(itertools.islice(remaining, _AT_A_TIME)):
            try:
                await self._tell(some, folders)
            except SinkError as error:
                if error.is_general:
                    raise
                await self.write(ChangeSet(folders=list(folders)))  # who sent them takes them for written
                told += [step.change for step in await self._tell_one_by_one(some)]
            else:
                told += [step.change for step in some]
            folders = ()
        return told

    async def _tell(self, steps: Sequence[Step], folders: Sequence[Folder] = ()) -> None:
        """Tell of these and commit that, all or, as far as anybody knows, none."""
        changes = [step.change for step in steps]
        done = ChangeSet(rows=[row for step in steps for row in step.done()])
        if self._deliver is not None:
            await self._mark_in_doubt(steps, folders)
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
        self.health.note_taken(changes)
        self._in_vain = 0

    async def _mark_in_doubt(self, steps: Sequence[Step], folders: Sequence[Folder]) -> None:
        """Commit what the sink is going to be told; nobody is told by one whose lease is stale."""
        rows = [row for step in steps for row in step.in_doubt()]
        await self.store.commit(self.lease, ChangeSet(rows=rows, folders=list(folders)), ())

    async def _tell_one_by_one(self, steps: Sequence[Step]) -> list[Step]:
        """Tell of changes that the sink refused together; those that it took."""
        taken = {has_message: self.health.taken(has_message) for has_message in (True, False)}
        parts, told, refused = halves(steps), list[Step](), list[tuple[Step, SinkError]]()
        while parts:
            part = parts.pop()
            error = await self._refusal(part)
            if error is None:
                told += part
            elif len(part) > 1:
                parts += halves(part)
            else:
                (step,) = part
                refused.append((step, error))
                if not step.attempts:
                    before = taken[step.change.message is not None]
                    self.health.note_refused(step.change, taken=before, now=self._clock.monotonic())
                self._in_vain += not step.attempts
                if self._in_vain > self._most_in_vain:
                    raise error
        return told + await self._tell_refused(refused)

    async def _tell_refused(self, refused: Sequence[tuple[Step, SinkError]]) -> list[Step]:
        """Tell once more of what the sink refused alone, if it is to blame; what the sink takes now.

        The rest is quarantined, as is what was before; where the sink may be to blame, it is unsure.
        """
        taken, quarantine = list[Step](), ChangeSet()
        for step, error in refused:
            change = step.change
            if not step.attempts and not self.health.is_to_blame(change.key, self._clock.monotonic()):
                self.unsure[change.key.folder] = RefusedError(error.explanation)
                self.unsure[change.key.folder].__cause__ = error.__cause__
            elif not step.attempts and await self._refusal([step], times=_STRIKES - 1) is None:
                taken.append(step)
            else:
                row = step.quarantined(self.now_ms(), in_doubt=self._deliver is not None)
                if row is not None:
                    quarantine.rows.append(row)
                    quarantine.problems[row.key] = _problem_of(error)
                self.quarantined += not step.attempts
                if self.health.has_taken_others_since(change.key):
                    del self.health.refused[change.key]
        if quarantine.rows:
            await self.write(quarantine)
        return taken

    async def _refusal(self, part: Sequence[Step], times: int = 1) -> SinkError | None:
        """Why the sink can't take these, told so many times. Raises what is about no change."""
        refusal = None
        for _ in range(times):
            try:
                await self._tell(part)
            except SinkError as error:
                if error.is_general:
                    raise
                refusal = error
            else:
                return None
        return refusal

    def key(self, folder: str, row: Row) -> Key:
        """Where the message of a row is, or was."""
        return Key(self.lease.name, folder, row.uid_validity, row.uid)


def _problem_of(error: SinkError) -> str:
    """What a store keeps of it. The text of the sink's own error may tell of a patient."""
    return error.explanation if error.__cause__ is None else type(error.__cause__).__name__


def _is_general(error: Exception) -> bool:
    if isinstance(error, sqlite3.Error):
        return is_about_no_row(error)
    return isinstance(error, MemoryError) or getattr(error, "errno", None) in OF_THE_SYSTEM
