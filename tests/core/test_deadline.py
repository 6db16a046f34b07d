"""`timeout=` ends a call exactly at its deadline, whatever it waits for; a response in progress may take longer."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Awaitable, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import pybase64
import pytest
from tenacity import wait_fixed

import directsuite as ds
from directsuite.types import Token

from . import api, responses
from .failing_networks import SilentResolver
from .scripted_server import Exchange, Responder, ScriptedServer
from .scripted_suite import ALICE, MESSAGE, PASSWORD, PDF, TOKEN, catch_error, expect_error, make_session, open_suite
from .virtual_time import yield_to_loop

TIMEOUT = 7.0


def count(suite: ds.DirectSuite, timeout: float = TIMEOUT) -> Awaitable[object]:
    return suite.mailbox(ALICE, PASSWORD).get_message_count(timeout=timeout)


def send(suite: ds.DirectSuite, timeout: float = TIMEOUT) -> Awaitable[object]:
    return suite.mailbox(ALICE, PASSWORD).send(MESSAGE, timeout=timeout)


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


async def never_return_token() -> str:
    await asyncio.Event().wait()
    raise AssertionError


NAMELESS: dict[str, Any] = {
    "message_url": "http://127.0.0.1.nowhere.example.test:1",
    "allow_insecure_http": True,
    "session_factory": lambda: make_session(resolver=SilentResolver(), limit=0),
}
DROPS = responses.respond_in_chunks(*(part for _ in range(20) for part in (b" ", responses.Pause(1))))
UNKNOWN, NOT_SENT = ds.Outcome.UNKNOWN, ds.Outcome.NOT_SENT


@attrs.frozen
class Phase:
    """A phase of a call at its deadline, and the expected error.

    attempts: the number of requests sent. script: the first handlers. then: the handler of all later requests. seen:
    a part of the text, which says what the call waited for.
    """

    name: str
    call: api.SuiteCall
    error: type[ds.DirectSuiteError]
    outcome: ds.Outcome
    attempts: int
    then: Responder = responses.never_respond
    script: tuple[Responder, ...] = ()
    settings: Mapping[str, Any] = MappingProxyType({})
    token: Token | None = TOKEN
    seen: str = ""

    def __str__(self) -> str:
        return self.name


LATE, LOST = ds.DeadlineExceededError, ds.OutcomeUnknownError
NO_TOKEN, NO_SESSION = "the token source had not returned a token", "the login had not ended"
PHASES = [
    Phase("token", doc_info, LATE, NOT_SENT, 0, token=never_return_token, seen=NO_TOKEN),
    Phase("session", look, LATE, NOT_SENT, 0, seen=NO_SESSION),
    Phase("name of the host", count, LATE, NOT_SENT, 1, settings=NAMELESS),
    Phase("name of the host of a send", send, LATE, NOT_SENT, 1, settings=NAMELESS),
    Phase("answer", count, LATE, UNKNOWN, 1),
    Phase("answer to a send", send, LOST, UNKNOWN, 1),
    Phase("body of an answer", count, LATE, UNKNOWN, 1, then=DROPS),
    Phase("body of an answer to a send", send, LOST, UNKNOWN, 1, then=DROPS),
    Phase("body of a request", save, LATE, UNKNOWN, 1),
    *(
        Phase(name, call, LATE, NOT_SENT, 1, then=responses.respond(b"", 401), token=Tokens(), seen=NO_TOKEN)
        for name, call in (("second token", doc_info), ("second token of a flatten", flatten))
    ),
    Phase("repeat", count, LATE, UNKNOWN, 2, script=(responses.delay(2, responses.reset),)),
    Phase("repeat of a rejected send", send, LOST, UNKNOWN, 2, script=(responses.respond(b"", 503, Retry_After="2"),)),
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
        error = await expect_error(phase.error, phase.call(suite))
        assert asyncio.get_running_loop().time() - began == pytest.approx(TIMEOUT, abs=1e-6)
    assert error.outcome is phase.outcome
    assert error.attempts == phase.attempts
    assert phase.seen in error.explanation
    assert error.elapsed == pytest.approx(TIMEOUT, abs=1e-6)


@pytest.mark.parametrize("call", [doc_info, flatten], ids=["safe", "with effects"])
async def test_token_connection_place_and_response_share_one_deadline(
    server: ScriptedServer, call: api.SuiteCall
) -> None:
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
        error = await expect_error(LOST, suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, timeout=timeout))
    assert error.elapsed <= timeout
    assert len(server.find_requests("SendWithHeader")) == 1


@pytest.mark.parametrize(("timeout", "for_the_request"), [(60.0, 29.0), (46.5, 15.5), (30.0, 10.0), (1.0, 1 / 3)])
@pytest.mark.parametrize("operation", ["Sign", "SignAndPull"])
async def test_signature_leaves_time_to_find_out_where_its_document_is_passed(
    server: ScriptedServer, operation: str, timeout: float, for_the_request: float
) -> None:
    stored, signature = ds.StoredDocument(identifier="doc", document_digest="1"), ds.Signature(name="approval")
    for document, expected in ((stored, for_the_request), ("doc", timeout)):
        told: list[ds.Event] = []
        server.default_responder = responses.never_respond
        async with open_suite(server, listeners=[told.append]) as suite:
            sign = suite.signing.sign if operation == "Sign" else suite.signing.sign_and_pull
            await expect_error(LOST, sign(document, signature, timeout=timeout))
        [failed] = [event for event in told if isinstance(event, ds.AttemptFailed) and event.operation == operation]
        assert failed.elapsed == pytest.approx(expected)


@pytest.mark.parametrize("call", [count, send])
async def test_call_without_a_connection_ends_at_its_deadline(server: ScriptedServer, call: api.SuiteCall) -> None:
    server.default_responder = responses.never_respond
    async with open_suite(server, max_connections=1, attempt_timeout=100) as suite:
        holder = await server.begin(catch_error(count(suite, 50)))
        error = await catch_error(call(suite))
        await holder
    assert (type(error), error.outcome, error.attempts) == (LATE, NOT_SENT, 0)
    assert error.explanation == "the call's time is up: nothing was sent"
    assert error.elapsed == pytest.approx(TIMEOUT)


@pytest.mark.parametrize("call", [count, send])
async def test_rate_slot_after_deadline_raises_immediately(server: ScriptedServer, call: api.SuiteCall) -> None:
    async with open_suite(server, requests_per_second=0.1, burst=1) as suite:
        await count(suite)
        error = await catch_error(call(suite))
    assert (type(error), error.outcome, error.attempts, error.elapsed) == (LATE, NOT_SENT, 0, 0)
    assert error.retry_after == pytest.approx(10)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("timeout", "kind", "attempts", "elapsed"),
    [
        (15, ds.DeadlineExceededError, 3, 15),  # 4 + 2 + 4 + 2, and the third attempt's 4 do not fit
        (11, ds.ConnectionLostError, 2, 10),  # the second wait would end after the deadline
    ],
)
async def test_deadline_covers_all_attempts_and_waits(
    server: ScriptedServer, timeout: float, kind: type[ds.DirectSuiteError], attempts: int, elapsed: float
) -> None:
    server.default_responder = responses.delay(4, responses.reset)
    async with open_suite(server, retry=ds.RetryPolicy(attempts=10, wait=wait_fixed(2))) as suite:
        error = await catch_error(count(suite, timeout))
    assert (type(error), error.outcome, error.attempts) == (kind, UNKNOWN, attempts)
    assert error.elapsed == pytest.approx(elapsed)


async def test_timeout_of_a_call_overrides_that_of_the_facade_and_the_suite(server: ScriptedServer) -> None:
    server.default_responder = responses.never_respond
    async with open_suite(server, timeout=30, attempt_timeout=100) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        for method, seconds in (
            (box.get_message_count(), 30),
            (box.with_options(timeout=20).get_message_count(), 20),
            (box.with_options(timeout=20).get_message_count(timeout=10), 10),
        ):
            assert (await catch_error(method)).elapsed == pytest.approx(seconds)


CODED = pybase64.b64encode(PDF * 900)
FLOW_TIMEOUT = 12
FLOWS_AND_BREAKS = responses.respond_in_chunks(CODED[:4000], responses.Pause(2), CODED[4000:8000], length=len(CODED))


async def test_next_attempt_waits_for_a_connection_within_the_time_of_the_call(server: ScriptedServer) -> None:
    async def flows_until_another_waits(exchange: Exchange) -> None:
        """Start a call that occupies the only connection for long, while the response is being received."""
        holding.append(asyncio.create_task(hold()))
        await FLOWS_AND_BREAKS(exchange)

    async def hold() -> None:
        async with suite.signing.stream_doc("other") as pieces:
            async for _ in pieces:
                await asyncio.sleep(1e6)

    holding: list[asyncio.Task[None]] = []
    server.enqueue(flows_until_another_waits)
    server.default_responder = responses.respond(CODED)
    async with open_suite(server, max_connections=1, timeout=FLOW_TIMEOUT, attempt_timeout=5) as suite:
        error = await catch_error(asyncio.wait_for(suite.signing.download("doc", io.BytesIO()), 1000))
        for task in holding:
            task.cancel()
        await asyncio.gather(*holding, return_exceptions=True)
    assert isinstance(error, ds.DeadlineExceededError)
    assert error.outcome is ds.Outcome.UNKNOWN
    assert error.elapsed == pytest.approx(FLOW_TIMEOUT)


async def test_next_attempt_waits_for_its_response_within_the_time_of_the_call(server: ScriptedServer) -> None:
    server.enqueue(FLOWS_AND_BREAKS)
    server.default_responder = responses.never_respond
    async with open_suite(server, timeout=FLOW_TIMEOUT, attempt_timeout=100) as suite:
        error = await expect_error(ds.DeadlineExceededError, suite.signing.download("doc", io.BytesIO()))
    assert error.elapsed == pytest.approx(FLOW_TIMEOUT)


async def test_response_of_the_next_attempt_flows_as_long_as_it_likes(server: ScriptedServer) -> None:
    slow = [part for start in range(0, len(CODED), 1200) for part in (CODED[start : start + 1200], responses.Pause(4))]
    server.enqueue(FLOWS_AND_BREAKS, responses.respond_in_chunks(*slow))
    file = io.BytesIO()
    async with open_suite(server, timeout=FLOW_TIMEOUT, attempt_timeout=5) as suite:
        await suite.signing.download("doc", file)
    assert file.getvalue() == PDF * 900
