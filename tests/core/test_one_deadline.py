"""`timeout=` ends a call exactly at its deadline, whatever it waits for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import aiohttp
import attrs
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from tenacity import wait_fixed

import directsuite as ds
from directsuite.core.session import FreshConnector
from directsuite.types import Token

from . import responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import ALICE, MESSAGE, PASSWORD, PDF, TOKEN, catch_error, open_suite
from .virtual_time import yield_to_loop

TIMEOUT = 7.0
Call = Callable[[ds.DirectSuite], Awaitable[object]]


def count(suite: ds.DirectSuite, timeout: float = TIMEOUT) -> Awaitable[object]:
    return suite.mailbox(ALICE, PASSWORD).get_message_count(timeout=timeout)


def send(suite: ds.DirectSuite) -> Awaitable[object]:
    return suite.mailbox(ALICE, PASSWORD).send(MESSAGE, timeout=TIMEOUT)


def send_once(suite: ds.DirectSuite) -> Awaitable[object]:
    return suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, timeout=TIMEOUT)


def doc_info(suite: ds.DirectSuite) -> Awaitable[object]:
    return suite.signing.get_doc_info("doc", timeout=TIMEOUT)


def flatten(suite: ds.DirectSuite) -> Awaitable[object]:
    return suite.signing.flatten("doc", timeout=TIMEOUT)


def look(suite: ds.DirectSuite) -> Awaitable[object]:
    return suite.registration.get_patient_address_by_username("direct.example.test", "ada", timeout=TIMEOUT)


def save(suite: ds.DirectSuite) -> Awaitable[object]:
    async def drops() -> AsyncGenerator[bytes]:
        while True:
            yield PDF
            await asyncio.sleep(1)

    return suite.signing.save(drops(), timeout=TIMEOUT)


class Tokens:
    """Returns the first token after a second, and no other."""

    renewable = True

    def __init__(self) -> None:
        self.asked = 0

    async def fetch(self) -> ds.AccessToken:
        self.asked += 1
        await asyncio.sleep(1 if self.asked == 1 else 1000)
        return ds.AccessToken(TOKEN, 600)


class NoNames(AbstractResolver):
    """A name server that never responds."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None:
        return None


def nameless() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=FreshConnector(resolver=NoNames(), limit=0))


NAMELESS = {"message_url": "http://127.0.0.1.nowhere.example.test:1", "allow_insecure_http": True}
DROPS = responses.respond_in_chunks(*(part for _ in range(20) for part in (b" ", responses.Pause(1))))
LOST_SEND = {"SendWithHeader": responses.reset}
UNKNOWN, NOT_SENT = ds.Outcome.UNKNOWN, ds.Outcome.NOT_SENT


@attrs.frozen
class Phase:
    """A phase of a call at its deadline, and the expected error.

    attempts: the number of requests sent. script: the first handlers. then: the handler of all later requests.
    """

    name: str
    call: Call
    error: type[ds.DirectSuiteError]
    outcome: ds.Outcome
    attempts: int
    then: Responder = responses.never_respond
    script: tuple[Responder, ...] = ()
    settings: Mapping[str, Any] = MappingProxyType({})
    token: Token | None = TOKEN

    def __str__(self) -> str:
        return self.name


LATE, LOST = ds.DeadlineExceededError, ds.OutcomeUnknownError
PHASES = [
    Phase("session", look, LATE, NOT_SENT, 0),
    Phase("name of the host", count, LATE, NOT_SENT, 1, settings=NAMELESS | {"session_factory": nameless}),
    Phase("name of the host of a send", send, LATE, NOT_SENT, 1, settings=NAMELESS | {"session_factory": nameless}),
    Phase("answer", count, LATE, UNKNOWN, 1),
    Phase("answer to a send", send, LOST, UNKNOWN, 1),
    Phase("body of an answer", count, LATE, UNKNOWN, 1, then=DROPS),
    Phase("body of an answer to a send", send, LOST, UNKNOWN, 1, then=DROPS),
    Phase("body of a request", save, LATE, UNKNOWN, 1),
    Phase("second token", doc_info, LATE, NOT_SENT, 1, then=responses.respond(b"", 401), token=Tokens()),
    Phase("second token of a flatten", flatten, LATE, NOT_SENT, 1, then=responses.respond(b"", 401), token=Tokens()),
    Phase("repeat", count, LATE, UNKNOWN, 2, script=(responses.delay(2, responses.reset),)),
    Phase(
        "repeat of a send that was not taken",
        send,
        LOST,
        UNKNOWN,
        2,
        script=(responses.respond(b"", 503, Retry_After="2"),),
    ),
    Phase("proof", send_once, LOST, UNKNOWN, 1, script=(responses.delay(2, responses.reset),)),
    Phase("proof, after no answer came", send_once, LOST, UNKNOWN, 1, script=(responses.never_respond,)),
]


@pytest.mark.parametrize("phase", PHASES, ids=str)
async def test_call_ends_exactly_when_its_time_is_up(server: ScriptedServer, phase: Phase) -> None:
    server.enqueue(*phase.script)
    server.default_responder = phase.then
    token = Tokens() if isinstance(phase.token, Tokens) else phase.token
    waits: dict[str, Any] = {
        "attempt_timeout": 100,
        "timeout": 100,
        "retry": ds.RetryPolicy(attempts=3, wait=wait_fixed(1)),
    }
    # a login or the fetch of a token continues for other callers after this call's deadline
    async with open_suite(server, token=token, leaky=phase.call is look, **(waits | dict(phase.settings))) as suite:
        began = asyncio.get_running_loop().time()
        error = await catch_error(phase.call(suite))
        assert asyncio.get_running_loop().time() - began == pytest.approx(TIMEOUT, abs=1e-6)
    assert type(error) is phase.error
    assert error.outcome is phase.outcome
    assert error.attempts == phase.attempts
    assert error.elapsed == pytest.approx(TIMEOUT, abs=1e-6)


@pytest.mark.parametrize("call", [doc_info, flatten], ids=["safe", "with effects"])
async def test_token_connection_place_and_response_share_one_deadline(server: ScriptedServer, call: Call) -> None:
    server.default_responder = responses.respond({"identifier": "doc"})
    async with open_suite(
        server, token=Tokens(), max_connections=1, requests_per_second=0.2, burst=1, attempt_timeout=100
    ) as suite:
        server.enqueue(responses.delay(3, server.default_responder), responses.never_respond)
        holder = asyncio.create_task(suite.signing.get_doc_info("held"))
        await yield_to_loop(1)
        error = await catch_error(call(suite))  # 1 for the token, 3 for the connection, 2 for the slot
        await holder
    assert isinstance(error, LATE if call is doc_info else LOST)
    assert error.attempts == 1
    assert error.elapsed == pytest.approx(TIMEOUT, abs=1e-6)
    assert len(server.requests) == 2


@pytest.mark.parametrize("timeout", [0.5, 1.0, 2.0, 4.0, 30.0])
async def test_failing_verification_ends_within_the_deadline(server: ScriptedServer, timeout: float) -> None:
    server.enqueue(responses.reset)
    server.default_responder = responses.respond({"success": True, "messages": []})
    async with open_suite(server) as suite:
        error = await catch_error(suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, timeout=timeout))
    assert type(error) is LOST
    assert error.elapsed <= timeout
    assert len(server.find_requests("SendWithHeader")) == 1


@pytest.mark.parametrize(("timeout", "for_the_request"), [(60.0, 29.0), (46.5, 15.5), (30.0, 10.0), (1.0, 1 / 3)])
async def test_signature_leaves_time_to_find_out_where_its_document_is_passed(
    server: ScriptedServer, timeout: float, for_the_request: float
) -> None:
    stored, signature = ds.StoredDocument(identifier="doc", document_digest="1"), ds.Signature(name="approval")
    for document, expected in ((stored, for_the_request), ("doc", timeout)):
        told: list[ds.Event] = []
        server.default_responder = responses.never_respond
        async with open_suite(server, listeners=[told.append]) as suite:
            error = await catch_error(suite.signing.sign(document, signature, timeout=timeout))
        assert isinstance(error, LOST)
        [failed] = [event for event in told if isinstance(event, ds.AttemptFailed) and event.operation == "Sign"]
        assert failed.elapsed == pytest.approx(expected)
