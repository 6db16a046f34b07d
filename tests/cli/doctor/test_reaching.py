"""Host names, connections and certificates: each failure has its own message."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.cli.doctor.conftest import DoctorRunner, serve_response
from tests.core.certificates import make_certificate, make_server_context

pytestmark = pytest.mark.wide


@asynccontextmanager
async def shaking_hands(context: ssl.SSLContext) -> AsyncGenerator[str]:
    """Serve one TLS handshake, and send an alert if it fails, which asyncio's servers do not."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def shake_hands() -> None:
            connection, _ = listening.accept()
            with contextlib.suppress(OSError), connection:
                context.wrap_socket(connection, server_side=True).close()

        shaking = asyncio.create_task(asyncio.to_thread(shake_hands))
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        await shaking


async def test_dns_failure_is_reported_and_later_checks_are_skipped(cli: DoctorRunner) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    cli.set_env("DIRECTSUITE_FAX_URL", "https://nowhere.example.org")
    cli.monkeypatch.setattr(socket, "getaddrinfo", unknown)
    told = await cli.run_json()
    assert told.status == 1
    words = "(the host name was not found): check the setting fax_url, the proxy if there"
    told.expect("fax", "connection", "failed", f"No connection to the fax service {words}")
    assert told.get_results("fax") == {"connection": "failed", "clock": "not checked", "token": "not checked"}
    assert told.checks["fax", "token"][1] == "The check of connection failed."


async def test_rejected_connection_is_reported(cli: DoctorRunner) -> None:
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        cli.set_env("DIRECTSUITE_SIGNING_URL", f"http://127.0.0.1:{port}")
        told = await cli.run_json()
    assert told.status == 1
    assert told.err == "directsuite: Checks failed: 1. Follow the advice in the table.\n"
    words = "No connection to the signing service (Connection refused): check the setting signing_url."
    told.expect("signing", "connection", "failed", words)


@pytest.mark.parametrize(
    ("days", "address", "trusted", "reason"),
    [
        ((-1, 1), "127.0.0.1", False, "is not trusted): if the service has a private authority, set ca_bundle"),
        ((-9, -2), "127.0.0.1", True, "has expired): inform the service's provider"),
        ((2, 9), "127.0.0.1", True, "is not valid yet): set the clock of this machine"),
        ((-1, 9), "127.0.0.2", True, "is for another host name): check the setting message_url."),
    ],
    ids=["unknown authority", "expired", "of tomorrow", "another address"],
)
async def test_certificate_that_is_not_accepted_is_explained(
    cli: DoctorRunner, tmp_path: Path, days: tuple[int, int], address: str, trusted: bool, reason: str
) -> None:
    pair = make_certificate(tmp_path, address=address, days=days)
    if trusted:
        cli.set_env("SSL_CERT_FILE", str(pair[0]))
    async with shaking_hands(make_server_context(pair)) as url:
        cli.set_env("DIRECTSUITE_MESSAGE_URL", url)
        told = await cli.run_json()
    assert told.status == 1
    start = "No connection to the messaging service (the server's certificate "
    told.expect("messaging", "connection", "failed", f"{start}{reason}")
    assert ("if SSL_CERT_FILE is set" in told.out) != trusted


@pytest.mark.parametrize(
    ("variable", "days", "result", "sentence"),
    [
        ("SSL_CERT_FILE", 90, "ok", "{url} responds."),
        ("DIRECTSUITE_CA_BUNDLE", 90, "ok", "{url} responds."),
        ("SSL_CERT_FILE", 3, "warning", "The certificate is valid for only 2 days. Ask the service's"),
    ],
    ids=["of the machine", "of the settings", "expires soon"],
)
async def test_trusted_certificate_is_accepted(
    cli: DoctorRunner, tmp_path: Path, variable: str, days: int, result: str, sentence: str
) -> None:
    pair = make_certificate(tmp_path, days=(-1, days))
    cli.set_env(variable, str(pair[0]))
    async with serve_response(tls=make_server_context(pair)) as url:
        cli.set_env("DIRECTSUITE_MESSAGE_URL", url)
        told = await cli.run_json()
    told.expect("messaging", "connection", result, sentence.format(url=url))


async def test_server_without_tls_behind_https_is_reported(cli: DoctorRunner) -> None:
    async with serve_response() as url:
        cli.set_env("DIRECTSUITE_MESSAGE_URL", url.replace("http://", "https://"))
        told = await cli.run_json()
    words = "(the server does not speak TLS): check the setting message_url: the scheme and the port."
    assert told.status == 1
    told.expect("messaging", "connection", "failed", f"No connection to the messaging service {words}")


@pytest.mark.parametrize("check", ["connection", "token"])
async def test_resolver_that_hangs_costs_its_time_and_no_more(cli: DoctorRunner, check: str) -> None:
    over, resolve = threading.Event(), socket.getaddrinfo

    def hang(host: Any, *args: Any, **named: Any) -> Any:
        if host != "nowhere.example.org":
            return resolve(host, *args, **named)
        ended.append(over.wait(10))
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    ended = list[bool]()
    hanging = "https://nowhere.example.org"
    cli.monkeypatch.setattr(socket, "getaddrinfo", hang)
    async with serve_response() as url:
        cli.set_variables({"FAX_URL": hanging if check == "connection" else url, "TOKEN_URL": hanging})
        cli.set_variables({"CLIENT_ID": "client", "CLIENT_SECRET": "s"})
        try:
            told = await cli.run_json("--timeout", "2")
            assert ended == []  # the command has ended before the resolver
        finally:
            over.set()
    assert told.checks["fax", check][1].startswith("It took more than 2 s")


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-OpenSSH_9.0\r\n"], ids=["closes", "not HTTP"])
@pytest.mark.parametrize("is_proxy", [False, True], ids=["service", "proxy"])
async def test_each_failure_says_what_to_check(cli: DoctorRunner, greeting: bytes, is_proxy: bool) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        writer.close()

    cli.set_env("DIRECTSUITE_CONFIG", "suite.toml")
    async with await asyncio.start_server(greet, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        settings = (
            f'proxy = "{url}"\nmessage_url = "https://mail.example.org"' if is_proxy else f'message_url = "{url}"'
        )
        (cli.folder / "suite.toml").write_text(settings)
        told = await cli.run_json()
    result, said = told.checks["messaging", "connection"]
    assert result == "failed"
    assert "check the setting message_url: the scheme and the port, and the proxy if there is one." in said


@pytest.mark.parametrize("status", [200, 302, 503])
async def test_http_to_another_machine_is_a_warning(cli: DoctorRunner, status: int) -> None:
    cli.set_env("DIRECTSUITE_CONFIG", "suite.toml")
    async with serve_response(lambda: web.Response(status=status)) as url:  # the proxy
        settings = f'proxy = "{url.removesuffix("/service")}"\nmessage_url = "http://mail.example.org/service"'
        (cli.folder / "suite.toml").write_text(f"{settings}\nallow_insecure_http = true\n")
        told = await cli.run_json()
    told.expect("messaging", "connection", "warning", "The URL starts with http://, so others can read everything")


async def test_server_that_says_nothing_costs_its_time_and_no_more(cli: DoctorRunner) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:
            writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        cli.set_env("DIRECTSUITE_MESSAGE_URL", f"https://127.0.0.1:{port}")
        cli.set_env("DIRECTSUITE_FAX_URL", f"http://127.0.0.1:{port}")
        told = await cli.run_json("--timeout", "0.3")
    late = "It took more than 0.3 s. Check the network, firewall and proxy, or give --timeout SECONDS."
    told.expect("messaging", "connection", "failed", late)
    told.expect("fax", "connection", "failed", late)


def at(distance: timedelta) -> web.Response:
    return web.Response(headers={"Date": format_datetime(datetime.now(UTC) + distance, usegmt=True)})


@pytest.mark.parametrize(
    ("distance", "sentence"),
    [
        (timedelta(minutes=5), "This machine's clock is 5 minutes behind the server's"),
        (timedelta(minutes=-3), "This machine's clock is 3 minutes ahead of the server's"),
        (timedelta(days=-400), "This machine's clock is 576,000 minutes ahead of the server's"),
    ],
    ids=["behind", "ahead", "far ahead"],
)
async def test_skewed_clock_is_a_warning(cli: DoctorRunner, distance: timedelta, sentence: str) -> None:
    told = await cli.run_against(lambda: at(distance))
    told.expect("messaging", "clock", "warning", sentence)
    assert told.status == 0
    assert told.err.startswith("directsuite: Nothing failed. Warnings: ")


@pytest.mark.parametrize("seconds", [0, 50, -50])
async def test_accurate_clock_gives_no_warning(cli: DoctorRunner, seconds: int) -> None:
    told = await cli.run_against(lambda: at(timedelta(seconds=seconds)))
    assert told.get_results("messaging")["clock"] == "ok"


@pytest.mark.parametrize("date", ["now", f"Mon, 01 Jan {9**30} 00:00:00 GMT", f"Mon, 01 Jan 2024 00:00:00 +{9**30}"])
async def test_server_without_a_time_is_not_compared(date: str, cli: DoctorRunner) -> None:
    told = await cli.run_against(lambda: web.Response(headers={"Date": date}))
    told.expect("messaging", "clock", "not checked", "The response contains no date.")


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (503, "HTTP 503: The service is down or overloaded. Try again later."),
        (302, "HTTP 302: The server redirects, which is not followed. Use the new URL."),
    ],
)
async def test_response_that_hints_at_trouble_is_a_warning(cli: DoctorRunner, status: int, sentence: str) -> None:
    told = await cli.run_against(lambda: web.Response(status=status, headers={"Location": "/elsewhere"}))
    told.expect("messaging", "connection", "warning", sentence)


async def test_proxy_that_asks_for_a_password_or_is_not_there_is_reported(cli: DoctorRunner) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    cli.set_env("DIRECTSUITE_CONFIG", "suite.toml")
    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listening:
        proxy = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        (cli.folder / "suite.toml").write_text(f'proxy = "{proxy}"\nmessage_url = "https://mail.example.org"\n')
        told = await cli.run_json()
    start = "No connection to the messaging service "
    text = f"{start}(the proxy rejected the connection, HTTP 407): check the setting proxy."
    told.expect("messaging", "connection", "failed", text)
    cli.set_env("DIRECTSUITE_FAX_URL", "https://fax.example.org")
    with socket.socket() as bound:  # and not listening; a port that is only closed may be given to another program
        bound.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{bound.getsockname()[1]}"
        (cli.folder / "suite.toml").write_text(f'proxy = "{proxy}"\nmessage_url = "https://mail.example.org"\n')
        told = await cli.run_json()
        table = (await cli.run()).out
    told.expect("messaging", "connection", "failed", f"{start}(the proxy cannot be reached): check the setting proxy.")
    assert told.status == 1
    assert (table.count("check the setting proxy."), table.count("See fax: the text is the same.")) == (1, 1)
