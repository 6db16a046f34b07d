"""Frames in the traceback of an error do not contain the arguments of a method; other frames are unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import directsuite as ds
from directsuite.core import privacy
from directsuite.core.content import PathContent
from directsuite.core.privacy import scrub_class
from directsuite.messaging.models import GetCountResponse, MessageDetail

from . import api, responses
from .scripted_server import ScriptedServer
from .scripted_suite import ALICE, PASSWORD, PATIENT, expect_error, open_suite
from .virtual_time import yield_until

PACKAGE = str(Path(ds.__file__).parent)
NAME_SENTINEL = "sentinel-of-a-name"


def list_package_frames(error: BaseException) -> list[str]:
    """Return the frames of the package in an error's traceback, with their locals."""
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    return [f"{frame.name}: {frame.locals}" for frame in told.stack if frame.filename.startswith(PACKAGE)]


async def catch_exception(call: Awaitable[object]) -> BaseException:
    try:
        await call
    except BaseException as error:  # noqa: BLE001  whatever it is, it is looked at
        return error
    raise AssertionError("nothing was raised")


def test_content_that_could_not_be_made_can_be_shown(tmp_path: Path) -> None:
    half_made = PathContent.__new__(PathContent)
    with pytest.raises(ds.InvalidArgumentError, match="the file does not exist"):
        half_made.__init__(tmp_path / NAME_SENTINEL, "content")  # type: ignore[misc]
    assert NAME_SENTINEL not in repr(half_made)
    with pytest.raises(ds.InvalidArgumentError, match="the path is a folder: give the path of a file"):
        PathContent(tmp_path, "content")


async def test_errors_of_the_package_show_the_callers_frames_alone(
    server: ScriptedServer, suite: ds.DirectSuite
) -> None:
    server.default_responder = responses.respond({}, 500)
    error = await catch_exception(suite.signing.get_doc_info(NAME_SENTINEL))
    refused = await catch_exception(suite.signing.save(Path("/missing") / NAME_SENTINEL))
    listed = await catch_exception(anext(suite.fax.iter_messages(NAME_SENTINEL)))
    for each in (error, refused, listed):
        assert isinstance(each, ds.DirectSuiteError)
        assert list_package_frames(each) == []


async def test_cancellation_shows_the_callers_frames_alone(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.default_responder = responses.never_respond
    task = asyncio.ensure_future(suite.signing.get_doc_info(NAME_SENTINEL))
    await yield_until(lambda: bool(server.requests))
    task.cancel()
    error = await catch_exception(task)
    assert isinstance(error, asyncio.CancelledError)
    assert list_package_frames(error) == []


async def test_error_of_a_source_shows_the_callers_frames_alone(suite: ds.DirectSuite) -> None:
    async def source() -> AsyncIterator[bytes]:
        yield NAME_SENTINEL.encode()
        raise LookupError("the end of the source")

    error = await catch_exception(suite.signing.save(source()))
    assert isinstance(error, LookupError)
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == ["catch_exception", "source"]


@pytest.mark.parametrize("kind", [ValueError, TimeoutError])
@pytest.mark.parametrize("is_source", [False, True])
async def test_error_of_a_token_function_has_the_frames_of_this_function_alone(
    server: ScriptedServer, kind: type[Exception], is_source: bool
) -> None:
    async def fetch_token() -> Any:
        raise kind("the end of the function")

    class Source:
        renewable = True
        fetch = staticmethod(fetch_token)

    async with open_suite(server, token=Source() if is_source else fetch_token) as suite:
        for _ in range(2):  # the second call gets the same error, during the back-off
            error = await catch_exception(suite.signing.get_doc_info(NAME_SENTINEL))
            cause = error.__cause__
            assert isinstance(cause, kind)
            assert list_package_frames(error) == []
            assert [frame.name for frame in traceback.extract_tb(cause.__traceback__)] == ["fetch_token"]


async def test_fault_of_the_package_shows_its_way_but_no_arguments(
    suite: ds.DirectSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_self: object) -> None:
        raise AssertionError

    monkeypatch.setitem(fail.__globals__, "__name__", "directsuite.core.attempt")
    monkeypatch.setattr("directsuite.core.attempt.Attempt.run", fail)
    error = await catch_exception(suite.signing.get_doc_info(NAME_SENTINEL))
    assert isinstance(error, AssertionError)
    assert len(list_package_frames(error)) > 2
    assert [frame for frame in list_package_frames(error) if NAME_SENTINEL in frame] == []


class FailingApi:
    """A public class of the package whose methods fail in several ways."""

    def __init__(self, name: str, *, fails: bool = False) -> None:
        self.name = name
        if fails:
            raise AssertionError

    @classmethod
    def from_file(cls, name: str) -> FailingApi:
        Path(name).read_bytes()
        raise AssertionError

    @staticmethod
    def validate(name: str) -> None:
        try:
            Path(name).read_bytes()
        except OSError:
            raise ds.ConfigurationError("it cannot be read") from None

    async def items(self, name: str) -> AsyncIterator[str]:
        yield str(len(name))
        raise AssertionError

    @contextlib.asynccontextmanager
    async def enter(self, name: str) -> AsyncGenerator[str]:
        if name:
            raise AssertionError
        yield name


@pytest.fixture
def failing_api(monkeypatch: pytest.MonkeyPatch) -> type[FailingApi]:
    monkeypatch.setattr(privacy, "_PACKAGE", __name__.partition(".")[0])
    return scrub_class(FailingApi)


async def _exhaust(items: AsyncIterator[str]) -> None:
    async for _ in items:
        pass


async def test_every_kind_of_method_is_scrubbed(failing_api: type[FailingApi]) -> None:
    async def enter(kept: FailingApi) -> None:
        async with kept.enter(NAME_SENTINEL):
            pass

    def raised_by(call: Callable[[], object]) -> BaseException:
        with pytest.raises((AssertionError, OSError, ds.ConfigurationError)) as raised:
            call()
        return raised.value

    kept = failing_api("another name")
    errors = [
        raised_by(lambda: failing_api(NAME_SENTINEL, fails=True)),
        raised_by(lambda: failing_api.from_file(NAME_SENTINEL)),
        raised_by(lambda: failing_api.validate(NAME_SENTINEL)),
        await catch_exception(_exhaust(kept.items(NAME_SENTINEL))),
        await catch_exception(enter(kept)),
    ]
    for error in errors:
        frames = traceback.TracebackException.from_exception(error, capture_locals=True).stack
        assert [frame.locals for frame in frames if NAME_SENTINEL in str(frame.locals)] == [], frames
    assert errors[2].__context__ is None


async def test_wrong_call_shows_no_arguments(suite: ds.DirectSuite) -> None:
    with pytest.raises(TypeError, match="'timeouts'") as wrong:
        await suite.signing.get_doc_info(NAME_SENTINEL, timeouts=3)  # type: ignore[call-arg]
    assert [frame for frame in list_package_frames(wrong.value) if NAME_SENTINEL in frame] == []


async def test_error_that_the_caller_is_handling_keeps_its_way(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.default_responder = responses.respond({}, 500)
    own = await catch_exception(_make_invalid_settings())
    before = traceback.format_tb(own.__traceback__)
    try:
        raise own
    except ds.DirectSuiteError:
        assert isinstance(await catch_exception(suite.signing.get_doc_info(NAME_SENTINEL)), ds.ServerError)
        with pytest.raises(ds.InvalidArgumentError):
            suite.mailbox(NAME_SENTINEL, "password")
    assert traceback.format_tb(own.__traceback__)[-len(before) :] == before


async def _make_invalid_settings() -> ds.Settings:
    return ds.Settings(message_url="no url")


@pytest.mark.parametrize("in_generator", [False, True])
async def test_waiting_task_continues_after_its_fault(failing_api: type[FailingApi], *, in_generator: bool) -> None:
    faults: list[BaseException] = []
    released = asyncio.Event()

    async def waited() -> str:
        try:
            raise AssertionError
        except AssertionError as error:
            faults.append(error)
        await released.wait()
        return "done"

    async def generated() -> AsyncGenerator[str]:
        yield await waited()

    async def background() -> list[str]:
        return [each async for each in generated()] if in_generator else [await waited()]

    @privacy.scrub_traceback
    async def public() -> None:
        raise faults[0]

    task = asyncio.create_task(background())
    await yield_until(lambda: bool(faults))
    assert isinstance(await catch_exception(public()), AssertionError)
    released.set()
    assert await task == ["done"]


def test_contexts_of_an_error_form_no_loop() -> None:
    @privacy.scrub_traceback
    def call(function: Callable[[], object]) -> None:
        function()

    def fail_first() -> None:
        raise ds.ConfigurationError("first") from None

    def fail_again() -> None:
        raise ds.ConfigurationError("second") from first.value

    def fail_while_handling() -> None:
        try:
            raise first.value
        except ds.ConfigurationError:
            try:
                raise RuntimeError
            except RuntimeError:
                call(fail_again)

    with pytest.raises(ds.ConfigurationError) as first:
        call(fail_first)
    with pytest.raises(ds.ConfigurationError, match="second") as second:
        fail_while_handling()
    contexts: list[BaseException] = [second.value]
    while (context := contexts[-1].__context__) is not None:
        assert context not in contexts
        contexts.append(context)
    assert [type(each) for each in contexts] == [ds.ConfigurationError, RuntimeError, ds.ConfigurationError]


async def test_end_of_a_listing_looks_at_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    @privacy.scrub_traceback
    async def listed() -> AsyncGenerator[str]:
        yield "item"

    seen: list[object] = []
    monkeypatch.setattr(privacy, "_clear_frames", seen.append)
    assert [each async for each in listed()] == ["item"]
    unfinished = listed()
    await anext(unfinished)
    await unfinished.aclose()
    assert seen == []


OUT_OF_MEMORY: Callable[..., Any] = functools.partial(next, map(bytes, itertools.repeat(2**62)))
"""Raises MemoryError without a frame in this module."""


def too_deep() -> Callable[..., Any]:
    nested: list[Any] = []
    for _ in range(50_000):
        nested = [nested]
    return functools.partial(next, map(repr, itertools.repeat(nested)))


def frames_of(error: BaseException) -> str:
    """Return all frames of an error's traceback below the test, with their locals."""
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "\n".join(f"{frame.filename} {frame.name} {frame.locals}" for frame in told.stack[1:])


async def test_memory_error_while_decoding_keeps_no_response_data(
    server: ScriptedServer, suite: ds.DirectSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.default_responder = responses.respond({"success": True, "count": 7, "note": PATIENT})
    reader: Any = suite._transport.environment.codec.converter.get_structure_hook(GetCountResponse)
    monkeypatch.setitem(reader.read.__globals__, "new", OUT_OF_MEMORY)
    error = await catch_exception(api.GET_MESSAGE_COUNT(suite))
    assert isinstance(error, MemoryError)
    assert PATIENT not in frames_of(error)
    assert list_package_frames(error) == []


async def test_memory_error_while_receiving_has_no_aiohttp_frame(
    server: ScriptedServer, suite: ds.DirectSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiohttp.StreamReader, "_read_nowait_chunk", staticmethod(OUT_OF_MEMORY))
    server.default_responder = responses.respond({"success": True, "count": 7, "note": PATIENT})
    error = await catch_exception(api.GET_MESSAGE_COUNT(suite))
    assert isinstance(error, MemoryError)
    assert "aiohttp" not in frames_of(error)


@pytest.mark.parametrize("kind", [MemoryError, RecursionError])
async def test_exhaustion_anywhere_shows_the_callers_frames_alone(
    suite: ds.DirectSuite, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    async def fail(_self: object) -> None:
        raise kind

    monkeypatch.setitem(fail.__globals__, "__name__", "directsuite.core.attempt")
    monkeypatch.setattr("directsuite.core.attempt.Attempt.run", fail)
    error = await catch_exception(api.GET_MESSAGE_COUNT(suite))
    assert isinstance(error, kind)
    assert list_package_frames(error) == []


async def test_too_deeply_nested_streamed_message_is_a_decode_error(
    server: ScriptedServer, suite: ds.DirectSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.default_responder = responses.respond(json.dumps({"success": True, "messages": [{"uid": 1}]}).encode())

    async def read(suite: ds.DirectSuite) -> None:
        async for _ in suite.mailbox(ALICE, PASSWORD).stream_messages():
            pass

    reader: Any = suite._transport.environment.codec.converter.get_structure_hook(MessageDetail)
    monkeypatch.setitem(reader.read.__globals__, "new", too_deep())
    error = await expect_error(ds.ResponseDecodeError, read(suite))
    assert error.path == "$.messages[0]"
