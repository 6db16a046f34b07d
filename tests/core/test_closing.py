"""Opening and closing a suite while other tasks open, close, call or wait for a token."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import UnionType
from typing import Any

import aiohttp
import attrs
import pytest
from tenacity import wait_fixed

import directsuite as ds
from directsuite.core.call import Call
from directsuite.core.credentials import TokenCache

from . import api, responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import catch_error, open_suite, stream_messages
from .token_fetches import close_cache
from .virtual_time import LoopClock, measure_elapsed, yield_to_loop, yield_until

SECURE = ds.Settings(signing_url="https://127.0.0.1:1")
SuiteCall = Callable[[ds.DirectSuite, Path], Awaitable[object]]


def _count(suite: ds.DirectSuite, _: object = None) -> Awaitable[object]:
    return api.GET_MESSAGE_COUNT(suite)


def _flatten(suite: ds.DirectSuite, _: object = None) -> Awaitable[object]:
    return api.FLATTEN(suite)


def _call(call: Awaitable[object]) -> asyncio.Task[ds.DirectSuiteError]:
    return asyncio.create_task(catch_error(call))


async def _hang(_: Any) -> Any:
    await asyncio.sleep(1e6)


LOST = ds.ClosedError | ds.ConnectionLostError
NO_END = responses.respond_in_chunks(b"JVBERi0x", responses.Pause(1e6))
UNAVAILABLE = responses.respond(b"", 503)
SIGNATURE = ds.Signature(name="a")


@attrs.frozen
class WaitingCall:
    """A call that waits for something, and its error when the suite closes."""

    name: str
    call: SuiteCall
    play: Responder
    error: type[ds.DirectSuiteError] | UnionType
    settings: dict[str, Any] = attrs.field(factory=dict[str, Any])
    outcome: ds.Outcome | None = None

    def __str__(self) -> str:
        return self.name


WAITING_CALLS = [
    WaitingCall("head", _count, responses.never_respond, LOST),
    WaitingCall("head of a flatten", _flatten, responses.never_respond, ds.OutcomeUnknownError),
    WaitingCall("head of a send", lambda suite, _: api.SEND(suite), responses.never_respond, ds.OutcomeUnknownError),
    WaitingCall("body", _count, responses.respond_in_chunks(b'{"success": ', responses.Pause(1e6)), LOST),
    WaitingCall("body of a flatten", _flatten, NO_END, ds.OutcomeUnknownError),
    WaitingCall("document", lambda suite, _: suite.signing.get_doc("doc"), NO_END, LOST),
    WaitingCall("download", lambda suite, folder: suite.signing.download("doc", folder / "doc.pdf"), NO_END, LOST),
    WaitingCall(
        "signed document",
        lambda suite, folder: suite.signing.sign_and_pull("doc", SIGNATURE, destination=folder / "doc.pdf"),
        NO_END,
        ds.OutcomeUnknownError,
    ),
    WaitingCall(
        "stream",
        lambda suite, _: stream_messages(suite),
        responses.respond_in_chunks(b'{"success": true, "message": [', responses.Pause(1e6)),
        LOST,
    ),
    WaitingCall(
        "destination",
        lambda suite, _: suite.signing.download("doc", _hang),
        responses.respond(b"QUJD" * 100),
        ds.TransportError | ds.ClosedError,
    ),
    WaitingCall("wait of the policy", _count, UNAVAILABLE, ds.ClosedError, {"retry": ds.RetryPolicy(wait=_hang)}),
    WaitingCall("stop of the policy", _count, UNAVAILABLE, ds.ClosedError, {"retry": ds.RetryPolicy(stop=_hang)}),
    WaitingCall("back-off", _count, responses.respond(b"", 429, Retry_After="30"), ds.ClosedError),
    WaitingCall(
        "retry of a lost attempt",
        lambda suite, _: api.MARK_AS_READ(suite),
        responses.reset,
        ds.ClosedError,
        {"retry": ds.RetryPolicy(attempts=2, wait=wait_fixed(40))},
        ds.Outcome.UNKNOWN,
    ),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", WAITING_CALLS, ids=str)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("grace", [0.0, 5.0])
async def test_closing_ends_a_call_wherever_it_waits(
    server: ScriptedServer, tmp_path: Path, case: WaitingCall, shared: bool, grace: float
) -> None:
    server.default_responder = case.play
    async with aiohttp.ClientSession(connector=ds.FreshConnector()) as session:
        options: dict[str, Any] = {"attempt_timeout": 1e6, "timeout": 1e6} | case.settings
        if shared:
            options |= {"session_factory": lambda: session, "close_session": False}
        async with open_suite(server, leaky=True, **options) as suite:
            call = _call(case.call(suite, tmp_path))
            await asyncio.sleep(1)
            assert await measure_elapsed(suite.aclose(grace=grace)) == pytest.approx(grace)
            assert await measure_elapsed(call) == 0
        assert not suite._session.open_responses
        assert not session.closed
    assert isinstance(call.result(), case.error)
    assert case.outcome in (None, call.result().outcome)
    assert len(server.requests) == 1
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240  a folder of the test's own


@pytest.mark.parametrize("play", [responses.never_respond, responses.respond(b"", 429, Retry_After="30")])
async def test_queued_calls_end_when_the_suite_closes(server: ScriptedServer, play: Responder) -> None:
    server.default_responder = play
    async with open_suite(server, leaky=True, max_connections=1) as suite:
        first = _call(_flatten(suite))
        await yield_until(lambda: len(server.requests) == 1)
        await yield_to_loop()
        queued = [_call(_flatten(suite)) for _ in range(4)]
        await yield_to_loop()
        await suite.aclose(grace=0)
        assert await measure_elapsed(asyncio.wait([first, *queued])) == 0
    assert {call.result().outcome for call in queued} == {ds.Outcome.NOT_SENT}
    assert len(server.requests) == 1


async def test_destination_that_closes_the_suite_is_not_cancelled(server: ScriptedServer) -> None:
    async def closes(piece: bytes) -> None:
        assert piece
        await suite.aclose(grace=0)
        await asyncio.sleep(1)
        closed.set()

    closed = asyncio.Event()
    server.default_responder = responses.respond_in_chunks(b"QUJD" * 100, responses.Pause(10), b"QUJD")
    async with open_suite(server, leaky=True) as suite:
        error = await catch_error(suite.signing.download("doc", closes))
    assert closed.is_set()
    assert isinstance(error, ds.ClosedError | ds.TransportError | ds.ResponseDecodeError)


async def test_cancelled_call_stays_cancelled_when_the_suite_closes(server: ScriptedServer) -> None:
    server.default_responder = responses.never_respond
    async with open_suite(server, leaky=True) as suite:
        asking = asyncio.ensure_future(_count(suite))
        await yield_until(lambda: len(server.requests) == 1)
        asking.cancel()
        await suite.aclose(grace=0)
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_closing_does_not_count_as_silence_of_the_service(server: ScriptedServer) -> None:
    heard: list[ds.Event] = []
    server.default_responder = responses.never_respond
    async with open_suite(server, listeners=[heard.append], circuit_failures=3, leaky=True) as suite:
        calls = [_call(_flatten(suite)) for _ in range(4)]
        await yield_until(lambda: len(server.requests) == 4)
        await suite.aclose(grace=0)
        await asyncio.wait(calls)
    assert not any(isinstance(event, ds.CircuitOpened) for event in heard)


async def test_call_ended_by_closing_is_garbage_collected(server: ScriptedServer) -> None:
    async def close_on_a_response() -> None:
        async with open_suite(server, leaky=True) as suite:
            call = _call(_count(suite))
            await yield_until(lambda: bool(suite._session.open_responses))
            await suite.aclose(grace=0)
            await call

    server.default_responder = responses.respond_in_chunks(b'{"success": true, ', responses.Pause(30))
    before = _count_calls_alive()
    for _ in range(3):
        await close_on_a_response()
    await yield_to_loop()
    assert _count_calls_alive() == before


def _count_calls_alive() -> int:
    gc.collect()
    return sum(isinstance(each, Call) for each in gc.get_objects())


async def test_closing_waits_for_calls_in_progress(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.default_responder = responses.delay(3, server.default_responder)
    call = await server.begin(_count(suite))
    closing = asyncio.create_task(suite.aclose(grace=5))
    await yield_to_loop()
    assert suite._session.closed  # from the beginning
    assert await measure_elapsed(closing) == pytest.approx(3)
    assert await call == 7


async def test_session_is_renewed_for_calls_that_closing_waits_for(server: ScriptedServer) -> None:
    gate = asyncio.Event()
    rejection = responses.respond({"success": False, "code": "011"})
    server.enqueue(server.default_responder, responses.respond_after(gate, rejection))
    async with open_suite(server) as suite:
        call = asyncio.ensure_future(api.GET_PATIENT_ADDRESS(suite))
        await yield_until(lambda: server.busy == 1 and len(server.requests) == 2)
        closing = asyncio.create_task(suite.aclose(grace=5))
        await yield_to_loop()
        gate.set()
        await call
        await closing


async def test_cancelled_closing_still_ends_the_connections(server: ScriptedServer) -> None:
    server.default_responder = responses.never_respond
    async with open_suite(server, leaky=True, attempt_timeout=1000) as suite:
        call = await server.begin(catch_error(_flatten(suite)))
        closing = asyncio.create_task(suite.aclose(grace=50))
        await yield_to_loop()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert type(await call) is ds.OutcomeUnknownError
        await yield_until(lambda: server.open_connections == 0)


async def test_error_in_the_block_closes_without_waiting(server: ScriptedServer) -> None:
    calls: list[asyncio.Task[ds.DirectSuiteError]] = []

    async def block() -> None:
        async with open_suite(server, leaky=True) as suite:
            calls.append(_call(_flatten(suite)))
            await yield_until(lambda: server.busy == 1)
            raise ValueError("the block's own")

    server.default_responder = responses.never_respond
    began = asyncio.get_running_loop().time()
    with pytest.raises(ValueError, match="the block's own"):
        await block()
    assert asyncio.get_running_loop().time() == began
    assert type(await calls[0]) is ds.OutcomeUnknownError


@pytest.mark.parametrize("cancelled", [False, True])
async def test_second_closer_waits_for_the_first_and_disturbs_nobody(server: ScriptedServer, cancelled: bool) -> None:
    server.enqueue(responses.delay(3, server.default_responder))
    async with open_suite(server) as suite:
        call = asyncio.ensure_future(api.GET_PATIENT_ADDRESS(suite))  # it waits for the login
        await yield_until(lambda: server.busy == 1)
        first = asyncio.create_task(suite.aclose(grace=5))
        await yield_to_loop()
        second = asyncio.create_task(suite.aclose(grace=0))
        await yield_to_loop()
        if cancelled:
            second.cancel()
            await yield_to_loop()
            assert second.cancelled()
        else:
            assert await measure_elapsed(second) == pytest.approx(3)
        await first
        await call


async def test_second_closer_in_another_loop_is_rejected(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.default_responder = responses.delay(3, server.default_responder)
    call = await server.begin(_count(suite))
    closing = asyncio.create_task(suite.aclose(grace=5))
    await yield_to_loop()
    error = await asyncio.to_thread(lambda: asyncio.run(catch_error(suite.aclose())))
    await asyncio.gather(call, closing)
    assert type(error) is ds.ConfigurationError


async def test_concurrent_second_open_is_rejected() -> None:
    suite = ds.DirectSuite(SECURE)
    results = await asyncio.gather(suite.__aenter__(), suite.__aenter__(), return_exceptions=True)
    await suite.aclose()
    assert [type(result) for result in results] == [ds.DirectSuite, ds.ConfigurationError]


@attrs.define
class Slow:
    """A slow token source. took: the duration of each fetch. begun, ended: the numbers of fetches."""

    took: float
    renewable: bool = True
    begun: int = 0
    ended: int = 0

    async def fetch(self) -> ds.AccessToken:
        self.begun += 1
        await asyncio.sleep(self.took)
        self.ended += 1
        return ds.AccessToken("a", 100)


@attrs.define
class Spending(Slow):
    """A token source that says whether its credentials are single-use."""

    single_use: bool = True


@pytest.mark.parametrize(
    ("like", "seconds", "ended"),
    [(Slow(1), 0, 0), (Spending(1, single_use=False), 0, 0), (Spending(1), 1, 1), (Spending(6), 5, 0)],
)
async def test_closing_waits_only_for_single_use_fetch(
    server: ScriptedServer, like: Slow, seconds: float, ended: int
) -> None:
    source = attrs.evolve(like)
    async with open_suite(server, token=source, leaky=True) as suite:
        caller = _call(api.GET_DOC_INFO(suite))
        await yield_until(lambda: source.begun == 1)
        assert await measure_elapsed(suite.aclose(grace=0)) == pytest.approx(seconds)
        assert isinstance(await caller, ds.ClosedError)
    assert (source.begun, source.ended) == (1, ended)
    assert server.requests == []


async def test_login_is_not_waited_for(server: ScriptedServer) -> None:
    server.default_responder = responses.never_respond
    async with open_suite(server, token=Spending(1), leaky=True) as suite:
        caller = await server.begin(catch_error(api.GET_PATIENT_ADDRESS(suite)))
        assert await measure_elapsed(suite.aclose(grace=0)) == 0
        assert isinstance(await caller, ds.ClosedError)


async def test_second_closer_waits_for_the_fetch_and_no_other_begins(server: ScriptedServer) -> None:
    told: list[ds.Event] = []
    source = Spending(2)
    async with open_suite(server, token=source, listeners=[told.append], leaky=True) as suite:
        caller = _call(api.GET_DOC_INFO(suite))
        await yield_until(lambda: source.begun == 1)
        first = asyncio.create_task(suite.aclose(grace=0))
        await yield_to_loop()
        assert isinstance(await catch_error(suite._caches[1].get_current()), ds.ClosedError)
        assert await measure_elapsed(suite.aclose(grace=0)) == pytest.approx(2)
        await first
        await caller
    assert not any(isinstance(event, ds.RenewalFailed) for event in told)


async def test_stopped_cache_begins_no_fetch_any_more() -> None:
    source = Spending(2)
    cache = TokenCache(source, LoopClock(), keep_alive=True)
    await cache.get_current()
    await asyncio.sleep(51)  # its renewal is in progress
    cache.stop()
    drained = asyncio.create_task(cache.wait_for_single_use_fetch(5))
    await asyncio.sleep(200)
    await drained
    assert source.begun == source.ended == 2
    assert isinstance(await catch_error(cache.get_current()), ds.ClosedError)
    await close_cache(cache)


async def test_outcome_of_a_call_that_is_being_verified_when_the_suite_closes_is_unknown(
    server: ScriptedServer,
) -> None:
    server.default_responder = responses.hang_up
    stored = ds.StoredDocument(identifier="doc", document_digest="aa")
    async with open_suite(server) as suite:
        calling = asyncio.create_task(catch_error(suite.signing.flatten(stored)))
        await asyncio.sleep(3)
        assert not calling.done()
    assert type(await calling) is ds.OutcomeUnknownError
