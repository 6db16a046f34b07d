"""The clock beside the state that it dates: one row, so that a sandbox goes on from the time at which it stopped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from directsuite.sandbox.clock import ClockState

if TYPE_CHECKING:
    import sqlite3

SCHEMA = """
CREATE TABLE IF NOT EXISTS clock(
  id INTEGER PRIMARY KEY CHECK(id = 1), offset_us INTEGER NOT NULL, frozen_at_us INTEGER);
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def store(connection: sqlite3.Connection, state: ClockState) -> None:
    """Keep how the clock stands, inside the caller's transaction."""
    frozen_at = None if state.frozen_at is None else (state.frozen_at - _EPOCH) // _MICROSECOND
    connection.execute(
        "INSERT OR REPLACE INTO clock(id, offset_us, frozen_at_us) VALUES(1, ?, ?)",
        (state.offset // _MICROSECOND, frozen_at),
    )


def load(connection: sqlite3.Connection) -> ClockState | None:
    """How the clock stood; None in a new state."""
    row = connection.execute("SELECT offset_us, frozen_at_us FROM clock").fetchone()
    if row is None:
        return None
    frozen_at = None if row["frozen_at_us"] is None else _EPOCH + row["frozen_at_us"] * _MICROSECOND
    return ClockState(offset=row["offset_us"] * _MICROSECOND, frozen_at=frozen_at)
