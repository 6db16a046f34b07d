"""Slow files, as on a network: the event loop continues, and a cancelled call ends."""

from __future__ import annotations

import asyncio
import io
import os
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import pybase64
import pytest

import directsuite as ds
from directsuite.core.files import BLOCK_BYTES
from tests.core import responses
from tests.core.scripted_server import ScriptedServer
from tests.core.scripted_suite import ALICE, PASSWORD, PDF, SIGNATURE, catch_error, open_suite
from tests.core.test_blocking import list_worker_threads
from tests.core.virtual_time import VirtualTimeLoop, yield_to_loop, yield_until

from .samples import make_message

LARGE = PDF + bytes(3 * BLOCK_BYTES)
CODED = pybase64.b64encode(LARGE)


class SlowFile(io.BytesIO):
    """A seekable file whose calls wait until the test releases them."""

    def __init__(self, content: bytes = b"") -> None:
        super().__init__(content)
        self.waiting = threading.Event()
        self.released = threading.Event()
        self.threads: set[int] = set()

    def _wait(self) -> None:
        self.threads.add(threading.get_ident())
        self.waiting.set()
        assert self.released.wait(30)

    def read(self, size: int | None = -1, /) -> bytes:
        self._wait()
        return super().read(size)

    def write(self, piece: Any, /) -> int:
        self._wait()
        return super().write(piece)

    def seek(self, *where: int) -> int:
        self._wait()
        return super().seek(*where)

    def flush(self) -> None:
        self._wait()
        super().flush()


def calls_of(suite: ds.DirectSuite, file: SlowFile) -> dict[str, Any]:
    return {
        "save": lambda: suite.signing.save(file),
        "download": lambda: suite.signing.download("doc", file),
        "sign_and_pull": lambda: suite.signing.sign_and_pull("doc", SIGNATURE, destination=file),
    }


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("name", ["save", "download", "sign_and_pull"])
async def test_slow_file_does_not_block_the_event_loop(server: ScriptedServer, name: str) -> None:
    file = SlowFile(LARGE if name == "save" else b"")
    server.default_responder = responses.respond({"identifier": "doc"} if name == "save" else CODED)
    async with open_suite(server) as suite:
        call = asyncio.create_task(calls_of(suite, file)[name]())
        await yield_until(file.waiting.is_set)  # gives way to the loop, which a call in it would not come back to
        assert not call.done()
        file.released.set()
        await call
    assert threading.get_ident() not in file.threads
    assert file.getvalue() == LARGE
    await yield_until(lambda: not list_worker_threads())


@pytest.mark.parametrize("name", ["save", "download", "sign_and_pull"])
async def test_call_that_is_cancelled_does_not_wait_for_the_file(server: ScriptedServer, name: str) -> None:
    file = SlowFile(LARGE if name == "save" else b"")
    server.default_responder = responses.respond(CODED)
    async with open_suite(server) as suite:
        call = asyncio.create_task(calls_of(suite, file)[name]())
        await yield_until(file.waiting.is_set)
        call.cancel()
        if name != "save":  # it has one second to end, and time does not advance here
            file.released.set()
        await yield_until(call.done)
        assert call.cancelled()
        file.released.set()
    await yield_until(lambda: not list_worker_threads())
    assert not file.closed


def send_path(sender: ds.Mailbox | ds.TUser, path: Path) -> Coroutine[Any, Any, object]:
    return sender.send(make_message(ds.Attachment.from_path(path)), timeout=1)


def send_path_once(box: ds.Mailbox, path: Path) -> Coroutine[Any, Any, object]:
    return box.send_once(make_message(ds.Attachment.from_path(path)), timeout=1)


SENDERS: dict[str, Callable[[ds.DirectSuite, Path], Coroutine[Any, Any, object]]] = {
    "save": lambda suite, path: suite.signing.save(path, timeout=1),
    "send": lambda suite, path: send_path(suite.mailbox(ALICE, PASSWORD), path),
    "send_once": lambda suite, path: send_path_once(suite.mailbox(ALICE, PASSWORD), path),
    "send as a T-User": lambda suite, path: send_path(suite.tuser("t", PASSWORD, ALICE), path),
}


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let opening a file wait until the test ends. Return an event that is set when it waits."""
    waiting, released = threading.Event(), threading.Event()

    def access(*_: object) -> bool:
        waiting.set()
        assert released.wait(30)
        return True

    monkeypatch.setattr(os, "access", access)
    yield waiting
    released.set()


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("send", SENDERS.values(), ids=SENDERS.keys())
async def test_deadline_covers_opening_the_file_to_send(
    server: ScriptedServer, tmp_path: Path, slow_disk: threading.Event, send: Callable[..., Coroutine[Any, Any, object]]
) -> None:
    loop = cast("VirtualTimeLoop", asyncio.get_running_loop())
    path = tmp_path / "a.pdf"
    path.write_bytes(PDF)
    async with open_suite(server) as suite:
        call = asyncio.create_task(catch_error(send(suite, path)))
        await yield_until(slow_disk.is_set)
        loop._elapse(1)
        await yield_until(call.done)
    error = call.result()
    assert type(error) is ds.DeadlineExceededError
    assert (error.outcome, error.attempts, error.elapsed) == (ds.Outcome.NOT_SENT, 0, 1)
    assert server.requests == []


RECEIVERS: dict[str, Callable[[ds.Signing, Path], Coroutine[Any, Any, object]]] = {
    "GetDoc": lambda signing, path: signing.download("doc", path, timeout=1),
    "SignAndPull": lambda signing, path: signing.sign_and_pull("doc", SIGNATURE, destination=path, timeout=1),
    "MultiSignAndPull": lambda signing, path: signing.sign_pdf(PDF, [SIGNATURE], path, timeout=1),
}


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("opened_after", [0.75, 1], ids=["in time", "too late"])
@pytest.mark.parametrize(("operation", "receive"), RECEIVERS.items(), ids=RECEIVERS.keys())
async def test_deadline_covers_opening_the_destination(
    server: ScriptedServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    receive: Callable[..., Coroutine[Any, Any, object]],
    opened_after: float,
) -> None:
    server.default_responder = responses.never_respond
    waiting, released = threading.Event(), threading.Event()
    create = cast("Callable[..., tuple[int, str]]", tempfile.mkstemp)

    def create_slowly(**where: Any) -> tuple[int, str]:
        waiting.set()
        assert released.wait(30)
        return create(**where)

    monkeypatch.setattr(tempfile, "mkstemp", create_slowly)
    loop = cast("VirtualTimeLoop", asyncio.get_running_loop())
    began = loop.time()
    async with open_suite(server) as suite:
        call = asyncio.create_task(catch_error(receive(suite.signing, tmp_path / "signed.pdf")))
        await yield_until(waiting.is_set)
        loop._elapse(opened_after)
        await yield_to_loop()
        released.set()
        error = await call
        assert loop.time() == pytest.approx(began + 1)
    assert len(server.requests) == error.attempts == (opened_after < 1)
    if not error.attempts:
        assert type(error) is ds.DeadlineExceededError
        assert (error.operation, error.service, error.outcome) == (operation, "signing", ds.Outcome.NOT_SENT)
        assert str(error).endswith("its destination was not opened (no request was sent, 1.0 s)")
    await yield_until(lambda: not list_worker_threads())
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240  a folder of the test


async def test_closing_ends_a_call_that_waits_for_its_file(
    suite: ds.DirectSuite, tmp_path: Path, slow_disk: threading.Event
) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(PDF)
    call = asyncio.create_task(catch_error(suite.signing.save(path)))
    await yield_until(slow_disk.is_set)
    await suite.aclose(grace=0)
    await yield_until(call.done)
    assert type(call.result()) is ds.ClosedError
    assert call.result().outcome is ds.Outcome.NOT_SENT


async def test_time_out_error_of_a_source_is_raised_unchanged(
    server: ScriptedServer, suite: ds.DirectSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def access(*_: object) -> bool:
        raise TimeoutError(110, "the file server does not respond")

    path = tmp_path / "a.pdf"
    path.write_bytes(PDF)
    monkeypatch.setattr(os, "access", access)
    with pytest.raises(TimeoutError, match="the file server does not respond"):
        await suite.signing.save(path)


async def test_one_file_object_may_be_sent_by_several_calls_at_once(server: ScriptedServer, tmp_path: Path) -> None:
    path = tmp_path / "large.pdf"
    path.write_bytes(LARGE)
    with path.open("rb") as file:
        message = make_message(ds.Attachment.from_file(file, content_type="application/pdf"))
        async with open_suite(server) as suite:
            box = suite.mailbox(ALICE, PASSWORD)
            await asyncio.gather(*(box.send(message) for _ in range(4)))
    assert [CODED in request.body for request in server.requests] == [True] * 4


async def test_path_is_read_and_written_in_threads(
    server: ScriptedServer, suite: ds.DirectSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: dict[str, set[bool]] = {}
    loop_thread = threading.get_ident()

    def watched(name: str, method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            used.setdefault(name, set()).add(threading.get_ident() == loop_thread)
            return method(*args, **kwargs)

        return call

    source = tmp_path / "source.pdf"
    source.write_bytes(LARGE)
    server.enqueue(responses.respond({"identifier": "doc"}), responses.respond(CODED))
    for name in ("open", "stat", "is_dir", "replace"):
        monkeypatch.setattr(Path, name, watched(name, getattr(Path, name)))
    await suite.signing.save(source)
    await suite.signing.download("doc", tmp_path / "copy.pdf")
    monkeypatch.undo()
    assert used == {name: {False} for name in ("open", "stat", "is_dir", "replace")}
    assert (tmp_path / "copy.pdf").read_bytes() == LARGE
