"""Log lines for people: one for each call, and for each request and response with masked values.

    INFO GetUIDs: succeeded (call 7, HTTP 200, 1 attempt, 12 ms)
    DEBUG GetUIDs: request POST GetUIDs/{folder}, {username: <27 chars>, password: ***}
    DEBUG GetUIDs: response HTTP 200, GetUIDResponse(success=True, code=<set>, uids=<3>)

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

from directsuite.core.operation import MediaType
from directsuite.core.privacy import scrub_traceback
from directsuite.errors import ConfigurationError, DirectSuiteError
from directsuite.wire.models import Model, summarize

if TYPE_CHECKING:
    from directsuite.core.call import Call
    from directsuite.core.upload import RequestBody

_LOGGER = logging.getLogger("directsuite")
CALLS = logging.getLogger("directsuite.calls")
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


def log_finished(call: Call[Any], error: BaseException | None) -> None:
    """Log the end of a call at INFO. To save time, call it only if this level is enabled."""
    milliseconds = (call.environment.clock.monotonic() - call.started_at) * 1000
    ending = "succeeded" if error is None or isinstance(error, GeneratorExit) else f"failed, {type(error).__name__}"
    status = "no response" if call.status is None else f"HTTP {call.status}"
    attempts = "1 attempt" if call.requests == 1 else f"{call.requests} attempts"
    text = "%s: %s (call %d, %s, %s, %.0f ms)"
    CALLS.info(text, call.operation.name, ending, call.number, status, attempts, milliseconds)


def log_request(call: Call[Any]) -> None:
    """Log a request at DEBUG, with the values in its body masked. Call it only if this level is enabled."""
    operation = call.operation
    body = "no body" if operation.method == "GET" else _mask_body(call.body, operation.content_type)
    CALLS.debug("%s: request %s %s, %s", operation.name, operation.method, operation.path or "token_url", body)


def log_response(call: Call[Any], result: object) -> None:
    """Log a response or an attempt's error at DEBUG, with all values masked. Call it only if this level is enabled."""
    status = "no response" if call.status is None else f"response HTTP {call.status}"
    CALLS.debug("%s: %s, %s", call.operation.name, status, _mask_result(result))


def _mask_result(result: object) -> str:
    if isinstance(result, DirectSuiteError):
        return f"{type(result).__name__}: {result.explanation}"
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
