"""The circuit breaker: a failing service gets no requests but single probes."""

from __future__ import annotations

import asyncio
import base64
import itertools
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import directsuite as ds
from directsuite.core.events import CircuitClosed, CircuitOpened, Event
from directsuite.core.limits import CircuitBreaker
from directsuite.core.operation import Service
from directsuite.fax.operations import GET_MULTIPLE_MESSAGE_INFO
from tests.examples import scale_examples

from . import api, responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import ALICE, PASSWORD, PDF, SUCCESS_BODY, catch_error, expect_error, open_suite
from .virtual_time import ManualClock, yield_until

GOOD = responses.respond(SUCCESS_BODY)
REFUSAL = {"success": False, "code": 3, "message": "no"}


ONCE = ds.RetryPolicy.none()


async def fail(suite: ds.DirectSuite, times: int) -> None:
    for _ in range(times):
        await catch_error(suite.mailbox(ALICE, PASSWORD).with_options(retry=ONCE).get_message_count())


@pytest.mark.parametrize(
    "silence",
    [
        responses.reset,
        responses.hang_up,
        responses.never_respond,
        *(responses.respond(b"<h1>down</h1>", status) for status in (502, 503, 504)),
    ],
    ids=["reset", "closed", "silent", "502", "503", "504"],
)
async def test_calls_fail_immediately_after_many_attempts_without_an_response(
    server: ScriptedServer, silence: Responder
) -> None:
    server.default_responder = silence
    async with open_suite(server, circuit_failures=3, circuit_pause=10) as suite:
        await fail(suite, 3)
        error = await expect_error(ds.CircuitOpenError, api.GET_MESSAGE_COUNT(suite))
        assert (error.outcome, error.retry_after, error.attempts) == (ds.Outcome.NOT_SENT, 10, 0)
        assert re.search(r"The last failure: \w+", error.explanation)
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    "answer",
    [
        responses.respond(REFUSAL),
        responses.respond(REFUSAL, 503),
        responses.respond(b"", 400),
        responses.respond(b"", 500),
        responses.respond(b"", 503, Retry_After="0"),
        responses.respond(b"no JSON"),
    ],
    ids=["refusal", "refusal with 503", "400", "500", "503 with Retry-After", "malformed"],
)
async def test_any_response_of_the_service_itself_shows_that_it_is_there(
    server: ScriptedServer, answer: Responder
) -> None:
    server.enqueue(responses.reset, answer, responses.reset)
    async with open_suite(server, circuit_failures=2) as suite:
        await fail(suite, 3)
        assert await suite.mailbox(ALICE, PASSWORD).get_message_count() == 7


async def test_short_time_of_a_caller_says_nothing_of_the_service(server: ScriptedServer) -> None:
    server.default_responder = responses.delay(2, GOOD)
    async with open_suite(server, circuit_failures=2, attempt_timeout=20) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        for _ in range(5):
            assert isinstance(await catch_error(box.get_message_count(timeout=1)), ds.DeadlineExceededError)
        assert await box.get_message_count() == 7


async def test_short_timeout_with_verification_opens_no_circuit(server: ScriptedServer) -> None:
    server.default_responder = responses.never_respond
    stored = ds.StoredDocument(identifier="doc", document_digest="aa")
    async with open_suite(server, circuit_failures=2) as suite:
        for _ in range(4):
            await expect_error(ds.OutcomeUnknownError, suite.signing.flatten(stored, timeout=3))


async def test_one_probe_after_each_pause_finds_the_service_back(server: ScriptedServer) -> None:
    events: list[Event] = []
    server.default_responder = responses.hang_up
    async with open_suite(server, listeners=[events.append], circuit_failures=2, circuit_pause=10) as suite:
        box = suite.mailbox(ALICE, PASSWORD).with_options(retry=ONCE)
        await fail(suite, 2)
        await asyncio.sleep(10)
        await catch_error(box.get_message_count())
        assert len(server.requests) == 3  # the failed probe
        await asyncio.sleep(9.9)
        assert isinstance(await catch_error(box.get_message_count()), ds.CircuitOpenError)
        await asyncio.sleep(0.1)
        gate = asyncio.Event()
        server.default_responder = responses.respond_after(gate, GOOD)
        probe = asyncio.create_task(box.get_message_count())
        await yield_until(lambda: len(server.requests) == 4)
        others = [await catch_error(box.get_message_count()) for _ in range(5)]
        assert all(isinstance(error, ds.CircuitOpenError) for error in others)
        gate.set()
        assert await probe == 7
        assert await asyncio.gather(*(box.get_message_count() for _ in range(20))) == [7] * 20
    changes = [event for event in events if isinstance(event, CircuitOpened | CircuitClosed)]
    assert changes == [
        CircuitOpened(service="messaging", failures=2, seconds=10),
        CircuitOpened(service="messaging", failures=3, seconds=10),
        CircuitClosed(service="messaging"),
    ]


async def test_cancelled_probe_leaves_its_place_to_the_next(server: ScriptedServer) -> None:
    server.enqueue(responses.hang_up, responses.never_respond)
    async with open_suite(server, circuit_failures=1, circuit_pause=10) as suite:
        await fail(suite, 1)
        await asyncio.sleep(10)
        probe = asyncio.create_task(suite.mailbox(ALICE, PASSWORD).get_message_count())
        await yield_until(lambda: len(server.requests) == 2)
        probe.cancel()
        await asyncio.wait([probe])
        assert await suite.mailbox(ALICE, PASSWORD).get_message_count() == 7


async def test_probe_that_hangs_does_not_delay_the_next(server: ScriptedServer) -> None:
    server.enqueue(responses.hang_up, responses.never_respond, responses.never_respond)
    async with open_suite(server, circuit_failures=1, circuit_pause=10, timeout=600) as suite:
        box = suite.mailbox(ALICE, PASSWORD)
        await fail(suite, 1)
        await asyncio.sleep(10)
        probes = [asyncio.ensure_future(api.SEND(suite))]
        await asyncio.sleep(7)
        error = await catch_error(box.get_message_count())
        assert (type(error), error.retry_after) == (ds.CircuitOpenError, 3)
        await asyncio.sleep(3)
        probes.append(asyncio.ensure_future(api.SEND(suite)))
        await asyncio.sleep(10)
        assert await box.get_message_count() == 7
        assert not any(probe.done() for probe in probes)
        for probe in probes:
            probe.cancel()
        await asyncio.wait(probes)


async def test_document_that_is_flowing_shows_that_the_service_is_there(server: ScriptedServer, tmp_path: Path) -> None:
    """A download may take hours, during which other calls must not be rejected."""
    pdf = base64.b64encode(b"%PDF-1.7 " + bytes(30))
    server.enqueue(responses.hang_up, responses.respond_in_chunks(pdf[:20], responses.Pause(15), pdf[20:]))
    async with open_suite(server, circuit_failures=1, circuit_pause=10, retry=ONCE) as suite:
        await catch_error(api.GET_DOC_INFO(suite))
        await asyncio.sleep(10)
        probe = asyncio.create_task(suite.signing.download("doc", tmp_path / "doc.pdf"))
        await asyncio.sleep(5)
        await api.GET_DOC_INFO(suite)
        assert not probe.done()
        await probe


async def test_upload_that_takes_long_is_the_probe_for_one_pause(server: ScriptedServer) -> None:
    async def pdf() -> AsyncGenerator[bytes]:
        yield PDF
        for _ in range(6):
            await asyncio.sleep(5)
            yield bytes(100_000)

    server.enqueue(responses.hang_up)
    async with open_suite(server, circuit_failures=1, circuit_pause=10, retry=ONCE) as suite:
        await catch_error(api.GET_DOC_INFO(suite))
        await asyncio.sleep(10)
        probe = asyncio.create_task(suite.signing.save(pdf()))
        await asyncio.sleep(7)
        assert isinstance(await catch_error(api.GET_DOC_INFO(suite)), ds.CircuitOpenError)
        await asyncio.sleep(7)
        await api.GET_DOC_INFO(suite)
        assert not probe.done()
        await probe


async def test_services_go_down_one_by_one(server: ScriptedServer) -> None:
    server.enqueue(responses.hang_up)
    async with open_suite(server, circuit_failures=1) as suite:
        await fail(suite, 1)
        await api.GET_DOC_INFO(suite)


async def test_login_of_a_service_that_is_down_is_not_tried(server: ScriptedServer) -> None:
    server.default_responder = responses.hang_up
    async with open_suite(server, circuit_failures=1, retry=ONCE) as suite:
        find = suite.registration.get_patient_address_by_username
        await catch_error(find("direct.example.test", "ada"))
        assert isinstance(await catch_error(find("direct.example.test", "ada")), ds.CircuitOpenError)
        assert len(server.requests) == 1
        await asyncio.sleep(10)
        server.default_responder = GOOD
        assert await find("direct.example.test", "ada") == []


async def test_waiting_call_is_not_sent_if_the_circuit_has_opened(server: ScriptedServer) -> None:
    server.default_responder = responses.hang_up
    async with open_suite(server, circuit_failures=1, requests_per_second=1, burst=1, retry=ONCE) as suite:
        calls = [catch_error(api.GET_DOC_INFO(suite)) for _ in range(3)]
        kinds = [type(error) for error in await asyncio.gather(*calls)]
    assert kinds == [ds.ConnectionLostError, ds.CircuitOpenError, ds.CircuitOpenError]
    assert len(server.requests) == 1


async def test_call_that_got_a_token_waits_for_no_connection_if_the_circuit_has_opened(server: ScriptedServer) -> None:
    token_ready = asyncio.Event()

    async def fetch() -> str:
        await token_ready.wait()
        return "token"

    async with open_suite(server, token=fetch, max_connections=1, circuit_failures=1) as suite:
        waiting = asyncio.create_task(catch_error(api.GET_DOC_INFO(suite)))
        limits = suite._transport._endpoints[Service.SIGNING].limits
        await asyncio.sleep(1)
        await limits.acquire_slot()
        limits.breaker.record_result(has_response=False, probe=0)
        token_ready.set()
        assert isinstance(await waiting, ds.CircuitOpenError)
        limits.release()


async def test_breaker_can_be_turned_off(server: ScriptedServer) -> None:
    server.default_responder = responses.hang_up
    async with open_suite(server, circuit_failures=0) as suite:
        await fail(suite, 30)
        assert len(server.requests) == 30


class BreakerMachine(RuleBasedStateMachine):
    """A model test of the circuit breaker: attempts begin, end in all ways and orders, and time passes."""

    FAILURES, PAUSE = 2, 10.0

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.told: list[Event] = []
        self.breaker = CircuitBreaker(
            service="fax", failures=self.FAILURES, pause=self.PAUSE, clock=self.clock, emit=self.told.append
        )
        self.under_way: list[int] = []
        self.row = 0
        self.open_until: float | None = None
        self.probe = 0
        self.probes = 0

    @rule()
    def attempt(self) -> None:
        wait = (
            None if self.open_until is None or self.clock.now >= self.open_until else self.open_until - self.clock.now
        )
        assert self.find_wait() == wait
        if wait is not None:
            return
        if self.open_until is not None:
            self.probes += 1
            self.probe, self.open_until = self.probes, self.clock.now + self.PAUSE
            assert self.breaker.start_request(GET_MULTIPLE_MESSAGE_INFO) == self.probe
        self.under_way.append(self.probe)

    def find_wait(self) -> float | None:
        try:
            self.breaker.raise_if_open(GET_MULTIPLE_MESSAGE_INFO)
        except ds.CircuitOpenError as error:
            return error.retry_after
        return None

    @rule(seconds=st.sampled_from([1.0, 9.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), end=st.sampled_from(["unanswered", "unanswered", "answered", "abandoned"]))
    def attempt_ends(self, data: st.DataObject, end: str) -> None:
        probe = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        current = probe > 0 and probe == self.probe
        if end == "answered":
            self.breaker.record_result(has_response=True, probe=probe)
            self.row, self.open_until, self.probe = 0, None, 0
        elif end == "abandoned":
            self.breaker.record_result(has_response=None, probe=probe)
            if current:
                self.probe, self.open_until = 0, self.clock.now
        else:
            self.breaker.record_result(has_response=False, probe=probe)
            self.row += 1
            if self.row >= self.FAILURES and (self.open_until is None or current):
                self.open_until, self.probe = self.clock.now + self.PAUSE, 0

    @invariant()
    def openings_and_closings_take_turns(self) -> None:
        kinds = [type(event) for event in self.told]
        assert CircuitClosed not in kinds[:1]
        assert all(pair != (CircuitClosed, CircuitClosed) for pair in itertools.pairwise(kinds))
        assert (self.open_until is not None) == (bool(kinds) and kinds[-1] is CircuitOpened)


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.settings = hypothesis_settings(max_examples=scale_examples(200), stateful_step_count=40)
