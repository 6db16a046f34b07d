"""Pipes that neither send nor accept data: only the calls that use them wait."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pybase64
import pytest

import directsuite as ds
from directsuite.core.content import make_content
from directsuite.core.sinks import Sink, make_sink
from tests.chaos.leak_capture import collect_frame_locals
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import assert_no_leaks
from tests.core.test_blocking import list_worker_threads
from tests.core.virtual_time import yield_until

from .samples import PDF, Pipe

WORKERS = 2


class Silent(Pipe):
    """A pipe whose other end is idle until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.reading, self.writing = os.pipe()
        self.begun = threading.Event()

    def readinto(self, buffer: Any) -> int:
        self.begun.set()
        content = os.read(self.reading, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def write(self, piece: Any, /) -> int:
        self.begun.set()
        return os.write(self.writing, piece)


@contextlib.contextmanager
def silent_pipes(use: str, count: int) -> Generator[list[Silent]]:
    pipes = [Silent() for _ in range(count)]
    try:
        yield pipes
    finally:
        for pipe in pipes:
            os.close(pipe.writing if use == "read" else pipe.reading)


USES: dict[str, Callable[[ds.DirectSuite, Silent], Awaitable[object]]] = {
    "read": lambda suite, pipe: suite.signing.save(pipe),
    "written": lambda suite, pipe: suite.signing.download("doc", pipe),
}


@pytest.mark.parametrize("use", USES)
async def test_dns_is_not_blocked_by_more_silent_pipes_than_threads(suite: ds.DirectSuite, use: str) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(WORKERS))
    with silent_pipes(use, WORKERS + 1) as pipes:
        calls = [asyncio.ensure_future(USES[use](suite, pipe)) for pipe in pipes]
        await yield_until(lambda: all(pipe.begun.is_set() for pipe in pipes))
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert_no_leaks(suite)
        resolving = asyncio.ensure_future(loop.getaddrinfo("localhost", 80))
        await yield_until(resolving.done)
        assert resolving.result()
        assert len(list_worker_threads()) == WORKERS + 1
    await yield_until(lambda: not list_worker_threads())
    for pipe in pipes:
        os.close(pipe.reading if use == "read" else pipe.writing)


PROGRAM = """
import asyncio, os, sys, threading
from directsuite.core.sinks import make_sink
from directsuite.core.content import make_content

async def main():
    workers = min(32, os.cpu_count() + 4) + 1
    files = [os.fdopen(os.pipe()[0], "rb", buffering=size) for size in (0, 8192) for _ in range(workers)]
    calls = [anext(make_content(file, parameter="pdf").pieces()) for file in files]
    if "stdin" in sys.argv:
        calls.append(anext(make_content(sys.stdin.buffer, parameter="pdf").pieces()))
    sinks = [make_sink(os.fdopen(os.pipe()[1], "wb", buffering=size)) for size in (0, 8192) for _ in range(workers)]
    if "stdout" in sys.argv:
        sinks.append(make_sink(sys.stdout.buffer))
    for sink in sinks:
        await sink.open()
    calls += [sink.write(bytes(1_000_000)) for sink in sinks]
    tasks = [asyncio.ensure_future(call) for call in calls]
    for _ in range(2_000):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for sink in sinks:
        await sink.abort()
        await sink.close()
    await asyncio.wait_for(asyncio.get_running_loop().getaddrinfo("localhost", 80), 5)
    print("resolved", file=sys.stderr)

asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.parametrize("standard", ["neither", "stdin", "stdout"])
def test_process_with_silent_pipes_ends_by_itself(standard: str) -> None:
    command = [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-c", PROGRAM, standard]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reading, writing = os.pipe()
    unread, stdout = os.pipe()
    try:
        result = subprocess.run(
            command,
            stdin=reading,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=buffered,
            text=True,
            timeout=20,
            check=False,
        )
    finally:
        for end in (reading, writing, unread, stdout):
            os.close(end)
    assert (result.stderr, result.returncode) == ("resolved\n", 0)


class OwnThreadPipe(Pipe):
    """A pipe that also records the other threads in use."""

    def _record_call(self) -> None:
        self.threads |= {thread.ident or 0 for thread in list_worker_threads()}
        super()._record_call()


async def test_stream_has_one_thread_and_leaves_none(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    source, destination = OwnThreadPipe(PDF), OwnThreadPipe()
    await suite.signing.save(source)
    await yield_until(lambda: not list_worker_threads())
    await suite.signing.download("doc", destination)
    await yield_until(lambda: not list_worker_threads())
    assert pybase64.b64decode(server.requests[0].body) == destination.content == PDF
    assert len(source.threads) == len(destination.threads) == 1


async def test_failed_stream_leaves_no_thread(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    with pytest.raises(OSError, match="own"):
        await suite.signing.download("doc", Pipe(fails_after=2))
    with pytest.raises((OSError, ds.TransportError)):
        await suite.signing.save(Pipe(PDF, fails_after=2))
    await yield_until(lambda: not list_worker_threads())


class Slow(Pipe):
    """A pipe whose first write waits until the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.released = threading.Event(), threading.Event()

    def write(self, piece: Any, /) -> int:
        self.begun.set()
        self.released.wait(10)
        return super().write(piece)


async def test_piece_in_progress_is_completed_after_a_cancellation(suite: ds.DirectSuite) -> None:
    pipe = Slow()
    call = asyncio.ensure_future(suite.signing.download("doc", pipe))
    await yield_until(pipe.begun.is_set)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert call.cancelled()
    assert pipe.content == b""
    pipe.released.set()
    await yield_until(lambda: not list_worker_threads())
    assert 0 < len(pipe.content) <= 192 * 1024
    assert PDF.startswith(pipe.content)


class Seeking(io.BytesIO):
    """A file that fails."""

    def write(self, _: Any, /) -> int:
        raise OSError("own")


async def write_all(sink: Sink[Any], content: bytes) -> None:
    await sink.write(content)
    await sink.finish()


@pytest.mark.parametrize("make", [lambda: Pipe(fails_after=2), Seeking], ids=["pipe", "file"])
async def test_error_of_a_destination_contains_no_content(make: Callable[[], Any]) -> None:
    sink = make_sink(make())
    await sink.open()
    text = b"sentinel-of-a-patient"
    with pytest.raises(OSError, match="own") as caught:
        await write_all(sink, text * 10_000)
    await sink.abort()
    await sink.close()
    await yield_until(lambda: not list_worker_threads())
    assert [place for place, shown in collect_frame_locals(caught.value) if text.decode() in shown] == []


async def test_error_of_a_source_contains_no_content() -> None:
    text = b"sentinel-of-a-patient"
    content = make_content(Pipe(text * 10_000, fails_after=1), parameter="pdf")
    with pytest.raises(OSError, match="own") as caught:
        async for _ in content.pieces():
            pass
    await yield_until(lambda: not list_worker_threads())
    assert [place for place, shown in collect_frame_locals(caught.value) if text.decode() in shown] == []
