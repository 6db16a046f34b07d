"""Documents in fsspec storage: listed, fetched, and written completely or not at all."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from directsuite.jobs.signing import (
    DocumentState,
    Folder,
    JobStoppedError,
    StorageFolder,
    StorageTarget,
    TargetFolder,
)
from directsuite.jobs.signing import storage as storage_module
from tests.core.virtual_time import yield_until
from tests.jobs.signing.fragile_service import SIGNATURE_BYTES
from tests.jobs.signing.job_factory import PDF_CONTENT, JobFactory
from tests.waiting import wait_until

pytest.importorskip("fsspec", reason="fsspec isn't installed: the extra 'storage' brings it")

NAMES = ["a.pdf", "b/c [1]*.pdf", "b/d e/f.pdf"]


@pytest.fixture(params=["memory", "file", "whole puts"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/storage"
    if request.param == "whole puts":  # like an object store
        monkeypatch.setattr(storage_module, "_ATOMIC_PUT_PROTOCOLS", frozenset({"memory"}))
    return f"memory://{tmp_path}"


def put(url: str, names: list[str]) -> None:
    place = StorageFolder(url)
    for name in names:
        path = f"{place._root}/{name}"
        place._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        place._files.pipe_file(path, PDF_CONTENT)


def there(url: str) -> dict[str, bytes]:
    place = StorageFolder(url)
    return {str(path)[len(place._root) + 1 :]: place._files.cat_file(path) for path in place._files.find(place._root)}


async def test_documents_are_signed_from_storage_to_storage(url: str, jobs: JobFactory) -> None:
    put(f"{url}/in", [*NAMES, "g.txt"])
    source, target = StorageFolder(f"{url}/in"), StorageTarget(f"{url}/out")
    assert (await jobs.make_job(source, target=target).run()).done == 3
    assert there(f"{url}/out") == dict.fromkeys(NAMES, PDF_CONTENT + SIGNATURE_BYTES)
    assert (await jobs.make_job(source, target=target).run()).passed_over == 3
    assert jobs.service.documents_created == 3
    for entry in await jobs.journal.lease.entries(NAMES):
        assert entry.state is DocumentState.DONE


async def test_suffix_in_capital_letters_is_accepted(url: str) -> None:
    names = ["SCAN.PDF", "b/scan.Pdf", "c.pdf"]
    put(f"{url}/in", [*names, "d.txt"])
    for pattern in ("*.pdf", "*.PDF"):
        assert sorted([pdf.name async for pdf in StorageFolder(f"{url}/in", pattern)]) == names


def replace_put(target: Any, put: Callable[[str, str], None], patch: pytest.MonkeyPatch) -> None:
    patch.setattr(target._files.__class__, "put_file", staticmethod(put))


async def test_failed_put_leaves_no_output_and_next_run_continues(
    url: str, jobs: JobFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(f"{url}/in", ["Ada.pdf"])
    target: Any = StorageTarget(f"{url}/out")
    whole_puts = target._files.protocol in storage_module._ATOMIC_PUT_PROTOCOLS

    def breaks(local: str, remote: str) -> None:
        """Write half of the file, unless the storage is an object store."""
        if not whole_puts:
            target._files.pipe_file(remote, PDF_CONTENT)
        raise ConnectionResetError(f"{remote} broke off")

    with monkeypatch.context() as patch:
        replace_put(target, breaks, patch)
        with pytest.raises(JobStoppedError, match=r"the target can't be written \(ConnectionResetError\)") as stopped:
            await jobs.make_job(StorageFolder(f"{url}/in"), target=target).run()
    assert "Ada" not in repr(stopped.value.__cause__) + repr(stopped.value.__context__)
    assert "Ada.pdf" not in there(f"{url}/out")
    assert (await jobs.make_job(StorageFolder(f"{url}/in"), target=target).run()).done == 1
    assert there(f"{url}/out") == {"Ada.pdf": PDF_CONTENT + SIGNATURE_BYTES}
    assert jobs.service.request_counts.total() == 1  # the document signed by the first run was used


async def test_incomplete_upload_is_not_an_output(url: str, jobs: JobFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    put(f"{url}/in", ["a.pdf"])
    target: Any = StorageTarget(f"{url}/out")

    def short(local: str, remote: str) -> None:
        target._files.pipe_file(remote, PDF_CONTENT)

    replace_put(target, short, monkeypatch)
    with pytest.raises(JobStoppedError, match=r"the target can't be written \(the uploaded file has the wrong size\)"):
        await jobs.make_job(StorageFolder(f"{url}/in"), target=target).run()
    assert (await jobs.journal.tally()).states == {DocumentState.SIGNING: 1}


async def test_object_store_without_list_permission_is_a_valid_target(
    url: str, jobs: JobFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(f"{url}/in", ["a.pdf"])
    target: Any = StorageTarget(f"{url}/out")
    kind: Any = target._files.__class__
    info = kind.info

    def forbidden(files: Any, path: str, **options: Any) -> Any:
        try:
            return info(files, path, **options)
        except FileNotFoundError:
            raise PermissionError("Forbidden") from None

    monkeypatch.setattr(kind, "info", forbidden)
    job = jobs.make_job(StorageFolder(f"{url}/in"), target=target)
    if target._files.protocol in storage_module._ATOMIC_PUT_PROTOCOLS:
        assert (await job.run()).done == 1
    else:
        with pytest.raises(JobStoppedError, match=r"the target can't be written \(PermissionError\)"):
            await job.run()


async def test_missing_document_fails_with_a_problem_without_its_name(url: str, jobs: JobFactory) -> None:
    missing = StorageFolder(f"{url}/in").named("Ada.pdf")
    assert (await jobs.run(missing, target=StorageTarget(f"{url}/out"))).failed == 1
    assert await jobs.list_problems() == ["it can't be read (FileNotFoundError)"]


async def test_missing_source_stops_job(url: str, jobs: JobFactory) -> None:
    with pytest.raises(
        JobStoppedError, match=r"the source can't be read \((FileNotFoundError|No such file or directory)\)"
    ):
        await jobs.make_job(StorageFolder(f"{url}/nowhere"), target=StorageTarget(f"{url}/out")).run()


async def test_fetched_files_are_removed(url: str, jobs: JobFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    put(f"{url}/in", ["a.pdf", "b.pdf"])
    seen = list[list[str]]()
    target = TargetFolder(jobs.out)
    keep = target.publish

    async def looked(name: str, file: Path) -> None:
        await keep(name, file)
        seen.append(sorted(each.name.partition(".")[0] for each in (jobs.out / ".directsuite").rglob("*.source")))

    monkeypatch.setattr(target, "publish", looked)
    await jobs.make_job(StorageFolder(f"{url}/in"), target=target, concurrency=1).run()
    assert seen == [["1"], ["2"]]
    assert jobs.list_outputs() == ["a.pdf", "b.pdf"]


async def test_late_thread_of_a_cancelled_run_does_not_damage_the_next_run(
    jobs: JobFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, content = f"memory://{tmp_path}/in", b"%PDF-1.7" + bytes(range(1, 256)) * 10 + b"%%EOF"
    put(url, ["a.pdf"])
    source: Any = StorageFolder(url)
    middle, calls, wait = len(content) // 2, list[str](), 5
    first_called, second_is_halfway, first_has_opened, second_has_ended = (threading.Event() for _ in range(4))

    def fetch(_: str, place: str, **_options: object) -> None:
        """Write the content. The first call, whose run is cancelled, opens the file while the second one writes."""
        calls.append(place)
        is_first = len(calls) == 1
        if is_first:
            first_called.set()
            second_is_halfway.wait(wait)
        with Path(place).open("wb") as file:
            if is_first:
                first_has_opened.set()
                second_has_ended.wait(wait)
            else:
                file.write(content[:middle])
                file.flush()
                second_is_halfway.set()
                first_has_opened.wait(wait)
                file.write(content[middle:])

    monkeypatch.setattr(source._files.__class__, "get_file", staticmethod(fetch))
    run = asyncio.create_task(jobs.make_job(source).run())
    await asyncio.to_thread(first_called.wait, wait)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert (await jobs.make_job(source).run()).done == 1
    second_has_ended.set()
    assert (jobs.out / "a.pdf").read_bytes() == content + SIGNATURE_BYTES


async def test_marker_of_a_folder_is_not_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"memory://{tmp_path}/in"
    put(url, ["a.pdf", "b/c.txt"])
    source: Any = StorageFolder(url, "*")
    kind: Any = source._files.__class__
    list_folder = kind.ls

    def list_with_marker(files: Any, path: str, **options: Any) -> list[dict[str, Any]]:
        """Return also the empty object with which programs create a folder in S3."""
        return [*list_folder(files, path, **options), {"name": f"{path.rstrip('/')}/", "size": 0, "type": "file"}]

    monkeypatch.setattr(kind, "ls", list_with_marker)
    assert sorted([pdf.name async for pdf in source]) == ["a.pdf", "b/c.txt"]


async def test_only_names_outside_or_of_folders_fail(url: str, jobs: JobFactory) -> None:
    put(f"{url}/out/a.pdf", ["b.pdf"])

    names = ["../c.pdf", ".directsuite/d.pdf", "e.pdf"]
    if "memory" not in storage_module._ATOMIC_PUT_PROTOCOLS:
        names.append("a.pdf")  # an object store has no folders

    progress = await jobs.run(*names, target=StorageTarget(f"{url}/out"))
    assert (progress.done, progress.failed) == (1, len(names) - 1)
    assert there(f"{url}/out") == {"a.pdf/b.pdf": PDF_CONTENT, "e.pdf": PDF_CONTENT + SIGNATURE_BYTES}


async def test_only_documents_with_invalid_storage_names_fail(jobs: JobFactory, tmp_path: Path) -> None:
    names = ["x" * 300 + ".pdf", "\ud800.pdf"]
    progress = await jobs.run(*names, "b.pdf", target=StorageTarget(f"file://{tmp_path}/out"))
    assert (progress.done, progress.failed) == (1, len(names))
    assert all("the target does not allow a file of this name" in each for each in await jobs.list_problems())


async def test_storage_outage_fails_no_document(url: str, jobs: JobFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    put(f"{url}/in", ["a.pdf", "b.pdf"])
    source: Any = StorageFolder(f"{url}/in")

    def away(*_: object) -> None:
        raise TimeoutError("a.pdf")

    with monkeypatch.context() as patch:
        patch.setattr(source._files.__class__, "get_file", away)
        running = asyncio.create_task(jobs.make_job(source).run())
        await wait_until(lambda: len(jobs.clock.sleeps) > 3)
    assert (await running).done == 2


async def test_slow_uploads_leave_threads_to_the_event_loop(
    jobs: JobFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(1) as executor:  # the event loop uses it to resolve names, and waits for it at the end
        asyncio.get_running_loop().set_default_executor(executor)
        target = StorageTarget(f"memory://{tmp_path}/out")
        upload, started = target._upload_new, threading.Barrier(3)

        def wait_for_others(name: str, file: Path) -> None:
            started.wait(timeout=5)
            upload(name, file)

        monkeypatch.setattr(target, "_upload_new", wait_for_others)
        assert (await jobs.run("a.pdf", "b.pdf", "c.pdf", target=target, concurrency=3)).done == 3


async def test_staging_folder_is_removed_before_a_job_that_is_cancelled_twice_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, released, folders = threading.Event(), threading.Event(), list[Path]()
    clean_up = tempfile.TemporaryDirectory[str].cleanup

    def clean_up_slowly(folder: tempfile.TemporaryDirectory[str]) -> None:
        began.set()
        if threading.current_thread() is not threading.main_thread():
            released.wait(5)
        clean_up(folder)

    monkeypatch.setattr(tempfile.TemporaryDirectory, "cleanup", clean_up_slowly)

    async def stage() -> None:
        async with StorageTarget("memory://out").staging_dir("a") as folder:
            folders.append(folder)
            await asyncio.Event().wait()

    staging = asyncio.create_task(stage())
    await yield_until(lambda: bool(folders))
    staging.cancel()
    await yield_until(began.is_set)
    staging.cancel()
    await asyncio.gather(staging, return_exceptions=True)
    is_removed = not folders[0].exists()
    released.set()
    assert is_removed


def test_unreachable_storage_is_named_without_path() -> None:
    with pytest.raises(ds.ConfigurationError, match=r"can't be reached \(ConnectionRefusedError\)") as told:
        StorageTarget("ftp://127.0.0.1:1/ada")
    assert "ada" not in str(told.value)


def test_target_within_source_is_rejected(jobs: JobFactory, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for source, target in (
        (StorageFolder("memory://some"), StorageTarget("memory://some/out")),
        (StorageFolder("memory://some"), StorageTarget("memory://some/")),
        (Folder(tmp_path / "in"), StorageTarget(f"file://{tmp_path}/in/out")),
    ):
        with pytest.raises(ds.ConfigurationError, match="within the source"):
            jobs.make_job(source, target=target)
    jobs.make_job(StorageFolder("memory://some"), target=StorageTarget("memory://some-other"))


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"host": "a", "port": 22}, "memory://a:22/data/"),
        (
            {"host": "2001:db8::1", "port": 22, "username": "ada l", "password": "s"},
            "memory://ada%20l@[2001:db8::1]:22/data/",
        ),
        ({"host": "[::1]", "user": "ada"}, "memory://ada@[::1]/data/"),
        ({}, "memory:///data/"),
    ],
)
def test_url_of_storage_has_host_and_user_but_no_password(
    options: dict[str, Any], place: str, jobs: JobFactory
) -> None:
    # As for SFTP, they are options of the storage, and its paths do not contain them.
    source, target = StorageFolder("memory://data", **options), StorageTarget("memory://data/out", host="b")
    assert (source.place, target.place) == (place, "memory://b/data/out/")
    assert StorageFolder("memory://", **options).place == place.removesuffix("data/")
    jobs.make_job(source, target=target)


def test_password_in_the_paths_of_a_storage_is_not_in_its_url() -> None:
    assert StorageFolder("https://ada:s@c:ret@127.0.0.1:1/in").place == "https://ada@127.0.0.1:1/in/"


def test_target_of_another_user_may_be_within_the_source(jobs: JobFactory) -> None:
    target = StorageTarget("memory://data/out", host="a", username="ada")
    with pytest.raises(ds.ConfigurationError, match="within the source"):
        jobs.make_job(StorageFolder("memory://data", host="a"), target=target)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ds.ConfigurationError, match="does not support this kind of URL"):
        StorageFolder("carrier-pigeon://somewhere")
    if importlib.util.find_spec("s3fs") is None:
        with pytest.raises(ds.ConfigurationError, match="s3fs"):
            StorageFolder("s3://bucket/in")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ds.ConfigurationError, match=r"pip install '\.\[storage\]'"):
        StorageTarget("memory://out")
