"""An open suite with the scripted server, which is checked for leaks when it is closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Iterable
from typing import Any, TypeVar

import aiohttp
import pybase64
from tenacity import wait_fixed

import directsuite as ds
from directsuite.core.clock import Clock
from directsuite.core.events import Listener
from directsuite.core.session import FreshConnector
from directsuite.types import Token

from . import responses
from .scripted_server import Exchange, Responder, ScriptedServer
from .virtual_time import LoopClock, yield_until

E = TypeVar("E", bound=ds.DirectSuiteError)

PASSWORD = "sentinel-of-a-password"
TOKEN = "sentinel-of-a-token"
SESSION = "sentinel-of-a-session"
PATIENT = "sentinel-of-a-patient"
SECRETS = (PASSWORD, TOKEN, SESSION)

ALICE = "alice@direct.example.test"
CONNECTIONS = 10
LOGIN = ds.Login("reseller", PASSWORD)
LOGIN_RESPONSE = {"success": True, "code": "000", "sessionId": SESSION}
MESSAGE = ds.Message(subject=PATIENT, body=PATIENT, recipients=[ds.Recipient("bob@direct.example.test")])
INDIVIDUAL = ds.IDProofedIndividualRESTful(id=5, direct_username="ada")
PDF = b"%PDF-1.7 " + PATIENT.encode()
DOCUMENT = PDF * 9
SUCCESS_BODY: dict[str, object] = {
    **LOGIN_RESPONSE,
    "count": 7,
    "patient": [],
    "smtpId": "<1@direct.example.test>",
    "identifier": "doc",
    "documentDigest": "new",
    "signatures": [{"name": "alice", "isSigned": True}],
}
"""A successful response to each operation of API_CALLS, to Save, and to a login."""
SIGNATURE = ds.Signature(name="alice", widget=ds.Widget(x=1, y=2, width=3, height=4, page=1))
UNSIGNED = ds.DocumentUpdate(identifier="doc", document_digest="old")
"""A document that SUCCESS_BODY shows as signed since then."""

TWO_ATTEMPTS_POLICY = ds.RetryPolicy(attempts=2, wait=wait_fixed(1))
"""Two attempts, a second apart."""


def make_settings(server: ScriptedServer, **others: Any) -> ds.Settings:
    """Return settings with all four services on the scripted server, and two attempts per call."""
    values: dict[str, Any] = {
        "signing_url": server.url("signing"),
        "fax_url": server.url("fax"),
        "message_url": server.url("message"),
        "registration_url": server.url("registration"),
        "max_connections": CONNECTIONS,
        "retry": TWO_ATTEMPTS_POLICY,
    }
    return ds.Settings(**(values | others))


@contextlib.asynccontextmanager
async def open_suite(
    server: ScriptedServer,
    *,
    token: Token | None = TOKEN,
    login: ds.Login | None = LOGIN,
    clock: Clock | None = None,
    listeners: Iterable[Listener] = (),
    leaky: bool = False,
    **others: Any,
) -> AsyncGenerator[ds.DirectSuite]:
    """Open a suite on the scripted server. When it closes, no slot, connection or task may remain.

    leaky: skip this check, because the test ends while calls are in progress.
    """
    configured = make_settings(server, **others)
    suite = ds.DirectSuite(configured, token=token, login=login, listeners=listeners, clock=clock or LoopClock())
    before = asyncio.all_tasks()
    async with suite:
        yield suite
        if not leaky:
            assert_no_leaks(suite, configured.max_connections)
    # a fixture begins and ends in different tasks
    await yield_until(lambda: not asyncio.all_tasks() - before - server.tasks - {asyncio.current_task()})


def make_session(**connector: Any) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=FreshConnector(**connector))


def assert_no_leaks(suite: ds.DirectSuite, connections: int = CONNECTIONS) -> None:
    """Assert that no slot of the limits and no connection of the pool is in use."""
    for endpoint in suite._transport._endpoints.values():
        assert endpoint.limits._free_slots == connections
        assert not endpoint.limits._slot_waiters
        assert not endpoint.limits._rate_lock.locked()
        assert endpoint.limits._rate_waiters == 0
        assert not endpoint.limits.breaker._probe
    session = suite._session._http
    if session is not None:  # otherwise it is closed
        assert isinstance(session.connector, aiohttp.TCPConnector)
        assert not session.connector._acquired


def make_service(document: bytes) -> Responder:
    """Return a service whose calls succeed. document: what it sends as the PDF."""
    succeed, send_document = responses.respond(SUCCESS_BODY), responses.respond(pybase64.b64encode(document))

    async def play(exchange: Exchange) -> None:
        path = exchange.request.path
        is_download = exchange.request.method == "GET" and path.startswith("pdf/") and not path.endswith("/info")
        await (send_document if is_download or path.endswith("/pull") else succeed)(exchange)

    return play


def respond_after_login(play: Responder) -> Responder:
    """Accept logins, and respond to other requests in this way."""
    login = responses.respond(SUCCESS_BODY)

    async def respond(exchange: Exchange) -> None:
        await (login if exchange.request.path == "login" else play)(exchange)

    return respond


async def stream_messages(suite: ds.DirectSuite) -> list[ds.MessageDetail]:
    return [message async for message in suite.mailbox(ALICE, PASSWORD).stream_messages()]


async def catch_error(call: Awaitable[object]) -> ds.DirectSuiteError:
    try:
        await call
    except ds.DirectSuiteError as error:
        return error
    raise AssertionError("the call succeeded")


async def expect_error(kind: type[E], call: Awaitable[object]) -> E:
    """Return the error of a call, whose class must be exactly this one."""
    error = await catch_error(call)
    assert isinstance(error, kind), repr(error)
    assert type(error) is kind, repr(error)
    return error
