"""Answers that go to a file: whole or not at all, and disk errors are the disk's."""

from __future__ import annotations

import asyncio
import errno
import io
import shutil
from pathlib import Path
from typing import Any

import pybase64
import pytest

import directsuite as ds

from . import plays
from .opened import PDF, assert_nothing_held, failure_of, opened
from .scripted_server import Play, ScriptedServer
from .virtual_time import turns, until

OLD = b"the file that was there"
CODED = pybase64.b64encode(PDF * 9)
SIGNATURE = ds.Signature(name="alice", widget=ds.Widget(x=1, y=2, width=3, height=4, page=1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "signed.pdf"
    file.write_bytes(OLD)
    return file


def names_beside(path: Path) -> list[str]:
    return [entry.name for entry in path.parent.iterdir()]


def assert_holds(path: Path, content: bytes) -> None:
    """The file, whole, and nothing temporary beside it."""
    assert path.read_bytes() == content
    assert names_beside(path) == [path.name]


def assert_untouched(path: Path) -> None:
    assert_holds(path, OLD)


async def test_download_replaces_the_file(server: ScriptedServer, path: Path) -> None:
    server.plays(plays.pieces(*(CODED[start : start + 5] for start in range(0, len(CODED), 5))))
    async with opened(server) as suite:
        assert await suite.signing.download("doc", path) == path
    assert_holds(path, PDF * 9)


SPOILT: dict[str, Play] = {
    "truncated": plays.truncated(CODED),
    "not base64": plays.answer(b"<html>"),
    "broken off in a character": plays.answer(CODED[:-3]),
    "pause": plays.pieces(CODED[:40], plays.Pause(1000)),
    "500": plays.answer(b"", 500),
    "reset": plays.reset,
}


@pytest.mark.parametrize("spoilt", SPOILT)
async def test_spoilt_download_leaves_everything_as_it_was(server: ScriptedServer, path: Path, spoilt: str) -> None:
    server.otherwise = SPOILT[spoilt]
    async with opened(server) as suite:
        error = await failure_of(suite.signing.download("doc", path))
    assert (error.outcome, error.attempts) == (ds.Outcome.UNKNOWN, 2)
    assert not isinstance(error, ds.OutcomeUnknownError)
    assert_untouched(path)


@pytest.mark.parametrize("spoilt", SPOILT)
async def test_spoilt_download_is_tried_again(server: ScriptedServer, path: Path, spoilt: str) -> None:
    server.plays(SPOILT[spoilt], plays.answer(CODED))
    async with opened(server) as suite:
        await suite.signing.download("doc", path)
    assert_holds(path, PDF * 9)


@pytest.mark.parametrize("spoilt", SPOILT)
async def test_spoilt_answer_to_a_signature_is_unknown_and_not_repeated(
    server: ScriptedServer, path: Path, spoilt: str
) -> None:
    server.otherwise = SPOILT[spoilt]
    async with opened(server) as suite:
        error = await failure_of(suite.signing.sign_and_pull("doc", SIGNATURE, destination=path))
    assert type(error) is ds.OutcomeUnknownError
    assert len(server.requests) == 1
    assert_untouched(path)


async def test_cancelled_download_leaves_nothing(server: ScriptedServer, path: Path) -> None:
    server.plays(plays.pieces(CODED[:40], plays.Pause(1000)))
    async with opened(server, attempt_timeout=2000) as suite:
        task = asyncio.create_task(suite.signing.download("doc", path))
        await until(lambda: len(names_beside(path)) == 2)
        await turns()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert_nothing_held(suite)
    assert_untouched(path)


async def test_slow_but_steady_download_outlives_the_suite_s_time_out(server: ScriptedServer, path: Path) -> None:
    server.plays(plays.pieces(*(part for _ in range(20) for part in (b"AAAA", plays.Pause(15)))))
    async with opened(server, timeout=60, attempt_timeout=20) as suite:
        await suite.signing.download("doc", path)
    assert_holds(path, bytes(60))


async def test_time_out_of_its_own_bounds_a_download(server: ScriptedServer, path: Path) -> None:
    server.otherwise = plays.pieces(*(part for _ in range(20) for part in (b"AAAA", plays.Pause(15))))
    async with opened(server) as suite:
        error = await failure_of(suite.signing.download("doc", path, timeout=50))
    assert type(error) is ds.DeadlineExceededError
    assert error.elapsed == pytest.approx(50)
    assert_untouched(path)


async def test_missing_folder_is_refused_before_anything_is_sent(server: ScriptedServer, tmp_path: Path) -> None:
    async with opened(server) as suite:
        for destination in (tmp_path / "missing" / "a.pdf", tmp_path):
            for call in (
                suite.signing.download("doc", destination),
                suite.signing.sign_and_pull("doc", SIGNATURE, destination=destination),
            ):
                error = await failure_of(call)
                assert isinstance(error, ds.InvalidArgumentError)
                assert error.parameter == "destination"
    assert server.requests == []


class SmallDisk(io.FileIO):
    """A file that can't grow beyond 4 KB."""

    def write(self, content: Any) -> int:
        """Write what has room, or fail as a full disk does."""
        if self.tell() + len(content) > 4096:
            raise OSError(errno.ENOSPC, "no space left on device")
        return super().write(content)


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files opened for writing are on a small disk; buffered, so that closing fails a second time."""

    as_ever = Path.open

    def opened_there(path: Path, mode: str = "r", *others: Any, **more: Any) -> Any:
        return io.BufferedWriter(SmallDisk(path, mode)) if mode == "wb" else as_ever(path, mode, *others, **more)

    monkeypatch.setattr(Path, "open", opened_there)


@pytest.mark.usefixtures("small_disk")
@pytest.mark.parametrize("size", [5000, 200_000])
async def test_full_disk_is_an_os_error_and_nothing_is_repeated(server: ScriptedServer, path: Path, size: int) -> None:
    server.otherwise = plays.answer(pybase64.b64encode(bytes(size)))
    async with opened(server) as suite:
        with pytest.raises(OSError, match="no space left") as caught:
            await suite.signing.download("doc", path)
    assert not isinstance(caught.value, ds.DirectSuiteError)
    assert len(server.requests) == 1
    assert_untouched(path)


async def test_folder_that_vanishes_meanwhile_is_an_os_error(server: ScriptedServer, path: Path) -> None:
    gate = asyncio.Event()
    server.plays(plays.gated(gate, plays.answer(CODED)))
    async with opened(server) as suite:
        task = asyncio.create_task(suite.signing.download("doc", path))
        await until(lambda: server.busy == 1)
        shutil.rmtree(path.parent)
        gate.set()
        with pytest.raises(FileNotFoundError):
            await task
    assert len(server.requests) == 1
