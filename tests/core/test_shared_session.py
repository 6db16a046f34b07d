"""A session of the user: its TLS context applies, and a shared one stays open when the suite closes."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import directsuite as ds
from directsuite.core.session import FreshConnector

from . import responses
from .certificates import make_certificate, make_server_context
from .scripted_server import ScriptedServer
from .scripted_suite import GET_MESSAGE_COUNT, catch_error, open_suite


def fresh() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=FreshConnector())


@pytest.fixture
def authority(tmp_path: Path) -> tuple[Path, Path]:
    return make_certificate(tmp_path)


@pytest.fixture
def trusting(authority: tuple[Path, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority[0])


@pytest.fixture
async def secure_server(authority: tuple[Path, Path]) -> AsyncIterator[ScriptedServer]:
    good = responses.respond({"success": True, "count": 7})
    async with ScriptedServer(good, tls=make_server_context(authority)) as running:
        yield running


async def test_context_of_the_session_s_connector_is_kept(
    secure_server: ScriptedServer, trusting: ssl.SSLContext
) -> None:
    def factory() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=FreshConnector(ssl=trusting))

    async with open_suite(secure_server, session_factory=factory) as suite:
        await GET_MESSAGE_COUNT.call(suite)
        assert suite._session.request_options == {}


async def test_context_of_the_settings_goes_before_the_session_s(
    secure_server: ScriptedServer, trusting: ssl.SSLContext
) -> None:
    async with open_suite(secure_server, session_factory=fresh, tls=trusting) as suite:
        await GET_MESSAGE_COUNT.call(suite)
        assert suite._session.request_options == {"ssl": trusting}


@pytest.mark.parametrize(
    ("connector", "connections"), [(FreshConnector, 1), (lambda: aiohttp.TCPConnector(force_close=True), 3)]
)
async def test_session_of_the_user_s_keeps_its_connections_where_that_is_safe(
    server: ScriptedServer, connector: Callable[[], aiohttp.TCPConnector], connections: int
) -> None:
    async with open_suite(server, session_factory=lambda: aiohttp.ClientSession(connector=connector())) as suite:
        for _ in range(3):
            await GET_MESSAGE_COUNT.call(suite)
    assert server.connections == connections


async def test_session_that_raises_for_status_changes_nothing(server: ScriptedServer) -> None:
    def factory() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=FreshConnector(), raise_for_status=True)

    server.default_responder = responses.respond(b"", 404)
    async with open_suite(server, session_factory=factory) as suite:
        assert isinstance(await catch_error(GET_MESSAGE_COUNT.call(suite)), ds.NotFoundError)
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


def with_a_password() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=FreshConnector(), auth=aiohttp.BasicAuth("a", "b"))


def with_netrc() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=FreshConnector(), trust_env=True)


@pytest.mark.filterwarnings("ignore:.*deprecated and will be removed:DeprecationWarning")
@pytest.mark.parametrize("factory", [with_a_password, with_netrc, aiohttp.ClientSession])
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


async def test_session_that_nobody_taught_to_trust_rejects(secure_server: ScriptedServer) -> None:
    async with open_suite(secure_server, session_factory=fresh) as suite:
        error = await catch_error(GET_MESSAGE_COUNT.call(suite))
    assert type(error) is ds.ConnectFailedError


async def test_shared_session_outlives_the_suite_that_closes_first(server: ScriptedServer) -> None:
    async with fresh() as shared:
        others: dict[str, Any] = {"session_factory": lambda: shared, "close_session": False}
        async with open_suite(server, **others) as second:
            async with open_suite(server, **others) as first:
                await GET_MESSAGE_COUNT.call(first)
            assert type(await catch_error(GET_MESSAGE_COUNT.call(first))) is ds.ClosedError
            await GET_MESSAGE_COUNT.call(second)
        assert not shared.closed


async def test_shared_session_that_another_closed_says_what_to_set(server: ScriptedServer) -> None:
    shared = fresh()
    async with open_suite(server, session_factory=lambda: shared, leaky=True) as second:
        async with open_suite(server, session_factory=lambda: shared):
            pass
        error = await catch_error(GET_MESSAGE_COUNT.call(second))
    assert type(error) is ds.ClosedError
    assert "close_session=False" in str(error)


async def test_own_session_is_closed_in_any_case(server: ScriptedServer) -> None:
    async with open_suite(server, close_session=False) as suite:
        session = suite._session.http
    assert session.closed
