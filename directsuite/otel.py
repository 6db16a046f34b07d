"""Record traces and metrics of calls with OpenTelemetry, according to its semantic conventions for HTTP clients.

    async with DirectSuite(settings, listeners=[OpenTelemetry()]) as suite: ...

    the caller's current span
    └── GetMessageCount                     INTERNAL   the call, including all waits
        ├── POST /GetMessageCount/{folder}  CLIENT     the first attempt, error.type=503
        └── POST /GetMessageCount/{folder}  CLIENT     the second attempt, http.request.resend_count=1

Spans and metrics contain only names, numbers and URL templates. `url.full`, which the conventions require, is omitted,
because it would contain session ids, mailbox folders and document identifiers. `url.template`, relative to the
service's base URL, replaces it. Do not use OpenTelemetry's instrumentation of aiohttp for these calls: it records
complete URLs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from directsuite._version import __version__
from directsuite.core.events import (
    AttemptFailed,
    AttemptStarted,
    AttemptSucceeded,
    CallEvent,
    CallFinished,
    CallStarted,
    CircuitOpened,
    Event,
    OutcomeLeftUnknown,
    RenewalFailed,
    Renewed,
    RetryScheduled,
    ServicePaused,
    SessionRenewed,
    ValuesSkipped,
)
from directsuite.core.privacy import scrub_class
from directsuite.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

Attributes = dict[str, str | int | float | bool]

_SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.37.0"
_BOUNDARIES: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bucket boundaries in seconds, as recommended by the conventions."""

_COUNTERS: Final = {
    "directsuite.retries": ("{retry}", "Repeated attempts after a failure."),
    "directsuite.unknown_outcomes": ("{call}", "Calls whose side effect may or may not have happened."),
    "directsuite.skipped_values": ("{value}", "Values of responses that could not be read, and were skipped."),
    "directsuite.renewals": ("{renewal}", "New bearer tokens and registration sessions, and failures to get one."),
    "directsuite.pauses": ("{pause}", "Pauses that a service requested with Retry-After."),
    "directsuite.circuit_openings": (
        "{opening}",
        "Times that a service was considered down, including after failed probes.",
    ),
}


@scrub_class
class OpenTelemetry:
    """A listener that records calls with OpenTelemetry. It can be used with several suites.

    tracer_provider, meter_provider: OpenTelemetry's providers. None: use the global provider.

    Install the extra `otel`, and configure OpenTelemetry's SDK in your program.

    The span of a call is a child of the caller's current span. The spans of its attempts are children of the call's
    span. To make all calls of a method one trace, open a span around the method. An attempt's span ends with the
    response; for a stream, with the response's headers. A call's span ends with the call, even if that is cancelled.
    Metrics:

        http.client.request.duration   seconds of each attempt    http.client.active_requests   attempts in progress
        directsuite.call.duration      seconds of each call       directsuite.retries
        directsuite.unknown_outcomes   directsuite.renewals       directsuite.pauses
        directsuite.circuit_openings   directsuite.skipped_values

    The span of a call has the attributes `directsuite.operation`, `directsuite.service`, `directsuite.call` and
    `directsuite.group` (the numbers in logs and errors), `directsuite.attempts` and, if known,
    `http.response.status_code` (of the last request), `directsuite.code` (of the service), `directsuite.outcome`,
    `directsuite.cancelled`, `directsuite.verified` and `error.type`.

    `error.type` of an attempt is the HTTP status if it is 400 or more. Otherwise, and for calls and failed renewals, it
    is the name of the error's class. An attempt also has `directsuite.reason` if its connection failed (`reason` of
    AttemptFailed). `directsuite.unknown_outcomes` has `directsuite.job_finds_out`, which is true in a signing job.

    Raises ConfigurationError if the package opentelemetry-api is not installed.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        try:
            from opentelemetry.metrics import get_meter
            from opentelemetry.trace import get_tracer
        except ImportError:
            raise ConfigurationError(
                "OpenTelemetry needs the package opentelemetry-api: "
                "in a copy of the repository, run pip install '.[otel]'"
            ) from None
        self._tracer = get_tracer("directsuite", __version__, tracer_provider, _SCHEMA_URL)
        meter = get_meter("directsuite", __version__, meter_provider, _SCHEMA_URL)
        self._request_durations = meter.create_histogram(
            "http.client.request.duration",
            "s",
            "Duration of HTTP client requests.",
            explicit_bucket_boundaries_advisory=_BOUNDARIES,
        )
        self._active_requests = meter.create_up_down_counter(
            "http.client.active_requests", "{request}", "Number of active HTTP requests."
        )
        self._call_durations = meter.create_histogram(
            "directsuite.call.duration",
            "s",
            "Duration of calls: waits, attempts and back-off together.",
            explicit_bucket_boundaries_advisory=(*_BOUNDARIES, 30.0, 60.0),
        )
        self._counters = {
            name: meter.create_counter(name, unit, description) for name, (unit, description) in _COUNTERS.items()
        }
        self._calls: dict[int, _CallSpans] = {}

    def __call__(self, event: Event) -> None:
        """Record an event."""
        match event:
            case CallStarted():
                self._end_spans(event.call)
                span = self._tracer.start_span(event.operation, attributes=_build_call_attributes(event))
                self._calls[event.call] = _CallSpans(span)
            case AttemptStarted():
                self._start_attempt(event)
            case AttemptSucceeded() | AttemptFailed():
                self._finish_attempt(event)
            case RetryScheduled():
                self._annotate(event, "retry", {"directsuite.attempt": event.attempt, "directsuite.wait": event.wait})
                self._count("directsuite.retries", _build_operation_attributes(event))
            case OutcomeLeftUnknown():
                details = {"directsuite.cancelled": event.cancelled, "directsuite.happened": event.happened}
                self._annotate(event, "outcome left unknown", details)
                attributes = _build_operation_attributes(event) | {"directsuite.job_finds_out": event.job_finds_out}
                self._count("directsuite.unknown_outcomes", attributes)
            case ValuesSkipped():
                times = sum(event.paths.values())
                self._count("directsuite.skipped_values", _build_operation_attributes(event), times)
            case CallFinished():
                self._finish_call(event)
            case Renewed():
                credential = "session" if isinstance(event, SessionRenewed) else "token"
                self._count("directsuite.renewals", {"directsuite.credential": credential})
            case RenewalFailed():
                attributes = {"directsuite.credential": event.credential, "error.type": event.error}
                self._count("directsuite.renewals", attributes)
            case ServicePaused():
                self._count("directsuite.pauses", {"directsuite.service": event.service})
            case CircuitOpened():
                self._count("directsuite.circuit_openings", {"directsuite.service": event.service})
            case _:
                pass

    def close(self) -> None:
        """End the spans of calls in progress, and stop counting their attempts as active.

        Remove the listener from its suites first.
        """
        for call in list(self._calls):
            self._end_spans(call)

    def _start_attempt(self, event: AttemptStarted) -> None:
        from opentelemetry.trace import SpanKind, set_span_in_context

        spans = self._calls.setdefault(event.call, _CallSpans())
        self._end_attempt(spans)
        parent = None if spans.call is None else set_span_in_context(spans.call)
        spans.request = request = _build_request_attributes(event)
        resent: Attributes = {"http.request.resend_count": event.attempt - 1} if event.attempt > 1 else {}
        name = f"{event.method} {request['url.template']}"
        spans.attempt = self._tracer.start_span(name, parent, SpanKind.CLIENT, request | resent)
        self._active_requests.add(1, request)  # after the span, because a sampler or processor may raise

    def _finish_attempt(self, event: AttemptSucceeded | AttemptFailed) -> None:
        response = _build_response_attributes(event)
        if event.attempt:  # 0 means that no request was sent
            self._request_durations.record(event.elapsed, _build_request_attributes(event) | response)
        spans = self._calls.get(event.call)
        if spans is not None and spans.attempt is not None:
            _set_attributes(spans.attempt, response)
            self._end_attempt(spans)

    def _annotate(self, event: CallEvent, name: str, attributes: Mapping[str, str | int | float | bool]) -> None:
        spans = self._calls.get(event.call)
        if spans is not None and spans.call is not None:
            spans.call.add_event(name, attributes)

    def _finish_call(self, event: CallFinished) -> None:
        error: Attributes = {} if event.error is None else {"error.type": event.error}
        self._call_durations.record(event.elapsed, _build_operation_attributes(event) | error)
        spans = self._calls.get(event.call)
        if spans is not None and spans.call is not None:
            details = {
                "http.response.status_code": event.status,
                "directsuite.code": event.code,
                "directsuite.cancelled": event.cancelled or None,
                "directsuite.verified": event.verified or None,
                "directsuite.outcome": None if event.outcome is None else event.outcome.value,
            }
            known = {name: value for name, value in details.items() if value is not None}
            _set_attributes(spans.call, {"directsuite.attempts": event.attempts, **known, **error})
        self._end_spans(event.call)

    def _end_spans(self, call: int) -> None:
        spans = self._calls.pop(call, None)
        if spans is not None:
            self._end_attempt(spans)
            if spans.call is not None:
                spans.call.end()

    def _end_attempt(self, spans: _CallSpans) -> None:
        attempt, spans.attempt = spans.attempt, None
        if attempt is not None:
            self._active_requests.add(-1, spans.request)
            attempt.end()

    def _count(self, name: str, attributes: Mapping[str, str | int | float | bool], times: int = 1) -> None:
        self._counters[name].add(times, attributes)


@attrs.define
class _CallSpans:
    call: Span | None = None
    """The span of the call, or None if the call began before the listener was added."""
    attempt: Span | None = None
    """The attempt in progress, if any. It is counted as active."""
    request: Attributes = attrs.field(factory=dict[str, str | int | float | bool])
    """The attributes with which it is counted."""


def _set_attributes(span: Span, attributes: Attributes) -> None:
    """Set the attributes of a span that ends. It has failed if they contain the type of an error."""
    from opentelemetry.trace import StatusCode

    span.set_attributes(attributes)
    if "error.type" in attributes:
        span.set_status(StatusCode.ERROR)


def _build_operation_attributes(event: CallEvent) -> Attributes:
    return {"directsuite.operation": event.operation, "directsuite.service": event.service}


def _build_call_attributes(event: CallEvent) -> Attributes:
    """Return the attributes of a call's span. In metrics, the numbers would make a series of each call."""
    numbers: Attributes = {"directsuite.call": event.call}
    if event.group is not None:
        numbers["directsuite.group"] = event.group
    return _build_operation_attributes(event) | numbers


def _build_request_attributes(event: CallEvent) -> Attributes:
    return {
        "http.request.method": event.method,
        "server.address": event.host,
        "server.port": event.port,
        "url.template": f"/{event.path}",
    }


def _build_response_attributes(event: AttemptSucceeded | AttemptFailed) -> Attributes:
    attributes: Attributes = {}
    if event.status is not None:
        attributes["http.response.status_code"] = event.status
    if isinstance(event, AttemptFailed):
        if event.reason is not None:
            attributes["directsuite.reason"] = event.reason
        by_status = event.status is not None and event.status >= 400
        attributes["error.type"] = str(event.status) if by_status else event.error
    return attributes
