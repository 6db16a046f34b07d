"""A circuit breaker: a service that is down is not asked again and again.

    closed ── so many attempts in a row without an answer ──► open ── pause over ──► one probe ── answered ──► closed
                                                                ▲                      │ not answered
                                                                └──────────────────────┘

Any answer closes it, a refusal too: what counts is that somebody is there.
"""

from __future__ import annotations

from collections.abc import Callable

from directsuite.core.clock import Clock
from directsuite.core.events import CircuitClosed, CircuitOpened, Event


class Breaker:
    """The breaker of one service. failures: in a row, 0 for no breaker at all. pause: seconds between probes."""

    def __init__(
        self, service: str, *, failures: int, pause: float, clock: Clock, tell: Callable[[Event], None]
    ) -> None:
        self._service = service
        self._failures = failures
        self._pause = pause
        self._clock = clock
        self._tell = tell
        self._in_a_row = 0
        self._probe_at: float | None = None
        self._probing = False

    def wait(self) -> float | None:
        """Seconds until the next probe while the circuit is open; None where an attempt may be made now."""
        if self._probe_at is None:
            return None
        if self._probing:
            return self._pause
        left = self._probe_at - self._clock.monotonic()
        return left if left > 0 else None

    def enter(self) -> bool:
        """Begin an attempt, which `wait` allows. Whether it is the probe, which nobody else makes meanwhile."""
        self._probing = self._probe_at is not None
        return self._probing

    def answered(self) -> None:
        """An attempt got an answer."""
        self._in_a_row = 0
        if self._probe_at is not None:
            self._probe_at, self._probing = None, False
            self._tell(CircuitClosed(service=self._service))

    def unanswered(self, *, probe: bool) -> None:
        """An attempt got none."""
        self._in_a_row += 1
        open_already = self._probe_at is not None
        if not self._failures or self._in_a_row < self._failures or (open_already and not probe):
            return  # late word of attempts that began before it opened says nothing new
        self._probing = False
        self._probe_at = self._clock.monotonic() + self._pause
        self._tell(CircuitOpened(service=self._service, failures=self._in_a_row, seconds=self._pause))

    def abandoned(self, *, probe: bool) -> None:
        """An attempt ended without telling anything about the service, such as by its caller's leaving."""
        if probe:
            self._probing = False
