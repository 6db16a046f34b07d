"""Logging of events: one line each, with its level and listed fields only."""

from __future__ import annotations

import copy
import logging
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, cast

import attrs
import pytest

import directsuite as ds
from directsuite.core import events
from directsuite.core.events import FIELDS, LINES, Events

from . import api, responses
from .scripted_server import ScriptedServer
from .scripted_suite import ALICE, PASSWORD, catch_error

GET_UIDS: dict[str, Any] = {
    "call": 7,
    "operation": "GetUIDs",
    "service": "messaging",
    "method": "POST",
    "path": "GetUIDs/{folder}",
    "host": "mail.example.test",
    "port": 443,
}
HOW = "look into INBOX.Sent"

DEBUG, INFO, WARNING = logging.DEBUG, logging.INFO, logging.WARNING


def _failed(
    error: str, status: int | None, outcome: ds.Outcome | None, elapsed: float, attempt: int = 1, **others: Any
) -> ds.AttemptFailed:
    fields: dict[str, Any] = {
        "error": error,
        "status": status,
        "outcome": outcome,
        "elapsed": elapsed,
        "attempt": attempt,
    }
    return ds.AttemptFailed(**fields, **others, **GET_UIDS)


UNKNOWN, NOT_SENT, FAILED = ds.Outcome.UNKNOWN, ds.Outcome.NOT_SENT, ds.Outcome.FAILED
_CONNECTION_REFUSED = "attempt 1, ConnectFailedError, connection refused, outcome not sent, after 1.000 s"

# the level of an event of a call, what its line says, and the details
OF_CALLS: list[tuple[int, ds.Event, str, str]] = [
    (DEBUG, ds.CallStarted(**GET_UIDS), "a call started", ""),
    (DEBUG, ds.AttemptStarted(attempt=1, **GET_UIDS), "a request is about to be sent", "attempt 1"),
    (
        DEBUG,
        ds.AttemptSucceeded(attempt=1, status=200, elapsed=0.3125, **GET_UIDS),
        "an attempt succeeded",
        "attempt 1, HTTP 200, after 0.312 s",
    ),
    *(
        (INFO, _failed(error, status, outcome, 1.0, reason=reason), "an attempt failed", details)
        for error, status, outcome, reason, details in (
            ("ServerError", 500, UNKNOWN, None, "attempt 1, ServerError, HTTP 500, outcome unknown, after 1.000 s"),
            ("ConnectFailedError", None, NOT_SENT, "connection refused", _CONNECTION_REFUSED),
            ("NotFoundError", 404, FAILED, None, "attempt 1, NotFoundError, HTTP 404, outcome failed, after 1.000 s"),
            ("CancelledError", None, UNKNOWN, None, "attempt 1, CancelledError, outcome unknown, after 1.000 s"),
        )
    ),
    *(
        (INFO, _failed("CircuitOpenError", None, outcome, 0.0, attempt=0), "not sent", details)
        for outcome, details in (
            (ds.Outcome.NOT_SENT, "CircuitOpenError, after 0.000 s"),
            (ds.Outcome.REJECTED, "CircuitOpenError, outcome rejected, after 0.000 s"),  # of a login
        )
    ),
    (INFO, ds.RetryScheduled(attempt=2, wait=0.25, **GET_UIDS), "another attempt is scheduled", "attempt 2, in 0.2 s"),
    (INFO, ds.RetryScheduled(attempt=1, wait=0.25, **GET_UIDS), "another attempt is scheduled", "in 0.2 s"),
    (
        WARNING,
        ds.OutcomeLeftUnknown(cancelled=True, how_to_find_out=HOW, **GET_UIDS),
        "it may or may not have happened",
        f"cancelled by the caller, what to do: {HOW}",
    ),
    (
        INFO,
        ds.OutcomeLeftUnknown(cancelled=False, how_to_find_out="nothing", job_finds_out=True, **GET_UIDS),
        "it may or may not have happened",
        "what to do: nothing",
    ),
    (
        WARNING,
        ds.OutcomeLeftUnknown(cancelled=False, happened=True, how_to_find_out=HOW, **GET_UIDS),
        "it happened, but its result is not available",
        f"what to do: {HOW}",
    ),
    (
        INFO,
        ds.ValuesSkipped(paths={"$.messages[]": 2, "$.messages[].sentDate": 1}, **GET_UIDS),
        "values of the response could not be read, and were skipped",
        "$.messages[] 2, $.messages[].sentDate 1",
    ),
    (DEBUG, ds.CallFinished(attempts=2, elapsed=3.5, **GET_UIDS), "the call ended", "attempts 2, after 3.500 s"),
    (
        DEBUG,
        ds.CallFinished(attempts=1, elapsed=0.0, verified=True, **GET_UIDS),
        "the call ended",
        "attempts 1, verified after a lost response, after 0.000 s",
    ),
    (
        DEBUG,
        ds.CallFinished(attempts=1, elapsed=0.0, error="ServiceError", status=200, code=3, **GET_UIDS),
        "the call ended",
        "attempts 1, ServiceError, HTTP 200, code 3, after 0.000 s",
    ),
]
OTHERS: list[tuple[int, ds.Event, str]] = [
    (INFO, ds.TokenRefreshed(generation=3, expires_in=None), "directsuite: a new token is in use (number 3)"),
    (
        INFO,
        ds.SessionRenewed(generation=1, expires_in=600.0),
        "directsuite: a new session is in use (number 1, valid for 600 s)",
    ),
    (
        WARNING,
        ds.RenewalFailed(error="AuthenticationError", back_off=4.0),
        "directsuite: no new token was received (AuthenticationError, next try in 4 s)",
    ),
    (
        WARNING,
        ds.RenewalFailed(error="ServerError", reason="the service failed", credential="session", back_off=4.0),
        "directsuite: no new session was received (ServerError, the service failed, next try in 4 s)",
    ),
    (
        WARNING,
        ds.RenewalFailed(error="TransportError", cause="ClientResponseError", back_off=1.0),
        "directsuite: no new token was received (TransportError, the token source raised ClientResponseError, next "
        "try in 1 s)",
    ),
    (INFO, ds.ServicePaused(service="fax", seconds=30.0), "fax: the service asked for a pause (for 30.0 s)"),
    (
        WARNING,
        ds.CircuitOpened(service="fax", failures=20, seconds=10.0),
        "fax: the service is down: calls to it fail immediately (20 failures in a row, for 10.0 s)",
    ),
    (INFO, ds.CircuitClosed(service="fax"), "fax: the service responds again"),
    (INFO, ds.CircuitClosed(service="oauth"), "token: the service responds again"),
]
ROWS = OTHERS + [
    (level, event, f"GetUIDs: {words} (call 7{', ' * bool(details)}{details})")
    for level, event, words, details in OF_CALLS
]


def kinds() -> set[type[ds.Event]]:
    """Return all classes of emitted events: those without subclasses."""
    tree = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, ds.Event)]
    return {kind for kind in tree if not [other for other in tree if other is not kind and issubclass(other, kind)]}


def written(event: ds.Event, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    caplog.set_level(logging.DEBUG, "directsuite")
    Events([], logging.getLogger("directsuite")).emit(event)
    (record,) = caplog.records
    return record


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    return cast("Mapping[str, object]", vars(record)["directsuite"])


@pytest.mark.parametrize(("level", "event", "line"), ROWS, ids=lambda value: type(value).__name__)
def test_event_is_one_readable_line(event: ds.Event, level: int, line: str, caplog: pytest.LogCaptureFixture) -> None:
    record = written(event, caplog)
    assert (record.levelno, record.getMessage()) == (level, line)


def test_every_kind_of_event_has_its_line() -> None:
    assert set(LINES) == kinds() == {type(event) for _, event, _ in ROWS}


def test_every_event_has_a_hash_that_equal_events_share() -> None:
    for _, event, _ in ROWS:
        assert hash(event) == hash(copy.deepcopy(event))


def test_every_field_of_every_event_is_listed() -> None:
    assert {field.name for kind in kinds() for field in attrs.fields(kind)} == set(FIELDS)


@attrs.frozen(kw_only=True)
class Talkative(ds.CallFinished):
    """An event with a field that is not listed for logging."""

    password: str


@attrs.frozen(kw_only=True)
class Loose(ds.CallFinished):
    """An event with an object in a listed field, whose repr must not be logged."""

    outcome: Any = None


def test_field_that_is_not_listed_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    record = written(Talkative(attempts=1, elapsed=0.0, password=PASSWORD, **GET_UIDS), caplog)
    assert "password" not in fields_of(record)
    assert PASSWORD not in f"{fields_of(record)} {record.getMessage()}"
    assert "Talkative" in record.getMessage()


def test_object_in_a_listed_field_is_written_as_its_type(caplog: pytest.LogCaptureFixture) -> None:
    record = written(Loose(attempts=1, elapsed=0.0, outcome=[PASSWORD], **GET_UIDS), caplog)
    assert fields_of(record)["outcome"] == "list"
    assert PASSWORD not in record.getMessage()


class Untouchable(ds.CallFinished):
    """An event whose fields must not be read."""

    def __getattribute__(self, name: str) -> Any:
        assert name.startswith("__"), name
        return super().__getattribute__(name)


def test_nothing_is_formatted_where_the_level_is_off() -> None:
    logger = logging.Logger("directsuite", logging.WARNING)
    Events([], logger)._write_to_log(Untouchable(attempts=1, elapsed=0.0, **GET_UIDS))


@pytest.mark.process
def test_program_without_logging_sees_nothing_and_keeps_the_level_that_it_has_set() -> None:
    program = (
        "import logging, directsuite as ds\n"
        "logging.getLogger('directsuite.calls').setLevel(logging.INFO)\n"
        "ds.DirectSuite()._events.emit(ds.ServicePaused(service='fax', seconds=1.0))\n"
        "print(logging.getLogger('directsuite.calls').level)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (result.stdout.strip(), result.stderr) == (str(logging.INFO), "")


async def test_call_that_goes_well_is_silent_above_debug(
    suite: ds.DirectSuite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await api.GET_MESSAGE_COUNT(suite)
    assert caplog.records == []


async def test_lost_send_and_a_login_are_reported_without_their_contents(
    server: ScriptedServer, suite: ds.DirectSuite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "directsuite")
    server.enqueue(responses.reset)
    await catch_error(api.SEND(suite))
    await api.GET_PATIENT_ADDRESS(suite)
    assert [fields_of(record)["event"] for record in caplog.records] == [
        "AttemptFailed",
        "OutcomeLeftUnknown",
        "SessionRenewed",
    ]
    assert not [text for text in (PASSWORD, ALICE) if text in caplog.text]
