"""Events are emitted in order to all listeners, whose errors have no effect."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import attrs
import pytest

import directsuite as ds
from directsuite.core import events
from directsuite.core.events import (
    AttemptFailed,
    AttemptStarted,
    AttemptSucceeded,
    CallEvent,
    CallFinished,
    CallStarted,
    Event,
    OutcomeLeftUnknown,
    RenewalFailed,
    RetryScheduled,
    SessionRenewed,
    TokenRefreshed,
)

from . import api, responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import ALICE, MESSAGE, PASSWORD, catch_error, expect_error, open_suite
from .token_fetches import NumberedTokens
from .virtual_time import yield_until

GOOD = responses.respond({"success": True, "count": 7})


@pytest.fixture
def told() -> list[Event]:
    return []


def names(told: list[Event]) -> list[str]:
    return [type(event).__name__ for event in told]


async def test_call_that_goes_well_is_reported_from_beginning_to_end(server: ScriptedServer, told: list[Event]) -> None:
    server.default_responder = responses.delay(3, GOOD)
    async with open_suite(server, listeners=[told.append]) as suite:
        await api.GET_MESSAGE_COUNT(suite)
    [number] = {event.call for event in told if isinstance(event, CallEvent)}
    call = {
        "call": number,
        "group": number,
        "operation": "GetMessageCount",
        "service": "messaging",
        "method": "POST",
        "path": "GetMessageCount/{folder}",
        "host": "127.0.0.1",
        "port": server.port,
    }
    assert [(type(event), attrs.asdict(event)) for event in told] == [
        (CallStarted, call),
        (AttemptStarted, call | {"attempt": 1}),
        (AttemptSucceeded, call | {"attempt": 1, "status": 200, "elapsed": pytest.approx(3)}),
        (
            CallFinished,
            call
            | {"attempts": 1, "elapsed": pytest.approx(3), "error": None, "outcome": None, "cancelled": False}
            | {"status": 200, "code": None, "verified": False},
        ),
    ]


async def test_failures_and_retries_are_reported(server: ScriptedServer, told: list[Event]) -> None:
    server.enqueue(responses.respond(b"", 500), GOOD)
    async with open_suite(server, listeners=[told.append]) as suite:
        await api.GET_MESSAGE_COUNT(suite)
    first, second = ["CallStarted", "AttemptStarted", "AttemptFailed"], ["AttemptStarted", "AttemptSucceeded"]
    assert names(told) == [*first, "RetryScheduled", *second, "CallFinished"]
    failed, scheduled = told[2], told[3]
    assert isinstance(failed, AttemptFailed)
    assert (failed.error, failed.status, failed.outcome) == ("ServerError", 500, ds.Outcome.UNKNOWN)
    assert isinstance(scheduled, RetryScheduled)
    assert (scheduled.attempt, scheduled.wait) == (2, 1)


async def test_repetition_with_a_new_token_is_reported_as_a_retry(server: ScriptedServer, told: list[Event]) -> None:
    server.enqueue(responses.respond({}, 401), responses.respond({}, 500), responses.respond({"identifier": "doc"}))
    async with open_suite(server, listeners=[told.append], token=NumberedTokens()) as suite:
        await suite.signing.get_doc_info("doc")
    renewed, repeated = [event for event in told if isinstance(event, RetryScheduled)]
    assert (renewed.attempt, renewed.wait, renewed.error, renewed.status) == (2, 0, "AuthenticationError", 401)
    assert (repeated.attempt, repeated.error) == (3, "ServerError")
    assert repeated.wait > 0
    finished = told[-1]
    assert isinstance(finished, CallFinished)
    assert finished.attempts == 3


@pytest.mark.parametrize(("service", "shown"), [("oauth", "invalid_grant"), ("other", None)])
async def test_text_as_a_code_is_reported_only_from_oauth(
    server: ScriptedServer, told: list[Event], service: str, shown: str | None
) -> None:
    async def fetch_token() -> str:
        raise ds.AuthenticationError("no token", status=400, code="invalid_grant", operation="token", service=service)

    async with open_suite(server, listeners=[told.append], token=fetch_token) as suite:
        await catch_error(suite.signing.get_doc_info("doc"))
    finished = told[-1]
    assert isinstance(finished, CallFinished)
    assert (finished.error, finished.status, finished.code) == ("AuthenticationError", None, shown)


FAILURES: list[tuple[Responder, str, int | None, int | str | None]] = [
    (responses.respond({"success": False, "code": 1}), "AuthenticationError", 200, 1),
    (responses.respond({"success": False, "code": "3"}, 500), "ServiceError", 500, 3),
    (responses.respond({"success": False, "code": "Zaphod"}), "ServiceError", 200, None),  # perhaps patient data
    (responses.respond({}, 404), "NotFoundError", 404, None),
    (responses.reset, "ConnectionLostError", None, None),
]


@pytest.mark.parametrize(("response", "name", "status", "code"), FAILURES)
async def test_failed_call_is_reported_with_its_class_outcome_status_and_code(
    server: ScriptedServer, told: list[Event], response: Responder, name: str, status: int | None, code: int | None
) -> None:
    server.default_responder = response
    async with open_suite(server, listeners=[told.append], retry=ds.RetryPolicy.none()) as suite:
        error = await catch_error(api.GET_MESSAGE_COUNT(suite))
    finished = told[-1]
    assert isinstance(finished, CallFinished)
    assert (finished.call, finished.error, finished.outcome) == (error.call, name, error.outcome)
    assert (finished.status, finished.code) == (status, code)


async def test_error_has_the_number_of_the_call_that_made_its_requests(
    server: ScriptedServer, told: list[Event]
) -> None:
    server.default_responder = responses.respond({"success": False, "code": "013"})
    async with open_suite(server, listeners=[told.append]) as suite:
        error = await catch_error(api.GET_PATIENT_ADDRESS(suite))
        assert (await catch_error(suite.mailbox(ALICE, PASSWORD).get_message_count(timeout=-1))).call is None
    login, call = [event for event in told if isinstance(event, CallFinished)]
    assert (error.operation, error.call, error.copy().call) == (login.operation, login.call, login.call)
    assert (call.operation, call.status, call.code) == (api.GET_PATIENT_ADDRESS.operation, None, "013")


async def test_attempt_that_could_not_begin_has_no_number(server: ScriptedServer, told: list[Event]) -> None:
    server.default_responder = responses.never_respond
    async with open_suite(server, listeners=[told.append], max_connections=1) as suite:
        holding = asyncio.ensure_future(api.GET_MESSAGE_COUNT(suite))
        await yield_until(lambda: len(server.requests) == 1)
        await catch_error(suite.mailbox(ALICE, PASSWORD).get_message_count(timeout=1))
        holding.cancel()
        await asyncio.wait([holding])
    [failed] = [event for event in told if isinstance(event, AttemptFailed) and event.error != "CancelledError"]
    assert (failed.attempt, failed.status, failed.outcome, failed.elapsed) == (0, None, ds.Outcome.NOT_SENT, 1)


@pytest.mark.parametrize("lost", [responses.reset, responses.truncate({"success": True}), responses.respond(b"", 500)])
async def test_outcome_that_stays_unknown_is_reported(
    server: ScriptedServer, told: list[Event], lost: Responder
) -> None:
    server.default_responder = lost
    async with open_suite(server, listeners=[told.append]) as suite:
        error = await expect_error(ds.OutcomeUnknownError, api.SEND(suite))
    [unknown] = [event for event in told if isinstance(event, OutcomeLeftUnknown)]
    assert (unknown.operation, unknown.cancelled, unknown.happened) == ("Send", False, False)
    assert unknown.how_to_find_out == error.how_to_find_out


@pytest.mark.parametrize(
    ("ask", "queued", "left"), [(api.SEND, False, True), (api.SEND, True, False), (api.GET_MESSAGE_COUNT, False, False)]
)
async def test_only_what_was_sent_is_left_unknown_by_a_caller_who_leaves(
    server: ScriptedServer, told: list[Event], ask: api.ApiCall, queued: bool, left: bool
) -> None:
    server.default_responder = responses.never_respond
    async with open_suite(server, listeners=[told.append], max_connections=1) as suite:
        tasks = [asyncio.ensure_future(each(suite)) for each in [api.GET_MESSAGE_COUNT] * queued + [ask]]
        await asyncio.sleep(1)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    [*_, finished] = [event for event in told if isinstance(event, CallFinished) and event.operation == ask.operation]
    assert finished.cancelled
    unknown = [event for event in told if isinstance(event, OutcomeLeftUnknown)]
    assert [event.cancelled for event in unknown] == [True] * left
    if left:
        assert names(told)[-3:] == ["AttemptFailed", "OutcomeLeftUnknown", "CallFinished"]
        assert "INBOX.Sent" in unknown[0].how_to_find_out
        assert finished.outcome is ds.Outcome.UNKNOWN


async def test_stream_that_is_left_early_ends(server: ScriptedServer, told: list[Event]) -> None:
    server.enqueue(
        responses.respond_in_chunks(b'{"success": true, "messages": [{"uid": 1}, ', responses.Pause(9), b'{"uid": 2}]}')
    )
    async with (
        open_suite(server, listeners=[told.append]) as suite,
        suite.mailbox(ALICE, PASSWORD).stream_messages() as messages,
    ):
        await anext(messages)
    finished = told[-1]
    assert isinstance(finished, CallFinished)
    assert (finished.error, finished.cancelled) == (None, True)


async def test_renewals_and_their_failures_are_reported(server: ScriptedServer, told: list[Event]) -> None:
    server.enqueue(responses.respond(b"", 500))
    async with open_suite(server, listeners=[told.append], retry=ds.RetryPolicy.none()) as suite:
        await catch_error(api.GET_PATIENT_ADDRESS(suite))
        await asyncio.sleep(2)
        await api.GET_PATIENT_ADDRESS(suite)
    failed = [event for event in told if isinstance(event, RenewalFailed)]
    assert failed == [
        RenewalFailed(error="ServerError", reason="the service failed (HTTP 500)", credential="session", back_off=1.0)
    ]
    assert SessionRenewed(generation=1, expires_in=600) in told


async def test_new_bearer_token_is_reported(server: ScriptedServer, told: list[Event]) -> None:
    async with open_suite(server, listeners=[told.append], token=NumberedTokens(lifetime=120)) as suite:
        await suite.signing.get_doc_info("doc")
    assert TokenRefreshed(generation=1, expires_in=120) in told


@pytest.mark.parametrize("broken", [ValueError("sentinel-of-a-text"), asyncio.CancelledError("sentinel-of-a-text")])
async def test_listener_that_raises_harms_nobody(
    server: ScriptedServer, told: list[Event], caplog: pytest.LogCaptureFixture, broken: BaseException
) -> None:

    def listener(_: Event) -> None:
        raise broken

    with caplog.at_level(logging.WARNING, "directsuite"):
        async with open_suite(server, listeners=[listener, told.append]) as suite:
            assert await api.GET_MESSAGE_COUNT(suite) == 7
    assert len(told) == 4
    text = f"the listener {listener.__qualname__} raised {type(broken).__name__} for the event CallStarted"
    assert text in caplog.messages
    assert "sentinel" not in caplog.text


@pytest.mark.parametrize("name", ["directsuite", "directsuite.calls"])
async def test_log_handler_that_raises_harms_no_call(
    server: ScriptedServer, told: list[Event], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ValueError(record.name)

    handler, logger = Broken(), logging.getLogger(name)
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.DEBUG, name):
            async with open_suite(server, listeners=[told.append]) as suite:
                assert await api.GET_MESSAGE_COUNT(suite) == 7
    finally:
        logger.removeHandler(handler)
    assert len(told) == 4


async def test_listeners_come_and_go(suite: ds.DirectSuite, told: list[Event]) -> None:
    suite.add_listener(told.append)
    await api.GET_MESSAGE_COUNT(suite)
    suite.remove_listener(told.append)
    suite.remove_listener(told.append)
    await api.GET_MESSAGE_COUNT(suite)
    assert len(told) == 4


def test_listener_has_to_be_callable() -> None:
    async def waiting(_: Event) -> None:
        pass

    with pytest.raises(ds.ConfigurationError, match="coroutine"):
        ds.DirectSuite(listeners=[waiting])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ds.ConfigurationError):
        ds.DirectSuite(listeners=["not a function"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


async def test_events_cost_nothing_where_nobody_listens(suite: ds.DirectSuite, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Event] = []

    def emit(_: events.Events, event: Event) -> None:
        made.append(event)

    monkeypatch.setattr(events.Events, "emit", emit)
    await api.GET_MESSAGE_COUNT(suite)
    assert made == []


def test_every_event_is_frozen_and_keyword_only() -> None:
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)]
    assert len(kinds) == 17
    for kind in kinds:
        assert all(field.kw_only for field in attrs.fields(kind))
        assert kind.__setattr__ is not object.__setattr__
        assert "__slots__" in vars(kind)
    assert issubclass(CallStarted, CallEvent)


async def test_calls_of_a_block_and_its_tasks_are_a_group(server: ScriptedServer, told: list[Event]) -> None:

    async def call_twice(suite: ds.DirectSuite) -> int | None:
        with ds.group_calls() as group:
            assert group.number is None
            await api.GET_MESSAGE_COUNT(suite)
            with ds.group_calls():
                await asyncio.gather(api.GET_MESSAGE_COUNT(suite), api.GET_MESSAGE_COUNT(suite))
        return group.number

    async with open_suite(server, listeners=[told.append]) as suite:
        groups = await asyncio.gather(call_twice(suite), call_twice(suite))
        await api.GET_MESSAGE_COUNT(suite)
        with ds.group_calls(groups[0]):
            server.default_responder = responses.respond({}, 404)
            error = await catch_error(api.GET_MESSAGE_COUNT(suite))
    assert error.group == groups[0]
    *grouped, single, added = [event for event in told if isinstance(event, CallFinished)]
    assert Counter(event.group for event in grouped) == dict.fromkeys(groups, 3)
    assert {event.call for event in grouped} > {*groups}
    assert single.group == single.call
    assert (added.group, added.call) == (error.group, error.call)


async def test_requests_that_verify_a_call_are_in_its_group(server: ScriptedServer, told: list[Event]) -> None:
    server.enqueue(responses.reset)
    server.default_responder = responses.respond({"success": True, "messages": [], "count": 7})
    async with open_suite(server, listeners=[told.append]) as suite:
        await catch_error(suite.mailbox(ALICE, PASSWORD).send_once(MESSAGE, timeout=5))
        await api.GET_MESSAGE_COUNT(suite)
    *verified, send, count = [event for event in told if isinstance(event, CallFinished)]
    assert verified
    assert {event.group for event in verified} == {send.group} == {send.call}
    assert count.group == count.call
