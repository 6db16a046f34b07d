"""A sink in the transaction of a store, and a wrapper of the store whose commits fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from directsuite.durable.database import Transaction
from directsuite.sync.model import Change, ChangeSet, Lease, MessageState, StoredFolder, StoreError
from directsuite.sync.store import Store

from .fake_remote import CrashPoint

Write = Callable[[Sequence[Change]], None]
"""A sink that is part of the store's own transaction."""


class DiskFullError(StoreError):
    pass


class MirrorSink:
    """A sink of the store that passes the changes on."""

    def __init__(self, write: Write) -> None:
        self._write = write

    async def prepare(self, transaction: Transaction) -> None:
        pass

    async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        self._write(changes)


class FailingStore:
    """A store whose commits end the process before or after they are written, or fail.

    refuse: the number of commits before a failure, or None. commits: the number of written commits.
    aside: receives folder, uid_validity and uid of every quarantined message.
    """

    def __init__(self, store: Store, fuse: CrashPoint, aside: set[tuple[str, int, int]]) -> None:
        self._store = store
        self._fuse = fuse
        self.refuse: int | None = None
        self.commits = 0
        self._aside = aside
        self._names: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def make_folder(self, lease: Lease, name: str) -> StoredFolder:
        folder = await self._store.make_folder(lease, name)
        self._names[folder.id] = name
        return folder

    async def commit(self, lease: Lease, change_set: ChangeSet, changes: Sequence[Change]) -> None:
        self._fuse.advance()
        if self.refuse is not None:
            self.refuse -= 1
            if self.refuse < 0:
                self.refuse = None
                raise DiskFullError("disk full")
        self._aside |= {
            (self._names[row.folder], row.uid_validity, row.uid)
            for row in change_set.rows
            if row.state is MessageState.POISON
        }
        await self._store.commit(lease, change_set, changes)
        self.commits += 1
        self._fuse.advance()
