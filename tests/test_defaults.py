"""The default settings as a service experiences them: waits, attempts, rate, connections, and sources of tokens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

import directsuite as ds
from directsuite.types import Token
from tests.core import responses
from tests.core.scripted_server import Responder, ScriptedServer
from tests.integration.scenario import ALICE, SleepDrivenClock

COUNT = responses.respond({"success": True, "count": 1})


@contextlib.asynccontextmanager
async def open_box(*script: Responder) -> AsyncGenerator[tuple[ds.Mailbox, ScriptedServer, SleepDrivenClock]]:
    """Open a mailbox with default settings, of a server that plays the script and then counts messages."""
    clock = SleepDrivenClock()
    async with ScriptedServer(COUNT) as server:
        server.enqueue(*script)
        settings = ds.Settings(message_url=server.url("message"), timeout=1000.0)
        async with ds.DirectSuite(settings, clock=clock) as suite:
            yield suite.mailbox(ALICE, "secret"), server, clock


@pytest.mark.parametrize("status", [500, 501, 502, 503, 504])
async def test_failing_service_gets_four_attempts(status: int) -> None:
    async with open_box(*[responses.respond(b"", status)] * 5) as (box, server, _):
        with pytest.raises(ds.ServerError) as caught:
            await box.get_message_count()
        assert len(server.requests) == caught.value.attempts == 4


async def test_burst_of_150_requests_then_100_a_second() -> None:
    async with open_box() as (box, _, clock):
        for _ in range(150):
            await box.get_message_count()
        assert sum(clock.slept) == pytest.approx(0)
        for _ in range(3):
            await box.get_message_count()
        assert sum(clock.slept) == pytest.approx(0.03)


async def test_connections_are_reused() -> None:
    async with open_box() as (box, server, _):
        for _ in range(5):
            await box.get_message_count()
        assert server.connections == 1


async def test_at_most_ten_connections_are_opened() -> None:
    async with open_box() as (box, server, _):
        await asyncio.gather(*(box.get_message_count() for _ in range(60)))
        assert 1 <= server.connections <= 10


async def _fetch_text() -> str:
    return "from a function"


async def _fetch_token() -> ds.AccessToken:
    return ds.AccessToken("from a function", expires_in=3600)


class _Source:
    renewable = True

    async def fetch(self) -> ds.AccessToken:
        return ds.AccessToken("from a source", 3600)


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("a text", "a text"),
        (ds.Secret("a secret"), "a secret"),
        (_fetch_text, "from a function"),
        (_fetch_token, "from a function"),
        (_Source(), "from a source"),
    ],
)
async def test_token_comes_from_any_source(token: Token, text: str) -> None:
    async with ScriptedServer(responses.respond({"identifier": "d1"})) as server:
        async with ds.DirectSuite(ds.Settings(signing_url=server.url("signing")), token=token) as suite:
            await suite.signing.get_doc_info("d1")
        assert server.requests[-1].headers["authorization"] == f"Bearer {text}"
