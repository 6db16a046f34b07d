"""Messages that were fetched become rows and changes: by its content each is new, moved, or restored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import attrs

from directsuite.errors import ServiceError
from directsuite.messaging.models import MessageDetail
from directsuite.sync.canaries import is_still_there
from directsuite.sync.changes import Change, Kind
from directsuite.sync.commits import Commits
from directsuite.sync.identity import digest_of, hex_of, identity_of, received_ms
from directsuite.sync.place import Look, Place
from directsuite.sync.remote import Remote
from directsuite.sync.store import Delta, Folder, Row, State

Origin = tuple[str, Row]
"""Where a message was before: its folder's name, and its row there."""


class Receiving:
    """Takes the messages of one look. Copies of a message are messages of their own, in the same folder or another."""

    def __init__(self, commits: Commits, remote: Remote, look: Look, places: Mapping[str, Place]) -> None:
        """places: the mailbox's folders, by their names."""
        self._commits = commits
        self._remote = remote
        self._look = look
        self._places = places
        self._elsewhere: dict[str, frozenset[int]] = {}

    async def take(self, uids: Sequence[int], messages: Sequence[MessageDetail]) -> Counter[Kind]:
        """Commit messages, which have these uids, in their order; how many were of which kind."""
        digests = [digest_of(message) for message in messages]
        origins: defaultdict[bytes | None, list[Origin]] = defaultdict(list)
        for name, known in await self._commits.store.with_digests(self._commits.lease, set(digests)):
            origins[known.digest].append((name, known))
        delta, changes = Delta(), list[Change]()
        for uid, message, digest in zip(uids, messages, digests, strict=True):
            origin = await self._origin(origins[digest])
            row = self._row(uid, message, digest)
            if origin is not None:
                origins[digest].remove(origin)
                delta.rows.append(attrs.evolve(origin[1], state=State.GONE, digest=None))
                delta.folders += self._not_as_it_was(*origin)
            delta.rows.append(row)
            changes.append(self._change(message, row, origin))
        await self._commits.write(delta, changes)
        return Counter(change.kind for change in changes)

    async def _origin(self, candidates: list[Origin]) -> Origin | None:
        """Where this content was before, and is no more; what is in doubt first, and of that what is nearest."""
        own = self._look.place.folder.id
        for origin in sorted(candidates, key=lambda each: (each[1].state is State.GONE, each[1].folder != own)):
            if origin[1].state is not State.LIVE or not await self._is_there(*origin):
                return origin
        return None

    async def _is_there(self, name: str, row: Row) -> bool:
        """Whether a message that was there is still, so that this one is a copy of it."""
        if row.folder == self._look.place.folder.id:
            listed = self._look.uids
        else:  # listed after this folder was: what has moved here is no more there
            listed = self._elsewhere[name] = self._elsewhere.get(name) or await self._listed(name)
        if row.uid not in listed:
            return False
        if await is_still_there(self._remote, name, row):
            return True
        if name in self._places:
            self._places[name].suspect = True
        return False

    def _not_as_it_was(self, name: str, row: Row) -> list[Folder]:
        """Another folder that lost a message to this one: should it be listed there again, it is a message anew."""
        if row.state is not State.LIVE or name not in self._places or row.folder == self._look.place.folder.id:
            return []
        place = self._places[name]
        place.mark, place.folder = None, attrs.evolve(place.folder, fingerprint=None)
        return [place.folder]

    async def _listed(self, name: str) -> frozenset[int]:
        """The uids of another folder; none where there is no such folder any more."""
        try:
            listed = await self._remote.uids(name)
        except ServiceError:
            if name in await self._remote.folders():
                raise
            return frozenset()
        return frozenset(() if listed is None else listed.uids)

    def _row(self, uid: int, message: MessageDetail, digest: bytes) -> Row:
        return Row(
            folder=self._look.place.folder.id,
            generation=self._look.place.folder.generation,
            uid=uid,
            state=State.LIVE,
            identity=identity_of(message),
            digest=digest,
            size=-1 if message.size is None else message.size,
            received_ms=received_ms(message),
        )

    def _change(self, message: MessageDetail, row: Row, origin: Origin | None) -> Change:
        kind = Kind.NEW
        if origin is not None:
            kind = Kind.RESTORED if origin[1].state is State.GONE else Kind.MOVED
        return Change(
            kind=kind,
            key=self._commits.key(self._look.place.folder.name, row),
            previous=None if origin is None else self._commits.key(*origin),
            message=message,
            digest=hex_of(row.digest),
        )
