"""The behaviour of all journals, in a file or in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.signing import DocumentState, SigningEntry, SigningJournal
from directsuite.jobs.signing.journal import _MAX_QUERY_NAMES, Lease, compute_signatures_digest
from tests.jobs.signing.job_factory import SIGNATURES, JobFactory
from tests.statements import query_file

NAMES = ["a.pdf", "b/c.pdf", "\udcff.pdf", "\N{SNOWMAN}.pdf"]


@attrs.frozen
class Kept:
    """The lease of a journal with the documents in NAMES, and the journal as operators see it."""

    lease: Lease
    operator: SigningJournal


@pytest.fixture(params=["file", pytest.param("PostgreSQL", marks=pytest.mark.postgres)])
async def journals(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kept]:
    if request.param == "file":
        async with SigningJournal(tmp_path / "journal.db") as journal:
            await journal.lease.entries(NAMES)
            yield Kept(journal.lease, journal)
        return
    async with SigningJournal(conninfo=request.getfixturevalue("conninfo"), job="job") as in_postgres:
        await in_postgres.add(NAMES)
        [key] = await in_postgres.list_due(30.0)
        chunk = await in_postgres.lease_batch(key, 30.0)
        assert chunk is not None
        yield Kept(chunk, in_postgres)


def _saved(entry: SigningEntry, identifier: str) -> SigningEntry:
    return attrs.evolve(entry, state=DocumentState.SAVED, identifier=identifier, saved_at=1.5, source_sha="ab")


async def test_each_document_has_an_entry_by_its_name(journals: Kept) -> None:
    entries = await journals.lease.entries([NAMES[2], NAMES[0], NAMES[2]])
    assert [each.name for each in entries] == [NAMES[2], NAMES[0], NAMES[2]]
    assert entries[0] == entries[2]
    assert {each.state for each in entries} == {DocumentState.NEW}
    assert len({each.number for each in await journals.lease.entries(NAMES)}) == len(NAMES)
    assert (await journals.operator.tally()).states == {DocumentState.NEW: len(NAMES)}


async def test_staging_folder_of_a_lease_is_stable_and_unique(journals: Kept, tmp_path: Path) -> None:
    part = journals.lease.shard
    assert part.isalnum()
    async with SigningJournal(tmp_path / "other.db") as other:
        others = other.lease.shard
    assert part != others
    async with SigningJournal((tmp_path / "other.db").rename(tmp_path / "moved.db")) as moved:
        assert moved.lease.shard == others


async def test_stored_entry_is_returned(journals: Kept) -> None:
    [entry] = await journals.lease.entries([NAMES[3]])
    changed = attrs.evolve(_saved(entry, "x"), state=DocumentState.SIGNED, output_sha="cd", tries=3)
    assert await journals.lease.put(changed) == changed
    assert await journals.lease.find_entries([NAMES[3], "other"]) == {NAMES[3]: changed}


async def test_entries_of_many_documents_are_found(tmp_path: Path) -> None:
    names = [f"{number}.pdf" for number in range(2 * _MAX_QUERY_NAMES + 1)]
    async with SigningJournal(tmp_path / "journal.db") as journal:
        entries = await journal.lease.entries(names)
        assert await journal.lease.find_entries({*names, "other"}) == {each.name: each for each in entries}
    assert [each.name for each in entries] == names


async def test_abandoned_documents_are_listed_and_counted(journals: Kept) -> None:
    for number, entry in enumerate(await journals.lease.entries(NAMES[:3])):
        saved = await journals.lease.put(_saved(entry, f"id{number}"))
        if number:
            saved = attrs.evolve(saved, state=DocumentState.SIGNING)
        then = (DocumentState.NEW, DocumentState.FAILED, DocumentState.DONE)[number]
        left = await journals.lease.abandon(saved, at=float(number), then=then, reason="p" if number == 1 else None)
        assert (left.state, left.identifier, left.saved_at) == (then, None, None)
        assert left.tries == (then is DocumentState.NEW)
        assert await journals.lease.entries([entry.name]) == [left]
    tally = await journals.operator.tally()
    assert (tally.abandoned, tally.requested) == (2, 2)
    assert await journals.lease.list_abandoned() == ["id0", "id1", "id2"]
    assert await journals.lease.list_abandoned(after="id0", limit=1) == ["id1"]
    await journals.lease.forget(["id1"])
    await journals.lease.forget_expired(1.0, 0.0)
    assert await journals.lease.list_abandoned() == ["id2"]


async def test_abandoning_entry_without_document_records_none(journals: Kept) -> None:
    [entry] = await journals.lease.entries([NAMES[0]])
    await journals.lease.abandon(entry, at=0.0, then=DocumentState.FAILED, reason="p")
    tally = await journals.operator.tally()
    assert (tally.abandoned, tally.requested, await journals.lease.list_abandoned()) == (0, 0, [])


async def test_failures_are_listed_and_reset(journals: Kept) -> None:
    for entry, problem in zip(await journals.lease.entries(NAMES), ("p", "q", "p", None), strict=True):
        if problem is not None:
            saved = _saved(entry, str(entry.number))
            await journals.lease.abandon(saved, at=0.0, then=DocumentState.FAILED, reason=problem)
    first, *others = await journals.operator.failures()
    assert [each.problem for each in (first, *others)] == ["p", "q", "p"]
    assert await journals.operator.failures(most=1) == [first]
    assert await journals.operator.failures(after=first.number) == others
    assert await journals.operator.retry("p") == 2
    assert [each.problem for each in await journals.operator.failures()] == ["q"]
    assert await journals.operator.retry() == 1
    for entry in await journals.lease.entries(NAMES):
        assert (entry.state, entry.problem, entry.source_sha) == (DocumentState.NEW, None, None)


async def test_journal_belongs_to_its_signatures(journals: Kept) -> None:
    await journals.lease.claim("one")
    await journals.lease.claim("one")
    with pytest.raises(ds.ConfigurationError, match="belongs to a job with other signatures"):
        await journals.lease.claim("other")


async def test_job_claims_its_journal(jobs: JobFactory) -> None:
    assert await jobs.journal.read_claim() is None
    await jobs.run("a.pdf")
    assert await jobs.journal.read_claim() == compute_signatures_digest(SIGNATURES)
    with pytest.raises(ds.ConfigurationError, match="belongs to a job with other signatures"):
        await jobs.run("b.pdf", signatures=[ds.Signature(name="other")])


@pytest.mark.parametrize("where", [{}, {"conninfo": "host=h"}, {"path": "j.db", "job": "j"}])
def test_journal_is_either_a_file_or_a_job_in_postgresql(where: dict[str, str]) -> None:
    with pytest.raises(ds.ConfigurationError, match="either a path, or conninfo and job"):
        SigningJournal(**where)  # type: ignore[arg-type]  # as a mistaken program


async def test_kind_of_journal_must_suit_its_use(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="psycopg isn't installed: the extra 'fleet' brings it")
    with pytest.raises(ds.ConfigurationError, match="a SigningJob needs a file"):
        _ = SigningJournal(conninfo="host=h", job="j").lease
    with pytest.raises(ds.ConfigurationError, match="the journal is not open"):
        _ = SigningJournal(tmp_path / "journal.db").lease
    async with SigningJournal(tmp_path / "journal.db") as journal:
        with pytest.raises(ds.ConfigurationError, match="a SigningFleet needs one in PostgreSQL"):
            await journal.add(["a.pdf"])
        with pytest.raises(ds.ConfigurationError, match="a SigningFleet needs one in PostgreSQL"):
            _ = journal.postgres


async def test_index_that_an_earlier_version_created_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with SigningJournal(path) as journal:
        await journal.lease.entries(NAMES)
    query_file(path, "CREATE INDEX signing_document_state ON signing_document (job, state)")
    async with SigningJournal(path) as journal:
        assert (await journal.tally()).states == {DocumentState.NEW: len(NAMES)}
    assert query_file(path, "SELECT count(*) FROM sqlite_master WHERE name = 'signing_document_state'") == [(0,)]
