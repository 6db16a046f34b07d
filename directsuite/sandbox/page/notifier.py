"""Notifies browsers of changes and calls, for server-sent events."""

from __future__ import annotations

import asyncio
import contextlib

MAX_BROWSERS = 32
"""The maximum number of event streams, because each needs a connection."""


class ChangeNotifier:
    """The subscribed browsers."""

    def __init__(self) -> None:
        self.version = 0
        """Increases with each notification."""
        self._waiting = dict[asyncio.Event, set[str]]()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_full(self) -> bool:
        """True if no other browser can subscribe."""
        return len(self._waiting) >= MAX_BROWSERS

    def subscribe(self) -> tuple[asyncio.Event, set[str]]:
        """Return an event for a browser, and the set of kinds to report when it is set."""
        self._loop = asyncio.get_running_loop()
        event, kinds = asyncio.Event(), set[str]()
        self._waiting[event] = kinds
        return event, kinds

    def unsubscribe(self, event: asyncio.Event) -> None:
        """End the subscription with this event."""
        self._waiting.pop(event, None)

    def notify(self, kind: str) -> None:
        """Notify all browsers. Thread-safe."""
        self.version += 1
        if self._waiting and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(self._set_events, kind)

    def close(self) -> None:
        """End all streams."""
        self._set_events("end")

    def _set_events(self, kind: str) -> None:
        for event, kinds in self._waiting.items():
            kinds.add(kind)
            event.set()
