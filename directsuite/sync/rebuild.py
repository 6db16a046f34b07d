"""Everything compared: is the folder what it was, or does it number its messages anew?

identities agree ──► the same generation: late uids are new, those that came back are fetched again
they disagree ─────► another generation: who can be told by a strong identity that no other message has is carried
                     over; all others are fetched again, and known by their content
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

import attrs

from directsuite.messaging.models import MessageDetail
from directsuite.sync.canaries import differing, have_content
from directsuite.sync.changes import Change, Kind
from directsuite.sync.commits import Commits
from directsuite.sync.identity import hex_of, identity_of, is_strong, received_ms
from directsuite.sync.place import Look, Place
from directsuite.sync.remote import Listed, Remote
from directsuite.sync.store import Delta, Row, State


@attrs.frozen
class _Metadata:
    """What is kept of a message's metadata."""

    uid: int
    identity: bytes
    strong: bool
    size: int
    received_ms: int | None


async def rebuild(commits: Commits, remote: Remote, place: Place, *, audit: bool) -> Look:
    """Compare all, and give the folder as it is then.

    audit: contents of messages without a Message-ID, too, which otherwise are only compared where nothing else is.
    """
    rows = {row.uid: row for row in await commits.store.rows(place.folder)}
    found: dict[int, _Metadata] = {}
    async for message in remote.metadata(place.folder.name):
        if message.uid is None:
            continue
        found[message.uid] = _kept(message.uid, message)
    same = not place.suspect and _is_the_same(rows, found)
    if same and (audit or not any(found[uid].strong for uid, row in rows.items() if uid in found and row.identity)):
        weak = [row for uid, row in rows.items() if row.state is State.LIVE and uid in found and not found[uid].strong]
        same = await have_content(remote, place.folder.name, weak)
    if same:
        returned = [row for row in rows.values() if row.state is State.LEFT and row.uid in found]
        weak = [row for row in returned if not found[row.uid].strong]
        others = {row.uid for row in returned if found[row.uid].identity != row.identity}
        others |= await differing(remote, place.folder.name, weak)
        await _reconcile(commits, place, rows, found, others)
    else:
        await _begin_generation(commits, place, rows, found)
    place.mark, place.suspect = None, False
    listed = Listed(array("q", sorted(found)), b"")
    states = await commits.store.states(place.folder)
    return Look(place=place, uids=frozenset(found), states=states, fingerprint=listed.fingerprint)


def _kept(uid: int, message: MessageDetail) -> _Metadata:
    return _Metadata(
        uid=uid,
        identity=identity_of(message),
        strong=is_strong(message),
        size=-1 if message.size is None else message.size,
        received_ms=received_ms(message),
    )


def _is_the_same(rows: dict[int, Row], found: dict[int, _Metadata]) -> bool:
    compared = [found[uid].identity == row.identity for uid, row in rows.items() if uid in found and row.identity]
    all_gone = all(row.state is State.GONE for row in rows.values())
    nothing_to_compare = not found or (all_gone and min(found) > max(rows, default=0))
    return all(compared) and (bool(compared) or nothing_to_compare)


async def _reconcile(
    commits: Commits, place: Place, rows: dict[int, Row], found: dict[int, _Metadata], others: Collection[int]
) -> None:
    """Note what is missing and what came back. others: uids of LEFT rows under which there is another message now."""
    delta, changes = Delta(), list[Change]()
    for uid, row in rows.items():
        now = found.get(uid)
        if now is None:
            if row.state is State.LIVE:
                delta.rows.append(attrs.evolve(row, state=State.LEFT))
            elif row.state is State.POISON:
                delta.rows.append(attrs.evolve(row, state=State.GONE))
        elif row.state is State.LEFT and uid not in others:
            delta.rows.append(attrs.evolve(row, state=State.LIVE))
        elif row.state in (State.LEFT, State.GONE):  # perhaps another message: its content decides
            if row.state is State.LEFT:
                changes.append(
                    Change(kind=Kind.GONE, key=commits.key(place.folder.name, row), digest=hex_of(row.digest))
                )
            delta.aside.append(attrs.evolve(row, state=State.GONE))
    if delta.rows or delta.aside:
        await commits.write(delta, changes)


async def _begin_generation(commits: Commits, place: Place, rows: dict[int, Row], found: dict[int, _Metadata]) -> None:
    folder = attrs.evolve(place.folder, generation=place.folder.generation + 1, fingerprint=None)
    await commits.write(Delta(orphaned=[folder.id], folders=[folder]))
    place.folder = folder
    place.not_returned.clear()
    await commits.write_each(_carried_over(commits, place, rows, found))


def _carried_over(
    commits: Commits, place: Place, rows: dict[int, Row], found: dict[int, _Metadata]
) -> Iterator[tuple[list[Row], Change]]:
    """Each message whose identity is strong and nobody else's: its old row, its new one, and the change."""
    known: defaultdict[bytes, list[Row]] = defaultdict(list)
    for row in rows.values():
        if row.state in (State.LIVE, State.LEFT) and row.identity is not None:
            known[row.identity].append(row)
    times = Counter(each.identity for each in found.values())
    for _, now in sorted(found.items()):
        old = known.get(now.identity, [])
        if not now.strong or len(old) != 1 or times[now.identity] != 1:
            continue
        row = Row(
            folder=place.folder.id,
            generation=place.folder.generation,
            uid=now.uid,
            state=State.LIVE,
            identity=now.identity,
            digest=old[0].digest,
            size=now.size,
            received_ms=now.received_ms,
        )
        key, previous = (commits.key(place.folder.name, each) for each in (row, old[0]))
        change = Change(kind=Kind.MOVED, key=key, previous=previous, digest=hex_of(row.digest))
        yield [attrs.evolve(old[0], state=State.GONE, digest=None), row], change
