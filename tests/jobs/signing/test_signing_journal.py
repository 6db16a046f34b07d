"""What every journal does, in a file or in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.signing import Entry, Journal, State
from directsuite.jobs.signing.journal import Chunk, PostgresJournal, digest_of
from tests.jobs.signing.jobs import SIGN, Jobs, pdfs

NAMES = ["a.pdf", "b/c.pdf", "\udcff.pdf", "\N{SNOWMAN}.pdf"]


@attrs.frozen
class Kept:
    """A journal as jobs write it, of the documents in NAMES, and as operators look at it."""

    journal: Chunk
    operator: Journal | PostgresJournal


@pytest.fixture(params=["file", pytest.param("PostgreSQL", marks=pytest.mark.postgres)])
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    """Of either kind."""
    if request.param == "file":
        async with Journal(tmp_path / "journal.db") as journal:
            await journal.entries(NAMES)
            yield Kept(journal, journal)
        return
    async with PostgresJournal(request.getfixturevalue("conninfo"), "job") as in_postgres:
        await in_postgres.add(NAMES)
        [key] = await in_postgres.due(30.0)
        chunk = await in_postgres.lease(key, 30.0)
        assert chunk is not None
        yield Kept(chunk, in_postgres)


def _saved(entry: Entry, identifier: str) -> Entry:
    return attrs.evolve(entry, state=State.SAVED, identifier=identifier, saved_at=1.5, source_sha="ab")


async def test_each_document_has_an_entry_by_its_name(kept: Kept) -> None:
    entries = await kept.journal.entries([NAMES[2], NAMES[0], NAMES[2]])
    assert [each.name for each in entries] == [NAMES[2], NAMES[0], NAMES[2]]
    assert entries[0] == entries[2]
    assert {each.state for each in entries} == {State.NEW}
    assert len({each.number for each in await kept.journal.entries(NAMES)}) == len(NAMES)
    assert (await kept.operator.tally()).states == {State.NEW: len(NAMES)}


async def test_its_part_of_a_staging_folder_is_its_own_and_stays(kept: Kept, tmp_path: Path) -> None:
    part = await kept.journal.part()
    assert await kept.journal.part() == part
    assert part.isalnum()
    async with Journal(tmp_path / "other.db") as other:
        others = await other.part()
    assert part != others
    async with Journal((tmp_path / "other.db").rename(tmp_path / "moved.db")) as moved:
        assert await moved.part() == others


async def test_what_is_put_is_found(kept: Kept) -> None:
    [entry] = await kept.journal.entries([NAMES[3]])
    changed = attrs.evolve(_saved(entry, "x"), state=State.SIGNED, output_sha="cd", tries=3)
    assert await kept.journal.put(changed) == changed
    assert await kept.journal.known([NAMES[3], "other"]) == {NAMES[3]: changed}


async def test_what_is_abandoned_is_listed_and_counted(kept: Kept) -> None:
    for number, entry in enumerate(await kept.journal.entries(NAMES[:3])):
        saved = await kept.journal.put(_saved(entry, f"id{number}"))
        if number:
            saved = attrs.evolve(saved, state=State.SIGNING)
        then = (State.NEW, State.FAILED, State.DONE)[number]
        left = await kept.journal.abandon(saved, at=float(number), then=then, problem="p" if number == 1 else None)
        assert (left.state, left.identifier, left.saved_at) == (then, None, None)
        assert left.tries == (then is State.NEW)
        assert await kept.journal.entries([entry.name]) == [left]
    tally = await kept.operator.tally()
    assert (tally.abandoned, tally.requested) == (2, 2)
    assert await kept.journal.abandoned() == ["id0", "id1", "id2"]
    assert await kept.journal.abandoned(after="id0", most=1) == ["id1"]
    await kept.journal.forget(["id1"])
    await kept.journal.forget_expired(1.0, 0.0)
    assert await kept.journal.abandoned() == ["id2"]


async def test_an_entry_without_a_stored_document_leaves_none(kept: Kept) -> None:
    [entry] = await kept.journal.entries([NAMES[0]])
    await kept.journal.abandon(entry, at=0.0, then=State.FAILED, problem="p")
    tally = await kept.operator.tally()
    assert (tally.abandoned, tally.requested, await kept.journal.abandoned()) == (0, 0, [])


async def test_failures_are_listed_and_renewed(kept: Kept) -> None:
    for entry, problem in zip(await kept.journal.entries(NAMES), ("p", "q", "p", None), strict=True):
        if problem is not None:
            saved = _saved(entry, str(entry.number))
            await kept.journal.abandon(saved, at=0.0, then=State.FAILED, problem=problem)
    assert await _problems(kept.operator.failures) == ["p", "q", "p"]
    first = await kept.operator.failures(most=1)
    assert [each.problem for each in await kept.operator.failures(after=first[0].number)] == ["q", "p"]
    assert await kept.operator.renew("p") == 2
    assert await _problems(kept.operator.failures) == ["q"]
    assert await kept.operator.renew() == 1
    for entry in await kept.journal.entries(NAMES):
        assert (entry.state, entry.problem, entry.source_sha) == (State.NEW, None, None)


async def _problems(failures: Callable[[], Awaitable[Sequence[Entry]]]) -> list[str | None]:
    return [each.problem for each in await failures()]


async def test_it_is_of_what_is_signed_with(kept: Kept) -> None:
    await kept.journal.claim("one")
    await kept.journal.claim("one")
    with pytest.raises(ds.ConfigurationError, match="a journal of its own"):
        await kept.journal.claim("other")


async def test_a_file_tells_of_what_it_is_without_being_claimed(jobs: Jobs) -> None:
    assert await jobs.journal.claimed() is None
    assert await jobs.journal.claimed() is None
    await jobs.job(pdfs("a.pdf")).run()
    assert await jobs.journal.claimed() == digest_of(SIGN)
    assert digest_of(SIGN) != digest_of([ds.Signature(name="T")])
