"""The clock of the sandbox, which tests can freeze, set and advance.

Tokens, sessions, documents, deliveries and signatures use only this clock, and derive their state from it when they
are read, so that advancing it takes effect everywhere at once. It is stored in the database, so that a sandbox
resumes at the time at which it was stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import attrs

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


@attrs.frozen
class ClockState:
    """The offset from the machine's clock, and the time at which the clock is frozen, or None."""

    offset: timedelta = timedelta(0)
    frozen_at: datetime | None = None

    @classmethod
    def load(cls, connection: sqlite3.Connection) -> ClockState | None:
        """Return the stored state, or None if none is stored."""
        row = connection.execute("SELECT offset_us, frozen_at_us FROM clock").fetchone()
        if row is None:
            return None
        frozen_at = None if row["frozen_at_us"] is None else EPOCH + row["frozen_at_us"] * _MICROSECOND
        return cls(offset=row["offset_us"] * _MICROSECOND, frozen_at=frozen_at)

    def store(self, connection: sqlite3.Connection) -> None:
        """Store the state in the caller's transaction."""
        frozen_at = None if self.frozen_at is None else (self.frozen_at - EPOCH) // _MICROSECOND
        connection.execute(
            "INSERT OR REPLACE INTO clock(id, offset_us, frozen_at_us) VALUES(1, ?, ?)",
            (self.offset // _MICROSECOND, frozen_at),
        )


class Clock:
    """The clock of a sandbox, equal to the machine's until it is frozen, set or advanced. Thread-safe.

    Methods raise ValueError for a time without a time zone, before MIN_TIME or after MAX_TIME, and then change nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = ClockState()
        self._listeners: list[Callable[[], None]] = []

    def now(self) -> datetime:
        """Return the time in UTC."""
        return _compute_time(self._state, datetime.now(UTC))

    def milliseconds(self) -> int:
        """Return the time in milliseconds since 1970."""
        return to_milliseconds(self.now())

    @property
    def frozen(self) -> bool:
        """True if the clock is stopped."""
        return self._state.frozen_at is not None

    @property
    def state(self) -> ClockState:
        """The state, which `restore` accepts."""
        return self._state

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

    def restore(self, state: ClockState) -> datetime:
        """Set the clock to a `state`, and return the time."""
        return self._change(lambda now: now, is_frozen=state.frozen_at is not None, start=state)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change, in the thread that made it. Return a function that stops this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _change(
        self, choose: Callable[[datetime], datetime], *, is_frozen: bool | None = None, start: ClockState | None = None
    ) -> datetime:
        """Set the time that `choose` returns for the time of the current state, or of `start`.

        is_frozen: None: as before.
        """
        with self._lock:
            machine_time = datetime.now(UTC)  # read once: the time between two reads would be lost
            try:
                moment = _validate_time(choose(_compute_time(start or self._state, machine_time)))
            except OverflowError:
                raise ValueError(_OUT_OF_RANGE_TEXT) from None
            if self.frozen if is_frozen is None else is_frozen:
                self._state = ClockState(frozen_at=moment)
            else:
                self._state = ClockState(offset=moment - machine_time)
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


def _compute_time(state: ClockState, machine_time: datetime) -> datetime:
    return state.frozen_at if state.frozen_at is not None else min(machine_time + state.offset, MAX_TIME)


def _validate_time(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("the time has no time zone: add one, such as +00:00")
    utc = moment.astimezone(UTC)
    if not MIN_TIME <= utc <= MAX_TIME:
        raise ValueError(_OUT_OF_RANGE_TEXT)
    return utc
