"""Faults of connections on raw sockets: reset, truncation, hanging."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest

from directsuite.sandbox.server import DEMO_LOGIN, Sandbox

from .conftest import open_connection

DOMAIN = "direct.example.test"


@pytest.fixture(autouse=True)
def no_complaints(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that an injected fault is not logged."""
    yield
    assert caplog.get_records("call") == []


@pytest.fixture
async def provisioning(sandbox: Sandbox) -> bytes:
    """A request that has a side effect, ready to be written to a socket."""
    await sandbox.add_reseller(*DEMO_LOGIN, [DOMAIN])
    individual = await sandbox.add_individual("Ada", "Example", "1234", "1980-02-29")
    username, password = DEMO_LOGIN
    login = post(f"{sandbox.registration_url}/login", {"username": username, "password": password})
    session = json.loads((await exchange(sandbox, login)).partition(b"\r\n\r\n")[2])["sessionId"]
    url = f"{sandbox.registration_url}/ProvisionIDProofedPatient/{session}/{DOMAIN}"
    return post(url, {"id": individual, "directUsername": "ada"})


def post(url: str, body: object) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {urlsplit(url).path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content


async def exchange(sandbox: Sandbox, request: bytes) -> bytes:
    async with open_connection(sandbox, request) as (reader, _):
        return await asyncio.wait_for(reader.read(), 10)


async def provisioned(sandbox: Sandbox) -> int:
    return len(await sandbox.ledger("ProvisionIDProofedPatient"))


@pytest.mark.parametrize(("kind", "effects"), [("reset_before", 0), ("reset_after", 1)])
async def test_a_reset_sends_no_byte(sandbox: Sandbox, provisioning: bytes, kind: str, effects: int) -> None:
    sandbox.inject_fault("ProvisionIDProofedPatient", kind)
    async with open_connection(sandbox, provisioning) as (reader, _):
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
    assert await provisioned(sandbox) == effects


async def test_a_truncated_response_has_half_of_the_body(sandbox: Sandbox, provisioning: bytes) -> None:
    sandbox.inject_fault("ProvisionIDProofedPatient", "truncate")
    head, _, body = (await exchange(sandbox, provisioning.replace(b"Connection: close\r\n", b""))).partition(
        b"\r\n\r\n"
    )
    announced = int(head.lower().partition(b"content-length: ")[2].split()[0])
    assert head.startswith(b"HTTP/1.1 200 ")
    assert len(body) == announced // 2
    assert await provisioned(sandbox) == 1


async def test_a_connection_stays_open_after_a_status_fault(sandbox: Sandbox, provisioning: bytes) -> None:
    sandbox.inject_fault("ProvisionIDProofedPatient", "status", status=503)
    twice = provisioning.replace(b"Connection: close\r\n", b"") + provisioning
    response = await exchange(sandbox, twice)
    assert response.count(b"HTTP/1.1 ") == 2
    assert response.startswith(b"HTTP/1.1 503 ")
    assert await provisioned(sandbox) == 1


@pytest.mark.parametrize("processed", [False, True])
async def test_a_hanging_request_has_no_response_and_ends_with_the_client(
    sandbox: Sandbox, provisioning: bytes, *, processed: bool
) -> None:
    sandbox.inject_fault("ProvisionIDProofedPatient", "hang", processed=processed)
    async with open_connection(sandbox, provisioning) as (reader, _):
        reading = asyncio.create_task(reader.read(1))
        async with asyncio.timeout(10):
            while sandbox.faults()[0]["applied"] == 0 or await provisioned(sandbox) < int(processed):
                await sandbox.ledger()
        for _ in range(100):  # turns of the loop in which a byte could come
            await sandbox.ledger()
        assert not reading.done()
    assert await reading == b""
    assert await provisioned(sandbox) == int(processed)


async def test_a_sandbox_with_a_hanging_request_stops_immediately() -> None:
    async with AsyncExitStack() as stack:
        async with Sandbox() as sandbox:
            sandbox.inject_fault("login", "hang")
            login = post(f"{sandbox.registration_url}/login", {})
            reader, _ = await stack.enter_async_context(open_connection(sandbox, login))
            while sandbox.faults()[0]["applied"] == 0:
                await sandbox.ledger()
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 2
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)


async def test_latency_delays_and_then_processes(sandbox: Sandbox, provisioning: bytes) -> None:
    sandbox.inject_fault("ProvisionIDProofedPatient", "latency", seconds=0.1)
    began = asyncio.get_running_loop().time()
    assert (await exchange(sandbox, provisioning)).startswith(b"HTTP/1.1 200 ")
    assert asyncio.get_running_loop().time() - began >= 0.1
    assert await provisioned(sandbox) == 1
