"""The target already has a file of this name: it is not replaced, unless it is the output of this document."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import AsyncIterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from directsuite.jobs.signing import DocumentState, Pdf, SigningEntry, SigningJournal, TargetFolder
from directsuite.jobs.signing import storage as storage_module
from directsuite.jobs.signing.documents import Target
from directsuite.jobs.signing.storage import StorageTarget
from directsuite.jobs.signing.workflow import DocumentProblem
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES, CrashError, compute_digest
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory, yield_pdfs

ADA, BOB = PDF_CONTENT + b" of Ada", PDF_CONTENT + b" of Bob"


@pytest.fixture
async def other_jobs(jobs: JobFactory, tmp_path: Path) -> AsyncIterator[JobFactory]:
    async with SigningJournal(tmp_path / "other.db") as journal:
        others = JobFactory(tmp_path, journal)
        others.service = jobs.service
        yield others


@pytest.fixture(
    params=[
        *("folder", "folder without links", "file storage", "whole puts"),
        pytest.param("folder of several devices", marks=pytest.mark.wide),
    ]
)
def target(request: pytest.FixtureRequest, jobs: JobFactory, monkeypatch: pytest.MonkeyPatch) -> Target:
    if request.param.startswith("folder"):
        if request.param != "folder":
            number = errno.EXDEV if "devices" in request.param else errno.EOPNOTSUPP
            monkeypatch.setattr(Path, "hardlink_to", partialmethod(no_links, number))
        return TargetFolder(jobs.out)
    pytest.importorskip("fsspec", reason="fsspec isn't installed: the extra 'storage' brings it")
    if request.param == "whole puts":  # like an object store
        monkeypatch.setattr(storage_module, "_ATOMIC_PUT_PROTOCOLS", frozenset({"file"}))
        jobs.out.mkdir()
    return StorageTarget(f"file://{jobs.out}")


def no_links(_: Path, number: int, __: Path) -> None:
    raise OSError(number, os.strerror(number))


async def test_output_of_another_job_is_kept_and_nothing_signed(
    target: Target, jobs: JobFactory, other_jobs: JobFactory
) -> None:
    assert (await jobs.run("a.pdf", content=ADA, target=target)).done == 1
    assert (await other_jobs.run("a.pdf", content=BOB, target=target)).failed == 1
    assert (jobs.out / "a.pdf").read_bytes() == ADA + SIGNATURE_BYTES
    assert jobs.service.documents_created == 1
    assert await other_jobs.list_problems() == [DocumentProblem.NAME_CONFLICT.text]


async def test_output_created_during_signing_is_not_replaced(
    target: Target, jobs: JobFactory, other_jobs: JobFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = target.publish
    come = list[str]()

    async def late(name: str, file: Path) -> None:
        """Yield the first document after the other job has finished."""
        come.append(name)
        if len(come) == 1:
            assert (await other_jobs.run("a.pdf", content=BOB, target=target)).done == 1
        await keep(name, file)

    monkeypatch.setattr(target, "publish", late)
    assert (await jobs.run("a.pdf", content=ADA, target=target)).failed == 1
    assert (jobs.out / "a.pdf").read_bytes() == BOB + SIGNATURE_BYTES
    assert jobs.list_outputs() == ["a.pdf"]
    assert await jobs.list_problems() == [DocumentProblem.NAME_CONFLICT.text]
    tally = await jobs.journal.tally()
    assert (tally.abandoned, tally.requested) == (1, 1)  # its signature was unnecessary
    assert jobs.service.stored == {}


async def keep_and_crash(jobs: JobFactory, target: Target, content: bytes = PDF_CONTENT) -> None:
    """Run a job that ends after the output is published, before the journal records it."""
    put = jobs.journal.lease.put

    async def crash(entry: SigningEntry) -> SigningEntry:
        if entry.state is DocumentState.SIGNED:
            raise CrashError
        return await put(entry)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs.journal.lease, "put", crash)
        with pytest.raises(BaseExceptionGroup) as crashed:
            await jobs.run("a.pdf", content=content, target=target)
    assert crashed.group_contains(CrashError)
    assert (await jobs.journal.tally()).states == {DocumentState.SIGNING: 1}
    assert (jobs.out / "a.pdf").read_bytes() == content + SIGNATURE_BYTES


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "expired"])
async def test_published_but_unrecorded_output_is_recognized(is_stored: bool, target: Target, jobs: JobFactory) -> None:
    await keep_and_crash(jobs, target)
    if not is_stored:
        jobs.service.stored.clear()
    assert (await jobs.run("a.pdf", target=target)).done == 1
    assert (jobs.service.documents_created, jobs.service.request_counts.total()) == (1, 1)
    assert (jobs.out / "a.pdf").read_bytes() == PDF_CONTENT + SIGNATURE_BYTES
    assert jobs.list_outputs() == ["a.pdf"]
    [entry] = await jobs.journal.lease.entries(["a.pdf"])
    assert entry.output_sha == compute_digest(PDF_CONTENT + SIGNATURE_BYTES)


async def test_output_replaced_before_recording_is_not_done(target: Target, jobs: JobFactory) -> None:
    await keep_and_crash(jobs, target)
    jobs.service.stored.clear()
    (jobs.out / "a.pdf").write_bytes(BOB)
    assert (await jobs.run("a.pdf", target=target)).failed == 1
    assert (jobs.out / "a.pdf").read_bytes() == BOB
    assert await jobs.list_problems() == [DocumentProblem.NAME_CONFLICT.text]


@pytest.mark.parametrize("overwrite", [False, True])
async def test_only_documents_with_impossible_names_fail(overwrite: bool, jobs: JobFactory) -> None:
    target = TargetFolder(jobs.out, overwrite=overwrite)
    jobs.out.mkdir()
    (jobs.out / "b").write_bytes(b"a file")
    names = ["x" * 300 + ".pdf", "b/a.pdf", "a \ud800.pdf", "ok.pdf/d.pdf", "b/.directsuite/c.pdf"]
    progress = await jobs.run("ok.pdf", *names, target=target, concurrency=1)
    assert (progress.done, progress.failed) == (1, len(names))
    assert jobs.service.documents_created == 1
    *not_allowed, not_below = await jobs.list_problems()
    assert all("does not allow a file of this name" in problem for problem in not_allowed)
    assert "not a path below the target" in not_below


async def test_name_of_a_folder_is_a_name_conflict(jobs: JobFactory) -> None:
    (jobs.out / "a.pdf").mkdir(parents=True)
    assert (await jobs.run("a.pdf")).failed == 1
    assert await jobs.list_problems() == [DocumentProblem.NAME_CONFLICT.text]


async def test_name_conflicts_do_not_stop_other_documents(jobs: JobFactory) -> None:
    target = TargetFolder(jobs.out)
    jobs.out.mkdir()
    names = [f"{number}.pdf" for number in range(23)]  # an error of the job stops it after 20 documents
    for name in names[:21]:
        (jobs.out / name).write_bytes(BOB)
    progress = await jobs.run(*names, target=target)
    assert (progress.done, progress.failed) == (2, 21)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such rights")
async def test_created_folders_are_private(jobs: JobFactory) -> None:
    before = os.umask(0o022)
    try:
        await jobs.run("a/b/c.pdf")
    finally:
        os.umask(before)
    assert {(jobs.out / each).stat().st_mode & 0o777 for each in ("", "a", "a/b")} == {0o700}


async def test_changed_document_is_signed_once_earlier_output_is_moved(target: Target, jobs: JobFactory) -> None:
    await keep_and_crash(jobs, target, ADA)
    (jobs.out / "a.pdf").rename(jobs.out / "earlier.pdf")
    assert (await jobs.run("a.pdf", content=BOB, target=target)).failed == 1
    assert await jobs.list_problems() == [DocumentProblem.SOURCE_CHANGED.text]
    assert jobs.service.documents_created == 1
    (jobs.out / "a.pdf").write_bytes(ADA)
    assert (await jobs.make_job(yield_pdfs("a.pdf", content=BOB), target=target).run_failed()).failed == 1
    (jobs.out / "a.pdf").unlink()
    again = jobs.make_job(yield_pdfs("a.pdf", content=BOB), target=target)
    assert (await again.run_failed(DocumentProblem.NAME_CONFLICT.text)).done == 1
    assert (jobs.out / "a.pdf").read_bytes() == BOB + SIGNATURE_BYTES
    assert (jobs.out / "earlier.pdf").read_bytes() == ADA + SIGNATURE_BYTES


@pytest.mark.exhaustive
@pytest.mark.parametrize("now", [BOB, FileNotFoundError(2, "No such file or directory")], ids=["another", "gone"])
async def test_published_but_unrecorded_output_is_done_without_source(
    target: Target, jobs: JobFactory, now: bytes | Exception
) -> None:
    await keep_and_crash(jobs, target, ADA)

    async def read() -> bytes:
        if isinstance(now, Exception):
            raise now
        return now

    assert (await jobs.run(Pdf("a.pdf", read), target=target)).done == 1
    assert jobs.service.request_counts.total() == 1
    [entry] = await jobs.journal.lease.entries(["a.pdf"])
    assert (entry.state, entry.output_sha) == (DocumentState.DONE, compute_digest(ADA + SIGNATURE_BYTES))


async def test_overwrite_replaces_files(jobs: JobFactory, other_jobs: JobFactory) -> None:
    await jobs.run("a.pdf", content=ADA)
    target = TargetFolder(jobs.out, overwrite=True)
    assert (await other_jobs.run("a.pdf", content=BOB, target=target)).done == 1
    assert (jobs.out / "a.pdf").read_bytes() == BOB + SIGNATURE_BYTES


@pytest.mark.skipif(sys.platform == "win32", reason="links are for some users only there")
async def test_dangling_link_is_a_name_conflict(jobs: JobFactory) -> None:
    target = TargetFolder(jobs.out)
    jobs.out.mkdir()
    (jobs.out / "a.pdf").symlink_to("nowhere")
    assert (await jobs.run("a.pdf", target=target)).failed == 1
    assert (jobs.out / "a.pdf").is_symlink()


async def test_name_that_is_not_normalized_is_rejected(target: Target, jobs: JobFactory) -> None:
    names = ["./a.pdf", "b//a.pdf", "b/./a.pdf", "a.pdf/", "a.pdf/."]
    assert (await jobs.run(*names, target=target)).failed == len(names)
    assert jobs.service.documents_created == 0
    assert all("not a normalized path" in problem for problem in await jobs.list_problems())


async def test_concurrent_puts_to_storage_do_not_mix(jobs: JobFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec", reason="fsspec isn't installed: the extra 'storage' brings it")
    target = StorageTarget(f"file://{jobs.out}")
    kind: Any = target._files.__class__
    put, made = kind.put_file, list[str]()

    def put_another_first(files: Any, local: str, remote: str) -> None:
        put(files, local, remote)
        made.append(remote)
        if len(made) == 1:
            other = jobs.out.with_name("other")
            other.write_bytes(BOB + SIGNATURE_BYTES)
            target._upload_new("a.pdf", other)

    monkeypatch.setattr(kind, "put_file", put_another_first)
    await jobs.run("a.pdf", content=ADA, target=target)
    assert len(set(made)) == 2
    assert (jobs.out / "a.pdf").read_bytes() == ADA + SIGNATURE_BYTES
