"""An error that prevents or ends a retry does not change the outcome of the attempt before it."""

from __future__ import annotations

import asyncio

import pytest

import directsuite as ds

from . import responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import ALICE, DELETE, GET_MESSAGE_COUNT, MARK_AS_READ, PASSWORD, ApiCall, catch_error, open_suite
from .virtual_time import yield_until


@pytest.mark.parametrize(
    ("ask", "refusal", "told"),
    [
        (MARK_AS_READ, responses.respond(b"", 403), ds.PermissionDeniedError),
        (MARK_AS_READ, responses.respond({"success": False, "code": 1}), ds.AuthenticationError),
        (DELETE, responses.respond(b"", 401), ds.AuthenticationError),
        (DELETE, responses.respond(b"", 429), ds.RateLimitedError),
    ],
)
async def test_rejection_of_the_repeat_leaves_the_outcome_unknown(
    server: ScriptedServer, ask: ApiCall, refusal: Responder, told: type[ds.DirectSuiteError]
) -> None:
    server.enqueue(responses.reset)
    server.default_responder = refusal
    async with open_suite(server) as suite:
        error = await catch_error(ask.call(suite))
    assert type(error) is told
    assert error.outcome is ds.Outcome.UNKNOWN


async def test_rejection_of_a_repeated_reading_is_what_it_says(server: ScriptedServer) -> None:
    server.enqueue(responses.reset, responses.respond(b"", 403))
    async with open_suite(server) as suite:
        error = await catch_error(GET_MESSAGE_COUNT.call(suite))
    assert error.outcome is ds.Outcome.FAILED


async def test_deadline_of_a_repeat_does_not_say_that_nothing_was_sent(server: ScriptedServer) -> None:
    server.enqueue(responses.delay(0.5, responses.reset))
    server.default_responder = responses.never_respond
    async with open_suite(server, max_connections=1, leaky=True) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        marking = asyncio.ensure_future(catch_error(box.mark_messages_as_read_by_uids("INBOX", [1], timeout=5)))
        await yield_until(lambda: len(server.requests) == 1)
        holding = asyncio.ensure_future(catch_error(box.get_message_count(timeout=30)))
        error = await marking
        holding.cancel()
    assert type(error) is ds.DeadlineExceededError
    assert error.outcome is ds.Outcome.UNKNOWN
    assert "an earlier attempt was sent, but got no response" in str(error)


@pytest.mark.parametrize("host", ["a..b.example", "a" * 70 + ".example"])
async def test_unresolvable_host_is_connect_failed_error(host: str) -> None:
    url = f"https://{host}/message"
    async with ds.DirectSuite(ds.Settings(message_url=url, retry=ds.RetryPolicy.none())) as suite:
        error = await catch_error(suite.mailbox(ALICE, PASSWORD).get_message_count())
    assert type(error) is ds.ConnectFailedError
    assert error.outcome is ds.Outcome.NOT_SENT
