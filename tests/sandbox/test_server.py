"""The server: addresses, rejections, stored state."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import sqlite3
import sys
import warnings
from importlib import util
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.sandbox import server
from directsuite.sandbox.rejections import MalformedBodyError, parse_json
from directsuite.sandbox.server import Sandbox, _load_openapi_json
from tests.operations import METHODS

from .conftest import Api, open_connection

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from pathlib import Path

LOGIN = (
    "POST /DirectRegistrationRESTful/rest/Patient/login HTTP/1.1\r\nHost: localhost\r\n"
    "Content-Type: application/json\r\n"
)


def test_only_loopback_addresses_need_no_token() -> None:
    for host in (
        "0.0.0.0",  # noqa: S104  it is refused
        "192.0.2.1",
        "example.test",
        "",
        "::",
    ):
        with pytest.raises(ValueError, match="loopback"):
            Sandbox(host=host)


async def test_ipv6_loopback_is_supported(http: aiohttp.ClientSession) -> None:
    try:
        async with Sandbox(host="::1") as sandbox, http.get(f"{sandbox.root_url}/_sandbox/health") as response:
            assert response.status == 200
            assert sandbox.fax_url.startswith("http://[::1]:")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")


async def test_port_in_use_is_named_with_what_to_do(sandbox: Sandbox) -> None:
    port = urlsplit(sandbox.root_url).port
    with pytest.raises(OSError, match=rf"port {port} is in use: .* or use port=0 for a free port") as caught:
        async with Sandbox(port=port or 0):
            pass
    assert caught.value.errno == errno.EADDRINUSE


async def test_unknown_path_is_rejected_in_the_form_of_its_service(api: Api) -> None:
    cases: list[tuple[str, set[str]]] = [
        ("signing_url", {"error", "description"}),
        ("fax_url", {"error", "description"}),
        ("message_url", {"success", "code", "message"}),
        ("registration_url", {"success", "code", "errorMessage"}),
        ("root_url", {"error", "description"}),
    ]
    for url, members in cases:
        status, body = await api.request("GET", getattr(api.sandbox, url) + "/no/such/path")
        assert (status, set(body), body.get("success", False)) == (404, members, False), (url, members)


async def test_a_wrong_method_is_rejected_with_the_allowed_ones(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{sandbox.registration_url}/login") as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
        assert (await response.json())["success"] is False


async def test_operations_are_those_of_the_specification(sandbox: Sandbox) -> None:
    found = [(route.kwargs["name"], route.method) for route in sandbox._make_routes()]
    assert sorted(found) == sorted(METHODS.items())


async def test_body_that_cannot_be_decoded_is_a_bad_request_and_not_logged(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    for head in (
        "Content-Encoding: gzip\r\nContent-Length: 8",
        "Transfer-Encoding: chunked",
        "Content-Length: 8\r\nContent-Encoding: klingon",
    ):
        async with open_connection(sandbox, f"{LOGIN}Connection: close\r\n{head}\r\n\r\n?secret?".encode()) as (
            reader,
            _,
        ):
            response = await asyncio.wait_for(reader.read(), 10)
        assert response.split(b" ", 2)[1] == b"400", response
        assert "?secret?" not in caplog.text, head


@given(st.binary() | st.text().map(str.encode) | st.recursive(st.none(), st.lists).map(lambda _: b"[[]]"))
def test_any_bytes_are_json_or_malformed(body: bytes) -> None:
    try:
        value = parse_json(body)
    except MalformedBodyError:
        return
    assert json.loads(json.dumps(value, ensure_ascii=False).encode()) == value


async def test_body_beyond_64_mib_is_rejected(sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
    async def too_much() -> Any:
        for _ in range(65):
            yield b" " * 2**20

    url = f"{sandbox.registration_url}/login"
    async with http.post(url, data=too_much(), headers={"Content-Type": "application/json"}) as response:
        assert (response.status, (await response.json())["success"]) == (413, False)


async def test_missing_pdf_libraries_are_reported(http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_pikepdf(name: str) -> ModuleSpec | None:
        return None if name == "pikepdf" else util.find_spec(name)

    monkeypatch.setattr(server, "find_spec", without_pikepdf)
    async with Sandbox() as sandbox:
        headers = {"Authorization": f"Bearer {sandbox.environment['DIRECTSUITE_TOKEN']}"}
        async with http.get(f"{sandbox.signing_url}/pdf/x/info", headers=headers) as response:
            assert response.status == 501
            assert ".[sandbox]" in (await response.json())["description"]
        async with http.get(f"{sandbox.fax_url}/api/fax/getMessageList/1/0", headers=headers) as response:
            assert response.status == 200


async def test_sandbox_stops_while_draining_a_rejected_body() -> None:
    async with Sandbox() as sandbox:
        address, token = urlsplit(sandbox.signing_url), sandbox.environment["DIRECTSUITE_TOKEN"]
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        head = f"POST {address.path}/pdf HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        writer.write(f"{head}Content-Length: {2**40}\r\n\r\nAAAA".encode())
        assert await reader.readline() == b"HTTP/1.1 400 Bad Request\r\n"
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 2
    writer.close()


async def test_missing_pyyaml_is_reported(
    sandbox: Sandbox, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    _load_openapi_json.cache_clear()
    async with http.get(f"{sandbox.root_url}/openapi.json") as response:
        assert response.status == 501
        assert ".[sandbox]" in (await response.json())["description"]


async def test_passwords_and_tokens_are_stored_as_hashes(tmp_path: Path) -> None:
    async with Sandbox(tmp_path) as sandbox:
        await sandbox.add_reseller("someone", "readable-reseller")
        await sandbox.add_client("client", "readable-client")
        token = await sandbox.issue_token()
    with contextlib.closing(sqlite3.connect(tmp_path / "sandbox.sqlite3")) as database:
        dump = "\n".join(database.iterdump())
    assert "someone" in dump
    assert "readable" not in dump
    assert token not in dump


async def test_a_client_may_disconnect_within_its_body(sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    async with open_connection(sandbox, f"{LOGIN}Content-Length: 100\r\n\r\n{{".encode()) as (_, writer):
        writer.transport.abort()
    async with aiohttp.ClientSession() as http, http.get(f"{sandbox.root_url}/_sandbox/health") as response:
        assert response.status == 200
    assert caplog.records == []


async def test_options_have_initial_values_and_can_be_changed(http: aiohttp.ClientSession) -> None:
    async with Sandbox(profile="java", csv_above=0, missing_status=404) as sandbox:
        headers = {"Authorization": f"Bearer {sandbox.environment['DIRECTSUITE_TOKEN']}"}
        assert (sandbox.profile, sandbox.csv_above, sandbox.missing_status) == ("java", 0, 404)
        statuses: list[int] = []
        for status in (404, 400):
            sandbox.missing_status = status
            async with http.get(f"{sandbox.signing_url}/pdf/unknown", headers=headers) as response:
                statuses.append(response.status)
        assert statuses == [404, 400]
        sandbox.profile, sandbox.csv_above = "strict", 5
        assert (sandbox.profile, sandbox.csv_above) == ("strict", 5)


async def test_tokens_are_checked_without_touching_the_filters_of_warnings(
    sandbox: Sandbox, http: aiohttp.ClientSession, bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(*_: object, **__: object) -> None:
        raise AssertionError("the filters belong to all threads")

    monkeypatch.setattr(warnings, "catch_warnings", touched)
    async with http.get(f"{sandbox.fax_url}/api/fax/getMessageList/1/0", headers=bearer) as response:
        assert (response.status, (await response.json())["Username"]) == (200, "demo")
