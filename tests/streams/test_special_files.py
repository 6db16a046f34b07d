"""Downloads to links, pipes, devices and open files, which are not replaced by a regular file."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import sys
import threading
from pathlib import Path

import pybase64
import pytest

import directsuite as ds
from directsuite.core import files
from directsuite.core.files import replace_file
from directsuite.core.sinks import PathSink
from tests.core import responses
from tests.core.scripted_server import Responder, ScriptedServer
from tests.core.scripted_suite import catch_error, open_suite

PDF = b"%PDF-1.7\n" + bytes(range(256))
CODED = pybase64.b64encode(PDF)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")


async def download(server: ScriptedServer, destination: Path) -> Path:
    async with open_suite(server) as suite:
        return await suite.signing.download("1", destination)


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


@pytest.mark.parametrize("exists", [True, False])
async def test_a_link_stays_and_its_target_is_replaced(server: ScriptedServer, tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    target, link = folder / "target.pdf", tmp_path / "link.pdf"
    if exists:
        target.write_bytes(b"before")
    (tmp_path / "between").symlink_to("elsewhere/target.pdf")
    link.symlink_to("between")
    server.enqueue(responses.respond(CODED))
    assert await download(server, link) == link
    assert link.is_symlink()
    assert target.read_bytes() == PDF
    assert not target.is_symlink()
    assert files_in(folder) == [target]


async def test_a_failed_download_leaves_the_target_of_a_link_unchanged(server: ScriptedServer, tmp_path: Path) -> None:
    target, link = tmp_path / "target.pdf", tmp_path / "link.pdf"
    target.write_bytes(b"before")
    link.symlink_to(target)
    server.default_responder = responses.respond_in_chunks(CODED[:200], length=len(CODED))
    await catch_error(download(server, link))
    assert target.read_bytes() == b"before"
    assert files_in(tmp_path) == [link, target]


async def test_a_link_to_itself_is_rejected(server: ScriptedServer, tmp_path: Path) -> None:
    link = tmp_path / "link.pdf"
    link.symlink_to(link)
    with pytest.raises(ds.InvalidArgumentError, match="destination"):
        await download(server, link)
    assert server.requests == []


PART = responses.respond_in_chunks(CODED[:200], length=len(CODED))
NOTHING = responses.respond_in_chunks(b"", length=len(CODED))
WHOLE = responses.respond(CODED)


@pytest.mark.parametrize(("script", "requests"), [([WHOLE], 1), ([NOTHING, WHOLE], 2), ([PART, WHOLE], 1)])
async def test_a_pipe_gets_the_document_once_and_stays_a_pipe(
    server: ScriptedServer, tmp_path: Path, script: list[Responder], requests: int
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    server.enqueue(*script)
    if script[0] is PART:
        await catch_error(download(server, pipe))
    else:
        assert await download(server, pipe) == pipe
        assert os.read(reader, 1_000) == PDF
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert files_in(tmp_path) == [pipe]
    assert len(server.requests) == requests


async def test_a_socket_is_rejected_before_anything_is_sent(server: ScriptedServer, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        with pytest.raises(ds.InvalidArgumentError, match="destination: the path is a socket"):
            await download(server, tmp_path / "socket")
    assert server.requests == []


async def test_unwritable_pipe_is_rejected_before_sending(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def deny_writing(path: Path, mode: int) -> bool:
        return (path, mode) != (pipe, os.W_OK)

    monkeypatch.setattr(os, "access", deny_writing)
    with pytest.raises(ds.InvalidArgumentError, match="destination: the path is not writable"):
        await download(server, pipe)
    assert server.requests == []


async def test_closing_does_not_wait_after_the_file_has_its_name(tmp_path: Path) -> None:
    sink = PathSink(tmp_path / "a.pdf")
    await sink.open()
    await sink.begin()
    await sink.write(PDF)
    await sink.finish()
    await sink.publish()
    with pytest.raises(StopIteration):
        sink.close().send(None)
    assert files_in(tmp_path) == [tmp_path / "a.pdf"]


async def test_a_file_is_on_disk_before_it_gets_its_name(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[tuple[int, list[str]]]()

    def record(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_size, [path.suffix for path in files_in(tmp_path)]))

    monkeypatch.setattr(os, "fsync", record)
    server.enqueue(responses.respond(CODED))
    await download(server, tmp_path / "a.pdf")
    assert synced == [(len(PDF), [".part"])]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
async def test_calls_that_wait_for_a_connection_need_no_file_descriptors(tmp_path: Path) -> None:
    def count_open_files() -> int:
        links = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
        return sum(link.startswith(str(tmp_path)) for link in links)

    sink = PathSink(tmp_path / "a.pdf")
    await sink.open()
    assert count_open_files() == 0
    for end in (sink.abort, sink.finish):
        await sink.begin()
        await sink.write(bytes(2**20))
        assert count_open_files() == 1
        await sink.write(PDF)
        await end()
        assert count_open_files() == 0
    await sink.publish()
    await sink.close()
    assert (tmp_path / "a.pdf").read_bytes() == bytes(2**20) + PDF


async def test_a_pipe_opened_after_the_call_gets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, received = tmp_path / "pipe", tmp_path / "received"
    os.mkfifo(pipe)
    is_opening, has_reader, is_over = threading.Event(), threading.Event(), threading.Event()
    open_file = os.open

    def wait_for_reader(path: Path, flags: int, mode: int) -> int:
        is_opening.set()
        has_reader.wait()
        return open_file(received, os.O_WRONLY | os.O_CREAT)

    monkeypatch.setattr(files, "_CLEANUP_TIMEOUT", 0)
    sink = PathSink(pipe)
    await sink.open()
    await sink.begin()
    monkeypatch.setattr(os, "open", wait_for_reader)
    writing = asyncio.create_task(sink.write(PDF))
    await asyncio.to_thread(is_opening.wait)
    worker = sink._thread._worker
    assert worker is not None
    writing.cancel()
    await asyncio.wait([writing])
    await sink.abort()
    await sink.close()
    worker.jobs.put(is_over.set)
    has_reader.set()
    await asyncio.to_thread(is_over.wait)
    assert received.read_bytes() == b""


async def test_document_that_is_replaced_late_stays_private(tmp_path: Path) -> None:
    path = tmp_path / "signed.pdf"
    sink = PathSink(path)
    await sink.open()
    for _attempt in range(2):  # the attempt timeout can end an attempt while the file is being renamed
        await sink.begin()
        await sink.write(PDF)
        await sink.finish()
        await sink.publish()
    await sink.close()
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (PDF, 0o600)


async def test_a_link_to_a_device_stays(server: ScriptedServer, tmp_path: Path) -> None:
    link = tmp_path / "nothing"
    link.symlink_to(os.devnull)
    server.enqueue(responses.respond(CODED))
    await download(server, link)
    assert link.is_symlink()
    assert files_in(tmp_path) == [link]
    assert stat.S_ISCHR(link.stat().st_mode)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs procfs")
async def test_an_open_file_gets_the_document_after_what_it_has(server: ScriptedServer, tmp_path: Path) -> None:
    path = tmp_path / "output"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b"before")
    inode = path.stat().st_ino
    server.enqueue(responses.respond(CODED))
    await download(server, Path(f"/proc/self/fd/{descriptor}"))
    os.close(descriptor)
    assert path.read_bytes() == b"before" + PDF
    assert path.stat().st_ino == inode


def test_replacing_a_linked_file_keeps_the_link(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    target, link = folder / "status.json", tmp_path / "status.json"
    link.symlink_to(target)
    for text in (b"1", b"2"):
        with replace_file(link, temporary=tmp_path / "status.json.new", synced=True) as file:
            file.write(text)
        assert target.read_bytes() == text
    assert link.is_symlink()
    assert files_in(folder) == [target]


def test_replacing_a_device_writes_to_it(tmp_path: Path) -> None:
    link = tmp_path / "nothing"
    link.symlink_to(os.devnull)
    with replace_file(link, temporary=tmp_path / "new", synced=False) as file:
        file.write(b"text")
    assert files_in(tmp_path) == [link]
    assert link.is_symlink()
