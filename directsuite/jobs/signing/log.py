"""Log lines about the documents of a job, with the numbers of the documents, never their names.

    INFO signing: document 3 of the journal is tried again (ServerError, HTTP 500, in 4.0 s, call 9, group 7)
    WARNING signing: document 3 of the journal is FAILED (BadRequestError, HTTP 400, call 12, group 7)

Each record has the fields of its line in the dictionary `record.directsuite`, and its kind as `event`.
"""

from __future__ import annotations

import logging

from directsuite.core.events import get_group
from directsuite.errors import DirectSuiteError, ServiceError, TransportError

_LOGGER = logging.getLogger("directsuite")

_PHRASES = {
    "problem": "{}",
    "error": "{}",
    "reason": "{}",
    "status": "HTTP {}",
    "wait": "in {:.1f} s",
    "call": "call {}",
    "group": "group {}",
}


def log_document(
    level: int, event: str, number: int, text: str, *, error: Exception | None = None, **fields: str | float | None
) -> None:
    """Log what happened to a document, with the group of its calls.

    number: the document's number in the journal.
    text: what happened.
    error: the cause, without its text, which may be that of a custom target.
    fields: further fields, of which those that are None are left out.
    """
    if not _LOGGER.isEnabledFor(level):
        return
    values: dict[str, str | float | None] = {"event": event, "document": number, **fields}
    if error is not None:
        values["error"] = type(error).__name__
        values["reason"] = error.reason if isinstance(error, TransportError) else None
        values["status"] = error.status if isinstance(error, ServiceError) else None
        values["call"] = error.call if isinstance(error, DirectSuiteError) else None
    values["group"] = get_group()
    written = {name: value for name, value in values.items() if value is not None}
    details = [phrase.format(written[name]) for name, phrase in _PHRASES.items() if name in written]
    if "group" not in written:
        details.append("no calls")
    line = "signing: document %d of the journal %s (%s)"
    _LOGGER.log(level, line, number, text, ", ".join(details), extra={"directsuite": written})
