"""Responses and clocks of servers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web

from tests.cli.doctor.conftest import DoctorRunner, serve_response

pytestmark = pytest.mark.wide


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
    result, said = told.checks["messaging", "clock"]
    assert result == "warning"
    assert said.startswith(sentence)
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
    assert told.checks["messaging", "clock"] == ("not checked", "The response contains no date.")


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
    assert told.checks["messaging", "response"] == ("warning", sentence)


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
    assert told.checks["messaging", "connection"] == ("not checked", "Connections use the proxy of the settings.")
    assert told.checks["messaging", "response"][1].startswith(
        "The proxy rejects the connection (HTTP 407). Check the name and password"
    )
    told = await cli.run_json()
    text = "There is no connection to the proxy. Check the setting proxy."
    assert told.checks["messaging", "response"] == ("failed", text)
    assert told.status == 1
