"""Whose fault an error is: what decides whether to go on with the next item, to wait, or to stop.

ITEM        the service said no to what was asked for          the next item may succeed
UNCERTAIN   no usable answer: the item's fault or the service's  other items will show
SERVICE     the service refuses everybody, or can't be reached   wait, then ask again
ENDPOINT    the URL leads to something else, or a proxy is in the way
ACCOUNT     the credentials were refused, or may not do this   } asking again would only repeat it
CALLER      settings, arguments, or the caller's own storage   }
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


class Scope(enum.Enum):
    """What an error is about."""

    ITEM = enum.auto()
    """The document, message or folder that was asked for: the service said no to this one."""
    UNCERTAIN = enum.auto()
    """The service gave no usable answer to this request, because of the item or because of its own trouble."""
    SERVICE = enum.auto()
    """The service acts on nobody's requests for now, or cannot be reached. The error says nothing of the item."""
    ENDPOINT = enum.auto()
    """Something answered that takes no such request: the URL is wrong, or a proxy is in the way."""
    ACCOUNT = enum.auto()
    """The credentials. A service may also forbid a single item with PermissionDeniedError."""
    CALLER = enum.auto()
    """The caller's own side: a setting, an argument, a closed suite, or what the caller stores or runs."""


HOPELESS = frozenset({Scope.ACCOUNT, Scope.CALLER})
"""Scopes of failures that asking again would only repeat. Repeating a refused password may lock the account."""

_WRONG_ENDPOINT = frozenset(
    {
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
        HTTPStatus.UPGRADE_REQUIRED,
    }
)
"""Statuses, beside redirects, that a wrong URL or a proxy answers to every request of this kind."""


def scope_of(error: DirectSuiteError) -> Scope:
    """What the error is about. Errors of classes outside `directsuite.errors`, such as a store's, are the caller's."""
    if isinstance(error, AuthenticationError | PermissionDeniedError | PaymentError):
        return Scope.ACCOUNT
    if isinstance(error, ServiceError):
        return _scope_of_refusal(error)
    if isinstance(error, TransportError):
        nothing_sent = isinstance(error, ConnectFailedError) or error.outcome is Outcome.NOT_SENT
        return Scope.SERVICE if nothing_sent else Scope.UNCERTAIN
    return Scope.UNCERTAIN if isinstance(error, ResponseDecodeError) else Scope.CALLER


def _scope_of_refusal(error: ServiceError) -> Scope:
    if isinstance(error, RateLimitedError) or error.outcome is Outcome.REJECTED:
        return Scope.SERVICE
    if isinstance(error, ServerError) or error.status == HTTPStatus.REQUEST_TIMEOUT:
        return Scope.UNCERTAIN
    if 300 <= error.status < 400 or error.status in _WRONG_ENDPOINT:
        return Scope.ENDPOINT
    return Scope.ITEM


def reason_of(error: OSError) -> str:
    """Why something can't be read, written or reached: the system's own words, which name nobody's files."""
    kind: str = getattr(error, "kind", type(error).__name__)  # a storage's own, where there is no number
    return kind if error.errno is None else os.strerror(error.errno)


def is_being_cancelled() -> bool:
    """Return True if a CancelledError is the current task's own: what it waits for may be cancelled by others."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
