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
        self._probe = 0
        self._probes = 0
        self._probed_at = 0.0

    @property
    def closed(self) -> bool:
        """Whether all attempts may be made."""
        return self._probe_at is None

    def wait(self) -> float | None:
        """Seconds after which to ask again while the circuit is open; None where an attempt may be made now."""
        if self._probe_at is None:
            return None
        if self._probe:
            return self._pause
        left = self._probe_at - self._clock.monotonic()
        return left if left > 0 else None

    def enter(self) -> int:
        """Begin an attempt, which `wait` allows: its number as the probe, which nobody else makes meanwhile, or 0."""
        if self._probe_at is None:
            return 0
        self._probes += 1
        self._probe = self._probes
        self._probed_at = self._clock.monotonic()
        return self._probe

    def answered(self) -> None:
        """An attempt got an answer."""
        self._in_a_row = 0
        if self._probe_at is not None:
            self._probe_at, self._probe = None, 0
            self._tell(CircuitClosed(service=self._service))

    def unanswered(self, *, probe: int) -> None:
        """An attempt got none. probe: its number, 0 where it was none."""
        self._in_a_row += 1
        if not self._failures or self._in_a_row < self._failures:
            return
        if self._probe_at is not None and not (probe and probe == self._probe):
            return  # late word of attempts that began before it opened says nothing new
        self._probe = 0
        self._probe_at = self._clock.monotonic() + self._pause
        self._tell(CircuitOpened(service=self._service, failures=self._in_a_row, seconds=self._pause))

    def flows(self, *, probe: int) -> None:
        """The body of an attempt is being taken. One that takes longer than a pause leaves the probe to another."""
        if probe and self._clock.monotonic() - self._probed_at >= self._pause:
            self.abandoned(probe=probe)

    def abandoned(self, *, probe: int) -> None:
        """An attempt ended without telling anything about the service, such as by its caller's leaving."""
        if probe and probe == self._probe:
            self._probe = 0
