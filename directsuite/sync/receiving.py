"""Messages that were fetched become rows and changes: by its content each is new, moved, or restored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import attrs

from directsuite.errors import ServiceError
from directsuite.messaging.models import MessageDetail
from directsuite.sync.canaries import is_still_there
from directsuite.sync.commits import Commits, Step
from directsuite.sync.identity import digest_of, hex_of, identity_of, received_ms, size_of
from directsuite.sync.model import LISTED, Change, Folder, Kind, Row, State
from directsuite.sync.place import Look, Place
from directsuite.sync.remote import Remote

Origin = tuple[str, Row]
"""Where a message was before: its folder's name, and its row there."""

_TOLD_AS_BEFORE = (State.IN_DOUBT, State.POISON_IN_DOUBT)
"""States of a uid's own row that tell nothing of where its message was: it is told as it was, or would have been."""


@attrs.frozen
class Received:
    """What became of messages: how many are done, and how many of them the sink was told of, by kind."""

    done: int
    told: Counter[Kind]


class Receiving:
    """Takes the messages of one look. Copies of a message are messages of their own, in the same folder or another."""

    def __init__(self, commits: Commits, remote: Remote, look: Look, places: Mapping[str, Place]) -> None:
        """places: the mailbox's folders, by their names."""
        self._commits = commits
        self._remote = remote
        self._look = look
        self._places = places
        self._elsewhere: dict[str, frozenset[int]] = {}

    async def take(self, uids: Sequence[int], messages: Sequence[MessageDetail]) -> Received:
        """Commit messages, which have these uids, in their order.

        Up to one that is another than was told under its uid: its folder is suspect.
        """
        digests = [digest_of(message) for message in messages]
        origins: defaultdict[bytes | None, list[Origin]] = defaultdict(list)
        for name, known in await self._commits.store.with_digests(self._commits.lease, set(digests)):
            origins[known.digest].append((name, known))
        back = await self._back(uids)
        steps, folders = list[Step](), list[Folder]()
        for uid, message, digest in zip(uids, messages, digests, strict=True):
            own = back.get(uid)
            if own is not None and own.digest not in (None, digest):
                self._look.place.suspect = True
                break
            row = self._row(uid, message, digest, 0 if own is None else own.attempts)
            origin = await self._origin(row, origins[digest])
            if origin is not None:
                origins[digest].remove(origin)
                folders += self._reopened(*origin)
            before = None if origin is None else origin[1]
            steps.append(Step(change=self._change(message, row, origin), before=before, here=row))
        if steps:
            folders += self._look.place.reopened()
        told = await self._commits.tell(steps, folders)
        return Received(len(steps), Counter(change.kind for change in told))

    async def _back(self, uids: Sequence[int]) -> dict[int, Row]:
        """The rows of those of the uids that are known."""
        known = self._look.states.keys() & uids
        rows = await self._commits.store.rows(self._look.place.folder, known) if known else ()
        return {row.uid: row for row in rows}

    async def _origin(self, now: Row, candidates: list[Origin]) -> Origin | None:
        """Where this content was before, and is no more: at its very place, or what is in doubt, or what is nearest."""

        def distance(origin: Origin) -> tuple[bool, bool, bool, bool]:
            """The nearest is the least."""
            row = origin[1]
            return row.key != now.key, row.state is State.GONE, row.folder != now.folder, row.uid != now.uid

        for origin in sorted(candidates, key=distance):
            if origin[1].key == now.key:
                if origin[1].state not in _TOLD_AS_BEFORE:
                    return origin
            elif origin[1].state not in LISTED or not await self._is_there(*origin):
                return origin
        return None

    async def _is_there(self, name: str, row: Row) -> bool:
        """Whether a message that was there is still, so that this one is a copy of it."""
        if row.folder == self._look.place.folder.id:
            listed = self._look.uids
        else:  # listed after this folder was: what has moved here is no more there
            if name not in self._elsewhere:
                self._elsewhere[name] = await self._listed(name)
            listed = self._elsewhere[name]
        if row.uid not in listed:
            return False
        if await is_still_there(self._remote, name, row):
            return True
        if name in self._places:
            self._places[name].suspect = True
        return False

    def _reopened(self, name: str, row: Row) -> list[Folder]:
        """Another folder that lost a message to this one: should it be listed there again, it is a message anew."""
        if row.state not in LISTED or name not in self._places or row.folder == self._look.place.folder.id:
            return []
        self._places[name].outdated = True
        return self._places[name].reopened()

    async def _listed(self, name: str) -> frozenset[int]:
        """The uids of another folder; none where there is no such folder any more."""
        try:
            listed = await self._remote.uids(name)
        except ServiceError:
            if name in await self._remote.folders():
                raise
            return frozenset()
        return frozenset(() if listed is None else listed.uids)

    def _row(self, uid: int, message: MessageDetail, digest: bytes, attempts: int) -> Row:
        return Row(
            folder=self._look.place.folder.id,
            generation=self._look.place.folder.generation,
            uid=uid,
            state=State.LIVE,
            identity=identity_of(message),
            digest=digest,
            size=size_of(message),
            received_ms=received_ms(message),
            attempts=attempts,
        )

    def _change(self, message: MessageDetail, row: Row, origin: Origin | None) -> Change:
        key = self._commits.key(self._look.place.folder.name, row)
        previous = None if origin is None else self._commits.key(*origin)
        kind = Kind.NEW
        if origin is not None:
            was_told_gone = origin[1].state in (State.GONE, State.POISON)  # which has a digest only for that
            kind = Kind.RESTORED if was_told_gone or previous == key else Kind.MOVED
        return Change(
            kind=kind,
            key=key,
            previous=previous,
            message=message,
            digest=hex_of(row.digest),
        )
