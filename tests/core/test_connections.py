"""A connection is reused only if it is clean, each attempt sends one request, and errors of TLS are in plain words."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

import directsuite as ds
from directsuite.core.session import READ_BYTES, SessionFactory

from . import api, responses
from . import failing_networks as networks
from .failing_networks import Network, tls_server
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import catch_error, expect_error, make_session, open_suite
from .virtual_time import yield_to_loop

FIRST = {"success": True, "count": 7, "identifier": "doc"}
SECOND = {"success": True, "count": 666, "identifier": "of another", "smtpId": "of another"}


def whole(document: object) -> bytes:
    text = responses.encode_body(document)
    return responses.make_head(200, len(text)) + text


FACTORIES: dict[str, SessionFactory | None] = {
    "our session": None,
    "fresh connector": make_session,
    "force_close": lambda: aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)),
}
UNASKED = {
    "a second answer": whole(SECOND),
    "two more": whole(SECOND) * 2,
    "408": responses.make_head(408, 0),
    "103": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "not HTTP": b"220 mail.example.test ESMTP\r\n\r\n",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("extra", UNASKED)
@pytest.mark.parametrize("ask", [api.GET_MESSAGE_COUNT, api.GET_DOC_INFO, api.SEND, api.FLATTEN], ids=str)
@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
async def test_unrequested_response_is_discarded(
    server: ScriptedServer, ask: api.ApiCall, extra: str, factory: SessionFactory | None
) -> None:
    server.enqueue(responses.send_raw(whole(FIRST), responses.Pause(1), UNASKED[extra]), responses.respond(b"", 400))
    async with open_suite(server, session_factory=factory) as suite:
        await api.GET_MESSAGE_COUNT(suite)
        await asyncio.sleep(5)
        await yield_to_loop()
        await expect_error(ds.BadRequestError, ask(suite))
    assert [request.connection for request in server.requests] == [1, 2]


ONCE = ds.RetryPolicy.none()
DROPS: dict[str, Responder] = {
    "reset": responses.reset,
    "closed": responses.hang_up,
    "half a head": responses.send_partial_head,
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("drop", DROPS)
@pytest.mark.parametrize("reused", [False, True], ids=["fresh", "reused"])
@pytest.mark.parametrize(
    "ask", [api.SEND, api.DELETE, api.GET_DOC_INFO, api.SAVE, api.FLATTEN, api.GET_MESSAGE_COUNT], ids=str
)
async def test_dropped_connection_sees_the_request_once(
    server: ScriptedServer, ask: api.ApiCall, drop: str, *, reused: bool
) -> None:
    async with open_suite(server, retry=ONCE) as suite:
        if reused:
            await api.GET_MESSAGE_COUNT(suite)
        server.default_responder = DROPS[drop]
        error = await catch_error(ask(suite))
    requests = server.requests[reused:]
    assert len(requests) == error.attempts == 1
    assert requests[0].connection == 1


@pytest.mark.parametrize("turns", [0, 20])
@pytest.mark.parametrize("ask", [api.SEND, api.FLATTEN], ids=str)
async def test_idle_connection_that_the_server_closed_is_not_used(
    server: ScriptedServer, ask: api.ApiCall, turns: int
) -> None:
    async with open_suite(server, retry=ONCE) as suite:
        await api.GET_MESSAGE_COUNT(suite)
        server.close_idle()
        await yield_to_loop(turns)
        await ask(suite)
    assert [request.connection for request in server.requests] == [1, 2]


async def test_connection_is_kept_alive_after_a_rejection_that_was_read(server: ScriptedServer) -> None:
    server.enqueue(responses.respond({"error": "no"}, 400), responses.respond(b"", 500))
    async with open_suite(server, retry=ONCE) as suite:
        for _ in range(2):
            await catch_error(api.GET_DOC_INFO(suite))
        await api.GET_MESSAGE_COUNT(suite)
    assert server.connections == 1


async def test_only_a_download_of_known_size_is_read_in_large_chunks(server: ScriptedServer) -> None:
    document = b"AAAA" * 500_000
    server.enqueue(
        responses.respond(document),
        responses.respond_in_chunks(document[: len(document) // 2]),
        responses.respond(FIRST),
    )
    largest = list[int]()
    async with open_suite(server) as suite:

        async def write(_: bytes) -> None:
            for each in suite._session.open_responses:
                if (connection := each._response.connection) is not None:  # type: ignore[union-attr]
                    largest.append(connection.transport.max_size)  # type: ignore[union-attr]

        await suite.signing.download("doc", write)
        assert largest[0] > READ_BYTES
        largest.clear()
        await suite.signing.download("doc", write)
        assert set(largest) == {READ_BYTES}
        await api.GET_MESSAGE_COUNT(suite)
        [protocol] = [each for pool in suite._session.http.connector._conns.values() for each, _ in pool]  # type: ignore[union-attr]
        assert protocol.transport.max_size == READ_BYTES  # type: ignore[union-attr]


_URL = "check the setting message_url"
_HANDSHAKE = f"{_URL}, and ask the service's provider for TLS 1.2 or newer, and about client certificates"
FAILURES: dict[str, tuple[Network, str]] = {
    "the host name was not found": (
        networks.no_such_name,
        f"{_URL}, the proxy if there is one, and the DNS of this machine",
    ),
    "the server's certificate is not trusted": (
        tls_server(trusted=False),
        "if the service has a private authority, set ca_bundle, or tls of Settings, to trust its certificate; "
        "if SSL_CERT_FILE is set, check that it names a PEM file",
    ),
    "the server's certificate has expired": (
        tls_server(days=(-9, -1)),
        "inform the service's provider, or set the clock of this machine if it is wrong",
    ),
    "the server's certificate is not valid yet": (
        tls_server(days=(1, 9)),
        "set the clock of this machine, or inform the service's provider",
    ),
    "the server's certificate is for another host name": (tls_server(address="127.0.0.2"), _URL),
    "the server does not speak TLS": (networks.plain_server, f"{_URL}: the scheme and the port"),
    "the server closed the connection during the TLS handshake": (networks.reset_during_handshake, _HANDSHAKE),
    "the proxy cannot be reached": (networks.proxy(None), "check the setting proxy"),
}


@pytest.mark.parametrize("reason", FAILURES)
async def test_reason_of_a_failed_connection_is_in_plain_words(
    server: ScriptedServer, tmp_path: Path, reason: str
) -> None:
    network, advice = FAILURES[reason]
    async with network(server, tmp_path) as settings, open_suite(server, **settings) as suite:
        error = await expect_error(ds.ConnectFailedError, api.SEND(suite))
    assert error.explanation == f"no connection to the messaging service ({reason})"
    assert error.advice == advice
    assert str(error).startswith(f"Send: {error.explanation}: {advice} (")


async def test_connections_read_small_pieces(server: ScriptedServer, tmp_path: Path) -> None:
    # otherwise each small response over TLS takes and returns memory of the system
    async with tls_server()(server, tmp_path) as settings, open_suite(server, **settings) as suite:
        await api.GET_MESSAGE_COUNT(suite)
        (protocol,) = [each for pool in suite._session.http.connector._conns.values() for each, _ in pool]  # type: ignore[union-attr]
        assert protocol.transport._ssl_protocol.max_size == READ_BYTES  # type: ignore[union-attr]
