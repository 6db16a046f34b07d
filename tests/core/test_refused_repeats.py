"""What refuses or ends a repeat says nothing of the attempt before it, which may have been acted upon."""

from __future__ import annotations

import asyncio

import pytest

import directsuite as ds

from . import plays
from .opened import ALICE, DELETE, GET_MESSAGE_COUNT, MARK_AS_READ, PASSWORD, Ask, failure_of, opened
from .scripted_server import Play, ScriptedServer
from .virtual_time import until


@pytest.mark.parametrize(
    ("ask", "refusal", "told"),
    [
        (MARK_AS_READ, plays.answer(b"", 403), ds.PermissionDeniedError),
        (MARK_AS_READ, plays.answer({"success": False, "code": 1}), ds.AuthenticationError),
        (DELETE, plays.answer(b"", 401), ds.AuthenticationError),
        (DELETE, plays.answer(b"", 429), ds.RateLimitedError),
    ],
)
async def test_refusal_of_the_repeat_leaves_the_outcome_unknown(
    server: ScriptedServer, ask: Ask, refusal: Play, told: type[ds.DirectSuiteError]
) -> None:
    server.plays(plays.reset)
    server.otherwise = refusal
    async with opened(server) as suite:
        error = await failure_of(ask.call(suite))
    assert type(error) is told
    assert error.outcome is ds.Outcome.UNKNOWN


async def test_refusal_of_a_repeated_reading_is_what_it_says(server: ScriptedServer) -> None:
    server.plays(plays.reset, plays.answer(b"", 403))
    async with opened(server) as suite:
        error = await failure_of(GET_MESSAGE_COUNT.call(suite))
    assert error.outcome is ds.Outcome.FAILED


async def test_deadline_of_a_repeat_does_not_say_that_nothing_was_sent(server: ScriptedServer) -> None:
    server.plays(plays.slow(0.5, plays.reset))
    server.otherwise = plays.silence
    async with opened(server, max_connections=1, leaky=True) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        marking = asyncio.ensure_future(failure_of(box.mark_messages_as_read_by_uids("INBOX", [1], timeout=5)))
        await until(lambda: len(server.requests) == 1)
        holding = asyncio.ensure_future(failure_of(box.get_message_count(timeout=30)))
        error = await marking
        holding.cancel()
    assert type(error) is ds.DeadlineExceededError
    assert error.outcome is ds.Outcome.UNKNOWN
    assert "an earlier attempt was sent and not answered" in str(error)


@pytest.mark.parametrize("host", ["a..b.example", "a" * 70 + ".example"])
async def test_host_that_has_no_name_in_dns_is_no_connection(host: str) -> None:
    url = f"https://{host}/message"
    async with ds.DirectSuite(ds.Settings(message_url=url, retry=ds.RetryPolicy.none())) as suite:
        error = await failure_of(suite.mailbox(ALICE, PASSWORD).get_message_count())
    assert type(error) is ds.ConnectFailedError
    assert error.outcome is ds.Outcome.NOT_SENT
