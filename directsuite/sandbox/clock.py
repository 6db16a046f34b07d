"""The clock of the sandbox, which tests can freeze, set and advance.

Tokens, sessions, documents, deliveries and signatures use only this clock, and derive their state from it when they
are read, so that advancing it takes effect everywhere at once. It is stored in the database, so that a sandbox
resumes at the time at which it was stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import sqlite3

SCHEMA = """
CREATE TABLE IF NOT EXISTS clock(
  id INTEGER PRIMARY KEY CHECK(id = 1), offset_us INTEGER NOT NULL, frozen_at_us INTEGER);
"""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MIN_TIME = EPOCH
"""The start of the signer's certificates."""
MAX_TIME = datetime(9999, 1, 1, tzinfo=UTC)
"""Below the maximum of datetime, so that a year can be added."""
_MICROSECOND = timedelta(microseconds=1)
_OUT_OF_RANGE_TEXT = f"the clock accepts times from {MIN_TIME:%Y-%m-%d} to {MAX_TIME:%Y-%m-%d}"


class ClockState(NamedTuple):
    """The offset from the machine's clock, and the time since 1970 at which the clock is frozen, in microseconds."""

    offset_us: int = 0
    frozen_at_us: int | None = None

    @classmethod
    def load(cls, connection: sqlite3.Connection) -> ClockState | None:
        """Return the stored state, or None if none is stored."""
        row = connection.execute("SELECT offset_us, frozen_at_us FROM clock").fetchone()
        return None if row is None else cls(*row)

    def store(self, connection: sqlite3.Connection) -> None:
        """Store the state in the caller's transaction."""
        connection.execute("INSERT OR REPLACE INTO clock(id, offset_us, frozen_at_us) VALUES(1, ?, ?)", self)

    def compute_time(self, machine_time: datetime) -> datetime:
        """Return the time of the clock in UTC."""
        if self.frozen_at_us is not None:
            return EPOCH + self.frozen_at_us * _MICROSECOND
        return min(machine_time + self.offset_us * _MICROSECOND, MAX_TIME)


class Clock:
    """The clock of a sandbox, equal to the machine's until it is frozen, set or advanced. Thread-safe.

    Methods raise ValueError for a time without a time zone, before MIN_TIME or after MAX_TIME, and then change nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.state = ClockState()
        """Replaced by each change. Another state can be set, without a call of the listeners."""
        self._listeners: list[Callable[[], None]] = []

    def now(self) -> datetime:
        """Return the time in UTC."""
        return self.state.compute_time(datetime.now(UTC))

    def milliseconds(self) -> int:
        """Return the time in milliseconds since 1970."""
        return to_milliseconds(self.now())

    @property
    def frozen(self) -> bool:
        """True if the clock is stopped."""
        return self.state.frozen_at_us is not None

    def freeze(self, at: datetime | None = None) -> datetime:
        """Stop the clock at its current time or at `at`, and return the time."""
        return self._change(lambda now: now if at is None else at, is_frozen=True)

    def advance(self, by: timedelta) -> datetime:
        """Advance the clock, which may be frozen, and return its time. Raises ValueError for a negative `by`."""
        if by < timedelta(0):
            raise ValueError("the clock cannot be advanced by a negative time: set it instead")
        return self._change(lambda now: now + by)

    def set(self, at: datetime) -> datetime:
        """Set the clock to a time, and return the time in UTC. A frozen clock remains frozen."""
        return self._change(lambda _: at)

    def resume(self) -> datetime:
        """Restart a frozen clock, and return the time. A running clock is not changed."""
        return self._change(lambda now: now, is_frozen=False) if self.frozen else self.now()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change, in the thread that made it. Return a function that stops this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _change(self, choose: Callable[[datetime], datetime], *, is_frozen: bool | None = None) -> datetime:
        """Set the time that `choose` returns for the current time. is_frozen: None: as before."""
        with self._lock:
            machine_time = datetime.now(UTC)  # read once: the time between two reads would be lost
            try:
                moment = choose(self.state.compute_time(machine_time))
                if moment.tzinfo is None:
                    raise ValueError("the time has no time zone: add one, such as +00:00")
                moment = moment.astimezone(UTC)
            except OverflowError:
                raise ValueError(_OUT_OF_RANGE_TEXT) from None
            if not MIN_TIME <= moment <= MAX_TIME:
                raise ValueError(_OUT_OF_RANGE_TEXT)
            if self.frozen if is_frozen is None else is_frozen:
                self.state = ClockState(frozen_at_us=(moment - EPOCH) // _MICROSECOND)
            else:
                self.state = ClockState(offset_us=(moment - machine_time) // _MICROSECOND)
        for listener in tuple(self._listeners):
            listener()
        return moment


def to_milliseconds(moment: datetime) -> int:
    """Return a time in milliseconds since 1970."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def format_timestamp(milliseconds: int) -> str:
    """Format milliseconds since 1970 as the services do: 2026-05-01T12:00:00.000+0000."""
    moment = EPOCH + timedelta(milliseconds=milliseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}+0000"
