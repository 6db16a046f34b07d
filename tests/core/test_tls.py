"""The errors of TLS say in plain words why there is no connection, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

import directsuite as ds
from directsuite.core.session import READ_BYTES

from . import api
from . import failing_networks as networks
from .failing_networks import Network, tls_server
from .scripted_server import ScriptedServer
from .scripted_suite import expect_error, open_suite

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
