"""What an attempt waits for before it may send anything: a closed circuit, a credential, a connection, its turn.

Whatever fails here, nothing of the call has been sent.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from directsuite.core.call import Call
from directsuite.core.credentials import Credential, TokenCache
from directsuite.errors import (
    CircuitOpenError,
    DeadlineExceededError,
    DirectSuiteError,
    Outcome,
    OutcomeUnknownError,
    TransportError,
)


def admitted_at_once(call: Call[Any]) -> bool:
    """Whether the call may send without waiting for anything; then it has what it needs, as after `admit`."""
    limits = call.endpoint.limits
    if not limits.breaker.closed:
        return False
    if call.operation.needs_credential:
        cache = call.endpoint.credentials
        credential = None if cache is None else cache.at_once()
        if credential is None:
            return False
        call.credential = credential
    return limits.go(connect=call.operation.limited)


async def admit(call: Call[Any], sleep: Callable[[float], Awaitable[None]]) -> None:
    """Return when the call may send; its connection, where it is limited, is the caller's to release."""
    endpoint, cache = call.endpoint, call.endpoint.credentials
    refuse_while_open(call)
    good = False
    if cache is not None and call.operation.needs_credential:
        call.credential = await _credential(cache)
        good = cache.holds(call.credential)
    if call.operation.limited:
        await endpoint.limits.connect()
    try:
        await _turn(call, sleep)
        if good and cache is not None and call.credential is not None and not cache.holds(call.credential):
            call.credential = await _credential(cache)  # refused or expired while the call waited
            await _turn(call, sleep)  # which may have become another's meanwhile
    except BaseException:
        if call.operation.limited:
            endpoint.limits.release()
        raise


def refuse_while_open(call: Call[Any]) -> None:
    """Raise CircuitOpenError while the service is taken to be down."""
    wait = call.endpoint.limits.breaker.wait()
    if wait is None:
        return
    error = CircuitOpenError(
        f"the {call.operation.service} service has not answered for many attempts in a row, and is left alone",
        operation=call.operation.name,
        service=call.operation.service,
        outcome=Outcome.NOT_SENT,
    )
    error.retry_after = wait
    raise error


async def _turn(call: Call[Any], sleep: Callable[[float], Awaitable[None]]) -> None:
    limits = call.endpoint.limits
    if not limits.go():
        await limits.turn(functools.partial(_check_wait, call), sleep)


def _check_wait(call: Call[Any], wait: float) -> None:
    if wait < call.time_left():
        return
    error = DeadlineExceededError(
        "the service's limit of requests, or the pause that it asked for, leaves no place within the deadline",
        operation=call.operation.name,
        service=call.operation.service,
        outcome=Outcome.NOT_SENT,
    )
    error.retry_after = wait
    raise error


async def _credential(cache: TokenCache) -> Credential:
    """The current credential; where none can be had, nothing of the call was sent, whatever became of the login."""
    try:
        return await cache.current()
    except OutcomeUnknownError as error:
        # Only the token's outcome is unknown. Of the call itself nothing was sent, and its error has to say so.
        failure = TransportError(
            f"no token could be had: {error.explanation} {error.how_to_find_out}",
            operation=error.operation,
            service=error.service,
            outcome=Outcome.NOT_SENT,
        )
        failure.attempts, failure.elapsed, failure.__cause__ = error.attempts, error.elapsed, error
    except DirectSuiteError as error:
        if error.outcome is Outcome.UNKNOWN:
            error.outcome = Outcome.NOT_SENT
        raise
    raise failure
