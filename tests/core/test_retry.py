"""Whether, when and how often a call is retried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tenacity import stop_after_attempt, wait_fixed, wait_incrementing

import directsuite as ds

from . import responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import (
    ALICE,
    DELETE,
    FLATTEN,
    GET_MESSAGE_COUNT,
    LOGIN_RESPONSE,
    PASSWORD,
    PROVISION,
    SAVE,
    SEND,
    ApiCall,
    catch_error,
    open_suite,
)
from .virtual_time import LoopClock

COUNT = responses.respond({"success": True, "count": 7})
LIMITED = responses.respond(b"", 429)
UNAVAILABLE = responses.respond(b"", 503)


@pytest.mark.parametrize("attempts", [1, 2, 4])
async def test_call_is_tried_as_often_as_the_policy_says(server: ScriptedServer, attempts: int) -> None:
    server.default_responder = responses.reset
    async with open_suite(server, retry=ds.RetryPolicy(attempts=attempts, wait=wait_fixed(1))) as suite:
        error = await catch_error(GET_MESSAGE_COUNT.call(suite))
    assert error.attempts == len(server.requests) == attempts


async def test_default_policy_makes_four_attempts(server: ScriptedServer) -> None:
    server.default_responder = responses.reset
    async with open_suite(server, retry=ds.RetryPolicy()) as suite:
        error = await catch_error(GET_MESSAGE_COUNT.call(suite))
    assert error.attempts == 4


async def test_default_waits_double_from_one_second_on_429(server: ScriptedServer) -> None:
    server.default_responder = LIMITED
    clock = LoopClock()
    async with open_suite(server, clock=clock, retry=ds.RetryPolicy()) as suite:
        await catch_error(GET_MESSAGE_COUNT.call(suite))
    assert [int(wait) for wait in clock.sleeps] == [1, 2, 4]
    assert all(wait - int(wait) <= 0.5 for wait in clock.sleeps)


async def test_default_waits_half_a_minute_to_a_minute_on_503(server: ScriptedServer) -> None:
    server.enqueue(UNAVAILABLE, COUNT)
    clock = LoopClock()
    async with open_suite(server, clock=clock, retry=ds.RetryPolicy(), timeout=90) as suite:
        assert await suite.mailbox(ALICE, PASSWORD).get_message_count() == 7
    (wait,) = clock.sleeps
    assert 30 <= wait <= 60


async def test_user_s_own_wait_sees_the_attempts_counted_from_one(server: ScriptedServer) -> None:
    server.default_responder = responses.reset
    clock = LoopClock()
    policy = ds.RetryPolicy(attempts=4, wait=wait_incrementing(start=5, increment=2))
    async with open_suite(server, clock=clock, retry=policy) as suite:
        await catch_error(GET_MESSAGE_COUNT.call(suite))
    assert clock.sleeps == [5, 7, 9]


async def test_user_s_own_stop_ends_the_attempts_early(server: ScriptedServer) -> None:
    server.default_responder = responses.reset
    policy = ds.RetryPolicy(attempts=4, wait=wait_fixed(1), stop=stop_after_attempt(2))
    async with open_suite(server, retry=policy) as suite:
        error = await catch_error(GET_MESSAGE_COUNT.call(suite))
    assert error.attempts == 2


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_goes_before_the_policy_s_wait(server: ScriptedServer, status: int) -> None:
    server.enqueue(responses.respond(b"", status, Retry_After="7"), COUNT)
    clock = LoopClock()
    async with open_suite(server, clock=clock) as suite:
        await GET_MESSAGE_COUNT.call(suite)
    assert clock.sleeps == [7]


@pytest.mark.parametrize("ask", [SEND, FLATTEN, PROVISION], ids=str)
async def test_rejected_operation_with_effects_is_tried_again(server: ScriptedServer, ask: ApiCall) -> None:
    if ask is PROVISION:
        server.enqueue(responses.respond(LOGIN_RESPONSE))
    server.enqueue(LIMITED, responses.respond(b"", 503, Retry_After="1"), responses.respond(ask.success_body))
    async with open_suite(server, retry=ds.RetryPolicy(attempts=3, wait=wait_fixed(1))) as suite:
        await ask.call(suite)


@pytest.mark.parametrize("ask", [GET_MESSAGE_COUNT, SEND], ids=str)
async def test_wait_that_does_not_fit_the_deadline_raises_immediately(server: ScriptedServer, ask: ApiCall) -> None:
    server.enqueue(responses.respond(b"", 429, Retry_After="60"))
    clock = LoopClock()
    async with open_suite(server, clock=clock, timeout=30) as suite:
        error = await catch_error(ask.call(suite))
    assert type(error) is ds.RateLimitedError
    assert (error.retry_after, error.attempts, error.elapsed) == (60, 1, 0)
    assert clock.sleeps == []


async def test_no_retries_still_renews_the_token(server: ScriptedServer) -> None:
    tokens = iter(["old", "new"])

    async def ask() -> str:
        return next(tokens)

    server.enqueue(responses.respond(b"", 401), responses.respond({"identifier": "doc"}))
    async with open_suite(server, token=ask, retry=ds.RetryPolicy.none()) as suite:
        await suite.signing.get_doc_info("doc")
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer old", "Bearer new"]


GONE = [responses.respond({"error": "no such document"}, status) for status in (400, 404)]


@pytest.mark.parametrize("gone", GONE, ids=["400", "404"])
async def test_not_found_after_lost_delete_means_deleted(server: ScriptedServer, gone: Responder) -> None:
    server.enqueue(responses.reset, gone)
    async with open_suite(server) as suite:
        update = await suite.signing.delete("doc")
    assert update.identifier == "doc"
    assert len(server.requests) == 2


@pytest.mark.parametrize("first", [responses.respond(b"", 429), GONE[1]], ids=["429", "404"])
async def test_not_found_at_first_delete_is_raised(server: ScriptedServer, first: Responder) -> None:
    server.enqueue(first, GONE[1])
    async with open_suite(server) as suite:
        error = await catch_error(DELETE.call(suite))
    assert type(error) is ds.NotFoundError


EXISTS = responses.respond({"success": False, "code": 3, "message": "exists"})


def folders(*names: str) -> Responder:
    return responses.respond({"success": True, "folders": ["INBOX", *names]})


async def _create(suite: ds.DirectSuite) -> None:
    await suite.mailbox(ALICE, PASSWORD).create_folder("INBOX.New")


async def _move(suite: ds.DirectSuite) -> None:
    await suite.mailbox(ALICE, PASSWORD).move_folder("INBOX.Old", "INBOX.New")


@pytest.mark.parametrize(
    ("change", "seen"),
    [(_create, ["inbox.new"]), (_move, ["INBOX.New"])],
    ids=["create", "move"],
)
async def test_rejected_repeat_with_proof_had_happened(
    server: ScriptedServer, change: Callable[[ds.DirectSuite], Awaitable[None]], seen: list[str]
) -> None:
    server.enqueue(responses.reset, EXISTS)
    server.default_responder = folders(*seen)
    async with open_suite(server) as suite:
        await change(suite)


@pytest.mark.parametrize(
    ("change", "seen"),
    [(_create, []), (_move, ["INBOX.Old"]), (_move, ["INBOX.Old", "INBOX.New"]), (_move, [])],
    ids=["not created", "not moved", "both there", "neither there"],
)
async def test_rejected_retry_without_proof_is_raised(
    server: ScriptedServer, change: Callable[[ds.DirectSuite], Awaitable[None]], seen: list[str]
) -> None:
    server.enqueue(responses.reset, EXISTS)
    server.default_responder = folders(*seen)
    async with open_suite(server) as suite:
        error = await catch_error(change(suite))
    assert isinstance(error, ds.ServiceError)
    assert (error.code, error.attempts) == (3, 2)


@pytest.mark.parametrize("change", [_create, _move], ids=["create", "move"])
async def test_first_rejection_is_believed_without_looking(
    server: ScriptedServer, change: Callable[[ds.DirectSuite], Awaitable[None]]
) -> None:
    server.enqueue(EXISTS)
    async with open_suite(server) as suite:
        await catch_error(change(suite))
    assert len(server.requests) == 1


async def test_proof_that_cannot_be_had_leaves_the_rejection(server: ScriptedServer) -> None:
    server.enqueue(responses.reset, EXISTS)
    server.default_responder = responses.reset
    async with open_suite(server) as suite:
        error = await catch_error(_create(suite))
    assert isinstance(error, ds.ServiceError)
    assert (error.operation, error.attempts) == ("CreateFolder", 2)


async def test_verification_ends_with_the_deadline(server: ScriptedServer) -> None:
    server.enqueue(responses.reset, EXISTS)
    server.default_responder = responses.never_respond
    async with open_suite(server) as suite:
        error = await catch_error(suite.mailbox(ALICE, PASSWORD).create_folder("INBOX.New", timeout=10))
    assert error.operation == "CreateFolder"
    assert error.elapsed == pytest.approx(10)


async def test_repeat_of_an_operation_without_harm_is_the_same_request(server: ScriptedServer) -> None:
    server.enqueue(responses.reset, responses.respond({"identifier": "doc"}))
    async with open_suite(server) as suite:
        await SAVE.call(suite)
    first, second = server.requests
    assert (first.method, first.target, first.body) == (second.method, second.target, second.body)
    assert first.headers == second.headers
