"""What went wrong with a mailbox, in words that say what to do. They name no mailbox, no folder and no secret."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Mapping

from directsuite.errors import (
    AuthenticationError,
    CircuitOpenError,
    ConnectFailedError,
    ConnectionLostError,
    DeadlineExceededError,
    DirectSuiteError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    ServerError,
)
from directsuite.sync.commits import SinkError
from directsuite.sync.store import FILE

NO_SUCH_FOLDER = "There is no such folder on the server: make it there, or leave it out here."

_WORDS: Mapping[type[DirectSuiteError], str] = {
    AuthenticationError: "The password is refused: give the right one.",
    CircuitOpenError: "The service has not answered for a while: it is asked again by itself.",
    ConnectFailedError: "The service can't be reached: see to the network, and to message_url.",
    ConnectionLostError: "The service breaks connections off: it is asked again by itself.",
    DeadlineExceededError: "The service does not answer in time: it is asked again by itself.",
    NotFoundError: "The service knows no such mailbox or path: check the address, and message_url.",
    PermissionDeniedError: "The service denies access to the mailbox: ask its provider to grant it.",
    RateLimitedError: "The service wants fewer requests: lower requests_per_second.",
    ServerError: "The service itself fails: it is asked again, and its provider may know more.",
}
"""By the kind of error, or the nearest that it is a kind of. All others say in their own text what to do."""

_FULL = "The disk of the sink is full: free some space; what was not written is told again."
_NOT_WRITABLE = (
    "The folder of the sink can't be written: let this user write to it; what was not written is told again."
)
_OF_FILES: Mapping[int, str] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _NOT_WRITABLE,
    errno.EPERM: _NOT_WRITABLE,
    errno.EROFS: _NOT_WRITABLE,
}


def problem_of(error: DirectSuiteError) -> str:
    """A sentence for whoever runs the synchronisation."""
    if isinstance(error, SinkError):
        return _of_the_sink(error)
    return next((_WORDS[kind] for kind in type(error).__mro__ if kind in _WORDS), error.explanation)


def _of_the_sink(error: SinkError) -> str:
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        return FILE.explained(cause).explanation
    number: int | None = getattr(error if cause is None else cause, "errno", None)
    if number is None:
        return error.explanation
    other = f"The sink can't be written ({os.strerror(number)}): see to its disk; what was not written is told again."
    return _OF_FILES.get(number, other)
