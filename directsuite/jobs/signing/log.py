"""Log lines about a job and its documents, with the numbers of the documents, never their names.

    INFO signing: document 3 of the journal is tried again (ServerError, HTTP 500, in 4.0 s, call 9, group 7)
    WARNING signing: document 3 of the journal is FAILED (BadRequestError, HTTP 400, call 12, group 7)
    WARNING signing: document 4 of the journal is FAILED, but may be signed (ServerError, HTTP 500, call 14, group 9)
    WARNING signing: the job stopped (target not writable, what to do: fix the cause, then run the job again)

Each record has the fields of its line in the dictionary `record.directsuite`, and its kind as `event`.
"""

from __future__ import annotations

import logging
from logging import WARNING

from directsuite.core.events import FIELDS, get_group
from directsuite.core.outcome import find_failure_reason, find_loggable_code
from directsuite.errors import DirectSuiteError, ServiceError

_LOGGER = logging.getLogger("directsuite")

_PHRASES = {**FIELDS, "problem": "{}", "advice": "what to do: {}"}
_SHOWN_FIELDS = ("problem", "error", "reason", "status", "code", "wait", "call", "group", "advice")
"""The fields in the text of a line, in this order. The others are only in the dictionary."""


def log_document(
    level: int, event: str, number: int, text: str, *, error: Exception | None = None, **fields: str | float | None
) -> None:
    """Log what happened to a document, with the group of its calls.

    number: the document's number in the journal.
    text: what happened.
    error: the cause, without its text, which may be that of a custom target.
    fields: further fields, of which those that are None are left out.
    """
    values = {"event": event, "document": number, **fields, "group": get_group()}
    _log(level, f"document {number} of the journal {text}", values, error)


def log_stopped(error: DirectSuiteError, reason: str | None) -> None:
    """Log that a job stopped.

    error: the JobStoppedError, of which the cause is logged without its text.
    reason: its reason. None if it has a cause.
    """
    values: dict[str, str | float | None]
    values = {"event": "JobStopped", "reason": reason, "advice": error.advice, "group": error.group}
    _log(WARNING, "the job stopped", values, error.__cause__)


def _log(level: int, text: str, values: dict[str, str | float | None], error: BaseException | None) -> None:
    if not _LOGGER.isEnabledFor(level):
        return
    if error is not None:
        values["error"] = type(error).__name__
        values["reason"] = find_failure_reason(error)
        values["status"] = error.status if isinstance(error, ServiceError) else None
        values["code"] = find_loggable_code(error)
        values["call"] = error.call if isinstance(error, DirectSuiteError) else None
    written = {name: value for name, value in values.items() if value is not None}
    details = [_PHRASES[name].format(written[name]) for name in _SHOWN_FIELDS if name in written]
    if "document" in written and "group" not in written:
        details.append("no calls")
    line = f"{text} ({', '.join(details)})" if details else text
    _LOGGER.log(level, "signing: %s", line, extra={"directsuite": written})
