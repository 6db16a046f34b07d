"""A session of the user: its TLS context applies, and a shared one stays open when the suite closes."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import directsuite as ds
from directsuite.core.session import FreshConnector

from . import api, responses
from .failing_networks import tls_server
from .scripted_server import ScriptedServer
from .scripted_suite import SUCCESS_BODY, catch_error, expect_error, make_session, open_suite


@pytest.mark.parametrize("is_set", [False, True])
async def test_context_of_the_session_s_connector_is_kept_unless_the_settings_have_one(
    server: ScriptedServer, tmp_path: Path, is_set: bool
) -> None:
    async with tls_server()(server, tmp_path) as settings:
        trusting = settings["tls"] if is_set else settings.pop("tls")
        connector = {} if is_set else {"ssl": trusting}
        async with open_suite(server, session_factory=lambda: make_session(**connector), **settings) as suite:
            await api.GET_MESSAGE_COUNT(suite)
            assert suite._session.request_options == ({"ssl": trusting} if is_set else {})


@pytest.mark.parametrize(
    ("connector", "connections"), [(FreshConnector, 1), (lambda: aiohttp.TCPConnector(force_close=True), 3)]
)
async def test_session_of_the_user_s_keeps_its_connections_where_that_is_safe(
    server: ScriptedServer, connector: Callable[[], aiohttp.TCPConnector], connections: int
) -> None:
    async with open_suite(server, session_factory=lambda: aiohttp.ClientSession(connector=connector())) as suite:
        for _ in range(3):
            await api.GET_MESSAGE_COUNT(suite)
    assert server.connections == connections


async def test_session_that_raises_for_status_changes_nothing(server: ScriptedServer) -> None:
    def factory() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=FreshConnector(), raise_for_status=True)

    server.default_responder = responses.respond(b"", 404)
    async with open_suite(server, session_factory=factory) as suite:
        assert isinstance(await catch_error(api.GET_MESSAGE_COUNT(suite)), ds.NotFoundError)
    assert len(server.requests) == 1


async def make_later() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()


@pytest.mark.parametrize("factory", [make_later, lambda: None, Path], ids=["async", "none", "another"])
async def test_factory_that_gives_no_session_is_rejected(server: ScriptedServer, factory: Callable[[], Any]) -> None:
    with pytest.raises(ds.ConfigurationError, match=r"session_factory must return .*a plain function") as caught:
        async with open_suite(server, session_factory=factory):
            pass
    assert "ClientSession" in str(caught.value)
    del caught
    gc.collect()  # a coroutine that was never awaited causes a warning here
    await asyncio.sleep(0)


UNSAFE = [
    lambda: aiohttp.ClientSession(connector=FreshConnector(), auth=aiohttp.BasicAuth("a", "b")),
    lambda: aiohttp.ClientSession(connector=FreshConnector(), trust_env=True),
    aiohttp.ClientSession,
]


@pytest.mark.filterwarnings("ignore:.*deprecated and will be removed:DeprecationWarning")
@pytest.mark.parametrize("factory", UNSAFE, ids=["password", "netrc", "other connector"])
async def test_session_that_would_be_unsafe_is_rejected_and_closed(
    server: ScriptedServer, factory: Callable[[], aiohttp.ClientSession]
) -> None:
    made: list[aiohttp.ClientSession] = []

    def noted() -> aiohttp.ClientSession:
        made.append(factory())
        return made[0]

    with pytest.raises(ds.ConfigurationError, match="session_factory"):
        async with open_suite(server, session_factory=noted):
            pass
    assert made[0].closed


async def test_session_that_nobody_taught_to_trust_rejects(server: ScriptedServer, tmp_path: Path) -> None:
    async with (
        tls_server(trusted=False)(server, tmp_path) as settings,
        open_suite(server, session_factory=make_session, **settings) as suite,
    ):
        await expect_error(ds.ConnectFailedError, api.GET_MESSAGE_COUNT(suite))


async def test_shared_session_outlives_the_suite_that_closes_first(server: ScriptedServer) -> None:
    async with make_session() as shared:
        others: dict[str, Any] = {"session_factory": lambda: shared, "close_session": False}
        async with open_suite(server, **others) as second:
            async with open_suite(server, **others) as first:
                await api.GET_MESSAGE_COUNT(first)
            assert type(await catch_error(api.GET_MESSAGE_COUNT(first))) is ds.ClosedError
            await api.GET_MESSAGE_COUNT(second)
        assert not shared.closed


async def test_shared_session_that_another_closed_says_what_to_set(server: ScriptedServer) -> None:
    shared = make_session()
    async with open_suite(server, session_factory=lambda: shared, leaky=True) as second:
        async with open_suite(server, session_factory=lambda: shared):
            pass
        error = await expect_error(ds.ClosedError, api.GET_MESSAGE_COUNT(second))
    assert "close_session=False" in str(error)


async def test_own_session_is_closed_in_any_case(server: ScriptedServer) -> None:
    async with open_suite(server, close_session=False) as suite:
        session = suite._session.http
    assert session.closed


async def test_send_waits_for_a_free_connection_of_the_user_s_connector_until_its_deadline(
    server: ScriptedServer,
) -> None:
    server.enqueue(responses.delay(30, responses.respond(SUCCESS_BODY)))
    settings: dict[str, Any] = {"session_factory": lambda: make_session(limit=1), "attempt_timeout": 5, "settle": 0}
    async with open_suite(server, retry=ds.RetryPolicy.none(), **settings) as suite:
        await asyncio.gather(api.SEND(suite), api.SEND(suite))
    assert len(server.requests) == 2
