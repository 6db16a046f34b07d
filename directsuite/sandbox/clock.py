"""One clock for the whole sandbox, which a test can freeze, set and advance.

Tokens, sessions, stored documents, delivery and signing times all ask this clock and no other, and derive
their state from it when they are read: advancing it by an hour makes an hour pass everywhere at once. Its state is a
row beside the state that it dates, so that a sandbox goes on from the time at which it stopped.
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
"""The signer's certificates hold from here on."""
MAX_TIME = datetime(9999, 1, 1, tzinfo=UTC)
"""Datetimes end with the year 9999: up to here, what lasts a year can still be written."""
_MICROSECOND = timedelta(microseconds=1)
_OUT_OF_RANGE_TEXT = f"the clock takes times from {MIN_TIME:%Y-%m-%d} to {MAX_TIME:%Y-%m-%d}"


@attrs.frozen
class ClockState:
    """How a clock stands: its offset from the machine's time, and where it is frozen, if it is."""

    offset: timedelta = timedelta(0)
    frozen_at: datetime | None = None

    @classmethod
    def load(cls, connection: sqlite3.Connection) -> ClockState | None:
        """The state that is stored; None in a new database."""
        row = connection.execute("SELECT offset_us, frozen_at_us FROM clock").fetchone()
        if row is None:
            return None
        frozen_at = None if row["frozen_at_us"] is None else EPOCH + row["frozen_at_us"] * _MICROSECOND
        return cls(offset=row["offset_us"] * _MICROSECOND, frozen_at=frozen_at)

    def store(self, connection: sqlite3.Connection) -> None:
        """Store the state inside the caller's transaction."""
        frozen_at = None if self.frozen_at is None else (self.frozen_at - EPOCH) // _MICROSECOND
        connection.execute(
            "INSERT OR REPLACE INTO clock(id, offset_us, frozen_at_us) VALUES(1, ?, ?)",
            (self.offset // _MICROSECOND, frozen_at),
        )


class Clock:
    """The time in the sandbox: the machine's own until it is frozen, set or advanced. Safe to use from any thread.

    It takes no time before EARLIEST or after LATEST: ValueError, and the clock stays as it was.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = ClockState()
        self._listeners: list[Callable[[], None]] = []

    def now(self) -> datetime:
        """The current time as an aware UTC datetime."""
        return _compute_time(self._state)

    def milliseconds(self) -> int:
        """The current time in whole milliseconds since 1970-01-01T00:00:00Z."""
        return to_milliseconds(self.now())

    @property
    def frozen(self) -> bool:
        """True while time stands still."""
        return self._state.frozen_at is not None

    @property
    def state(self) -> ClockState:
        """How the clock stands, for `restore`."""
        return self._state

    def freeze(self, at: datetime | None = None) -> datetime:
        """Stop time, here or at an aware datetime, and return the time it stopped at."""
        moment = None if at is None else _validate_time(at)
        return self._change(
            lambda state: attrs.evolve(state, frozen_at=_compute_time(state) if moment is None else moment)
        )

    def advance(self, by: timedelta) -> datetime:
        """Move time forward, whether it is frozen or not, and return the new time. Time never goes back."""
        if by < timedelta(0):
            raise ValueError("the clock only goes forward: advance by a positive time, or set it")

        def advance_state(state: ClockState) -> ClockState:
            try:
                moment = _validate_time(_compute_time(state) + by)
            except OverflowError:
                raise ValueError(_OUT_OF_RANGE_TEXT) from None
            if state.frozen_at is not None:
                return attrs.evolve(state, frozen_at=moment)
            return attrs.evolve(state, offset=state.offset + by)

        return self._change(advance_state)

    def set(self, at: datetime) -> datetime:
        """Jump to an aware datetime, earlier or later; a frozen clock stays frozen."""
        moment = _validate_time(at)

        def move_state(state: ClockState) -> ClockState:
            if state.frozen_at is not None:
                return attrs.evolve(state, frozen_at=moment)
            return attrs.evolve(state, offset=moment - datetime.now(UTC))

        return self._change(move_state)

    def resume(self) -> datetime:
        """Let time run on from where it stands."""

        def resume_state(state: ClockState) -> ClockState:
            return state if state.frozen_at is None else ClockState(offset=state.frozen_at - datetime.now(UTC))

        return self._change(resume_state)

    def restore(self, state: ClockState) -> datetime:
        """Take over how a clock stood before, and return the time that it is then."""
        try:
            _validate_time(_compute_time(state))
        except OverflowError:
            raise ValueError(_OUT_OF_RANGE_TEXT) from None
        return self._change(lambda _: state)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called after each change, in the thread that made it; what is given back ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _change(self, change: Callable[[ClockState], ClockState]) -> datetime:
        """The new state is complete before it replaces the old one: what raises leaves the clock as it was."""
        with self._lock:
            state = change(self._state)
            moment = _compute_time(state)
            self._state = state
        for listener in tuple(self._listeners):
            listener()
        return moment


def to_milliseconds(moment: datetime) -> int:
    """An aware datetime in whole milliseconds since 1970-01-01T00:00:00Z."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def format_timestamp(milliseconds: int) -> str:
    """Milliseconds since 1970 as the services' Timestamp and Date, such as 2026-05-01T12:00:00.000+0000."""
    moment = EPOCH + timedelta(milliseconds=milliseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}+0000"


def _compute_time(state: ClockState) -> datetime:
    """Return the time of a clock, which stops at LATEST. Raise OverflowError for an offset of too many years."""
    return state.frozen_at if state.frozen_at is not None else min(datetime.now(UTC) + state.offset, MAX_TIME)


def _validate_time(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("the clock takes aware datetimes: give it a time zone")
    try:
        utc = moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(_OUT_OF_RANGE_TEXT) from None
    if not MIN_TIME <= utc <= MAX_TIME:
        raise ValueError(_OUT_OF_RANGE_TEXT)
    return utc
