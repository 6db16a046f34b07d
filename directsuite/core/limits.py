"""The limits of one service: connections, requests per second, and a circuit breaker for a service that is down.

    try_admit ─► True, or else acquire_slot ─► acquire_rate
        └─► breaker.start_request ─► the request ─► breaker.record_result, release

A connection slot is the permission to use one connection. A rate slot is the permission to send one request now. Both
are granted here in the order of arrival. A call that is still waiting for one has certainly sent nothing.

The circuit breaker blocks requests to a service that does not respond. After a pause it allows one attempt, the probe:

    closed ── limit of consecutive attempts without a response ──► open ── pause over ──► probe ── response ──► closed
                                                                    ▲                       │ no response, or none yet
                                                                    └───────────────────────┘

Any response closes the circuit, including an error. If a probe gets no response within the pause, another may start.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import attrs

from directsuite.core.clock import Clock
from directsuite.core.events import CircuitClosed, CircuitOpened, Event, ServicePaused
from directsuite.core.operation import Operation
from directsuite.core.retry import MAX_RETRY_AFTER
from directsuite.errors import CircuitOpenError, DeadlineExceededError, Outcome


class RateLimiter(Protocol):
    """Limits the rate of requests to one service."""

    interval: float
    """Seconds between two requests, outside a burst."""

    def seconds_until_slot(self) -> float:
        """Return the seconds until the next request is allowed, 0 if it is allowed now."""
        ...

    def try_acquire(self) -> bool:
        """Consume a rate slot, or return False if none is available now."""
        ...

    def pause(self, seconds: float) -> bool:
        """Block all requests for `seconds`. Return False if a pause at least as long is already in effect."""
        ...


class LimitsProvider(Protocol):
    """Limits shared by suites in several processes, identified by the name of the service."""

    @property
    def connections(self) -> int | None:
        """Maximum number of connections from this process to each service. None: use the service's settings."""
        ...

    def rate_limiter(self, service: str, *, per_second: float, burst: int, clock: Clock) -> RateLimiter:
        """Return the rate limiter of a service.

        per_second: requests per second, outside a burst.
        burst: maximum number of requests in a burst.
        """
        ...


class LocalRateLimiter:
    """Limits requests per second and allows bursts, with the generic cell rate algorithm (GCRA)."""

    def __init__(self, per_second: float, burst: int, clock: Clock) -> None:
        self.interval = 1.0 / per_second
        self._tolerance = self.interval * max(0, burst - 1)
        self._clock = clock
        self._theoretical_arrival = float("-inf")
        self._paused_until = float("-inf")

    def seconds_until_slot(self) -> float:
        """Return the seconds until the next request is allowed, 0 if it is allowed now."""
        return max(0.0, self._theoretical_arrival - self._tolerance - self._clock.monotonic())

    def try_acquire(self) -> bool:
        """Consume a rate slot, or return False if none is available now."""
        now = self._clock.monotonic()
        if self._theoretical_arrival - self._tolerance > now:
            return False
        self._theoretical_arrival = max(self._theoretical_arrival, now) + self.interval
        return True

    def pause(self, seconds: float) -> bool:
        """Block all requests for `seconds`, then allow them at the normal rate, starting without a burst.

        Return False if a pause at least as long is already in effect.
        """
        until = self._clock.monotonic() + seconds
        if until <= self._paused_until:
            return False
        self._paused_until = until
        self._theoretical_arrival = max(self._theoretical_arrival, until + self._tolerance)
        return True


@attrs.define(eq=False, repr=False)
class Limits:
    """The limits of one service, shared by everything in a suite that calls it."""

    service: str
    connections: int
    """Maximum number of connections."""
    rate: RateLimiter
    breaker: CircuitBreaker
    emit: Callable[[Event], None]
    _free_slots: int = attrs.field(default=attrs.Factory(lambda self: self.connections, takes_self=True), init=False)
    _slot_waiters: deque[asyncio.Future[None]] = attrs.field(factory=deque[asyncio.Future[None]], init=False)
    _rate_lock: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)
    _rate_waiters: int = attrs.field(default=0, init=False)

    def try_admit(self, *, needs_slot: bool) -> bool:
        """Admit a request: take a rate slot, and a connection slot if `needs_slot`.

        Return False, and take none, if the request must wait or the circuit is not closed.
        """
        if (
            self._rate_waiters
            or (needs_slot and not self._free_slots)
            or self.breaker.probe_at is not None
            or not self.rate.try_acquire()
        ):
            return False
        self._free_slots -= needs_slot
        return True

    async def acquire_rate(
        self, operation: Operation[Any], *, time_left: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        """Wait for a rate slot.

        time_left: returns the seconds left until the deadline.
        sleep: waits for a number of seconds.

        Raises DeadlineExceededError if no slot is expected before the deadline, and the exceptions of `sleep`.
        """
        if not self._rate_waiters and self.rate.try_acquire():
            return
        _raise_if_too_late(
            operation, self.rate.seconds_until_slot() + self._rate_waiters * self.rate.interval, time_left()
        )
        self._rate_waiters += 1
        try:
            async with self._rate_lock:
                # The service may ask for a pause during the sleep.
                while not self.rate.try_acquire():
                    wait = self.rate.seconds_until_slot()
                    _raise_if_too_late(operation, wait, time_left())
                    await sleep(wait)
        finally:
            self._rate_waiters -= 1

    def pause(self, seconds: float) -> None:
        """Block all requests for `seconds`, but at most MAX_RETRY_AFTER, because the service asked for it."""
        seconds = min(seconds, MAX_RETRY_AFTER)
        if seconds > 0 and self.rate.pause(seconds):
            self.emit(ServicePaused(service=self.service, seconds=seconds))

    @property
    def has_no_free_slot(self) -> bool:
        """True if no connection slot is free. Directly after `release`, this means that a waiting call got the slot."""
        return not self._free_slots

    def release(self) -> None:
        """Return a connection slot. The call that has waited longest gets it."""
        while self._slot_waiters:
            waiter = self._slot_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free_slots += 1

    async def acquire_slot(self) -> None:
        """Wait for a connection slot, without a deadline. It is held until `release`."""
        if self._free_slots:
            self._free_slots -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._slot_waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self.release()  # the slot was granted just before this call was cancelled
            else:
                with contextlib.suppress(ValueError):
                    self._slot_waiters.remove(waiter)
            raise


@attrs.define(eq=False, repr=False, kw_only=True)
class CircuitBreaker:
    """The circuit breaker of one service."""

    service: str
    failures: int
    """Consecutive attempts without a response that open the circuit. 0 disables the circuit breaker."""
    pause: float
    """Seconds between probes."""
    clock: Clock
    emit: Callable[[Event], None]
    _consecutive_failures: int = attrs.field(default=0, init=False)
    _last_failure: str = attrs.field(default="", init=False)
    probe_at: float | None = attrs.field(default=None, init=False)
    """Time from which a probe may start, in monotonic seconds. None if the circuit is closed."""
    _probe: int = attrs.field(default=0, init=False)
    """The number of the latest probe. 0 if it has ended."""
    _probe_count: int = attrs.field(default=0, init=False)

    def raise_if_open(self, operation: Operation[Any]) -> None:
        """Raise CircuitOpenError if the circuit is open and no probe may start now."""
        wait = 0.0 if self.probe_at is None else self.probe_at - self.clock.monotonic()
        if wait <= 0:
            return
        error = CircuitOpenError(
            f"the {operation.service.display_name} has not responded to many attempts in a row. "
            f"Calls to it fail without being sent until it responds again. The last failure: {self._last_failure}",
            outcome=Outcome.NOT_SENT,
            **operation.error_context,
        )
        error.retry_after = wait
        raise error

    def start_request(self, operation: Operation[Any]) -> int:
        """Register the start of an admitted request. Return its probe number, or 0 if it is not a probe.

        Raises CircuitOpenError if the circuit has opened since the request was admitted and no probe may start.
        """
        if self.probe_at is None:
            return 0
        self.raise_if_open(operation)
        # Another probe may start after one pause, because this one may never end.
        self._probe_count += 1
        self._probe = self._probe_count
        self.probe_at = self.clock.monotonic() + self.pause
        return self._probe

    def record_result(self, *, has_response: bool | None, probe: int, explanation: str = "") -> None:
        """Record how a request ended.

        has_response: True if the service responded, False if it did not, None if that is not certain.
        probe: the number that `start_request` returned.
        explanation: explanation of the error, if the service did not respond.

        A response closes the circuit. It opens after `failures` attempts in a row without one. While it is
        open, only the failure of the latest probe starts a new pause. If it is not certain whether the latest probe got
        a response, for example because it was cancelled, another may start immediately.
        """
        is_latest_probe = bool(probe) and probe == self._probe
        if has_response:
            self._consecutive_failures = 0
            if self.probe_at is not None:
                self.probe_at, self._probe = None, 0
                self.emit(CircuitClosed(service=self.service))
        elif has_response is None:
            if is_latest_probe:
                self._probe, self.probe_at = 0, self.clock.monotonic()
        else:
            self._last_failure = explanation
            self._consecutive_failures += 1
            is_down = bool(self.failures) and self._consecutive_failures >= self.failures
            # An attempt that is not a probe may have started before the circuit opened.
            if is_down and (self.probe_at is None or is_latest_probe):
                self._probe, self.probe_at = 0, self.clock.monotonic() + self.pause
                failures = self._consecutive_failures
                self.emit(CircuitOpened(service=self.service, failures=failures, seconds=self.pause))


def _raise_if_too_late(operation: Operation[Any], wait: float, time_left: float) -> None:
    if wait < time_left:
        return
    error = DeadlineExceededError(
        "the rate limit, or the pause requested by the service, allows no request before the deadline",
        outcome=Outcome.NOT_SENT,
        **operation.error_context,
    )
    error.retry_after = wait
    raise error
