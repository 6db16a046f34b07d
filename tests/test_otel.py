"""OpenTelemetry: spans and metrics of calls, made from events, kept in memory by its SDK."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import directsuite as ds

from .integration.conftest import sandbox, world
from .integration.world import ALICE, DOMAIN, PASSWORD, World, message, settings_for

__all__ = ["sandbox", "world"]  # fixtures

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


class Kept:
    """What the listener under test told OpenTelemetry."""

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
        """The spans that have ended, in that order."""
        return self._exporter.get_finished_spans()

    def points(self, name: str) -> list[tuple[dict[str, object], HistogramDataPoint | NumberDataPoint]]:
        """A metric's data: attributes and points."""
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
        """A metric's data: attributes, and the value of a counter or the sum of a histogram."""
        return [
            (attributes, point.value if isinstance(point, NumberDataPoint) else point.sum)
            for attributes, point in self.points(name)
        ]


@pytest.fixture
def kept() -> Iterator[Kept]:
    kept = Kept()
    yield kept
    kept.tracing.shutdown()
    kept.metering.shutdown()


def parent(span: ReadableSpan) -> int | None:
    """The number of the span above."""
    return span.parent.span_id if span.parent is not None else None


def number(span: ReadableSpan) -> int:
    """The span's own number."""
    assert span.context is not None
    return int(span.context.span_id)


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_call_is_a_span_with_one_for_each_attempt(kept: Kept) -> None:
    kept.tell(STARTED, FIRST, UNAVAILABLE, RETRIED, SECOND, GOOD, FINISHED)
    first, second, call = kept.spans
    assert [(span.name, span.kind, span.status.status_code) for span in kept.spans] == [
        ("POST /GetUIDs/{folder}", CLIENT, ERROR),
        ("POST /GetUIDs/{folder}", CLIENT, UNSET),
        ("GetUIDs", INTERNAL, UNSET),
    ]
    assert attributes(first) == {**REQUEST, "http.response.status_code": 503, "error.type": "503"}
    assert attributes(second) == {**REQUEST, "http.response.status_code": 200, "http.request.resend_count": 1}
    assert attributes(call) == {**OPERATION, "directsuite.attempts": 2}
    assert [event.name for event in call.events] == ["retry"]
    assert (parent(call), parent(first), parent(second)) == (None, number(call), number(call))


# What failed, as the attempt's span says it.
FAILED: dict[str, tuple[str, int | None, str]] = {
    "status": ("NotFoundError", 404, "404"),
    "refusal with a good status": ("AddressError", 200, "AddressError"),
    "no answer": ("ConnectionLostError", None, "ConnectionLostError"),
    "spoilt answer": ("ResponseDecodeError", 200, "ResponseDecodeError"),
}


@pytest.mark.parametrize(("error", "status", "told"), FAILED.values(), ids=FAILED)
def test_error_type_is_the_status_or_the_class(kept: Kept, error: str, status: int | None, told: str) -> None:
    failed = ds.AttemptFailed(attempt=1, error=error, status=status, outcome=ds.Outcome.UNKNOWN, elapsed=0.5, **CALL)
    left = ds.OutcomeLeftUnknown(cancelled=False, how_to_find_out="look", **CALL)
    kept.tell(
        STARTED,
        FIRST,
        failed,
        left,
        ds.CallFinished(attempts=1, elapsed=1.0, error="OutcomeUnknownError", outcome=ds.Outcome.UNKNOWN, **CALL),
    )
    attempt, call = kept.spans
    assert (attributes(attempt)["error.type"], attempt.status.status_code) == (told, ERROR)
    assert attributes(attempt).get("http.response.status_code") == status
    assert attributes(call) == {
        **OPERATION,
        "directsuite.attempts": 1,
        "directsuite.outcome": "unknown",
        "error.type": "OutcomeUnknownError",
    }
    assert call.status.status_code is ERROR
    assert [event.name for event in call.events] == ["outcome left unknown"]


def test_caller_s_current_span_is_the_parent_and_stays_current(kept: Kept) -> None:
    with kept.tracing.get_tracer("program").start_as_current_span("visit") as visit:
        kept.tell(STARTED, FIRST)
        assert trace.get_current_span() is visit
        kept.tell(UNAVAILABLE, FINISHED)
    _, call, outer = kept.spans
    assert parent(call) == number(outer)
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_call_that_began_before_anybody_listened_has_no_span(kept: Kept) -> None:
    kept.tell(UNAVAILABLE, RETRIED, ds.OutcomeLeftUnknown(cancelled=True, how_to_find_out="look", **CALL), FINISHED)
    assert kept.spans == ()
    assert kept.values("http.client.active_requests") == []
    assert [value for _, value in kept.values("http.client.request.duration")] == [0.5]


def test_attempt_of_such_a_call_has_one(kept: Kept) -> None:
    kept.tell(SECOND, GOOD, FINISHED)
    assert [(span.kind, parent(span)) for span in kept.spans] == [(CLIENT, None)]


def test_nothing_is_measured_of_an_attempt_that_sent_nothing(kept: Kept) -> None:
    refused = ds.AttemptFailed(
        attempt=0, error="CircuitOpenError", status=None, outcome=ds.Outcome.NOT_SENT, elapsed=0.0, **CALL
    )
    kept.tell(STARTED, refused, ds.CallFinished(attempts=0, elapsed=0.0, error="CircuitOpenError", **CALL))
    assert [span.name for span in kept.spans] == ["GetUIDs"]
    assert kept.values("http.client.request.duration") == []
    assert kept.values("directsuite.call.duration") == [({**OPERATION, "error.type": "CircuitOpenError"}, 0.0)]


def test_removed_listener_ends_what_is_under_way(kept: Kept) -> None:
    kept.tell(STARTED, FIRST)
    kept.listener.close()
    assert [span.kind for span in kept.spans] == [CLIENT, INTERNAL]
    assert kept.values("http.client.active_requests") == [(REQUEST, 0)]


def test_requests_are_measured_in_the_convention_s_buckets(kept: Kept) -> None:
    kept.tell(STARTED, FIRST)
    assert kept.values("http.client.active_requests") == [(REQUEST, 1)]
    kept.tell(UNAVAILABLE, RETRIED, SECOND, GOOD, FINISHED)
    assert kept.values("http.client.active_requests") == [(REQUEST, 0)]
    assert kept.values("http.client.request.duration") == [
        ({**REQUEST, "http.response.status_code": 503, "error.type": "503"}, 0.5),
        ({**REQUEST, "http.response.status_code": 200}, 0.25),
    ]
    (_, point), *_ = kept.points("http.client.request.duration")
    assert isinstance(point, HistogramDataPoint)
    assert list(point.explicit_bounds) == [
        *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75),
        *(1.0, 2.5, 5.0, 7.5, 10.0),
    ]
    assert kept.values("directsuite.call.duration") == [(OPERATION, 4.0)]


# An event, the counter that it adds 1 to, and that count's attributes.
COUNTED: list[tuple[ds.Event, str, dict[str, object]]] = [
    (RETRIED, "directsuite.retries", {**OPERATION}),
    (
        ds.OutcomeLeftUnknown(cancelled=True, how_to_find_out="look", **CALL),
        "directsuite.unknown_outcomes",
        {**OPERATION},
    ),
    (
        ds.TokenRefreshed(generation=1, expires_in=None),
        "directsuite.renewals",
        {"directsuite.credential": "token"},
    ),
    (
        ds.SessionRenewed(generation=1, expires_in=600.0),
        "directsuite.renewals",
        {"directsuite.credential": "session"},
    ),
    (
        ds.RenewalFailed(error="AuthenticationError", back_off=1.0),
        "directsuite.renewals",
        {"error.type": "AuthenticationError"},
    ),
    (ds.ServicePaused(service="fax", seconds=3.0), "directsuite.pauses", {"directsuite.service": "fax"}),
    (
        ds.CircuitOpened(service="fax", failures=20, seconds=10.0),
        "directsuite.circuit_openings",
        {"directsuite.service": "fax"},
    ),
]


@pytest.mark.parametrize(("event", "counter", "told"), COUNTED, ids=lambda value: type(value).__name__)
def test_event_is_counted(kept: Kept, event: ds.Event, counter: str, told: dict[str, object]) -> None:
    kept.tell(event, ds.CircuitClosed(service="fax"))
    assert kept.values(counter) == [(told, 1)]
    assert kept.spans == ()


def _of(call: int) -> list[ds.Event]:
    about: dict[str, Any] = {**CALL, "call": call}
    events: list[ds.Event] = [
        ds.CallStarted(**about),
        ds.AttemptStarted(attempt=1, **about),
        ds.AttemptStarted(attempt=2, **about),
        ds.AttemptSucceeded(attempt=1, status=200, elapsed=0.1, **about),
        ds.AttemptFailed(attempt=1, error="X", status=None, outcome=None, elapsed=0.1, **about),
        ds.RetryScheduled(attempt=2, wait=1.0, **about),
        ds.OutcomeLeftUnknown(cancelled=True, how_to_find_out="look", **about),
        ds.CallFinished(attempts=1, elapsed=0.1, error="CancelledError", cancelled=True, **about),
    ]
    return events


class Starts(SimpleSpanProcessor):
    """Counts the spans that were started."""

    count = 0

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.count += 1


@given(st.lists(st.sampled_from([event for call in (1, 2, 3) for event in _of(call)]), max_size=40))
def test_every_span_ends_once_whatever_was_told_in_whatever_order(events: list[ds.Event]) -> None:
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
    assert [record.getMessage() for record in complaints] == []


async def test_retried_call_of_a_suite_is_traced(world: World, kept: Kept) -> None:
    world.suite.add_listener(kept.listener)
    world.sandbox.inject_fault("GetMessageCount", "status", status=500)
    with kept.tracing.get_tracer("program").start_as_current_span("visit"):
        await world.box.get_message_count()
    first, second, call, visit = kept.spans
    assert (parent(first), parent(second), parent(call)) == (number(call), number(call), number(visit))
    assert [span.status.status_code for span in kept.spans] == [ERROR, UNSET, UNSET, UNSET]
    assert attributes(second)["http.request.resend_count"] == 1
    assert kept.values("directsuite.retries")[0][1] == 1


async def test_listener_of_two_suites_keeps_their_calls_apart(world: World, kept: Kept) -> None:
    async with ds.DirectSuite(settings_for(world.sandbox), clock=world.clock, listeners=[kept.listener]) as other:
        world.suite.add_listener(kept.listener)
        await asyncio.gather(world.box.get_message_count(), other.mailbox(ALICE, PASSWORD).get_uids())
    assert {span.name: [parent(each) for each in kept.spans].count(number(span)) for span in kept.spans} == {
        "GetMessageCount": 1,
        "POST /GetMessageCount/{folder}": 0,
        "GetUIDs": 1,
        "POST /GetUIDs/{folder}": 0,
    }


async def test_cancelled_send_leaves_no_span_open(world: World, kept: Kept) -> None:
    world.suite.add_listener(kept.listener)
    world.sandbox.inject_fault("Send", "hang", processed=True)
    sending = asyncio.create_task(world.box.send(message()))
    while not await world.effects("Send"):
        assert not sending.done()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    attempt, call = kept.spans
    assert (attributes(attempt)["error.type"], attributes(call)["error.type"]) == ("CancelledError",) * 2
    assert attributes(call)["directsuite.cancelled"] is True
    assert attributes(call)["directsuite.outcome"] == "unknown"
    assert [value for _, value in kept.values("http.client.active_requests")] == [0]
    assert [value for _, value in kept.values("directsuite.unknown_outcomes")] == [1]


async def test_stream_left_early_leaves_no_span_open_and_is_no_error(world: World, kept: Kept) -> None:
    await world.deliver("a", "b", "c")
    world.suite.add_listener(kept.listener)
    async with world.box.stream_messages() as messages:
        async for _ in messages:
            break
    attempt, call = kept.spans
    assert (attempt.status.status_code, call.status.status_code) == (UNSET, UNSET)
    assert attributes(call)["directsuite.cancelled"] is True


async def test_no_span_or_metric_holds_a_session_or_what_a_caller_put_into_a_path(world: World, kept: Kept) -> None:
    world.suite.add_listener(kept.listener)
    session = (await world.suite.registration.login()).session_id
    with contextlib.suppress(ds.NotFoundError):
        await world.suite.registration.get_patient_address_by_username(DOMAIN, "somebody")
    assert session is not None
    told = "".join(span.to_json() for span in kept.spans) + str(kept.points("http.client.request.duration"))
    assert "{session_id}" in told
    assert not [text for text in (session.reveal(), "somebody", DOMAIN, "demo-login") if text in told]


@pytest.mark.process
def test_class_needs_its_package_and_says_so() -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import directsuite as ds\n"
        "try: ds.OpenTelemetry()\n"
        "except ds.ConfigurationError as error: print(error, error.__cause__)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'directsuite[otel]'" in result.stdout
    assert result.stdout.endswith("None\n")


@pytest.mark.process
def test_opentelemetry_is_loaded_when_the_class_is_used_and_nothing_global_is_set() -> None:
    program = (
        "import sys, directsuite as ds\n"
        "ds.OpenTelemetry; print('opentelemetry' in sys.modules)\n"
        "ds.OpenTelemetry()(ds.CircuitClosed(service='fax'))\n"
        "from opentelemetry import metrics, trace\n"
        "print(trace._TRACER_PROVIDER, metrics._internal._METER_PROVIDER)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "None", "None"]
