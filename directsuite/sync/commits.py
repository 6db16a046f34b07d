"""A mailbox's right to write, and the way of each change into the sink and the store."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence

import attrs

from directsuite.errors import ClosedError, DirectSuiteError
from directsuite.sync.changes import Change, Key
from directsuite.sync.store import Delta, Folder, Lease, Row, StaleLeaseError, State, Store, StoreError

Deliver = Callable[[Sequence[Change]], Awaitable[object]]
"""Takes changes, at least once each, before they count as done.

An attribute `sink_name`, if it has one, tells it from other sinks: a store is for one of them.
"""

_AT_A_TIME = 500
"""Changes of a commit."""


class SinkError(DirectSuiteError):
    """A sink failed; its own error is the cause. What it was given is given to it again, in a later round."""


class Commits:
    """Writes for one mailbox while its lease holds. deliver: None where the store's own sink gets the changes."""

    def __init__(self, store: Store, lease: Lease, deliver: Deliver | None) -> None:
        self.store = store
        self.lease = lease
        self._deliver = deliver

    async def write(self, delta: Delta, changes: Sequence[Change] = ()) -> None:
        """Commit a delta and its changes as one, or the changes first where the sink is no part of the store."""
        try:
            if self._deliver is not None and changes:
                await self.store.commit(self.lease, Delta(), ())  # nobody is told by one whose lease is stale
                await self._deliver(changes)
            await self.store.commit(self.lease, delta, () if self._deliver is not None else changes)
        except (ClosedError, SinkError, StaleLeaseError, StoreError):
            raise
        except Exception as error:
            raise SinkError(f"the sink raised {type(error).__name__}: nothing of this batch counts as done") from error

    async def write_each(
        self, steps: Iterable[tuple[Sequence[Row], Change | None]], folders: Sequence[Folder] = ()
    ) -> int:
        """Commit steps, so many at a time: the rows of each, and the change that they are for the sink.

        folders: written with the first of them. How many steps there were.
        """
        remaining, done = iter(steps), 0
        while some := list(itertools.islice(remaining, _AT_A_TIME)):
            delta = Delta(rows=[row for rows, _ in some for row in rows], folders=list(folders))
            folders = ()
            await self.write(delta, [change for _, change in some if change is not None])
            done += len(some)
        return done

    async def announce(self, rows: Iterable[Row], folders: Sequence[Folder] = ()) -> None:
        """Commit that a sink which is no part of the store may have been told of rows that were LIVE or LEFT: ORPHAN.

        A process may end between telling it and noting that. folders: as for write_each.
        """
        if self._deliver is not None:
            told = (attrs.evolve(row, state=State.ORPHAN) for row in rows if row.state in (State.LIVE, State.LEFT))
            await self.write_each((([row], None) for row in told), folders)

    def key(self, folder: str, row: Row) -> Key:
        """Where the message of a row is, or was."""
        return Key(self.lease.name, folder, row.generation, row.uid)
