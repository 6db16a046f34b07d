"""One big answer, read message by message while it comes."""

from __future__ import annotations

import asyncio
import json

import pytest

import directsuite as ds

from . import plays
from .opened import ALICE, PASSWORD, assert_nothing_held, failure_of, opened
from .scripted_server import Exchange, Play, ScriptedServer
from .virtual_time import turns, until

MESSAGES = [{"uid": number, "subject": f"message {number}"} for number in range(1, 6)]
WHOLE = json.dumps({"success": True, "messages": MESSAGES}).encode()
FIRST = WHOLE.index(b"}, {") + 3
"""Where the second message begins."""


async def read(suite: ds.DirectSuite, seen: list[int | None], timeout: float | None = None) -> None:
    async for message in suite.mailbox(ALICE, PASSWORD).stream_messages(timeout=timeout):
        seen.append(message.uid)  # noqa: PERF401  an extend would keep nothing of what came before the failure


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
async def test_messages_come_in_order_however_the_answer_is_cut(server: ScriptedServer, size: int) -> None:
    server.plays(plays.pieces(*(WHOLE[start : start + size] for start in range(0, len(WHOLE), size))))
    seen: list[int | None] = []
    async with opened(server) as suite:
        await read(suite, seen)
        assert_nothing_held(suite)
    assert seen == [1, 2, 3, 4, 5]


async def test_message_is_given_before_the_next_has_come(server: ScriptedServer) -> None:
    gate = asyncio.Event()

    async def waits(exchange: Exchange) -> None:
        await exchange.read()
        await exchange.write(plays.head(200, len(WHOLE)) + WHOLE[:FIRST])
        await gate.wait()
        await exchange.write(WHOLE[FIRST:])

    server.plays(waits)
    async with opened(server) as suite, suite.mailbox(ALICE, PASSWORD).stream_messages() as messages:
        assert (await anext(messages)).uid == 1
        gate.set()
        assert [message.uid async for message in messages] == [2, 3, 4, 5]


BROKEN: dict[str, tuple[Play, type[ds.DirectSuiteError]]] = {
    "broken off": (plays.pieces(WHOLE[:120], length=len(WHOLE)), ds.ResponseDecodeError),
    "ends too early": (plays.answer(WHOLE[:120]), ds.ResponseDecodeError),
    "pause": (plays.pieces(WHOLE[:120], plays.Pause(1000)), ds.ConnectionLostError),
    "malformed": (plays.answer(WHOLE[:100] + b"}}]"), ds.ResponseDecodeError),
    "refused at its end": (
        plays.answer(b'{"messages": [{"uid": 1}, {"uid": 2}], "success": false, "code": 3}'),
        ds.ServiceError,
    ),
    "no success at its end": (plays.answer(b'{"messages": [{"uid": 1}, {"uid": 2}]}'), ds.ResponseDecodeError),
}


@pytest.mark.parametrize("broken", BROKEN)
async def test_answer_that_breaks_raises_after_the_messages_before(server: ScriptedServer, broken: str) -> None:
    play, kind = BROKEN[broken]
    server.plays(play)
    seen: list[int | None] = []
    async with opened(server) as suite:
        error = await failure_of(read(suite, seen))
        assert_nothing_held(suite)
    assert type(error) is kind
    assert error.operation == "GetMessages"
    assert seen[:2] == [1, 2]
    assert len(server.requests) == 1


async def test_an_unreadable_value_is_skipped_and_counted_once(server: ScriptedServer) -> None:
    server.plays(plays.answer(b'{"messages": [{"uid": 1}, {"uid": 2, "size": "big"}, {}, 7], "success": true}'))
    seen: list[int | None] = []
    events: list[ds.Event] = []
    async with opened(server, listeners=[events.append]) as suite:
        await read(suite, seen)
    assert seen == [1, 2]
    [skipped] = [event for event in events if isinstance(event, ds.ValuesSkipped)]
    assert skipped.paths == {"$.messages[].size": 1, "$.messages[]": 2}


@pytest.mark.parametrize("play", [plays.reset, plays.answer(b"", 429), plays.answer(b"", 500)])
async def test_failure_before_the_first_byte_is_tried_again(server: ScriptedServer, play: Play) -> None:
    server.plays(play, plays.answer(WHOLE))
    seen: list[int | None] = []
    async with opened(server) as suite:
        await read(suite, seen)
    assert seen == [1, 2, 3, 4, 5]
    assert len(server.requests) == 2


async def test_refusal_in_place_of_the_stream_is_typed(server: ScriptedServer) -> None:
    server.plays(plays.answer({"success": False, "code": 1}, 401), plays.answer({"success": False, "code": 1}))
    async with opened(server) as suite:
        for _ in range(2):
            error = await failure_of(read(suite, []))
            assert type(error) is ds.AuthenticationError
            assert error.code == 1


@pytest.mark.parametrize("ending", ["context manager", "aclose", "cancellation"])
async def test_leaving_early_closes_the_connection_at_once(server: ScriptedServer, ending: str) -> None:
    server.plays(plays.pieces(WHOLE[:120], plays.Pause(1000), length=len(WHOLE)))
    async with opened(server) as suite:
        messages = suite.mailbox(ALICE, PASSWORD).stream_messages()
        if ending == "context manager":
            async with messages:
                await anext(messages)
        elif ending == "aclose":
            await anext(messages)
            await messages.aclose()
        else:
            task = asyncio.create_task(_drain(messages))
            await until(lambda: server.busy == 1)
            await turns()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
        assert_nothing_held(suite)
        server.close_idle()
        await suite.mailbox(ALICE, PASSWORD).get_message_count()
    assert [request.connection for request in server.requests] == [1, 2]


async def _drain(messages: ds.Listing[ds.MessageDetail]) -> None:
    async for _ in messages:
        pass


async def test_slow_reader_is_not_timed_out(server: ScriptedServer) -> None:
    server.plays(plays.answer(WHOLE))
    async with opened(server, attempt_timeout=5, timeout=5) as suite:
        async for _ in suite.mailbox(ALICE, PASSWORD).stream_messages():
            await asyncio.sleep(100)


async def test_caller_s_time_out_may_span_the_whole_stream(server: ScriptedServer) -> None:
    server.plays(plays.pieces(WHOLE[:120], plays.Pause(1000)))
    async with opened(server, attempt_timeout=100) as suite:
        with pytest.raises(TimeoutError) as caught:
            await asyncio.wait_for(read(suite, []), 5)
        assert not isinstance(caught.value, ds.DirectSuiteError)
        assert_nothing_held(suite)


@pytest.mark.parametrize("timeout", [6, None])
async def test_batch_that_trickles_in_ends_with_the_timeout(server: ScriptedServer, timeout: float | None) -> None:
    trickle = (part for _ in range(100) for part in (b" ", plays.Pause(1)))
    server.plays(plays.answer({"success": True, "uids": [1, 2]}))
    server.otherwise = plays.pieces(b'{"success": true, "messages": [', *trickle, b"]}")
    async with opened(server, timeout=6 if timeout is None else 60) as suite:
        messages = suite.mailbox(ALICE, PASSWORD).iter_messages(timeout=timeout)
        error = await failure_of(anext(messages))
        await messages.aclose()
    assert type(error) is ds.DeadlineExceededError
    assert error.elapsed == pytest.approx(6)


async def test_time_out_of_its_own_bounds_a_stream(server: ScriptedServer) -> None:
    server.plays(plays.pieces(*(part for byte in WHOLE[:60] for part in (bytes([byte]), plays.Pause(1)))))
    async with opened(server) as suite:
        error = await failure_of(read(suite, [], timeout=10))
    assert type(error) is ds.DeadlineExceededError
    assert error.elapsed == pytest.approx(10)
