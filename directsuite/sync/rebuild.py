"""Everything compared: is the folder what it was, or does it number its messages anew?

identities agree ──► the same generation: late uids are new, those that came back are fetched again
they disagree ─────► another generation: who can be told by a strong identity that no other message has is carried
                     over; all others are fetched again, and known by their content
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence

import attrs

from directsuite.sync.canaries import have_content
from directsuite.sync.commits import Commits, Step
from directsuite.sync.identity import Metadata, hex_of
from directsuite.sync.model import Change, Delta, Kind, Row, State
from directsuite.sync.place import TOLD_GONE, Look, Place
from directsuite.sync.remote import Listed, Remote

_SAMPLE = 10
"""Messages at either end whose contents are compared where the metadata tell of none."""


async def rebuild(commits: Commits, remote: Remote, place: Place, *, audit: bool) -> Look:
    """Compare all, and give the folder as it is then.

    audit: contents of messages without a Message-ID, too, which otherwise are only compared where nothing else is.
    """
    rows = {row.uid: row for row in await commits.store.rows(place.folder)}
    metadata = remote.metadata(place.folder.name)
    found = {message.uid: Metadata.of(message) async for message in metadata if message.uid is not None}
    listed = await remote.uids(place.folder.name) or Listed(array("q"), b"")
    there = frozenset(listed.uids)  # the metadata may be of some of them only
    found = {uid: each for uid, each in found.items() if uid in there}
    carried_over = 0
    same = not place.suspect and _is_the_same(rows, found, there)
    if same and await have_content(remote, place.folder.name, _doubtful(rows, found, there, audit=audit)):
        await _reconcile(commits, place, rows, there)
    else:
        carried_over = await _begin_generation(commits, place, rows, found)
    place.mark, place.suspect = None, False
    states = await commits.store.states(place.folder)
    return Look(
        place=place,
        uids=there,
        states=states,
        fingerprint=listed.fingerprint,
        mark=listed.mark,
        carried_over=carried_over,
    )


def _is_the_same(rows: dict[int, Row], found: dict[int, Metadata], there: Collection[int]) -> bool:
    """Whether the identities say so; where nobody knows any, whether it may be."""
    compared = [found[uid].identity == row.identity for uid, row in rows.items() if uid in found and row.identity]
    if compared or not there:
        return all(compared)
    all_gone = all(row.state in TOLD_GONE for row in rows.values())
    return bool(_with_content(rows, there)) or (all_gone and min(there) > max(rows, default=0))


def _doubtful(
    rows: dict[int, Row], found: dict[int, Metadata], there: Collection[int], *, audit: bool
) -> Sequence[Row]:
    """Rows whose identity proves nothing: those that come back, and all where no other proves anything, or audit."""
    known = [row for uid, row in rows.items() if uid in found and row.identity is not None]
    if not known:  # the metadata lack what is listed
        listed = _with_content(rows, there)
        return [*listed[:_SAMPLE], *listed[_SAMPLE:][-_SAMPLE:]]
    every = audit or not any(found[row.uid].strong for row in known)
    back = (State.LEFT, *TOLD_GONE)
    return [row for row in known if not found[row.uid].strong and (every or row.state in back)]


def _with_content(rows: dict[int, Row], there: Collection[int]) -> list[Row]:
    """Rows that are listed, and whose contents can be compared."""
    return [row for uid, row in rows.items() if uid in there and row.digest is not None]


async def _reconcile(commits: Commits, place: Place, rows: dict[int, Row], there: Collection[int]) -> None:
    """Note what came back before anybody was told. What is missing a second listing confirms, as ever."""
    back = [
        attrs.evolve(row, state=State.LIVE) for uid, row in rows.items() if uid in there and row.state is State.LEFT
    ]
    if back:
        await commits.write(Delta(rows=back, folders=place.reopened()))


async def _begin_generation(commits: Commits, place: Place, rows: dict[int, Row], found: dict[int, Metadata]) -> int:
    """How many messages were carried over."""
    folder = attrs.evolve(place.folder, generation=place.folder.generation + 1, fingerprint=None)
    await commits.write(Delta(orphaned=[folder.id], folders=[folder]))
    place.folder = folder
    place.not_returned.clear()
    return len(await commits.tell(_carried_over(commits, place, rows, found)))


def _carried_over(commits: Commits, place: Place, rows: dict[int, Row], found: dict[int, Metadata]) -> Iterator[Step]:
    """Each message whose identity is strong and nobody else's."""
    known: defaultdict[bytes, list[Row]] = defaultdict(list)
    for row in rows.values():
        if row.state in (State.LIVE, State.LEFT) and row.identity is not None:
            known[row.identity].append(row)
    times = Counter(each.identity for each in found.values())
    for uid, now in sorted(found.items()):
        old = known.get(now.identity, [])
        if not now.strong or len(old) != 1 or times[now.identity] != 1:
            continue
        row = Row(
            folder=place.folder.id,
            generation=place.folder.generation,
            uid=uid,
            state=State.LIVE,
            identity=now.identity,
            digest=old[0].digest,
            size=now.size,
            received_ms=now.received_ms,
        )
        key, previous = (commits.key(place.folder.name, each) for each in (row, old[0]))
        change = Change(kind=Kind.MOVED, key=key, previous=previous, digest=hex_of(row.digest))
        yield Step(change=change, before=attrs.evolve(old[0], state=State.ORPHAN), here=row)
