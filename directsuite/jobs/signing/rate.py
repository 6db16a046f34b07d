"""How fast a run is."""

from __future__ import annotations

from collections import deque

from directsuite.core.clock import Clock

_RECENT = 900.0  # seconds from which the rate is reckoned


class Rate:
    """Documents a second, of the last 15 minutes of a run, which begins now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._recent = deque[float]()

    def __len__(self) -> int:
        return len(self._recent)

    def note(self) -> None:
        """A document has come to its end."""
        self._recent.append(self._forget_old())

    def per_second(self) -> float:
        """As it is now."""
        now = self._forget_old()
        return len(self) / max(1.0, min(_RECENT, now - self._began))

    def _forget_old(self) -> float:
        """Leave the times that count; now."""
        now = self._clock.monotonic()
        while self._recent and self._recent[0] < now - _RECENT:
            self._recent.popleft()
        return now
