"""OpenTelemetry: spans and metrics of calls, made from events, recorded in memory by its SDK."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import directsuite as ds

from .integration.conftest import sandbox, scenario
from .integration.scenario import ALICE, DOMAIN, PASSWORD, Scenario, make_message, make_settings

__all__ = ["sandbox", "scenario"]  # fixtures

INTERNAL, CLIENT = trace.SpanKind.INTERNAL, trace.SpanKind.CLIENT
UNSET, ERROR = trace.StatusCode.UNSET, trace.StatusCode.ERROR
CALL: dict[str, Any] = {
    "call": 7,
    "operation": "GetUIDs",
    "service": "messaging",
    "method": "POST",
    "path": "GetUIDs/{folder}",
    "host": "mail.example.test",
    "port": 443,
}
OPERATION = {"directsuite.operation": "GetUIDs", "directsuite.service": "messaging"}
OF_FAX: dict[str, object] = {"directsuite.service": "fax"}
REQUEST = {
    "http.request.method": "POST",
    "server.address": "mail.example.test",
    "server.port": 443,
    "url.template": "/GetUIDs/{folder}",
}
STARTED = ds.CallStarted(**CALL)
FIRST, SECOND = (ds.AttemptStarted(attempt=attempt, **CALL) for attempt in (1, 2))
UNAVAILABLE = ds.AttemptFailed(
    attempt=1, error="ServerError", status=503, outcome=ds.Outcome.REJECTED, elapsed=0.5, **CALL
)
RETRIED = ds.RetryScheduled(attempt=2, wait=3.0, **CALL)
GOOD = ds.AttemptSucceeded(attempt=2, status=200, elapsed=0.25, **CALL)
FINISHED = ds.CallFinished(attempts=2, elapsed=4.0, **CALL)
UNKNOWN = ds.OutcomeLeftUnknown(cancelled=True, how_to_find_out="look", **CALL)


class Kept:
    """The spans and metrics of the listener."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracing = TracerProvider(shutdown_on_exit=False)
        self.tracing.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.metering = MeterProvider([self._reader], shutdown_on_exit=False)
        self.listener = ds.OpenTelemetry(self.tracing, self.metering)

    def tell(self, *events: ds.Event) -> None:
        for event in events:
            self.listener(event)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def points(self, name: str) -> list[tuple[dict[str, object], HistogramDataPoint | NumberDataPoint]]:
        data = self._reader.get_metrics_data()
        return [
            (dict(point.attributes or {}), point)
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
            if isinstance(point, HistogramDataPoint | NumberDataPoint)
        ]

    def values(self, name: str) -> list[tuple[dict[str, object], float]]:
        """Return a metric's attributes, each with the value of a counter or the sum of a histogram."""
        return [
            (attributes, point.value if isinstance(point, NumberDataPoint) else point.sum)
            for attributes, point in self.points(name)
        ]


@pytest.fixture
def telemetry() -> Iterator[Kept]:
    kept = Kept()
    yield kept
    kept.tracing.shutdown()
    kept.metering.shutdown()


def parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def number(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_call_is_a_span_with_one_for_each_attempt(telemetry: Kept) -> None:
    telemetry.tell(STARTED, FIRST, UNAVAILABLE, RETRIED, SECOND, GOOD, FINISHED)
    first, second, call = telemetry.spans
    assert [(span.name, span.kind, span.status.status_code) for span in telemetry.spans] == [
        ("POST /GetUIDs/{folder}", CLIENT, ERROR),
        ("POST /GetUIDs/{folder}", CLIENT, UNSET),
        ("GetUIDs", INTERNAL, UNSET),
    ]
    assert attributes(first) == {**REQUEST, "http.response.status_code": 503, "error.type": "503"}
    assert attributes(second) == {**REQUEST, "http.response.status_code": 200, "http.request.resend_count": 1}
    assert attributes(call) == {**OPERATION, "directsuite.call": 7, "directsuite.attempts": 2}
    assert [event.name for event in call.events] == ["retry"]
    assert (parent(call), parent(first), parent(second)) == (None, number(call), number(call))


# The error in the attempt's span.
FAILED: dict[str, tuple[str, int | None, str]] = {
    "status": ("NotFoundError", 404, "404"),
    "refusal with a good status": ("AddressError", 200, "AddressError"),
    "no answer": ("ConnectionLostError", None, "ConnectionLostError"),
    "spoilt answer": ("ResponseDecodeError", 200, "ResponseDecodeError"),
}


@pytest.mark.parametrize(("error", "status", "reported"), FAILED.values(), ids=FAILED)
def test_error_type_is_the_status_or_the_class(telemetry: Kept, error: str, status: int | None, reported: str) -> None:
    failed = ds.AttemptFailed(attempt=1, error=error, status=status, outcome=ds.Outcome.UNKNOWN, elapsed=0.5, **CALL)
    left = ds.OutcomeLeftUnknown(cancelled=False, how_to_find_out="look", **CALL)
    end: dict[str, Any] = {"error": "OutcomeUnknownError", "outcome": ds.Outcome.UNKNOWN, "status": 200, "code": 3}
    finished = ds.CallFinished(attempts=1, elapsed=1.0, **end, **CALL)
    telemetry.tell(ds.CallStarted(group=5, **CALL), FIRST, failed, left, finished)
    attempt, call = telemetry.spans
    assert (attributes(attempt)["error.type"], attempt.status.status_code) == (reported, ERROR)
    assert attributes(attempt).get("http.response.status_code") == status
    assert attributes(call) == {
        **OPERATION,
        "directsuite.call": 7,
        "directsuite.group": 5,
        "directsuite.attempts": 1,
        "directsuite.code": 3,
        "directsuite.outcome": "unknown",
        "http.response.status_code": 200,
        "error.type": "OutcomeUnknownError",
    }
    assert call.status.status_code is ERROR
    assert [event.name for event in call.events] == ["outcome left unknown"]


def test_span_of_a_verified_call_says_that(telemetry: Kept) -> None:
    telemetry.tell(STARTED, ds.CallFinished(attempts=1, elapsed=1.0, verified=True, **CALL))
    assert attributes(telemetry.spans[0])["directsuite.verified"] is True


def test_caller_s_current_span_is_the_parent_and_stays_current(telemetry: Kept) -> None:
    with telemetry.tracing.get_tracer("program").start_as_current_span("visit") as visit:
        telemetry.tell(STARTED, FIRST)
        assert trace.get_current_span() is visit
        telemetry.tell(UNAVAILABLE, FINISHED)
    _, call, outer = telemetry.spans
    assert parent(call) == number(outer)
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_call_that_began_before_anybody_listened_has_no_span(telemetry: Kept) -> None:
    telemetry.tell(UNAVAILABLE, RETRIED, UNKNOWN, FINISHED)
    assert telemetry.spans == ()
    assert telemetry.values("http.client.active_requests") == []
    assert [value for _, value in telemetry.values("http.client.request.duration")] == [0.5]


def test_attempt_of_such_a_call_has_one(telemetry: Kept) -> None:
    telemetry.tell(SECOND, GOOD, FINISHED)
    assert [(span.kind, parent(span)) for span in telemetry.spans] == [(CLIENT, None)]


def test_nothing_is_measured_of_an_attempt_that_sent_nothing(telemetry: Kept) -> None:
    refused = ds.AttemptFailed(
        attempt=0, error="CircuitOpenError", status=None, outcome=ds.Outcome.NOT_SENT, elapsed=0.0, **CALL
    )
    telemetry.tell(STARTED, refused, ds.CallFinished(attempts=0, elapsed=0.0, error="CircuitOpenError", **CALL))
    assert [span.name for span in telemetry.spans] == ["GetUIDs"]
    assert telemetry.values("http.client.request.duration") == []
    assert telemetry.values("directsuite.call.duration") == [({**OPERATION, "error.type": "CircuitOpenError"}, 0.0)]


def test_removed_listener_ends_what_is_in_progress(telemetry: Kept) -> None:
    telemetry.tell(STARTED, FIRST)
    telemetry.listener.close()
    assert [span.kind for span in telemetry.spans] == [CLIENT, INTERNAL]
    assert telemetry.values("http.client.active_requests") == [(REQUEST, 0)]


@pytest.mark.parametrize("moment", ["on_start", "on_end"])
def test_attempt_whose_span_processor_fails_is_not_counted_as_active(
    telemetry: Kept, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    processor = SpanProcessor()
    monkeypatch.setattr(processor, moment, mock.Mock(side_effect=RuntimeError))
    telemetry.tracing.add_span_processor(processor)
    for event in (FIRST, UNAVAILABLE):
        with contextlib.suppress(RuntimeError):
            telemetry.tell(event)
    assert [value for _, value in telemetry.values("http.client.active_requests")] in ([], [0])


def test_requests_are_measured_in_the_convention_s_buckets(telemetry: Kept) -> None:
    telemetry.tell(STARTED, FIRST)
    assert telemetry.values("http.client.active_requests") == [(REQUEST, 1)]
    telemetry.tell(UNAVAILABLE, RETRIED, SECOND, GOOD, FINISHED)
    assert telemetry.values("http.client.active_requests") == [(REQUEST, 0)]
    assert telemetry.values("http.client.request.duration") == [
        ({**REQUEST, "http.response.status_code": 503, "error.type": "503"}, 0.5),
        ({**REQUEST, "http.response.status_code": 200}, 0.25),
    ]
    (_, point), *_ = telemetry.points("http.client.request.duration")
    assert isinstance(point, HistogramDataPoint)
    assert point.explicit_bounds == (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
    assert telemetry.values("directsuite.call.duration") == [(OPERATION, 4.0)]


# An event, the counter that it adds 1 to, and that count's attributes.
COUNTED: list[tuple[ds.Event, str, dict[str, object]]] = [
    (RETRIED, "directsuite.retries", {**OPERATION}),
    (UNKNOWN, "directsuite.unknown_outcomes", {**OPERATION, "directsuite.job_finds_out": False}),
    (ds.TokenRefreshed(generation=1, expires_in=None), "directsuite.renewals", {"directsuite.credential": "token"}),
    (ds.SessionRenewed(generation=1, expires_in=600.0), "directsuite.renewals", {"directsuite.credential": "session"}),
    (
        ds.RenewalFailed(error="AuthenticationError", back_off=1.0),
        "directsuite.renewals",
        {"directsuite.credential": "token", "error.type": "AuthenticationError"},
    ),
    (ds.ServicePaused(service="fax", seconds=3.0), "directsuite.pauses", OF_FAX),
    (ds.CircuitOpened(service="fax", failures=20, seconds=10.0), "directsuite.circuit_openings", OF_FAX),
]


@pytest.mark.parametrize(("event", "counter", "reported"), COUNTED, ids=lambda value: type(value).__name__)
def test_event_is_counted(telemetry: Kept, event: ds.Event, counter: str, reported: dict[str, object]) -> None:
    telemetry.tell(event, ds.CircuitClosed(service="fax"))
    assert telemetry.values(counter) == [(reported, 1)]
    assert telemetry.spans == ()


def _of(call: int) -> list[ds.Event]:
    about: dict[str, Any] = {**CALL, "call": call}
    return [
        ds.CallStarted(**about),
        ds.AttemptStarted(attempt=1, **about),
        ds.AttemptStarted(attempt=2, **about),
        ds.AttemptSucceeded(attempt=1, status=200, elapsed=0.1, **about),
        ds.AttemptFailed(attempt=1, error="X", status=None, outcome=None, elapsed=0.1, **about),
        ds.RetryScheduled(attempt=2, wait=1.0, **about),
        ds.OutcomeLeftUnknown(cancelled=True, how_to_find_out="look", **about),
        ds.CallFinished(attempts=1, elapsed=0.1, error="CancelledError", cancelled=True, **about),
    ]


class Starts(SimpleSpanProcessor):
    """Counts the spans that were started."""

    count = 0

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.count += 1


@given(st.lists(st.sampled_from([event for call in (1, 2, 3) for event in _of(call)]), max_size=40))
def test_every_span_ends_once_whatever_was_reported_in_whatever_order(events: list[ds.Event]) -> None:
    kept = Kept()
    starts = Starts(InMemorySpanExporter())
    kept.tracing.add_span_processor(starts)
    complaints: list[logging.LogRecord] = []
    handler = logging.Handler()
    vars(handler)["emit"] = complaints.append
    logging.getLogger("opentelemetry").addHandler(handler)
    try:
        kept.tell(*events, *(_of(call)[-1] for call in (1, 2, 3)))
    finally:
        logging.getLogger("opentelemetry").removeHandler(handler)
    assert len(kept.spans) == starts.count
    assert len({number(span) for span in kept.spans}) == starts.count
    assert [value for _, value in kept.values("http.client.active_requests") if value] == []
    assert complaints == []


async def test_listener_of_two_suites_keeps_their_calls_apart(scenario: Scenario, telemetry: Kept) -> None:
    async with ds.DirectSuite(
        make_settings(scenario.sandbox), clock=scenario.clock, listeners=[telemetry.listener]
    ) as other:
        scenario.suite.add_listener(telemetry.listener)
        await asyncio.gather(scenario.box.get_message_count(), other.mailbox(ALICE, PASSWORD).get_uids())
    assert {span.name: [parent(each) for each in telemetry.spans].count(number(span)) for span in telemetry.spans} == {
        "GetMessageCount": 1,
        "POST /GetMessageCount/{folder}": 0,
        "GetUIDs": 1,
        "POST /GetUIDs/{folder}": 0,
    }


async def test_cancelled_send_leaves_no_span_open(scenario: Scenario, telemetry: Kept) -> None:
    scenario.suite.add_listener(telemetry.listener)
    scenario.sandbox.inject_fault("Send", "hang", processed=True)
    sending = asyncio.create_task(scenario.box.send(make_message()))
    while not await scenario.list_effects("Send"):
        assert not sending.done()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    attempt, call = telemetry.spans
    assert (attributes(attempt)["error.type"], attributes(call)["error.type"]) == ("CancelledError",) * 2
    assert attributes(call)["directsuite.cancelled"] is True
    assert attributes(call)["directsuite.outcome"] == "unknown"
    assert [value for _, value in telemetry.values("http.client.active_requests")] == [0]
    assert [value for _, value in telemetry.values("directsuite.unknown_outcomes")] == [1]


async def test_stream_left_early_leaves_no_span_open_and_is_not_an_error(scenario: Scenario, telemetry: Kept) -> None:
    await scenario.deliver("a", "b", "c")
    scenario.suite.add_listener(telemetry.listener)
    async with scenario.box.stream_messages() as messages:
        async for _ in messages:
            break
    attempt, call = telemetry.spans
    assert (attempt.status.status_code, call.status.status_code) == (UNSET, UNSET)
    assert attributes(call)["directsuite.cancelled"] is True


async def test_no_span_or_metric_contains_session_or_path_argument(scenario: Scenario, telemetry: Kept) -> None:
    scenario.suite.add_listener(telemetry.listener)
    session = (await scenario.suite.registration.login()).session_id
    with contextlib.suppress(ds.NotFoundError):
        await scenario.suite.registration.get_patient_address_by_username(DOMAIN, "somebody")
    assert session is not None
    reported = f"{[span.to_json() for span in telemetry.spans]} {telemetry.points('http.client.request.duration')}"
    assert "{session_id}" in reported
    assert not [text for text in (session.reveal(), "somebody", DOMAIN, "demo-login") if text in reported]


@pytest.mark.process
def test_class_needs_its_package_and_says_so() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import directsuite as ds\n"
        "try: ds.OpenTelemetry()\n"
        "except ds.ConfigurationError as error: print(error, error.__cause__)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install '.[otel]'" in result.stdout
    assert result.stdout.endswith("None\n")


@pytest.mark.process
def test_opentelemetry_is_imported_on_use_without_globals() -> None:
    program = (
        "import sys, directsuite as ds\n"
        "ds.OpenTelemetry; print('opentelemetry' in sys.modules)\n"
        "ds.OpenTelemetry()(ds.CircuitClosed(service='fax'))\n"
        "from opentelemetry import metrics, trace\n"
        "print(trace._TRACER_PROVIDER, metrics._internal._METER_PROVIDER)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "None", "None"]
