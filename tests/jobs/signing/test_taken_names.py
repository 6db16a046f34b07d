"""A name that the target has already: what is there stays, unless it is this document's own."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from directsuite.jobs.signing import Entry, Journal, Pdf, State, TargetFolder
from directsuite.jobs.signing import storage as storage_module
from directsuite.jobs.signing.storage import StorageTarget
from directsuite.jobs.signing.targets import Target
from directsuite.jobs.signing.workflow import CHANGED, TAKEN
from tests.jobs.signing.fragile_service import SIGNATURE, CrashError, digest_of
from tests.jobs.signing.jobs import CONTENT, Jobs, pdfs

ADA, BOB = CONTENT + b" of Ada", CONTENT + b" of Bob"


@pytest.fixture
async def others(jobs: Jobs, tmp_path: Path) -> AsyncIterator[Jobs]:
    """On another journal, with the same service and target."""
    async with Journal(tmp_path / "other.db") as journal:
        others = Jobs(tmp_path, journal)
        others.service = jobs.service
        yield others


@pytest.fixture(params=["folder", "folder without links", "folder of several devices", "file storage", "whole puts"])
def target(request: pytest.FixtureRequest, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Target:
    """Of every kind, each in the jobs' folder."""
    if request.param.startswith("folder"):
        if request.param != "folder":
            number = errno.EXDEV if "devices" in request.param else errno.EOPNOTSUPP
            monkeypatch.setattr(Path, "hardlink_to", partialmethod(no_links, number))
        return TargetFolder(jobs.out)
    pytest.importorskip("fsspec", reason="fsspec isn't installed: the extra 'storage' brings it")
    if request.param == "whole puts":  # as object stores have them
        monkeypatch.setattr(storage_module, "_WHOLE_PUTS", frozenset({"file"}))
        jobs.out.mkdir()
    return StorageTarget(f"file://{jobs.out}")


def no_links(_: Path, number: int, __: Path) -> None:
    """As some file systems do."""
    raise OSError(number, os.strerror(number))


async def test_another_jobs_output_is_not_replaced_and_nothing_is_signed(
    target: Target, jobs: Jobs, others: Jobs
) -> None:
    assert (await jobs.job(pdfs("a.pdf", content=ADA), target=target).run()).done == 1
    assert (await others.job(pdfs("a.pdf", content=BOB), target=target).run()).failed == 1
    assert (jobs.out / "a.pdf").read_bytes() == ADA + SIGNATURE
    assert jobs.service.made == 1
    [failed] = await others.journal.failures()
    assert failed.problem == TAKEN


async def test_an_output_that_appears_while_a_document_is_signed_is_not_replaced(
    target: Target, jobs: Jobs, others: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = target.keep
    come = list[str]()

    async def late(name: str, file: Path) -> None:
        """The first one when the other job has come to its end."""
        come.append(name)
        if len(come) == 1:
            assert (await others.job(pdfs("a.pdf", content=BOB), target=target).run()).done == 1
        await keep(name, file)

    monkeypatch.setattr(target, "keep", late)
    assert (await jobs.job(pdfs("a.pdf", content=ADA), target=target).run()).failed == 1
    assert (jobs.out / "a.pdf").read_bytes() == BOB + SIGNATURE
    assert jobs.signed() == ["a.pdf"]
    [failed] = await jobs.journal.failures()
    assert failed.problem == TAKEN
    tally = await jobs.journal.tally()
    assert (tally.abandoned, tally.requested) == (1, 1)  # it was signed in vain
    assert jobs.service.stored == {}


async def keep_and_crash(jobs: Jobs, target: Target, content: bytes = CONTENT) -> None:
    """A run that ends when the target has its document, before the journal knows."""
    put = jobs.journal.put

    async def crash(entry: Entry) -> Entry:
        """At that moment."""
        if entry.state is State.SIGNED:
            raise CrashError
        return await put(entry)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs.journal, "put", crash)
        with pytest.raises(BaseExceptionGroup) as crashed:
            await jobs.job(pdfs("a.pdf", content=content), target=target).run()
    assert crashed.group_contains(CrashError)
    assert (await jobs.journal.tally()).states == {State.SIGNING: 1}
    assert (jobs.out / "a.pdf").read_bytes() == content + SIGNATURE


async def test_a_document_that_was_kept_and_not_noted_finds_its_own_file(target: Target, jobs: Jobs) -> None:
    await keep_and_crash(jobs, target)
    assert (await jobs.job(pdfs("a.pdf"), target=target).run()).done == 1
    assert jobs.service.asked.total() == 1
    assert (jobs.out / "a.pdf").read_bytes() == CONTENT + SIGNATURE
    assert jobs.signed() == ["a.pdf"]
    [entry] = await jobs.journal.entries(["a.pdf"])
    assert entry.output_sha == digest_of(CONTENT + SIGNATURE)


async def test_one_that_was_kept_and_not_noted_until_it_expired_is_done(target: Target, jobs: Jobs) -> None:
    await keep_and_crash(jobs, target)
    jobs.service.stored.clear()
    assert (await jobs.job(pdfs("a.pdf"), target=target).run()).done == 1
    assert (jobs.service.made, jobs.service.asked.total()) == (1, 1)
    [entry] = await jobs.journal.entries(["a.pdf"])
    assert entry.output_sha == digest_of(CONTENT + SIGNATURE)


async def test_one_whose_output_was_replaced_before_it_was_noted_is_not_done(target: Target, jobs: Jobs) -> None:
    await keep_and_crash(jobs, target)
    jobs.service.stored.clear()
    (jobs.out / "a.pdf").write_bytes(BOB)
    assert (await jobs.job(pdfs("a.pdf"), target=target).run()).failed == 1
    assert (jobs.out / "a.pdf").read_bytes() == BOB
    [failed] = await jobs.journal.failures()
    assert failed.problem == TAKEN


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["x" * 300 + ".pdf", "b/a.pdf"])
async def test_nothing_is_signed_for_a_name_that_can_not_be(name: str, overwrite: bool, jobs: Jobs) -> None:
    target = TargetFolder(jobs.out, overwrite=overwrite)
    (jobs.out / "b").write_bytes(b"a file")
    assert (await jobs.job(pdfs(name), target=target).run()).failed == 1
    assert jobs.service.made == 0
    [failed] = await jobs.journal.failures()
    assert "no file can have this name there" in str(failed.problem)


async def test_a_target_full_of_others_files_does_not_stop_the_rest(jobs: Jobs) -> None:
    target = TargetFolder(jobs.out)
    names = [f"{number}.pdf" for number in range(45)]
    for name in names[:40]:
        (jobs.out / name).write_bytes(BOB)
    progress = await jobs.job(pdfs(*names), target=target).run()
    assert (progress.done, progress.failed) == (5, 40)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such rights")
async def test_all_folders_of_a_name_are_for_this_user_alone(jobs: Jobs) -> None:
    before = os.umask(0o022)
    try:
        await jobs.job(pdfs("a/b/c.pdf")).run()
    finally:
        os.umask(before)
    assert {(jobs.out / each).stat().st_mode & 0o777 for each in ("", "a", "a/b")} == {0o700}


async def test_a_changed_document_is_tried_again_when_its_earlier_output_is_moved_away(
    target: Target, jobs: Jobs
) -> None:
    await keep_and_crash(jobs, target, ADA)
    (jobs.out / "a.pdf").rename(jobs.out / "earlier.pdf")
    assert (await jobs.job(pdfs("a.pdf", content=BOB), target=target).run()).failed == 1
    [failed] = await jobs.journal.failures()
    assert failed.problem == CHANGED
    assert jobs.service.made == 1
    (jobs.out / "a.pdf").write_bytes(ADA)
    assert (await jobs.job(pdfs("a.pdf", content=BOB), target=target).run_failed()).failed == 1
    (jobs.out / "a.pdf").unlink()
    assert (await jobs.job(pdfs("a.pdf", content=BOB), target=target).run_failed(TAKEN)).done == 1
    assert (jobs.out / "a.pdf").read_bytes() == BOB + SIGNATURE
    assert (jobs.out / "earlier.pdf").read_bytes() == ADA + SIGNATURE


@pytest.mark.parametrize("now", [BOB, FileNotFoundError(2, "No such file or directory")], ids=["another", "gone"])
async def test_one_that_was_kept_and_not_noted_is_done_whatever_became_of_its_source(
    target: Target, jobs: Jobs, now: bytes | Exception
) -> None:
    await keep_and_crash(jobs, target, ADA)

    async def read() -> bytes:
        if isinstance(now, Exception):
            raise now
        return now

    async def source() -> AsyncGenerator[Pdf]:
        yield Pdf("a.pdf", read)

    assert (await jobs.job(source(), target=target).run()).done == 1
    assert jobs.service.asked.total() == 1
    [entry] = await jobs.journal.entries(["a.pdf"])
    assert (entry.state, entry.output_sha) == (State.DONE, digest_of(ADA + SIGNATURE))


async def test_a_folder_that_is_to_be_overwritten_is(jobs: Jobs, others: Jobs) -> None:
    await jobs.job(pdfs("a.pdf", content=ADA)).run()
    target = TargetFolder(jobs.out, overwrite=True)
    assert (await others.job(pdfs("a.pdf", content=BOB), target=target).run()).done == 1
    assert (jobs.out / "a.pdf").read_bytes() == BOB + SIGNATURE


@pytest.mark.skipif(sys.platform == "win32", reason="links are for some users only there")
async def test_a_link_that_leads_nowhere_has_its_name(jobs: Jobs) -> None:
    target = TargetFolder(jobs.out)
    (jobs.out / "a.pdf").symlink_to("nowhere")
    assert (await jobs.job(pdfs("a.pdf"), target=target).run()).failed == 1
    assert (jobs.out / "a.pdf").is_symlink()


@pytest.mark.parametrize("name", ["./a.pdf", "b//a.pdf", "b/./a.pdf", "a.pdf/", "a.pdf/."])
async def test_a_name_that_is_not_in_normal_form_is_refused(name: str, target: Target, jobs: Jobs) -> None:
    assert (await jobs.job(pdfs(name), target=target).run()).failed == 1
    assert jobs.service.made == 0
    [failed] = await jobs.journal.failures()
    assert "in its normal form" in str(failed.problem)


async def test_two_that_are_in_the_making_in_a_storage_at_a_time_do_not_become_each_other(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fsspec", reason="fsspec isn't installed: the extra 'storage' brings it")
    target = StorageTarget(f"file://{jobs.out}")
    kind: Any = target._files.__class__
    put, made = kind.put_file, list[str]()

    def put_another_first(files: Any, local: str, remote: str) -> None:
        """As if the other job came just then, too."""
        put(files, local, remote)
        made.append(remote)
        if len(made) == 1:
            other = jobs.out.with_name("other")
            other.write_bytes(BOB + SIGNATURE)
            target._put_anew("a.pdf", other)

    monkeypatch.setattr(kind, "put_file", put_another_first)
    await jobs.job(pdfs("a.pdf", content=ADA), target=target).run()
    assert len(set(made)) == 2
    assert (jobs.out / "a.pdf").read_bytes() == ADA + SIGNATURE
