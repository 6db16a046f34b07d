"""TLS: an unknown authority is rejected before anything is sent, unless the user's context accepts it.

The errors say in plain words why there is no connection, and what to do.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import directsuite as ds
from directsuite.core.session import READ_BYTES

from . import certificates, responses
from . import failing_networks as networks
from .failing_networks import Network, tls_server
from .scripted_server import ScriptedServer
from .scripted_suite import GET_MESSAGE_COUNT, SEND, ApiCall, catch_error, open_suite


@pytest.fixture
def address() -> str:
    return "127.0.0.1"


@pytest.fixture
def certificate(tmp_path: Path, address: str) -> tuple[Path, Path]:
    return certificates.make_certificate(tmp_path, address=address)


@pytest.fixture
async def secure_server(certificate: tuple[Path, Path]) -> AsyncIterator[ScriptedServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    async with ScriptedServer(responses.respond({"success": True, "count": 7}), tls=context) as running:
        yield running


@pytest.mark.parametrize("ask", [GET_MESSAGE_COUNT, SEND], ids=str)
async def test_unknown_authority_is_rejected_and_nothing_sent(secure_server: ScriptedServer, ask: ApiCall) -> None:
    async with open_suite(secure_server) as suite:
        error = await catch_error(ask.call(suite))
    assert type(error) is ds.ConnectFailedError
    assert error.outcome is ds.Outcome.NOT_SENT
    assert secure_server.requests == []


@pytest.mark.parametrize("address", ["127.0.0.2"])
async def test_certificate_for_another_address_is_rejected(
    secure_server: ScriptedServer, certificate: tuple[Path, Path]
) -> None:
    trusting = ssl.create_default_context(cafile=certificate[0])
    async with open_suite(secure_server, tls=trusting) as suite:
        error = await catch_error(SEND.call(suite))
    assert type(error) is ds.ConnectFailedError
    assert secure_server.requests == []


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
        error = await catch_error(SEND.call(suite))
    assert type(error) is ds.ConnectFailedError
    assert error.explanation == f"no connection to the messaging service ({reason})"
    assert error.advice == advice
    assert str(error).startswith(f"Send: {error.explanation}: {advice} (")


async def test_plain_server_behind_https_is_rejected(server: ScriptedServer) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(responses.make_head(400, 0))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as plain:
        port = plain.sockets[0].getsockname()[1]
        async with open_suite(server, message_url=f"https://127.0.0.1:{port}") as suite:
            error = await catch_error(SEND.call(suite))
    assert type(error) is ds.ConnectFailedError
    assert error.outcome is ds.Outcome.NOT_SENT


async def test_handshake_that_hangs_sent_nothing(server: ScriptedServer) -> None:
    # the server waits for a line that a TLS client never sends
    url = server.url("message").replace("http:", "https:")
    async with open_suite(server, message_url=url, attempt_timeout=5, timeout=30) as suite:
        for ask in (GET_MESSAGE_COUNT, SEND):
            error = await catch_error(ask.call(suite))
            assert type(error) is ds.ConnectFailedError
            assert (error.outcome, error.attempts) == (ds.Outcome.NOT_SENT, 2)
            assert error.elapsed == pytest.approx(11)


async def test_connections_read_small_pieces(secure_server: ScriptedServer, certificate: tuple[Path, Path]) -> None:
    # otherwise each small response over TLS takes and returns memory of the system
    async with open_suite(secure_server, tls=ssl.create_default_context(cafile=certificate[0])) as suite:
        await GET_MESSAGE_COUNT.call(suite)
        (protocol,) = [each for pool in suite._session.http.connector._conns.values() for each, _ in pool]  # type: ignore[union-attr]
        assert protocol.transport._ssl_protocol.max_size == READ_BYTES  # type: ignore[union-attr]
