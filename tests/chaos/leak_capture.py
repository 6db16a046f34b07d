"""Capture all output of a suite: logs, events, spans, metrics, errors with their frames, reprs.

Each text is captured with its place, which names a leak. Locals of the tests' own frames are ignored.
"""

from __future__ import annotations

import gc
import logging
import pickle
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import attrs
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import directsuite as ds
from directsuite.core.upload import RequestBody
from directsuite.errors import _Hidden

CapturedText = tuple[str, str]
"""A place and its text."""

_TESTS = str(Path(__file__).parents[1])
_SECRET_HOLDERS = (ds.Secret, RequestBody, _Hidden)
"""The objects that contain a secret and do not show it."""
_FORMATTER = logging.Formatter("%(levelname)s %(name)s %(message)s")


class OutputCapture(logging.Handler):
    """Captures the records of all loggers, the events of a suite, and OpenTelemetry's spans and metrics."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.records: list[logging.LogRecord] = []
        self.events: list[ds.Event] = []
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self._tracing = TracerProvider(shutdown_on_exit=False)
        self._tracing.add_span_processor(SimpleSpanProcessor(self._spans))
        self._metering = MeterProvider([self._metrics], shutdown_on_exit=False)
        self._telemetry = ds.OpenTelemetry(self._tracing, self._metering)
        self._levels: dict[logging.Logger, int] = {}
        self._handlers: list[logging.Handler] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def listen(self, suite: ds.DirectSuite) -> None:
        suite.add_listener(self.events.append)
        suite.add_listener(self._telemetry)

    def __enter__(self) -> Self:
        known = [each for each in logging.Logger.manager.loggerDict.values() if isinstance(each, logging.Logger)]
        for logger in (logging.getLogger(), *known):
            self._levels[logger] = logger.level
            logger.setLevel(logging.DEBUG)
        root = logging.getLogger()
        self._handlers, root.handlers = root.handlers, [self]  # pytest's own would format each record as well
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        gc.collect()  # some objects log when they are collected
        logging.getLogger().handlers = self._handlers
        for logger, level in self._levels.items():
            logger.setLevel(level)
        self._metrics.collect()
        self._tracing.shutdown()

    @property
    def operations(self) -> set[str]:
        return {event.operation for event in self.events if isinstance(event, ds.CallFinished)}

    def collect_texts(self) -> Iterator[CapturedText]:
        for record in self.records:
            place = f"log of {record.name}: {str(record.msg)[:60]}"
            yield place, _FORMATTER.format(record)
            yield place, repr(vars(record))
        for event in self.events:
            yield f"repr of {type(event).__name__}", repr(event)
            yield f"fields of {type(event).__name__}", repr(attrs.asdict(event))
        for span in self._spans.get_finished_spans():
            yield f"span {span.name}", span.to_json(indent=None)
        data = self._metrics.get_metrics_data()
        if data is not None:
            yield "metrics", repr(data)


def iterate_error_chain(error: BaseException) -> Iterator[BaseException]:
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        waiting += [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            waiting += cast("BaseExceptionGroup[BaseException]", link).exceptions


def collect_error_texts(error: BaseException) -> Iterator[CapturedText]:
    for link in iterate_error_chain(error):
        name = type(link).__name__
        yield f"str of {name}", str(link)
        yield f"repr of {name}", repr(link)
        yield f"args of {name}", repr(link.args)
        yield f"attributes of {name}", repr(vars(link))
        again = pickle.loads(pickle.dumps(link)) if isinstance(link, ds.DirectSuiteError) else link  # noqa: S301  ours
        yield f"pickled {name}", f"{again} {again!r} {again.args!r} {vars(again)!r}"
    yield "traceback", "".join(traceback.format_exception(error))


def collect_frame_locals(error: BaseException) -> Iterator[CapturedText]:
    """Return the locals of all frames of the error chain, without those of tests."""
    for link in iterate_error_chain(error):
        reported = traceback.TracebackException.from_exception(link, capture_locals=True)
        for frame in reported.stack:
            if frame.filename.startswith(_TESTS):
                continue
            for name, text in (frame.locals or {}).items():
                yield f"{name} in {frame.name} ({Path(frame.filename).name})", text


def collect_pickles(error: BaseException) -> Iterator[CapturedText]:
    """Return the pickles of our errors, without the service's own text and paths, which are pickled on purpose."""
    for link in iterate_error_chain(error):
        if isinstance(link, ds.DirectSuiteError):
            bare = link.copy()
            for kept in ("_service_text", "_found", "_filename"):
                vars(bare).pop(kept, None)
            bare.__cause__ = None
            yield f"pickle of {type(link).__name__}", pickle.dumps(bare).decode("latin-1")


def collect_reprs(*roots: object) -> Iterator[CapturedText]:
    """Return the reprs of every reachable object of the package, and of their attributes."""
    waiting = list(roots)
    seen: dict[int, object] = {}  # keeps the objects alive, so that no id is reused
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part
        if isinstance(part, dict):
            waiting += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple | set | frozenset):
            waiting += list(cast("Iterable[object]", part))
        elif type(part).__module__.startswith("directsuite") and not isinstance(part, type):
            yield f"repr of a {type(part).__name__}", repr(part)
            yield f"str of a {type(part).__name__}", str(part)
            if not isinstance(part, _SECRET_HOLDERS):
                members = _read_attributes(part)
                yield f"attributes of a {type(part).__name__}", repr(members)
                waiting += members.values()


def _read_attributes(part: object) -> dict[str, Any]:
    slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: getattr(part, name) for name in slots if hasattr(part, name)} | dict(getattr(part, "__dict__", {}))


def find_leaks(shown: Iterable[CapturedText], forbidden: Iterable[str]) -> list[CapturedText]:
    pairs = set(shown)
    together = "\0".join(text for _, text in pairs)  # one search for each text is slow if there are no leaks
    present = [form for form in forbidden if form in together]
    return sorted({(place, form) for place, text in pairs for form in present if form in text})
