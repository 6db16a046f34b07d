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
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

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
        self._spans = _Spans(get_tracer("directsuite", __version__, tracer_provider, _SCHEMA_URL))
        self._metrics = _Metrics(get_meter("directsuite", __version__, meter_provider, _SCHEMA_URL))

    def __call__(self, event: Event) -> None:
        """Record an event."""
        self._metrics.record(event)
        self._spans.record(event)

    def close(self) -> None:
        """End the spans of calls in progress, and stop counting their attempts as active.

        Remove the listener from its suites first.
        """
        self._metrics.close()
        self._spans.close()


@attrs.define
class _CallSpans:
    """call: None if the call began before the listener was added."""

    call: Span | None
    attempt: Span | None = None

    def end_attempt(self) -> None:
        if self.attempt is not None:
            self.attempt.end()
            self.attempt = None


class _Spans:
    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry import trace

        self._trace = trace
        self._tracer = tracer
        self._calls: dict[int, _CallSpans] = {}

    def record(self, event: Event) -> None:
        match event:
            case CallStarted():
                self._end_spans(event.call)
                self._calls[event.call] = _CallSpans(
                    self._tracer.start_span(event.operation, attributes=_build_call_attributes(event))
                )
            case AttemptStarted():
                self._start_attempt(event)
            case AttemptSucceeded() | AttemptFailed():
                self._finish_attempt(event)
            case RetryScheduled():
                self._annotate(event, "retry", {"directsuite.attempt": event.attempt, "directsuite.wait": event.wait})
            case OutcomeLeftUnknown():
                self._annotate(
                    event,
                    "outcome left unknown",
                    {"directsuite.cancelled": event.cancelled, "directsuite.happened": event.happened},
                )
            case CallFinished():
                self._finish_call(event)
            case _:
                pass

    def close(self) -> None:
        for call in list(self._calls):
            self._end_spans(call)

    def _start_attempt(self, event: AttemptStarted) -> None:
        spans = self._calls.setdefault(event.call, _CallSpans(None))
        spans.end_attempt()
        parent = None if spans.call is None else self._trace.set_span_in_context(spans.call)
        attributes = _build_request_attributes(event)
        if event.attempt > 1:
            attributes["http.request.resend_count"] = event.attempt - 1
        name = f"{event.method} {attributes['url.template']}"
        spans.attempt = self._tracer.start_span(name, parent, self._trace.SpanKind.CLIENT, attributes)

    def _finish_attempt(self, event: AttemptSucceeded | AttemptFailed) -> None:
        spans = self._calls.get(event.call)
        if spans is None or spans.attempt is None:
            return
        spans.attempt.set_attributes(_build_response_attributes(event))
        if isinstance(event, AttemptFailed):
            spans.attempt.set_status(self._trace.StatusCode.ERROR)
        spans.end_attempt()

    def _annotate(self, event: CallEvent, name: str, attributes: Mapping[str, str | int | float | bool]) -> None:
        spans = self._calls.get(event.call)
        if spans is not None and spans.call is not None:
            spans.call.add_event(name, attributes)

    def _finish_call(self, event: CallFinished) -> None:
        spans = self._calls.get(event.call)
        if spans is not None and spans.call is not None:
            spans.call.set_attribute("directsuite.attempts", event.attempts)
            if event.status is not None:
                spans.call.set_attribute("http.response.status_code", event.status)
            if event.code is not None:
                spans.call.set_attribute("directsuite.code", event.code)
            if event.cancelled:
                spans.call.set_attribute("directsuite.cancelled", True)
            if event.verified:
                spans.call.set_attribute("directsuite.verified", True)
            if event.outcome is not None:
                spans.call.set_attribute("directsuite.outcome", event.outcome.value)
            if event.error is not None:
                spans.call.set_attribute("error.type", event.error)
                spans.call.set_status(self._trace.StatusCode.ERROR)
        self._end_spans(event.call)

    def _end_spans(self, call: int) -> None:
        spans = self._calls.pop(call, None)
        if spans is not None:
            spans.end_attempt()
            if spans.call is not None:
                spans.call.end()


class _Metrics:
    def __init__(self, meter: Meter) -> None:
        self._requests = meter.create_histogram(
            "http.client.request.duration",
            "s",
            "Duration of HTTP client requests.",
            explicit_bucket_boundaries_advisory=_BOUNDARIES,
        )
        self._active = meter.create_up_down_counter(
            "http.client.active_requests", "{request}", "Number of active HTTP requests."
        )
        self._calls = meter.create_histogram(
            "directsuite.call.duration",
            "s",
            "Duration of calls: waits, attempts and back-off together.",
            explicit_bucket_boundaries_advisory=(*_BOUNDARIES, 30.0, 60.0),
        )
        self._counters = {
            name: meter.create_counter(name, unit, description) for name, (unit, description) in _COUNTERS.items()
        }
        self._in_flight: dict[int, Attributes] = {}

    def record(self, event: Event) -> None:
        match event:
            case AttemptStarted():
                self._end_attempt(event.call)
                self._in_flight[event.call] = _build_request_attributes(event)
                self._active.add(1, self._in_flight[event.call])
            case AttemptSucceeded() | AttemptFailed():
                self._end_attempt(event.call)
                if event.attempt:  # 0 means that no request was sent
                    self._requests.record(
                        event.elapsed, _build_request_attributes(event) | _build_response_attributes(event)
                    )
            case RetryScheduled():
                self._add_to_counter("directsuite.retries", _build_operation_attributes(event))
            case OutcomeLeftUnknown():
                attributes = _build_operation_attributes(event) | {"directsuite.job_finds_out": event.job_finds_out}
                self._add_to_counter("directsuite.unknown_outcomes", attributes)
            case ValuesSkipped():
                self._add_to_counter(
                    "directsuite.skipped_values", _build_operation_attributes(event), sum(event.paths.values())
                )
            case CallFinished():
                self._end_attempt(event.call)
                attributes = _build_operation_attributes(event)
                if event.error is not None:
                    attributes["error.type"] = event.error
                self._calls.record(event.elapsed, attributes)
            case Renewed():
                credential = "session" if isinstance(event, SessionRenewed) else "token"
                self._add_to_counter("directsuite.renewals", {"directsuite.credential": credential})
            case RenewalFailed():
                self._add_to_counter(
                    "directsuite.renewals",
                    {"directsuite.credential": event.credential, "error.type": event.error},
                )
            case ServicePaused():
                self._add_to_counter("directsuite.pauses", {"directsuite.service": event.service})
            case CircuitOpened():
                self._add_to_counter("directsuite.circuit_openings", {"directsuite.service": event.service})
            case _:
                pass

    def close(self) -> None:
        for call in list(self._in_flight):
            self._end_attempt(call)

    def _add_to_counter(self, name: str, attributes: Attributes, times: int = 1) -> None:
        self._counters[name].add(times, attributes)

    def _end_attempt(self, call: int) -> None:
        attributes = self._in_flight.pop(call, None)
        if attributes is not None:
            self._active.add(-1, attributes)


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
