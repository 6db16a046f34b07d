"""Any sequence of commits leaves the same in both stores."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from directsuite.sync.model import ChangeSet, Lease, MessageRow, MessageState, StoredFolder
from directsuite.sync.postgres import PostgresStore
from directsuite.sync.store import MEMORY, SqliteStore, Store
from tests.examples import scale_examples

_NUMBERS = itertools.count()
_DIGESTS = [bytes([n]) * 16 for n in range(3)]

rows = st.builds(
    MessageRow,
    folder=st.integers(0, 1),
    uid_validity=st.integers(1, 2),
    uid=st.integers(1, 4),
    state=st.sampled_from(MessageState),
    identity=st.none() | st.just(b"i" * 12),
    digest=st.none() | st.sampled_from(_DIGESTS),
    size=st.integers(-1, 2**40),
    received_ms=st.none() | st.integers(-(2**40), 2**45),
    attempts=st.integers(0, 5),
    retry_ms=st.none() | st.integers(0, 2**45),
)
folders = st.builds(
    StoredFolder,
    id=st.integers(0, 1),
    name=st.just(""),
    uid_validity=st.integers(1, 2),
    fingerprint=st.none() | st.binary(max_size=16),
    audited_ms=st.none() | st.integers(0, 2**45),
)
deltas = st.builds(
    ChangeSet,
    renumbered=st.lists(st.integers(0, 1), max_size=1),
    rows=st.lists(rows, max_size=6),
    folders=st.lists(folders, max_size=1),
)


async def all_there_is(store: Store, commits: list[ChangeSet]) -> Any:
    """What a store has to say after these commits, whose folders are 0 and 1."""
    lease = await store.claim(f"mailbox {next(_NUMBERS)}")
    ids = [(await store.folder(lease, name)).id for name in ("INBOX", "Sent")]
    for change_set in commits:
        named = [attrs.evolve(each, id=ids[each.id], name=("INBOX", "Sent")[each.id]) for each in change_set.folders]
        own = ChangeSet(
            renumbered=[ids[each] for each in change_set.renumbered],
            rows=[attrs.evolve(row, folder=ids[row.folder]) for row in change_set.rows],
            folders=named,
        )
        await store.commit(lease, own, ())
    return await _seen(store, lease, ids)


async def _seen(store: Store, lease: Lease, ids: list[int]) -> list[Any]:
    seen = list[Any]()
    for name in ("INBOX", "Sent"):
        folder = await store.folder(lease, name)
        seen += [attrs.evolve(folder, id=ids.index(folder.id)), dict(await store.states(folder))]
        seen += [_neutral(ids, await store.rows(folder)), _neutral(ids, await store.sentinels(folder))]
    seen.append([(name, *_neutral(ids, [row])) for name, row in await store.unfinished(lease)])
    seen.append([(name, *_neutral(ids, [row])) for name, row in await store.with_digests(lease, _DIGESTS[:2])])
    return seen


def _neutral(ids: list[int], found: Any) -> list[MessageRow]:
    return [attrs.evolve(row, folder=ids.index(row.folder)) for row in found]


@pytest.mark.postgres
@settings(max_examples=scale_examples(40))
@given(commits=st.lists(deltas, max_size=5))
def test_any_sequence_of_commits_leaves_the_same_in_both(shared_database: str, commits: list[ChangeSet]) -> None:
    async def compare() -> None:
        store = PostgresStore(shared_database)
        async with store, SqliteStore(MEMORY) as other:
            assert await all_there_is(store, commits) == await all_there_is(other, commits)

    asyncio.run(compare())
