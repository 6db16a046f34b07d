"""Progress, flow, and turns of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pybase64
import pytest

import directsuite as ds
from tests.core import plays
from tests.core.opened import ALICE, PASSWORD, assert_nothing_held, failure_of, opened
from tests.core.scripted_server import ScriptedServer
from tests.core.virtual_time import elapsed

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 4000
CODED = pybase64.b64encode(PDF)
SAVED = {"identifier": "doc", "success": True}
LIMIT = 256 * 1024
SIGNATURE = ds.Signature(name="alice")


class Told:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int | None]] = []

    def __call__(self, done: int, total: int | None) -> None:
        self.calls.append((done, total))


async def stream(content: bytes = PDF, size: int = 50_000) -> AsyncGenerator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def letter(*attachments: ds.Attachment) -> ds.Message:
    return ds.Message(recipients=[ds.Recipient("bob@direct.example.test")], attachment_list=list(attachments))


async def _read(pieces: ds.Listing[bytes]) -> None:
    async for _ in pieces:
        pass


async def _drop(_: bytes) -> None:
    return None


Do = Callable[[ds.DirectSuite, ds.Progress], Awaitable[object]]

UPLOADS: dict[str, tuple[Do, int | None, int]] = {
    "bytes": (lambda suite, told: suite.signing.save(PDF, progress=told), len(PDF), len(PDF)),
    "small": (lambda suite, told: suite.signing.save(PDF[:99], progress=told), 99, 99),
    "file": (lambda suite, told: suite.signing.save(io.BytesIO(PDF), progress=told), len(PDF), len(PDF)),
    "stream": (lambda suite, told: suite.signing.save(stream(), progress=told), None, len(PDF)),
    "stream of known size": (
        lambda suite, told: suite.signing.save(stream(), size=len(PDF), progress=told),
        len(PDF),
        len(PDF),
    ),
    "two attachments": (
        lambda suite, told: suite.mailbox(ALICE, PASSWORD).send(
            letter(
                ds.Attachment.from_file(io.BytesIO(PDF), filename="a"),
                ds.Attachment.from_file(io.BytesIO(PDF), filename="a"),
            ),
            progress=told,
        ),
        2 * len(PDF),
        2 * len(PDF),
    ),
}


@pytest.mark.parametrize("kind", UPLOADS)
async def test_progress_of_what_is_sent_rises_to_its_total(server: ScriptedServer, kind: str) -> None:
    do, total, size = UPLOADS[kind]
    told = Told()
    server.otherwise = plays.answer(SAVED)
    async with opened(server) as suite:
        await do(suite, told)
    done = [done for done, _ in told.calls]
    assert done == sorted(set(done))
    assert (done[0], done[-1]) == (0, size)
    assert {each for _, each in told.calls} == {total}
    assert all(later - earlier <= LIMIT for earlier, later in itertools.pairwise(done))


DOWNLOADS: dict[str, Do] = {
    "path": lambda suite, told: suite.signing.download("doc", "a.pdf", progress=told),
    "callable": lambda suite, told: suite.signing.download("doc", _drop, progress=told),
    "pull": lambda suite, told: suite.signing.flatten_and_pull("doc", destination=io.BytesIO(), progress=told),
    "stream": lambda suite, told: _read(suite.signing.stream_doc("doc", progress=told)),
}


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("kind", DOWNLOADS)
async def test_progress_of_what_is_received_rises_to_its_total(
    server: ScriptedServer, kind: str, chunked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = Told()
    server.otherwise = plays.pieces(CODED) if chunked else plays.answer(CODED)
    async with opened(server) as suite:
        await DOWNLOADS[kind](suite, told)
    done = [done for done, _ in told.calls]
    assert done == sorted(done)
    assert told.calls[0][0] == 0
    assert told.calls[-1] == (len(PDF), None if chunked else len(PDF))
    assert all(total is None or done <= total <= len(PDF) + 2 for done, total in told.calls)
    assert all(later - earlier <= LIMIT for earlier, later in itertools.pairwise(done))


async def test_progress_begins_again_with_an_attempt(server: ScriptedServer) -> None:
    told = Told()
    server.plays(plays.reset, plays.answer(SAVED))
    async with opened(server) as suite:
        await suite.signing.save(PDF, progress=told)
    assert [done for done, _ in told.calls].count(0) == 2
    assert told.calls[-1] == (len(PDF), len(PDF))


async def test_pull_into_memory_has_no_progress(server: ScriptedServer) -> None:
    async with opened(server) as suite:
        calling: Any = suite.signing.sign_and_pull
        error = await failure_of(calling("doc", SIGNATURE, progress=Told()))
    assert isinstance(error, ds.InvalidArgumentError)
    assert server.requests == []


class OwnError(ConnectionResetError):
    """The caller's, and of a kind that the network raises too."""


def broken(done: int, _total: int | None) -> None:
    if done:
        raise OwnError


@pytest.mark.parametrize("kind", [*UPLOADS, *DOWNLOADS])
async def test_error_of_a_progress_callback_ends_the_call(
    server: ScriptedServer, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server.otherwise = plays.answer(CODED if kind in DOWNLOADS else SAVED)
    async with opened(server) as suite:
        with pytest.raises((OwnError, ds.OutcomeUnknownError)) as caught:
            await (DOWNLOADS[kind] if kind in DOWNLOADS else UPLOADS[kind][0])(suite, broken)
        assert_nothing_held(suite)
    if isinstance(caught.value, ds.OutcomeUnknownError):
        assert kind == "pull"
        assert isinstance(caught.value.__cause__, OwnError)
    assert len(server.requests) <= 1
    assert os.listdir(tmp_path) == []  # noqa: PTH208  a Path would be refused in a coroutine


async def slowly() -> AsyncGenerator[bytes]:
    """A piece every 15 seconds, for 5 minutes."""
    async for piece in stream(PDF, len(PDF) // 19):
        await asyncio.sleep(15)
        yield piece


LARGE = b"%PDF-" + bytes(20_000_000)

FLOWS: dict[str, Callable[[ds.DirectSuite, ds.Attachment, float | None], Awaitable[object]]] = {
    "save": lambda suite, content, timeout: suite.signing.save(cast("Any", content.source), timeout=timeout),
    "send": lambda suite, content, timeout: suite.mailbox(ALICE, PASSWORD).send(letter(content), timeout=timeout),
}


def flowing() -> ds.Attachment:
    return ds.Attachment.from_stream(slowly(), filename="a")


@pytest.mark.parametrize("kind", FLOWS)
async def test_upload_that_flows_is_not_cut_off(server: ScriptedServer, kind: str) -> None:
    server.otherwise = plays.answer(SAVED)
    async with opened(server, timeout=60, attempt_timeout=20) as suite:
        assert await elapsed(FLOWS[kind](suite, flowing(), None)) == pytest.approx(300)
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", FLOWS)
async def test_time_out_given_bounds_an_upload_that_flows(server: ScriptedServer, kind: str) -> None:
    server.otherwise = plays.answer(SAVED)
    async with opened(server, attempt_timeout=20) as suite:
        error = await failure_of(FLOWS[kind](suite, flowing(), 100))
    assert error.elapsed == pytest.approx(100)


@pytest.mark.parametrize(("kind", "seconds"), [("save", 20 + 1 + 20), ("send", 60)])
async def test_upload_that_stands_still_is_cut_off(server: ScriptedServer, kind: str, seconds: float) -> None:
    server.otherwise = plays.half_a_body
    large = ds.Attachment.from_file(io.BytesIO(LARGE), filename="a")
    async with opened(server, attempt_timeout=20, timeout=60) as suite:
        error = await failure_of(FLOWS[kind](suite, large, None))
    assert error.elapsed == pytest.approx(seconds)


class Turns:
    """Counts bytes between two turns of the event loop."""

    def __init__(self) -> None:
        self.since = 0
        self.most = 0

    def passed(self, count: int) -> None:
        self.since += count
        self.most = max(self.most, self.since)

    async def keep_turning(self) -> None:
        while True:
            self.since = 0
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def turning() -> AsyncGenerator[Turns]:
    turns = Turns()
    task = asyncio.create_task(turns.keep_turning())
    yield turns
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("size", [1000, 50_000, 100_000, 196_608, 262_144])
async def test_source_is_not_asked_for_more_than_256_kb_in_one_turn(server: ScriptedServer, size: int) -> None:
    server.otherwise = plays.answer(SAVED)
    async with opened(server) as suite, turning() as turns:

        async def counted() -> AsyncGenerator[bytes]:
            async for piece in stream(PDF * 3, size):
                turns.passed(len(piece))
                yield piece

        await suite.signing.save(counted())
    assert turns.most <= LIMIT


async def test_destination_gets_no_more_than_256_kb_in_one_turn(server: ScriptedServer) -> None:
    server.otherwise = plays.answer(CODED[:-4] * 3)
    async with opened(server) as suite, turning() as turns:

        async def counted(piece: bytes) -> None:
            turns.passed(len(piece))

        await suite.signing.download("doc", counted)
    assert 0 < turns.most <= LIMIT
