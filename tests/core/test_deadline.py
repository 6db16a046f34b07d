"""`timeout=` covers everything that a call waits for; cancellation and the caller's timeouts are not changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest
from tenacity import wait_fixed

import directsuite as ds

from . import responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import (
    ALICE,
    FLATTEN,
    GET_MESSAGE_COUNT,
    MESSAGE,
    PASSWORD,
    PDF,
    SEND,
    assert_no_leaks,
    catch_error,
    open_suite,
)
from .virtual_time import yield_to_loop, yield_until


async def count(suite: ds.DirectSuite, timeout: float | None = None) -> object:
    return await suite.mailbox(ALICE, PASSWORD).get_message_count(timeout=timeout)


async def send(suite: ds.DirectSuite, timeout: float | None = None) -> object:
    return await suite.mailbox(ALICE, PASSWORD).send(MESSAGE, timeout=timeout)


Call = Callable[[ds.DirectSuite, float | None], Awaitable[object]]


@pytest.mark.parametrize("call", [count, send])
async def test_time_out_holds_while_waiting_for_a_connection(server: ScriptedServer, call: Call) -> None:
    server.default_responder = responses.never_respond
    async with open_suite(server, max_connections=1, attempt_timeout=100) as suite:
        holder = asyncio.create_task(count(suite, 50))
        await yield_until(lambda: server.busy == 1)
        error = await catch_error(call(suite, 7))
        assert len(server.requests) == 1
        with pytest.raises(ds.DeadlineExceededError):
            await holder
    assert type(error) is ds.DeadlineExceededError
    assert (error.outcome, error.attempts) == (ds.Outcome.NOT_SENT, 0)
    assert error.elapsed == pytest.approx(7)


@pytest.mark.parametrize("call", [count, send])
async def test_rate_slot_after_deadline_raises_immediately(server: ScriptedServer, call: Call) -> None:
    async with open_suite(server, requests_per_second=0.1, burst=1) as suite:
        await count(suite)
        error = await catch_error(call(suite, 5))
    assert type(error) is ds.DeadlineExceededError
    assert (error.outcome, error.attempts, error.elapsed) == (ds.Outcome.NOT_SENT, 0, 0)
    assert error.retry_after == pytest.approx(10)
    assert len(server.requests) == 1


async def test_deadline_covers_all_attempts_together(server: ScriptedServer) -> None:
    server.default_responder = responses.delay(4, responses.reset)
    async with open_suite(server, retry=ds.RetryPolicy(attempts=10, wait=wait_fixed(2))) as suite:
        error = await catch_error(count(suite, 15))
    # 4 + 2 + 4 + 2, and the third attempt's 4 do not fit
    assert type(error) is ds.DeadlineExceededError
    assert error.outcome is ds.Outcome.UNKNOWN
    assert error.attempts == 3
    assert error.elapsed == pytest.approx(15)


async def test_back_off_beyond_the_deadline_raises_the_last_failure_immediately(server: ScriptedServer) -> None:
    server.default_responder = responses.delay(4, responses.reset)
    async with open_suite(server, retry=ds.RetryPolicy(attempts=10, wait=wait_fixed(2))) as suite:
        error = await catch_error(count(suite, 11))
    assert type(error) is ds.ConnectionLostError
    assert error.attempts == 2
    assert error.elapsed == pytest.approx(10)


@pytest.mark.parametrize(
    "play",
    [
        responses.never_respond,
        responses.respond_in_chunks(b'{"success": ', responses.Pause(1000)),
        responses.respond_in_chunks(responses.Pause(1000)),
    ],
    ids=["no answer", "half an answer", "head only"],
)
async def test_stuck_attempt_is_tried_again_within_the_deadline(server: ScriptedServer, play: Responder) -> None:
    server.enqueue(play)
    async with open_suite(server, attempt_timeout=5) as suite:
        assert await count(suite) == 7
    assert len(server.requests) == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("ask", [SEND, FLATTEN], ids=str)
@pytest.mark.parametrize(
    "play",
    [responses.never_respond, responses.respond_in_chunks(b"{", responses.Pause(1000))],
    ids=["no answer", "half an answer"],
)
async def test_operation_with_effects_waits_for_the_complete_deadline(
    server: ScriptedServer, ask: object, play: Responder
) -> None:
    server.enqueue(play)
    async with open_suite(server, attempt_timeout=5, timeout=40) as suite:
        error = await catch_error((SEND if ask is SEND else FLATTEN).call(suite))
    assert type(error) is ds.OutcomeUnknownError
    assert isinstance(error.__cause__, ds.DeadlineExceededError)
    assert error.elapsed == pytest.approx(40)
    assert len(server.requests) == 1


@attrs.frozen
class Wait:
    """A point at which a call is cancelled or timed out by its caller."""

    name: str
    play: Responder
    connections: int = 10

    def __str__(self) -> str:
        return self.name


WAITS = [
    Wait("no answer", responses.never_respond),
    Wait("half an answer", responses.respond_in_chunks(b'{"success": ', responses.Pause(1000))),
    Wait("back-off", responses.respond(b"", 429, Retry_After="40")),
    Wait("queue", responses.never_respond, connections=1),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("wait", WAITS, ids=str)
@pytest.mark.parametrize("call", [count, send])
async def test_cancelled_call_leaves_nothing_held(server: ScriptedServer, call: Call, wait: Wait) -> None:
    server.default_responder = wait.play
    async with open_suite(server, max_connections=wait.connections, attempt_timeout=100) as suite:
        tasks = [asyncio.create_task(_as_task(call, suite)) for _ in range(3)]
        await yield_until(lambda: len(server.requests) == min(3, wait.connections))
        await yield_to_loop()
        for task in tasks:
            task.cancel()
        assert [type(end) for end in await asyncio.gather(*tasks, return_exceptions=True)] == [
            asyncio.CancelledError
        ] * 3
        assert_no_leaks(suite, wait.connections)
        await yield_until(lambda: server.busy == 0 or wait.name == "half an answer")
        server.default_responder = responses.respond({"success": True, "count": 7})
        assert await count(suite) == 7


async def _as_task(call: Call, suite: ds.DirectSuite) -> object:
    return await call(suite, None)


@pytest.mark.parametrize("wait", WAITS, ids=str)
async def test_time_out_of_the_caller_s_own_stays_the_caller_s(server: ScriptedServer, wait: Wait) -> None:
    server.default_responder = wait.play
    async with open_suite(server, max_connections=wait.connections, attempt_timeout=100) as suite:
        holder = asyncio.create_task(count(suite)) if wait.connections == 1 else None
        await yield_to_loop()
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(5):
                await count(suite)
        assert not isinstance(caught.value, ds.DirectSuiteError)
        if holder is not None:
            holder.cancel()
            await asyncio.gather(holder, return_exceptions=True)


async def test_caller_s_time_out_at_the_same_moment_as_ours_is_not_lost(server: ScriptedServer) -> None:
    server.default_responder = responses.never_respond
    async with open_suite(server, attempt_timeout=100) as suite:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await count(suite, 5)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def test_slow_upload_ends_with_the_deadline(server: ScriptedServer, tmp_path: Path) -> None:
    file = tmp_path / "large.pdf"
    file.write_bytes(PDF + bytes(20_000_000))

    async def reads_nothing(exchange: object) -> None:
        await asyncio.sleep(1000)

    server.default_responder = reads_nothing
    async with open_suite(server, attempt_timeout=100) as suite:
        error = await catch_error(suite.signing.save(file, timeout=9))
    assert type(error) is ds.DeadlineExceededError
    assert error.outcome is ds.Outcome.UNKNOWN
    assert error.elapsed == pytest.approx(9)


async def test_each_call_s_own_time_out_goes_before_the_facade_s_and_the_suite_s(server: ScriptedServer) -> None:
    server.default_responder = responses.never_respond
    async with open_suite(server, timeout=30, attempt_timeout=100) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        for method, seconds in (
            (box.get_message_count(), 30),
            (box.with_options(timeout=20).get_message_count(), 20),
            (box.with_options(timeout=20).get_message_count(timeout=10), 10),
        ):
            assert (await catch_error(method)).elapsed == pytest.approx(seconds)


async def test_ordinary_call_counts_as_one_attempt_in_no_time(server: ScriptedServer) -> None:
    async with open_suite(server) as suite:
        raw = await suite.mailbox(ALICE, PASSWORD).with_raw_response.get_message_count()
        await GET_MESSAGE_COUNT.call(suite)
    assert (raw.value, raw.attempts, raw.elapsed) == (7, 1, 0)
    assert server.connections == 1
