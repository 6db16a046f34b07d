"""The documents that a job takes from its source: each once, and only the selected failed ones."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from directsuite.jobs.signing import DocumentState, Folder, Pdf, SigningEntry
from directsuite.jobs.signing.job import DocumentQueue
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES, CrashError, Fault
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory, yield_pdfs


async def test_failed_documents_are_retried_alone(jobs: JobFactory) -> None:
    (jobs.out / "a.pdf").mkdir(parents=True)
    (jobs.out / "b.pdf").mkdir()
    assert (await jobs.run("a.pdf", "b.pdf", "../c.pdf", "d.pdf")).failed == 3
    problems = {each.name: each.problem for each in await jobs.journal.failures()}
    (jobs.out / "a.pdf").rmdir()
    again = yield_pdfs("new.pdf", "d.pdf", "b.pdf", "a.pdf", "../c.pdf", content=PDF_CONTENT + b" changed")
    progress = await jobs.make_job(again).run_failed(problems["a.pdf"])
    assert (progress.done, progress.failed, progress.passed_over) == (1, 1, 3)
    assert jobs.list_outputs() == ["a.pdf", "d.pdf"]
    assert (jobs.out / "a.pdf").read_bytes() == PDF_CONTENT + b" changed" + SIGNATURE_BYTES
    assert (await jobs.journal.tally()).states == {DocumentState.DONE: 2, DocumentState.FAILED: 2}


@pytest.mark.parametrize("becomes", ["changed", "removed"])
async def test_source_of_a_published_document_is_ignored(becomes: str, jobs: JobFactory, tmp_path: Path) -> None:
    file = tmp_path / "in" / "a.pdf"
    file.parent.mkdir()
    file.write_bytes(PDF_CONTENT)
    jobs.service.faults = [None, None, Fault.CRASH_BEFORE]
    with pytest.raises(BaseExceptionGroup) as crash:
        await jobs.make_job(Folder(file.parent)).run()
    assert crash.group_contains(CrashError)
    assert (await jobs.journal.tally()).states == {DocumentState.SIGNED: 1}
    if becomes == "changed":
        file.write_bytes(PDF_CONTENT + b" other")
    else:
        file.unlink()
    progress = await jobs.run(Pdf("a.pdf", file))
    assert (progress.done, progress.failed) == (1, 0)
    assert (jobs.out / "a.pdf").read_bytes() == PDF_CONTENT + SIGNATURE_BYTES
    assert jobs.service.stored == {}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
async def test_name_with_surrogates_is_accepted(jobs: JobFactory, tmp_path: Path) -> None:
    name = os.fsdecode(b"Gr\xfc\xdfe.pdf")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(PDF_CONTENT)
    assert (await jobs.make_job(Folder(tmp_path / "in")).run()).done == 1
    assert jobs.list_outputs() == [name]
    assert (await jobs.make_job(Folder(tmp_path / "in")).run()).passed_over == 1
    [entry] = await jobs.journal.lease.entries([name])
    assert (entry.name, entry.state) == (name, DocumentState.DONE)


async def test_long_abandoned_document_is_not_requested(jobs: JobFactory) -> None:
    [entry] = await jobs.journal.lease.entries(["a.pdf"])
    await jobs.journal.lease.put(
        SigningEntry(number=entry.number, name="a.pdf", state=DocumentState.SAVED, identifier="old")
    )
    saved = (await jobs.journal.lease.entries(["a.pdf"]))[0]
    await jobs.journal.lease.abandon(saved, at=-5 * 3600.0, then=DocumentState.FAILED)
    jobs.service.faults = [Fault.CRASH_BEFORE]
    await jobs.run()
    assert await jobs.journal.lease.list_abandoned() == []


async def test_file_names_in_capital_letters_are_found(tmp_path: Path) -> None:
    for name in ("a.pdf", "B.PDF", "c.txt"):
        (tmp_path / name).write_bytes(PDF_CONTENT)
    assert sorted([pdf.name async for pdf in Folder(tmp_path)]) == ["B.PDF", "a.pdf"]


async def test_error_of_source_is_raised_after_drain() -> None:
    async def look_up(pdfs: Sequence[Pdf]) -> Sequence[SigningEntry | None]:
        return [None] * len(pdfs)

    async def source() -> AsyncGenerator[Pdf]:
        for name in list[str]():
            yield Pdf(name, PDF_CONTENT)
        asyncio.get_running_loop().call_soon(queue.stop)  # before the next documents are taken
        raise LookupError("the list ends here")

    gate = asyncio.Event()
    gate.set()
    queue = DocumentQueue(source(), look_up, ahead=4, gate=gate)
    async with queue.run_reader():
        with pytest.raises(LookupError):
            await queue.next()
        assert await queue.next() is None
