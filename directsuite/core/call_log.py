"""Log lines for people: one for each call, and for each request and response with masked values.

    INFO GetUIDs: succeeded (call 7, HTTP 200, 1 attempt, 12 ms)
    DEBUG GetUIDs: request POST GetUIDs/{folder} (call 7, attempt 1), {username: <27 chars>, password: ***}
    DEBUG GetUIDs: response HTTP 200 (call 7, attempt 1), GetUIDResponse(success=True, code=<set>, uids=<3>)

Each record has the fields of the event CallFinished, AttemptStarted, AttemptSucceeded or AttemptFailed in the
dictionary `record.directsuite`.

The logger `directsuite.calls` writes them. It is off until `configure_logging` is called or DIRECTSUITE_LOG is set.
Masked values show only types and sizes. URLs are logged without the values of their parameters.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

from directsuite.core.events import (
    NOT_SENT_TEXT,
    VERIFIED_TEXT,
    AttemptFailed,
    AttemptStarted,
    AttemptSucceeded,
    CallEvent,
    CallFinished,
    is_group_logged,
    is_unsent,
    make_log_fields,
)
from directsuite.core.operation import MediaType
from directsuite.core.privacy import scrub_traceback
from directsuite.errors import ConfigurationError, DirectSuiteError
from directsuite.wire.models import Model, summarize

if TYPE_CHECKING:
    from directsuite.core.call import Call
    from directsuite.core.upload import RequestBody

_LOGGER = logging.getLogger("directsuite")
CALLS = logging.getLogger("directsuite.calls")
if CALLS.level == logging.NOTSET:  # otherwise the program has set it before it used a name of the package
    CALLS.setLevel(logging.WARNING)  # off, even if a program logs everything else at INFO
LOG_VARIABLE = "DIRECTSUITE_LOG"
_LEVELS = {"info": logging.INFO, "debug": logging.DEBUG}
_MAX_MASKED_BYTES = 65536


@scrub_traceback
def configure_logging(level: Literal["info", "debug"] | None = None) -> None:
    """Log each call, as the variable DIRECTSUITE_LOG does. Lines go to stderr, or to the handlers of the root logger.

    level: "info" for a line about each call with its status, attempts and duration, and lines about retries and
        renewals. "debug" adds each request and response, in which only types and sizes of values are shown. None: use
        DIRECTSUITE_LOG, or else "info".

    Raises ConfigurationError if the level is unknown.
    """
    name, given = ("level", level) if level is not None else (LOG_VARIABLE, os.environ.get(LOG_VARIABLE) or "info")
    number = _LEVELS.get(str(given).lower())
    if number is None:
        raise ConfigurationError(f"{name} must be info or debug")
    for each in (_LOGGER, CALLS):
        each.setLevel(number)
    if not is_configured():
        handler = _StderrHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        _LOGGER.addHandler(handler)


def is_configured() -> bool:
    """Return True if `configure_logging` was called in this process."""
    return any(isinstance(each, _StderrHandler) for each in _LOGGER.handlers)


class _StderrHandler(logging.StreamHandler[Any]):
    """Writes to stderr unless the program has its own handlers, so that no line appears twice."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        handlers = [*logging.getLogger().handlers, *_LOGGER.handlers]
        others = [each for each in handlers if not isinstance(each, _StderrHandler | logging.NullHandler)]
        if self.stream is not None and not others:
            super().emit(record)


def log_finished(event: CallFinished) -> None:
    """Log the end of a call at INFO."""
    if CALLS.isEnabledFor(logging.INFO):
        ending = "succeeded" if event.error is None else f"failed, {event.error}"
        ending += f", {VERIFIED_TEXT}" if event.verified else ""
        nothing = "no response" if event.attempts else "no request"
        status = nothing if event.status is None else f"HTTP {event.status}"
        code = "" if event.code is None else f", code {event.code}"
        attempts = "1 attempt" if event.attempts == 1 else f"{event.attempts} attempts"
        text = "%s: %s (%s, %s%s, %s, %.0f ms)"
        values = (event.operation, ending, _describe_call(event), status, code, attempts, event.elapsed * 1000)
        _write(logging.INFO, text, values, event)


def log_request(call: Call[Any], event: AttemptStarted) -> None:
    """Log a request at DEBUG, with the values in its body masked."""
    if CALLS.isEnabledFor(logging.DEBUG):
        body = "no body" if event.method == "GET" else _mask_body(call.body, call.operation.content_type)
        _log_attempt(event, f"request {event.method} {event.path or 'token_url'}", body)


def log_response(event: AttemptSucceeded | AttemptFailed, result: object) -> None:
    """Log a response or an attempt's error at DEBUG, with all values masked."""
    if CALLS.isEnabledFor(logging.DEBUG):
        status = "no response" if event.status is None else f"response HTTP {event.status}"
        _log_attempt(event, NOT_SENT_TEXT if is_unsent(event) else status, _mask_result(result))


def _log_attempt(event: AttemptStarted | AttemptSucceeded | AttemptFailed, words: str, content: str) -> None:
    number = f", attempt {event.attempt}" if event.attempt else ""
    values = (event.operation, words, _describe_call(event), number, content)
    _write(logging.DEBUG, "%s: %s (%s%s), %s", values, event)


def _write(level: int, text: str, values: tuple[object, ...], event: CallEvent) -> None:
    # An exception of a program's handler would replace the result of a call that has taken effect.
    with contextlib.suppress(Exception):
        CALLS.log(level, text, *values, extra={"directsuite": make_log_fields(event)})


def _describe_call(event: CallEvent) -> str:
    return f"call {event.call}, group {event.group}" if is_group_logged(event) else f"call {event.call}"


def _mask_result(result: object) -> str:
    if isinstance(result, DirectSuiteError):
        return f"{type(result).__name__}: {result.explanation}"
    if isinstance(result, BaseException):
        return type(result).__name__
    if isinstance(result, Model):
        return summarize(result)
    return _mask(cast("object", result)) if isinstance(result, bytes | list) else "a stream"


def _mask_body(body: RequestBody | None, content_type: MediaType | None) -> str:
    if body is None or body.size == 0:
        return "no body"
    is_json = content_type is MediaType.JSON and body.chunks is None and not body.needs_base64
    if is_json and len(body.content) <= _MAX_MASKED_BYTES:
        from json import loads  # imported only if needed, to start faster

        with contextlib.suppress(ValueError):
            return _mask(loads(body.content))
    return "a stream" if body.size is None else f"{body.size} bytes"


def _mask(value: object) -> str:
    """Return a JSON value with the names of its members, in which each value is replaced by its type or size."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value).items()
        masked = [f"{name}: {'***' if 'password' in name.lower() else _mask(each)}" for name, each in members]
        return f"{{{', '.join(masked)}}}"
    if isinstance(value, str):
        return f"<{len(value)} chars>"
    if isinstance(value, list | bytes):
        return f"<{len(cast('list[object]', value))}{' bytes' if isinstance(value, bytes) else ''}>"
    return "null" if value is None else f"<{type(value).__name__}>"
