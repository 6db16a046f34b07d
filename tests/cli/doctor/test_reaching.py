"""Host names, connections and certificates: each failure has its own message."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from directsuite.cli import doctor
from directsuite.settings import Settings
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


class _Answering(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name in the base class
        pass


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@contextmanager
def answering(context: ssl.SSLContext) -> Generator[str]:
    """An HTTPS server whose sockets are closed at the end of the block."""
    with _Quiet(("127.0.0.1", 0), _Answering) as listening:
        listening.daemon_threads = False
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        serving = threading.Thread(target=listening.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield f"https://127.0.0.1:{listening.server_address[1]}"
        finally:
            listening.shutdown()
            serving.join()


async def test_dns_failure_is_reported_and_later_checks_are_skipped(cli: DoctorRunner) -> None:
    def unknown(*_: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    cli.set_env("DIRECTSUITE_FAX_URL", "https://nowhere.example.org")
    cli.monkeypatch.setattr(socket, "getaddrinfo", unknown)
    told = await cli.run_json()
    assert told.status == 1
    told.expect(
        "fax",
        "name",
        "failed",
        "nowhere.example.org has no address. Check the host in the URL, and that this machine is online.",
    )
    assert told.get_results("fax") == {
        "URL": "ok",
        "name": "failed",
        **dict.fromkeys(("connection", "TLS", "response", "clock", "token"), "not checked"),
    }
    assert told.checks["fax", "token"][1] == "The check of name failed."


async def test_rejected_connection_is_reported(cli: DoctorRunner) -> None:
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        cli.set_env("DIRECTSUITE_SIGNING_URL", f"http://127.0.0.1:{port}")
        told = await cli.run_json()
    assert told.status == 1
    assert told.err == "directsuite: Checks failed: 1. Follow the advice in the table.\n"
    told.expect(
        "signing",
        "connection",
        "failed",
        f"There is no connection to port {port} of 127.0.0.1 (Connection refused). "
        "Check host and port in the URL, and that the service is running.",
    )


@pytest.mark.parametrize(
    ("days", "address", "trusted", "sentence"),
    [
        ((-1, 1), "127.0.0.1", False, "This machine does not trust its issuer"),
        ((-9, -2), "127.0.0.1", True, "It has expired"),
        ((2, 9), "127.0.0.1", True, "It is not valid yet"),
        ((-1, 9), "127.0.0.2", True, "It is for another address. Check the host in the URL."),
    ],
    ids=["unknown authority", "expired", "of tomorrow", "another address"],
)
async def test_certificate_that_is_not_accepted_is_explained(
    cli: DoctorRunner, tmp_path: Path, days: tuple[int, int], address: str, trusted: bool, sentence: str
) -> None:
    pair = make_certificate(tmp_path, address=address, days=days)
    if trusted:
        cli.set_env("SSL_CERT_FILE", str(pair[0]))
    async with shaking_hands(make_server_context(pair)) as url:
        cli.set_env("DIRECTSUITE_MESSAGE_URL", url)
        told = await cli.run_json()
    assert told.status == 1
    told.expect("messaging", "TLS", "failed", f"The certificate is not accepted. {sentence}")
    assert told.get_results("messaging")["response"] == "not checked"


@pytest.mark.parametrize(("days", "result"), [(3, "warning"), (90, "ok")])
async def test_accepted_certificate_tells_its_days(cli: DoctorRunner, tmp_path: Path, days: int, result: str) -> None:
    pair = make_certificate(tmp_path, days=(-1, days))
    cli.set_env("SSL_CERT_FILE", str(pair[0]))
    with answering(make_server_context(pair)) as url:
        cli.set_env("DIRECTSUITE_MESSAGE_URL", url)
        told = await cli.run_json()
    assert told.status == 0
    found, said = told.checks["messaging", "TLS"]
    assert found == result
    assert f"TLSv1.3. The certificate is accepted, and is valid for {days - 1} days" in said
    assert told.get_results("messaging")["response"] == "ok"
    assert told.get_results("this machine")["trusted certificates"] == "ok"


async def test_certificates_of_the_settings_are_trusted(cli: DoctorRunner, tmp_path: Path) -> None:
    pair = make_certificate(tmp_path, days=(-1, 90))
    cli.set_env("DIRECTSUITE_CA_BUNDLE", str(pair[0]))
    with answering(make_server_context(pair)) as url:
        cli.set_env("DIRECTSUITE_MESSAGE_URL", url)
        told = await cli.run_json()
    assert told.get_results("messaging")["TLS"] == "ok"
    assert list(told.get_results("messaging").values())[4] == "ok"


async def test_old_tls_is_reported(cli: DoctorRunner, tmp_path: Path) -> None:
    context = make_server_context(make_certificate(tmp_path), newest=ssl.TLSVersion.TLSv1_1)
    async with shaking_hands(context) as url:
        cli.set_env("DIRECTSUITE_MESSAGE_URL", url)
        told = await cli.run_json()
    assert told.checks["messaging", "TLS"][1].endswith(
        "ask the service's provider whether it supports TLS 1.2 or newer."
    )


async def test_server_without_tls_behind_https_is_reported(cli: DoctorRunner) -> None:
    async with serve_response() as url:
        cli.set_env("DIRECTSUITE_MESSAGE_URL", url.replace("http://", "https://"))
        told = await cli.run_json()
    assert told.status == 1
    result, said = told.checks["messaging", "TLS"]
    assert result == "failed"
    assert "Check scheme and port in the URL" in said


async def test_resolver_that_hangs_costs_its_time_and_no_more(cli: DoctorRunner) -> None:
    over = threading.Event()

    def hanging(*_: Any) -> Any:
        over.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    cli.set_env("DIRECTSUITE_FAX_URL", "https://nowhere.example.org")
    cli.monkeypatch.setattr(socket, "getaddrinfo", hanging)
    try:
        told = await cli.run_json("--timeout", "0.3")
    finally:
        over.set()
    assert told.checks["fax", "name"][1].startswith("It took more than 0.3 s")


@pytest.mark.parametrize(
    ("url", "result"), [("http://mail.example.org", "warning"), ("http://[::1]:8025", "not checked")]
)
async def test_http_to_another_machine_is_a_warning(url: str, result: str) -> None:
    server = doctor.Server(url, Settings(message_url=url, allow_insecure_http=True))
    assert (await server._check_tls()).result == result


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
    told.expect("messaging", "TLS", "failed", late)
    told.expect("fax", "response", "failed", late)


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
    async with serve_response(lambda: at(distance)) as url:
        cli.set_env("DIRECTSUITE_MESSAGE_URL", url)
        told = await cli.run_json()
    told.expect("messaging", "clock", "warning", sentence)
    assert told.status == 0
    assert told.err.startswith("directsuite: Nothing failed. Warnings: ")


@pytest.mark.parametrize("seconds", [0, 50, -50])
async def test_accurate_clock_gives_no_warning(cli: DoctorRunner, seconds: int) -> None:
    async with serve_response(lambda: at(timedelta(seconds=seconds))) as url:
        cli.set_env("DIRECTSUITE_MESSAGE_URL", url)
        assert (await cli.run_json()).get_results("messaging")["clock"] == "ok"


@pytest.mark.parametrize("date", ["now", f"Mon, 01 Jan {9**30} 00:00:00 GMT", f"Mon, 01 Jan 2024 00:00:00 +{9**30}"])
async def test_server_without_a_time_is_not_compared(date: str, cli: DoctorRunner) -> None:
    async with serve_response(lambda: web.Response(headers={"Date": date})) as url:
        cli.set_env("DIRECTSUITE_MESSAGE_URL", url)
        told = await cli.run_json()
    told.expect("messaging", "clock", "not checked", "The response contains no date.")


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (503, "HTTP 503: The service is down or overloaded. Try again later."),
        (302, "HTTP 302: The server redirects, which is not followed. Use the new URL."),
    ],
)
async def test_response_that_hints_at_trouble_is_a_warning(cli: DoctorRunner, status: int, sentence: str) -> None:
    async with serve_response(lambda: web.Response(status=status, headers={"Location": "/elsewhere"})) as url:
        cli.set_env("DIRECTSUITE_MESSAGE_URL", url)
        told = await cli.run_json()
    told.expect("messaging", "response", "warning", sentence)


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
    told.expect("messaging", "connection", "not checked", "Connections use the proxy of the settings.")
    assert told.checks["messaging", "response"][1].startswith(
        "The proxy rejects the connection (HTTP 407). Check the name and password"
    )
    told = await cli.run_json()
    text = "There is no connection to the proxy. Check the setting proxy."
    told.expect("messaging", "response", "failed", text)
    assert told.status == 1
