"""Messages that can't be fetched: set aside, so that they hold up nobody, and asked for again once in a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import attrs

from directsuite.errors import DirectSuiteError
from directsuite.sync.changes import Kind
from directsuite.sync.commits import Commits
from directsuite.sync.fetching import NOBODYS_FAULT
from directsuite.sync.identity import identity_of
from directsuite.sync.place import Look, Place
from directsuite.sync.receiving import Receiving
from directsuite.sync.remote import Remote
from directsuite.sync.store import Delta, Row, State

_FIRST, _LONGEST = 900_000, 86_400_000
"""Milliseconds until the first, and at the most until a later try."""


class Aside:
    """The messages of a mailbox that are set aside. now_ms: the time of day, in milliseconds since 1970."""

    def __init__(self, commits: Commits, remote: Remote, now_ms: Callable[[], int]) -> None:
        self._commits = commits
        self._remote = remote
        self._now_ms = now_ms

    async def put(self, place: Place, uid: int) -> None:
        """Set a message aside. By the way it shows that the service answers, and so whose fault it was."""
        identity = None
        async for message in self._remote.metadata(place.folder.name):
            if message.uid == uid:
                identity = identity_of(message)
        row = Row(
            folder=place.folder.id,
            generation=place.folder.generation,
            uid=uid,
            state=State.POISON,
            identity=identity,
            digest=await self._known_content(place, uid),
            attempts=1,
            retry_ms=self._now_ms() + _FIRST,
        )
        await self._commits.write(Delta(rows=[row], folders=place.reopened()))

    async def _known_content(self, place: Place, uid: int) -> bytes | None:
        """The digest of a message that was told gone, and is back."""
        rows = await self._commits.store.rows(place.folder)
        return next((row.digest for row in rows if row.uid == uid), None)

    def is_due(self, row: Row) -> bool:
        """Whether it is time to ask again."""
        return row.retry_ms is None or row.retry_ms <= self._now_ms()

    async def try_again(self, place: Place, row: Row, places: Mapping[str, Place]) -> Counter[Kind]:
        """Ask for a message again; what it turned out to be, where it came. places: as for Receiving."""
        try:
            messages = await self._remote.messages(place.folder.name, [row.uid])
        except NOBODYS_FAULT:
            raise
        except DirectSuiteError:
            messages = ()
        whole = [message for message in messages if message.uid == row.uid]
        listed = await self._remote.uids(place.folder.name)
        if whole and listed is not None:  # what else the folder has is not what this one was before
            look = Look(place=place, uids=frozenset(listed.uids), states={row.uid: row.state}, fingerprint=b"")
            return await Receiving(self._commits, self._remote, look, places).take([row.uid], whole[:1])
        wait = min(_LONGEST, _FIRST * 2**row.attempts)
        again = attrs.evolve(row, attempts=row.attempts + 1, retry_ms=self._now_ms() + wait)
        await self._commits.write(Delta(rows=[again]))
        return Counter()
