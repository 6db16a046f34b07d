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

import pytest

import directsuite as ds
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import ALICE, PASSWORD, assert_no_leaks, catch_error, expect_error, open_suite
from tests.core.virtual_time import measure_elapsed

from .samples import CODED, MAX_BYTES_PER_PASS, PDF, ProgressRecorder, make_message, stream


async def _exhaust(pieces: ds.Listing[bytes]) -> None:
    async for _ in pieces:
        pass


async def _ignore_piece(_: bytes) -> None:
    return None


Do = Callable[[ds.DirectSuite, ds.Progress], Awaitable[object]]

UPLOADS: dict[str, tuple[Do, int | None, int]] = {
    "bytes": (lambda suite, reported: suite.signing.save(PDF, progress=reported), len(PDF), len(PDF)),
    "small": (lambda suite, reported: suite.signing.save(PDF[:99], progress=reported), 99, 99),
    "file": (lambda suite, reported: suite.signing.save(io.BytesIO(PDF), progress=reported), len(PDF), len(PDF)),
    "stream": (lambda suite, reported: suite.signing.save(stream(), progress=reported), None, len(PDF)),
    "stream of known size": (
        lambda suite, reported: suite.signing.save(stream(), size=len(PDF), progress=reported),
        len(PDF),
        len(PDF),
    ),
    "two attachments": (
        lambda suite, reported: suite.mailbox(ALICE, PASSWORD).send(
            make_message(
                ds.Attachment.from_file(io.BytesIO(PDF), filename="a"),
                ds.Attachment.from_file(io.BytesIO(PDF), filename="a"),
            ),
            progress=reported,
        ),
        2 * len(PDF),
        2 * len(PDF),
    ),
}


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize("kind", UPLOADS)
async def test_progress_of_what_is_sent_rises_to_its_total(suite: ds.DirectSuite, kind: str) -> None:
    do, total, size = UPLOADS[kind]
    reported = ProgressRecorder()
    await do(suite, reported)
    done = [done for done, _ in reported]
    assert done == sorted(set(done))
    assert (done[0], done[-1]) == (0, size)
    assert {each for _, each in reported} == {total}
    assert all(later - earlier <= MAX_BYTES_PER_PASS for earlier, later in itertools.pairwise(done))


DOWNLOADS: dict[str, Do] = {
    "path": lambda suite, reported: suite.signing.download("doc", "a.pdf", progress=reported),
    "callable": lambda suite, reported: suite.signing.download("doc", _ignore_piece, progress=reported),
    "pull": lambda suite, reported: suite.signing.flatten_and_pull("doc", destination=io.BytesIO(), progress=reported),
    "stream": lambda suite, reported: _exhaust(suite.signing.stream_doc("doc", progress=reported)),
}


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("kind", DOWNLOADS)
async def test_progress_of_what_is_received_rises_to_its_total(
    server: ScriptedServer, kind: str, chunked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reported = ProgressRecorder()
    server.enqueue(*[responses.respond_in_chunks(CODED)] * chunked)
    async with open_suite(server) as suite:
        await DOWNLOADS[kind](suite, reported)
    done = [done for done, _ in reported]
    assert done == sorted(done)
    assert reported[0][0] == 0
    assert reported[-1] == (len(PDF), None if chunked else len(PDF))
    assert all(total is None or done <= total <= len(PDF) + 2 for done, total in reported)
    assert all(later - earlier <= MAX_BYTES_PER_PASS for earlier, later in itertools.pairwise(done))


async def test_progress_begins_again_with_an_attempt(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    reported = ProgressRecorder()
    server.enqueue(responses.reset)
    await suite.signing.save(PDF, progress=reported)
    assert [done for done, _ in reported].count(0) == 2
    assert reported[-1] == (len(PDF), len(PDF))


@pytest.mark.parametrize(("option", "value"), [("progress", ProgressRecorder()), ("max_bytes", 5)])
async def test_pull_into_memory_takes_no_option_of_a_destination(
    server: ScriptedServer, suite: ds.DirectSuite, option: str, value: Any
) -> None:
    calling: Any = suite.signing.sign_and_pull
    error = await expect_error(ds.InvalidArgumentError, calling("doc", ds.Signature(name="alice"), **{option: value}))
    assert error.parameter == option
    assert server.requests == []


class OwnError(ConnectionResetError):
    """An error of the caller, of a class that network errors also have."""


def raise_own_error(done: int, _total: int | None) -> None:
    if done:
        raise OwnError


@pytest.mark.exhaustive(limit=4)
@pytest.mark.parametrize("kind", [*UPLOADS, *DOWNLOADS])
async def test_error_of_a_progress_callback_ends_the_call(
    server: ScriptedServer, suite: ds.DirectSuite, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((OwnError, ds.OutcomeUnknownError)) as caught:
        await (DOWNLOADS[kind] if kind in DOWNLOADS else UPLOADS[kind][0])(suite, raise_own_error)
    assert_no_leaks(suite)
    if isinstance(caught.value, ds.OutcomeUnknownError):
        assert kind == "pull"
        assert caught.value.happened
        assert isinstance(caught.value.__cause__, OwnError)
    assert len(server.requests) <= 1
    assert os.listdir(tmp_path) == []  # noqa: PTH208  a Path would be refused in a coroutine


async def yield_slowly() -> AsyncGenerator[bytes]:
    async for piece in stream(PDF, len(PDF) // 19):
        await asyncio.sleep(15)
        yield piece


LARGE = b"%PDF-" + bytes(20_000_000)

FLOWS: dict[str, Callable[[ds.DirectSuite, ds.Attachment, float | None], Awaitable[object]]] = {
    "save": lambda suite, content, timeout: suite.signing.save(cast("Any", content.source), timeout=timeout),
    "send": lambda suite, content, timeout: suite.mailbox(ALICE, PASSWORD).send(make_message(content), timeout=timeout),
}


def make_slow_attachment() -> ds.Attachment:
    return ds.Attachment.from_stream(yield_slowly(), filename="a")


@pytest.mark.parametrize("kind", FLOWS)
async def test_only_a_timeout_of_its_own_ends_an_upload_that_flows(server: ScriptedServer, kind: str) -> None:
    async with open_suite(server, timeout=60, attempt_timeout=20) as suite:
        assert await measure_elapsed(FLOWS[kind](suite, make_slow_attachment(), None)) == pytest.approx(300)
        assert len(server.requests) == 1
        error = await catch_error(FLOWS[kind](suite, make_slow_attachment(), 100))
    assert error.elapsed == pytest.approx(100)


@pytest.mark.parametrize(("kind", "seconds"), [("save", 20 + 1 + 20), ("send", 60)])
async def test_stalled_upload_is_cut_off(server: ScriptedServer, kind: str, seconds: float) -> None:
    server.default_responder = responses.read_partial_body
    large = ds.Attachment.from_file(io.BytesIO(LARGE), filename="a")
    async with open_suite(server, attempt_timeout=20, timeout=60) as suite:
        error = await catch_error(FLOWS[kind](suite, large, None))
    assert error.elapsed == pytest.approx(seconds)


class LoopByteMeter:
    """Counts bytes between two iterations of the event loop."""

    def __init__(self) -> None:
        self.bytes_since_pass = 0
        self.max_bytes = 0

    def add_bytes(self, count: int) -> None:
        self.bytes_since_pass += count
        self.max_bytes = max(self.max_bytes, self.bytes_since_pass)

    async def reset_every_pass(self) -> None:
        while True:
            self.bytes_since_pass = 0
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def measure_loop_bytes() -> AsyncGenerator[LoopByteMeter]:
    cycles = LoopByteMeter()
    task = asyncio.create_task(cycles.reset_every_pass())
    yield cycles
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_destination_gets_no_more_than_256_kb_in_one_turn(server: ScriptedServer) -> None:
    server.default_responder = responses.respond(CODED[:-4] * 3)
    async with open_suite(server) as suite, measure_loop_bytes() as cycles:

        async def counted(piece: bytes) -> None:
            cycles.add_bytes(len(piece))

        await suite.signing.download("doc", counted)
    assert 0 < cycles.max_bytes <= MAX_BYTES_PER_PASS
