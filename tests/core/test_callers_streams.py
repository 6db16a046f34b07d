"""Sources, destinations and progress callbacks of the caller that are slow, cancelled or fail."""

from __future__ import annotations

import asyncio
import io
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import attrs
import pybase64
import pytest

import directsuite as ds

from . import api, responses
from .failing_networks import SilentResolver
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import DOCUMENT, PDF, SIGNATURE, UNSIGNED, catch_error, expect_error, make_session, open_suite
from .virtual_time import yield_to_loop, yield_until

CODED = pybase64.b64encode(DOCUMENT)
INFO = responses.respond({"identifier": "doc"})
ONCE = ds.RetryPolicy.none()


async def _hang(piece: bytes) -> None:
    assert piece
    await asyncio.sleep(1e6)


async def _yield_pieces(number: int) -> AsyncGenerator[bytes]:
    """Yield this number of large pieces, and hang."""
    for _ in range(number):
        yield PDF + bytes(180_000)
    await asyncio.sleep(1e6)


@attrs.frozen
class SlowCall:
    """A call that the caller's own stream delays, and its error."""

    call: api.SuiteCall
    error: type[ds.DirectSuiteError]
    words: str
    play: Responder = INFO
    timeout: float = 60
    outcome: ds.Outcome = ds.Outcome.UNKNOWN


_NO_BYTES, _NO_MORE_BYTES = "its source returned no bytes", "its source returned no more bytes"
_INCOMPLETE = "its response was not received completely within the attempt timeout"
NOT_SENT = ds.Outcome.NOT_SENT
SLOW_CALLS = {
    "destination": SlowCall(
        lambda suite: suite.signing.download("doc", _hang),
        ds.ConnectionLostError,
        _INCOMPLETE,
        responses.respond(CODED),
    ),
    "rest of a response": SlowCall(
        api.GET_MESSAGE_COUNT,
        ds.ConnectionLostError,
        _INCOMPLETE,
        responses.respond_in_chunks(b'{"success": ', responses.Pause(1000)),
    ),
    "source, in the call's time": SlowCall(
        lambda suite: suite.signing.save(_yield_pieces(0)),
        ds.DeadlineExceededError,
        _NO_BYTES,
        timeout=5,
        outcome=NOT_SENT,
    ),
    "source, in an attempt's time": SlowCall(
        lambda suite: suite.signing.save(_yield_pieces(0)), ds.ConnectFailedError, _NO_BYTES, outcome=NOT_SENT
    ),
    "source after a piece": SlowCall(
        lambda suite: suite.signing.save(_yield_pieces(1)), ds.ConnectionLostError, _NO_MORE_BYTES
    ),
    "source after two pieces": SlowCall(
        lambda suite: suite.signing.save(_yield_pieces(2)), ds.ConnectionLostError, _NO_MORE_BYTES
    ),
}


@pytest.mark.parametrize("slow", SLOW_CALLS.values(), ids=SLOW_CALLS)
async def test_own_slowness_is_named_and_opens_no_circuit(server: ScriptedServer, slow: SlowCall) -> None:
    server.default_responder = slow.play
    async with open_suite(server, attempt_timeout=5, timeout=slow.timeout, circuit_failures=2, retry=ONCE) as suite:
        for _ in range(3):
            error = await catch_error(slow.call(suite))
            assert (type(error), error.outcome) == (slow.error, slow.outcome)
            assert slow.words in str(error)
        server.default_responder = INFO
        await api.GET_DOC_INFO(suite)


async def test_unanswered_upload_of_stream_opens_the_circuit(server: ScriptedServer) -> None:
    async def source() -> AsyncGenerator[bytes]:
        yield PDF

    server.default_responder = responses.never_respond
    async with open_suite(server, attempt_timeout=5, circuit_failures=2, retry=ONCE) as suite:
        for _ in range(2):
            assert "no response" in str(await catch_error(suite.signing.save(source())))
        assert isinstance(await catch_error(api.GET_DOC_INFO(suite)), ds.CircuitOpenError)


async def waits_for_what_was_cancelled(piece: bytes) -> None:
    assert piece
    cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    await cancelled


async def test_cancelled_destination_ends_the_call_with_an_error(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    error = await expect_error(ds.TransportError, suite.signing.download("doc", waits_for_what_was_cancelled))
    assert "writing to its destination was cancelled" in str(error)
    assert len(server.requests) == 1
    pulling = suite.signing.flatten_and_pull("doc", destination=waits_for_what_was_cancelled)
    unknown = await expect_error(ds.OutcomeUnknownError, pulling)
    assert unknown.happened
    assert isinstance(unknown.__cause__, ds.TransportError)


async def test_session_closed_by_another_before_a_connection_is_reported(server: ScriptedServer) -> None:
    resolver = SilentResolver()
    shared = make_session(resolver=resolver)
    others: dict[str, Any] = {"session_factory": lambda: shared, "close_session": False}
    others |= {"signing_url": "http://slow.example.test", "allow_insecure_http": True}
    async with open_suite(server, leaky=True, **others) as suite:
        flattening = asyncio.ensure_future(catch_error(api.FLATTEN(suite)))
        await resolver.asked.wait()
        await shared.close()
        error = await flattening
    assert isinstance(error, ds.ClosedError | ds.ConnectFailedError)


@pytest.mark.parametrize(
    "play",
    [responses.never_respond, responses.respond_in_chunks(b'{"success": ', responses.Pause(1e6))],
    ids=["head", "body"],
)
async def test_session_closed_by_another_while_an_response_comes_is_reported(
    server: ScriptedServer, play: Responder
) -> None:
    server.default_responder = play
    shared = make_session()
    others: dict[str, Any] = {"session_factory": lambda: shared, "close_session": False}
    async with open_suite(server, leaky=True, **others) as suite:
        asking = [asyncio.ensure_future(catch_error(ask(suite))) for ask in (api.FLATTEN, api.GET_MESSAGE_COUNT)]
        await yield_until(lambda: len(server.requests) == len(asking))
        await yield_to_loop()
        await shared.close()
        flattened, counted = await asyncio.gather(*asking)
    assert isinstance(flattened, ds.OutcomeUnknownError)
    assert isinstance(counted, ds.ClosedError | ds.TransportError | ds.ResponseDecodeError)


SAYS_NO = responses.respond({"error": "boom", "description": "nothing was done"})


class GoneError(Exception):
    pass


def gone(_done: int, _total: int | None) -> None:
    """Progress callback that always fails."""
    raise GoneError


@pytest.mark.parametrize("answer", [SAYS_NO, responses.respond(CODED)], ids=["says no", "is good"])
async def test_progress_error_before_first_byte_leaves_outcome_unknown(
    server: ScriptedServer, suite: ds.DirectSuite, answer: Responder
) -> None:
    server.default_responder = answer
    error = await catch_error(suite.signing.flatten_and_pull("doc", destination=io.BytesIO(), progress=gone))
    assert isinstance(error, ds.OutcomeUnknownError)
    assert not error.happened
    assert error.__cause__ is not None
    assert isinstance(error.__cause__.__cause__, GoneError)
    assert len(server.requests) == 1


async def test_unread_response_of_a_change_is_settled(server: ScriptedServer, suite: ds.DirectSuite) -> None:
    server.enqueue(SAYS_NO)
    signing = suite.signing.sign_and_pull(UNSIGNED, SIGNATURE, destination=io.BytesIO(), progress=gone)
    error = await expect_error(ds.OutcomeUnknownError, signing)
    assert error.happened
    assert len(server.requests) > 1


async def test_file_missing_before_first_byte_leaves_outcome_unknown(
    server: ScriptedServer, suite: ds.DirectSuite, tmp_path: Path
) -> None:
    folder, gate = tmp_path / "pulled", asyncio.Event()
    folder.mkdir()
    server.enqueue(responses.respond_after(gate, SAYS_NO))
    pulling = await server.begin(catch_error(suite.signing.flatten_and_pull("doc", destination=folder / "doc.pdf")))
    shutil.rmtree(folder)
    gate.set()
    error = await pulling
    assert isinstance(error, ds.OutcomeUnknownError)
    assert not error.happened


async def test_progress_that_fails_once_is_not_asked_again_by_settling(suite: ds.DirectSuite) -> None:
    told: list[int] = []

    def gone_at_first(done: int, _total: int | None) -> None:
        told.append(done)
        if len(told) == 1:
            raise GoneError

    signing = suite.signing.sign_and_pull(UNSIGNED, SIGNATURE, destination=io.BytesIO(), progress=gone_at_first)
    error = await expect_error(ds.OutcomeUnknownError, signing)
    assert error.happened
    assert isinstance(error.__cause__, GoneError)
    assert told == [0]
