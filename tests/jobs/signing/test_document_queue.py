"""What a job takes from its source: each document once, and of those that failed those that are asked for."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from directsuite.jobs.signing import Entry, Folder, Journal, Pdf, State
from directsuite.jobs.signing.job import DocumentQueue
from tests.jobs.signing.fragile_service import SIGNATURE, CrashError, Fault
from tests.jobs.signing.jobs import CONTENT, Jobs, pdfs


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_name_that_comes_again_is_signed_once(concurrency: int, jobs: Jobs) -> None:
    progress = await jobs.job(pdfs("a.pdf", "a.pdf", "b.pdf", "a.pdf", "b.pdf"), concurrency=concurrency).run()
    assert progress.done == 2
    assert jobs.service.made == 2


async def test_those_that_failed_are_tried_again_alone(jobs: Jobs) -> None:
    (jobs.out / "a.pdf").mkdir(parents=True)
    (jobs.out / "b.pdf").mkdir()
    assert (await jobs.job(pdfs("a.pdf", "b.pdf", "../c.pdf", "d.pdf")).run()).failed == 3
    problems = {each.name: each.problem for each in await jobs.journal.failures()}
    (jobs.out / "a.pdf").rmdir()
    again = pdfs("new.pdf", "d.pdf", "b.pdf", "a.pdf", "../c.pdf", content=CONTENT + b" changed")
    progress = await jobs.job(again).run_failed(problems["a.pdf"])
    assert (progress.done, progress.failed, progress.passed_over) == (1, 1, 3)
    assert jobs.signed() == ["a.pdf", "d.pdf"]
    assert (jobs.out / "a.pdf").read_bytes() == CONTENT + b" changed" + SIGNATURE
    assert (await jobs.journal.tally()).states == {State.DONE: 2, State.FAILED: 2}


@pytest.mark.parametrize("becomes", ["changed", "removed"])
async def test_what_becomes_of_the_source_of_a_document_that_the_target_has_is_of_no_matter(
    becomes: str, jobs: Jobs, tmp_path: Path
) -> None:
    file = tmp_path / "in" / "a.pdf"
    file.parent.mkdir()
    file.write_bytes(CONTENT)
    jobs.service.faults = [None, None, Fault.CRASH_BEFORE]
    with pytest.raises(BaseExceptionGroup) as crash:
        await jobs.job(Folder(file.parent)).run()
    assert crash.group_contains(CrashError)
    assert (await jobs.journal.tally()).states == {State.SIGNED: 1}
    if becomes == "changed":
        file.write_bytes(CONTENT + b" other")
    else:
        file.unlink()

    async def source() -> AsyncGenerator[Pdf]:
        yield Pdf("a.pdf", file)

    progress = await jobs.job(source()).run()
    assert (progress.done, progress.failed) == (1, 0)
    assert (jobs.out / "a.pdf").read_bytes() == CONTENT + SIGNATURE
    assert jobs.service.stored == {}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
async def test_a_name_that_is_no_unicode_text_is_a_name(jobs: Jobs, tmp_path: Path) -> None:
    name = os.fsdecode(b"Gr\xfc\xdfe.pdf")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(CONTENT)
    assert (await jobs.job(Folder(tmp_path / "in")).run()).done == 1
    assert jobs.signed() == [name]
    assert (await jobs.job(Folder(tmp_path / "in")).run()).passed_over == 1
    [entry] = await jobs.journal.entries([name])
    assert (entry.name, entry.state) == (name, State.DONE)


async def test_what_was_abandoned_long_ago_has_expired_and_nobody_asks_for_it(jobs: Jobs) -> None:
    [entry] = await jobs.journal.entries(["a.pdf"])
    await jobs.journal.put(Entry(number=entry.number, name="a.pdf", state=State.SAVED, identifier="old"))
    saved = (await jobs.journal.entries(["a.pdf"]))[0]
    await jobs.journal.abandon(saved, at=-5 * 3600.0, then=State.FAILED)
    jobs.service.faults = [Fault.CRASH_BEFORE]
    await jobs.job(pdfs()).run()
    assert await jobs.journal.abandoned() == []


async def test_abandoned_documents_and_failures_are_read_some_at_a_time(tmp_path: Path) -> None:
    async with Journal(tmp_path / "other.db") as journal:
        for entry in await journal.entries([f"{number}.pdf" for number in range(5)]):
            stored = Entry(number=entry.number, name=entry.name, state=State.SAVED, identifier=f"id{entry.number}")
            await journal.abandon(stored, at=0.0, then=State.FAILED, problem="it is refused")
        first = await journal.failures(most=2)
        rest = await journal.failures(after=first[-1].number)
        assert [each.name for each in (*first, *rest)] == [f"{number}.pdf" for number in range(5)]
        assert await journal.abandoned(after="id2", most=2) == ["id3", "id4"]


async def test_names_in_capital_letters_are_found(tmp_path: Path) -> None:
    for name in ("a.pdf", "B.PDF", "c.txt"):
        (tmp_path / name).write_bytes(CONTENT)
    assert sorted([pdf.name async for pdf in Folder(tmp_path)]) == ["B.PDF", "a.pdf"]


async def test_a_source_that_fails_while_the_job_is_drained_is_told_of() -> None:
    async def look_up(pdfs: Sequence[Pdf]) -> Sequence[Entry | None]:
        return [None] * len(pdfs)

    async def source() -> AsyncGenerator[Pdf]:
        for name in list[str]():
            yield Pdf(name, CONTENT)
        asyncio.get_running_loop().call_soon(queue.stop)  # before anybody has taken what comes now
        raise LookupError("the list ends here")

    gate = asyncio.Event()
    gate.set()
    queue = DocumentQueue(source(), look_up, ahead=4, gate=gate)
    async with queue.reading():
        with pytest.raises(LookupError):
            await queue.next()
        assert await queue.next() is None
