"""Destinations that fail, accept few bytes, cannot seek, or are invalid."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import directsuite as ds
from directsuite.core.sinks import PathSink
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import assert_no_leaks, catch_error, expect_error, open_suite

from .samples import CODED, HALF, PDF


class Takes:
    """Writes the first bytes of each piece, and returns any value."""

    def __init__(self, max_size: int, reported: Callable[[int], Any]) -> None:
        self.content = b""
        self._most = max_size
        self._told = reported

    def write(self, piece: bytes, /) -> Any:
        taken = piece[: self._most]
        self.content += taken
        return self._told(len(taken))


class Blocked(io.RawIOBase):
    """A file whose `write` returns None because it would block."""

    def writable(self) -> bool:
        return True

    def write(self, _: Any, /) -> None:
        return None


def count(taken: int) -> int:
    return taken


ALL = 10**9
WRITERS: dict[str, Callable[[], Takes]] = {
    "takes little": lambda: Takes(1000, count),
    "says nothing": lambda: Takes(ALL, lambda _: None),
    "says true": lambda: Takes(ALL, lambda _: True),
    "says more than it got": lambda: Takes(ALL, lambda taken: taken + 1),
}


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("kind", WRITERS)
async def test_writer_gets_everything_whatever_it_returns(suite: ds.DirectSuite, kind: str) -> None:
    writer = WRITERS[kind]()
    await suite.signing.download("doc", writer)
    assert writer.content == PDF


@pytest.mark.parametrize("writer", [Takes(0, count), Blocked()], ids=["any", "raw"])
async def test_writer_that_takes_nothing_would_block(suite: ds.DirectSuite, writer: Takes | Blocked) -> None:
    with pytest.raises(BlockingIOError):
        await suite.signing.download("doc", writer)


@pytest.mark.parametrize("retried", [False, True])
async def test_shorter_document_replaces_all_of_a_longer_file(
    server: ScriptedServer, suite: ds.DirectSuite, retried: bool, tmp_path: Path
) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(b"before" + bytes(len(PDF) * 2))
    server.enqueue(*[HALF] * retried)
    with path.open("r+b") as file:
        file.seek(6)
        await suite.signing.download("doc", file)
    assert path.read_bytes() == b"before" + PDF


async def test_file_keeps_what_the_last_attempt_got(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    file = io.BytesIO()
    server.enqueue(HALF, responses.respond_in_chunks(CODED[:1000], length=len(CODED)))
    await catch_error(suite.signing.download("doc", file))
    assert len(server.requests) == 2
    assert file.getvalue() == PDF[:750]


def null_device() -> BinaryIO:
    return Path(os.devnull).open("wb")


async def test_device_that_cannot_be_truncated_is_a_destination(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.enqueue(HALF)
    with null_device() as file:
        assert await suite.signing.download("doc", file) is file


async def test_unseekable_file_gets_no_second_attempt(server: ScriptedServer, tmp_path: Path) -> None:
    server.enqueue(HALF)
    async with open_suite(server) as suite:
        with gzip.open(tmp_path / "broken.gz", "wb") as file:
            await expect_error(ds.ResponseDecodeError, suite.signing.download("doc", file))
        with gzip.open(tmp_path / "a.gz", "wb") as file:
            await suite.signing.download("doc", file)
    assert len(server.requests) == 2
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == PDF


async def test_error_of_the_first_progress_callback_is_raised_unchanged(server: ScriptedServer) -> None:
    own, reported = ConnectionResetError("own"), list[int]()

    def fails(done: int, _total: int | None) -> None:
        reported.append(done)
        raise own

    async with open_suite(server) as suite:
        with pytest.raises(ConnectionResetError) as caught:
            async for _ in suite.signing.stream_doc("doc", progress=fails):
                pass
        assert_no_leaks(suite)
    assert caught.value is own
    assert reported == [0]
    assert len(server.requests) == 1


async def test_write_to_disk_has_its_own_attempt_timeout(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slowly(_: object) -> None:
        await asyncio.sleep(15)

    monkeypatch.setattr(PathSink, "finish", slowly)
    server.default_responder = responses.respond_in_chunks(CODED, responses.Pause(15))
    async with open_suite(server, attempt_timeout=20) as suite:
        await suite.signing.download("doc", tmp_path / "a.pdf")
    assert len(server.requests) == 1


class FullDisk(io.BytesIO):
    """A file whose `close` fails."""

    def close(self) -> None:
        super().close()
        raise OSError("no space left")


async def test_cancelled_download_ends_if_its_file_cannot_be_closed(
    server: ScriptedServer, suite: ds.DirectSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened_there(descriptor: int, _mode: str) -> FullDisk:
        os.close(descriptor)
        return FullDisk()

    def begin(_done: int, _total: int | None) -> None:
        begun.set()

    monkeypatch.setattr(os, "fdopen", opened_there)
    server.default_responder = responses.send_endlessly(responses.make_head(200, 10**9), CODED[:40_000])
    begun = asyncio.Event()
    download = suite.signing.download("doc", tmp_path / "a.pdf", progress=begin)
    task = asyncio.create_task(download)
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert_no_leaks(suite)
