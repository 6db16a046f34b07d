"""Who is told, over server-sent events, that something has changed or that a call has come."""

from __future__ import annotations

import asyncio
import contextlib

MAX_BROWSERS = 32
"""Streams of events at a time: each keeps a connection open."""


class ChangeNotifier:
    """Who is told of changes: one event for each browser, set from any thread."""

    def __init__(self) -> None:
        self.version = 0
        """It goes up with each change."""
        self._waiting = dict[asyncio.Event, set[str]]()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_full(self) -> bool:
        """True if as many browsers listen as may."""
        return len(self._waiting) >= MAX_BROWSERS

    def subscribe(self) -> tuple[asyncio.Event, set[str]]:
        """Return an event for a browser, and the set of what has happened when the event is set."""
        self._loop = asyncio.get_running_loop()
        event, kinds = asyncio.Event(), set[str]()
        self._waiting[event] = kinds
        return event, kinds

    def unsubscribe(self, event: asyncio.Event) -> None:
        """Tell this browser nothing more."""
        self._waiting.pop(event, None)

    def notify(self, kind: str) -> None:
        """Tell all; from any thread, and at no cost where nobody listens."""
        self.version += 1
        if self._waiting and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(self._set_events, kind)

    def close(self) -> None:
        """Let all go: the sandbox stops."""
        self._set_events("end")

    def _set_events(self, kind: str) -> None:
        for event, kinds in self._waiting.items():
            kinds.add(kind)
            event.set()
