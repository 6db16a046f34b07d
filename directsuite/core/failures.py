"""The scope of an error: what caused it, and whether a job continues, waits or stops.

scope      cause                                                        what to do
─────────  ───────────────────────────────────────────────────────────  ───────────────────────────────────────────
ITEM       the service rejected this item                               continue: the next item may succeed
UNCERTAIN  no usable response, because of the item or of the service    try other items to find out which
SERVICE    the service rejects all requests, or cannot be reached       wait, then try again
ENDPOINT   the URL is wrong, or a proxy does not forward the request    correct the URL or the proxy
ACCOUNT    the credentials were rejected, or do not permit this         stop: another attempt would fail again
CALLER     settings, arguments, storage or code; a closed suite         stop: another attempt would fail again

An item is what the job processes with one request, such as a document, message or folder.
"""

from __future__ import annotations

import asyncio
import enum
import os
from http import HTTPStatus

from directsuite.errors import (
    AuthenticationError,
    ConnectFailedError,
    DirectSuiteError,
    Outcome,
    PaymentError,
    PermissionDeniedError,
    RateLimitedError,
    ResponseDecodeError,
    ServerError,
    ServiceError,
    TransportError,
)


class ErrorScope(enum.Enum):
    """The cause of an error; see the table of this module."""

    ITEM = enum.auto()
    UNCERTAIN = enum.auto()
    SERVICE = enum.auto()
    ENDPOINT = enum.auto()
    ACCOUNT = enum.auto()
    """Also if the account must be paid. A service may also raise PermissionDeniedError for a single item."""
    CALLER = enum.auto()


NOT_RETRYABLE = frozenset({ErrorScope.ACCOUNT, ErrorScope.CALLER})
"""Scopes for which another attempt would fail again. Repeating a rejected password may lock the account."""

_WRONG_ENDPOINT_STATUSES = frozenset(
    {
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
        HTTPStatus.UPGRADE_REQUIRED,
    }
)
"""Statuses, in addition to redirects, of a wrong URL or a proxy."""


def find_error_scope(error: DirectSuiteError) -> ErrorScope:
    """Return the scope of an error. It is CALLER for DirectSuiteError classes defined elsewhere, such as by a store."""
    if isinstance(error, AuthenticationError | PermissionDeniedError | PaymentError):
        return ErrorScope.ACCOUNT
    if isinstance(error, ServiceError):
        return _find_service_error_scope(error)
    if isinstance(error, TransportError):
        nothing_sent = isinstance(error, ConnectFailedError) or error.outcome is Outcome.NOT_SENT
        return ErrorScope.SERVICE if nothing_sent else ErrorScope.UNCERTAIN
    return ErrorScope.UNCERTAIN if isinstance(error, ResponseDecodeError) else ErrorScope.CALLER


def _find_service_error_scope(error: ServiceError) -> ErrorScope:
    if isinstance(error, RateLimitedError) or error.outcome is Outcome.REJECTED:
        return ErrorScope.SERVICE
    if isinstance(error, ServerError) or error.status == HTTPStatus.REQUEST_TIMEOUT:
        return ErrorScope.UNCERTAIN
    if 300 <= error.status < 400 or error.status in _WRONG_ENDPOINT_STATUSES:
        return ErrorScope.ENDPOINT
    return ErrorScope.ITEM


def explain_os_error(error: OSError) -> str:
    """Return the operating system's message for an OSError, without file names.

    Without an errno, return the `kind` attribute that a storage may set, or the name of the class.
    """
    kind: str = getattr(error, "kind", type(error).__name__)
    return kind if error.errno is None else os.strerror(error.errno)


def is_being_cancelled() -> bool:
    """Return True if the current task is being cancelled, or there is no current task.

    If False, a CancelledError comes from something that the task awaited and that was cancelled separately.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
