"""What a failed attempt means: the table that every retry, and every word to the caller, goes by.

    what was seen                                       outcome     error
    ──────────────────────────────────────────────────  ──────────  ─────────────────────────────────────
    no connection (DNS, refused, TLS, connect time-out)  NOT_SENT    ConnectFailedError
    connection lost before the body started              NOT_SENT    ConnectFailedError
    connection lost after that, no answer                UNKNOWN     ConnectionLostError
    answer broken off, malformed, too large, not HTTP    UNKNOWN     ResponseDecodeError
    the service's own refusal (messaging, registration)  FAILED      by its code, whatever the status
      … with the code that asks for a new session        REJECTED    AuthenticationError
    401 to a bearer token or a session                   REJECTED    AuthenticationError
    429                                                  REJECTED    RateLimitedError
    503 with Retry-After                                 REJECTED    ServerError
    408, other 5xx                                       UNKNOWN     by status; ServerError
    other 4xx, 3xx                                       FAILED      by status

An outcome that is UNKNOWN, on an operation that may not be repeated, ends as OutcomeUnknownError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import aiohttp

from directsuite.core.operation import Auth, Operation
from directsuite.core.refusals import class_of_status
from directsuite.core.retry import retry_after
from directsuite.errors import (
    AuthenticationError,
    ConnectFailedError,
    ConnectionLostError,
    DirectSuiteError,
    Outcome,
    ResponseDecodeError,
    ServiceError,
)

_NUMBER = re.compile(r"-?\d{1,4}\Z")
KEPT = 64 * 1024
"""Bytes of an answer that hang on its error."""


class ConnectionDroppedError(Exception):
    """A connection that ended before the answer, under a name that aiohttp's hidden replay doesn't look for."""

    def __init__(self, origin: BaseException) -> None:
        super().__init__(type(origin).__name__)
        self.origin = origin


def of_exception(error: BaseException, operation: Operation[Any], *, started: bool) -> DirectSuiteError | None:
    """The typed error for what aiohttp raised, or None where it isn't about the network.

    The cause is told by type and number only: aiohttp's texts hold the URL, and the URL may hold a session id.
    """
    about: dict[str, Any] = {"operation": operation.name, "service": operation.service}
    origin = error.origin if isinstance(error, ConnectionDroppedError) else error
    seen = _named(origin)
    if isinstance(
        error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.ServerFingerprintMismatch
    ):
        return ConnectFailedError(
            f"no connection to the {operation.service} service ({seen})", outcome=Outcome.NOT_SENT, **about
        )
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ClientResponseError) and started:
        return ResponseDecodeError(f"the answer broke off or is not HTTP ({seen})", **about)
    if isinstance(error, ConnectionDroppedError | aiohttp.ClientError | OSError):
        if not started:
            return ConnectFailedError(
                f"the connection closed before the request ({seen})", outcome=Outcome.NOT_SENT, **about
            )
        return ConnectionLostError(
            f"the connection was lost before the answer ({seen})", outcome=Outcome.UNKNOWN, **about
        )
    return None


def _named(error: BaseException) -> str:
    number = getattr(error, "errno", None)
    return type(error).__name__ if number is None else f"{type(error).__name__}, errno {number}"


def judge(
    operation: Operation[Any], status: int, headers: Mapping[str, str], document: Any, body: bytes
) -> ServiceError | None:
    """The typed error for an answer that is a refusal, or None where it has to be read as the response.

    document: the body as plain JSON values, None where it isn't JSON.
    """
    refused = operation.refusals.read(document)
    wait = retry_after(headers.get("Retry-After"))
    if status < 300 and (refused is None or operation.refusals.flag is None):
        return None
    cls, meaning = class_of_status(status)
    code = None
    if refused is not None and refused.code is not None and status != 429:
        cls, meaning = operation.refusals.codes.get(refused.code, (ServiceError, "other error"))
        code = refused.code
    # A code that is no short number is a text of the service's own: it hangs on the error, which does not print it.
    named = f"code {code if _NUMBER.match(str(code)) else 'of another form'}"
    own = refused is not None and operation.refusals.flag is not None and status != 429
    error = cls(
        f"{meaning} ({named if code is not None else f'HTTP {status}'})",
        status=status,
        code=code,
        message=refused.message if refused is not None else None,
        body=body[:KEPT],
        retry_after=wait,
        operation=operation.name,
        service=operation.service,
    )
    error.outcome = Outcome.FAILED if own else _of_status(operation, status, wait)
    if code is not None and code == operation.refusals.renewal and operation.auth is Auth.SESSION:
        error.outcome = Outcome.REJECTED
    return error


def _of_status(operation: Operation[Any], status: int, wait: float | None) -> Outcome:
    if status == 429 or (status == 401 and operation.auth in (Auth.BEARER, Auth.SESSION)):
        return Outcome.REJECTED
    if status >= 500 or status == 408:
        return Outcome.REJECTED if status == 503 and wait is not None else Outcome.UNKNOWN
    return Outcome.FAILED


def asks_for_new_credential(error: DirectSuiteError) -> bool:
    """Whether the service would take the same request with a fresh token or session."""
    return isinstance(error, AuthenticationError) and error.outcome is Outcome.REJECTED
