"""One clock for the whole sandbox, which a test can freeze, set and advance.

Tokens, sessions, stored documents, delivery and signing times all ask this clock and no other, and derive
their state from it when they are read: advancing it by an hour makes an hour pass everywhere at once.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta


class Clock:
    """The time in the sandbox: the machine's own until it is frozen, set or advanced. Safe to read from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offset = timedelta(0)
        self._frozen_at: datetime | None = None

    def now(self) -> datetime:
        """The current time as an aware UTC datetime."""
        with self._lock:
            return self._frozen_at if self._frozen_at is not None else datetime.now(UTC) + self._offset

    def milliseconds(self) -> int:
        """The current time in whole milliseconds since 1970-01-01T00:00:00Z."""
        return (self.now() - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)

    @property
    def frozen(self) -> bool:
        """Whether time stands still."""
        return self._frozen_at is not None

    def freeze(self, at: datetime | None = None) -> datetime:
        """Stop time, here or at an aware datetime, and return the time it stopped at."""
        moment = self.now() if at is None else _utc(at)
        with self._lock:
            self._frozen_at = moment
        return moment

    def advance(self, by: timedelta) -> datetime:
        """Move time forward, whether it is frozen or not, and return the new time. Time never goes back."""
        if by < timedelta(0):
            raise ValueError("the clock only goes forward: advance by a positive time, or set it")
        with self._lock:
            if self._frozen_at is not None:
                self._frozen_at += by
            else:
                self._offset += by
        return self.now()

    def set(self, at: datetime) -> datetime:
        """Jump to an aware datetime, earlier or later; a frozen clock stays frozen."""
        moment = _utc(at)
        with self._lock:
            if self._frozen_at is not None:
                self._frozen_at = moment
            else:
                self._offset = moment - datetime.now(UTC)
        return self.now()

    def resume(self) -> datetime:
        """Let time run on from where it stands."""
        moment = self.now()
        with self._lock:
            if self._frozen_at is not None:
                self._offset = moment - datetime.now(UTC)
                self._frozen_at = None
        return moment


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("the clock takes aware datetimes: give it a time zone")
    return moment.astimezone(UTC)
