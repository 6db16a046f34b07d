"""A store in memory, and a wrapper whose commits fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs

from directsuite.sync.model import (
    STATE_AFTER_LEAVING,
    UNFINISHED_STATES,
    Change,
    ChangeSet,
    Lease,
    MessageRow,
    MessageState,
    StaleLeaseError,
    StoredFolder,
    StoreError,
)
from directsuite.sync.store import Store

from .fake_remote import CrashPoint

Write = Callable[[Sequence[Change]], None]
"""A sink that is part of the store's own transaction."""

_RENUMBERED = STATE_AFTER_LEAVING | dict.fromkeys((MessageState.LIVE, MessageState.MISSING), MessageState.UNRESOLVED)


class DiskFullError(StoreError):
    pass


class DictStore(Store):
    def __init__(self, write: Write) -> None:
        self._write = write
        self.fence = 0
        self._folders: dict[str, StoredFolder] = {}
        self._rows: dict[tuple[int, int, int], MessageRow] = {}

    async def claim(self, mailbox: str) -> Lease:
        self.fence += 1
        return Lease(1, mailbox, self.fence)

    async def folder(self, lease: Lease, name: str) -> StoredFolder:
        return self._folders.setdefault(name, StoredFolder(id=len(self._folders) + 1, name=name))

    async def folders(self, lease: Lease) -> Sequence[StoredFolder]:
        return list(self._folders.values())

    async def states(self, folder: StoredFolder) -> Mapping[int, MessageState]:
        return {row.uid: row.state for row in await self.rows(folder)}

    async def rows(self, folder: StoredFolder, uids: Collection[int] | None = None) -> Sequence[MessageRow]:
        of_it = (folder.id, folder.uid_validity)
        return [row for key, row in sorted(self._rows.items()) if key[:2] == of_it and (uids is None or key[2] in uids)]

    async def sentinels(self, folder: StoredFolder) -> Sequence[MessageRow]:
        rows = [
            row
            for row in await self.rows(folder)
            if row.state is MessageState.LIVE and row.identity is not None and row.received_ms is not None
        ]
        return rows if len(rows) < 2 else [rows[-1], rows[0]]

    async def with_digests(self, lease: Lease, digests: Iterable[bytes]) -> Sequence[tuple[str, MessageRow]]:
        wanted = set(digests)
        return [(self._name(row), row) for row in self._rows.values() if row.digest in wanted]

    async def unfinished(self, lease: Lease) -> Sequence[tuple[str, MessageRow]]:
        return [(self._name(row), row) for _, row in sorted(self._rows.items()) if row.state in UNFINISHED_STATES]

    async def commit(self, lease: Lease, change_set: ChangeSet, changes: Sequence[Change]) -> None:
        if lease.lease_number != self.fence:
            raise StaleLeaseError("claimed by another worker since")
        rows, folders = dict(self._rows), dict(self._folders)
        for key, row in self._rows.items():
            if row.folder in change_set.renumbered and row.state in _RENUMBERED:
                rows[key] = attrs.evolve(row, state=_RENUMBERED[row.state], attempts=0, retry_ms=None)
        for row in change_set.rows:
            rows[row.folder, row.uid_validity, row.uid] = row
        for folder in change_set.folders:
            folders[folder.name] = folder
        if changes:
            self._write(changes)
        self._rows, self._folders = rows, folders

    def _name(self, row: MessageRow) -> str:
        return next(folder.name for folder in self._folders.values() if folder.id == row.folder)


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

    async def folder(self, lease: Lease, name: str) -> StoredFolder:
        folder = await self._store.folder(lease, name)
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
