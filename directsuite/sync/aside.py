"""Messages that can't be fetched: set aside, so that they hold up nobody, and asked for again once in a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from directsuite.sync.commits import Commits, tried_in_vain
from directsuite.sync.identity import Metadata
from directsuite.sync.model import Delta, Kind, Row, State
from directsuite.sync.place import Look, Place
from directsuite.sync.receiving import Receiving
from directsuite.sync.remote import Remote, whole

_MAY_BE_TOLD = (State.IN_DOUBT, State.ORPHAN, State.POISON_IN_DOUBT)
"""States of a listed uid's row whose key a sink may know."""


class Aside:
    """Sets messages aside, and asks for them again."""

    def __init__(self, commits: Commits, remote: Remote) -> None:
        self._commits = commits
        self._remote = remote
        self._seen: dict[int | None, Metadata] | None = None

    async def put(self, place: Place, uid: int, among: Sequence[int]) -> None:
        """Set a message aside. among: those of its folder that one round asks for, and all of whose metadata are kept.

        By the way it shows that the service answers, and so whose fault it was.
        """
        if self._seen is None:
            wanted = frozenset(among)
            found = self._remote.metadata(place.folder.name)
            self._seen = {each.uid: Metadata.of(each) async for each in found if each.uid in wanted}
        seen, known = self._seen.get(uid), await self._known(place, uid)
        row = Row(
            folder=place.folder.id,
            generation=place.folder.generation,
            uid=uid,
            state=State.POISON_IN_DOUBT if known is not None and known.state in _MAY_BE_TOLD else State.POISON,
            identity=None if seen is None else seen.identity,
            digest=None if known is None else known.digest,
            received_ms=None if seen is None else seen.received_ms,
        )
        row = tried_in_vain(row, self._commits.now_ms())
        await self._commits.write(Delta(rows=[row], folders=place.reopened()))

    async def _known(self, place: Place, uid: int) -> Row | None:
        """The row of a message that was told gone, and is back, or of which a sink may have been told."""
        known = await self._commits.store.rows(place.folder, [uid])
        return known[0] if known else None

    def is_due(self, row: Row) -> bool:
        """Whether it is time to ask again."""
        return row.retry_ms is None or row.retry_ms <= self._commits.now_ms()

    async def try_again(self, place: Place, row: Row, places: Mapping[str, Place]) -> Counter[Kind]:
        """Ask for a message again; what it turned out to be, where it came. places: as for Receiving."""
        message = await whole(self._remote, place.folder.name, row.uid)
        listed = None if message is None else await self._remote.uids(place.folder.name)
        if message is not None and listed is not None:  # what else the folder has is not what this one was before
            look = Look(place=place, uids=frozenset(listed.uids), states={row.uid: row.state}, fingerprint=b"")
            return (await Receiving(self._commits, self._remote, look, places).take([row.uid], [message])).told
        await self._commits.write(Delta(rows=[tried_in_vain(row, self._commits.now_ms())]))
        return Counter()
