"""Limits that processes share: what a suite asks of who keeps them, and connections that come and go with them.

connect ◄── free ◄── add ◄── Slots: this process has the right to one more
release ──► free, or ──► takes_back, or withdraw: to another process, and a socket that rests is closed
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from yarl import URL

from directsuite.core.clock import Clock
from directsuite.core.lifecycle import Lifecycle
from directsuite.core.limits import Limits, Places


class Stock(Protocol):
    """One process's connections to a service, for who shares them out. connections: how many it may have."""

    connections: int

    @property
    def waiting(self) -> int:
        """How many wait for a connection."""
        ...

    @property
    def free(self) -> int:
        """How many connections nobody uses."""
        ...

    def add(self) -> None:
        """One more for this process."""
        ...

    def withdraw(self) -> bool:
        """One less, if one is free."""
        ...


class Slots(Protocol):
    """Shares a service's connections out between processes."""

    def serve(self, stock: Stock) -> None:
        """Fill this stock, which is empty. Called once, before anything else."""
        ...

    def seek(self) -> None:
        """Add one to the stock, for somebody is going to wait for it."""
        ...

    def takes_back(self) -> bool:
        """Whether a connection that is given back leaves this process."""
        ...


class Sharing(Protocol):
    """Keeps the limits that suites in several processes share, by the name of a service."""

    def places(self, service: str, *, per_second: float, burst: int, clock: Clock) -> Places:
        """Places for requests to a service."""
        ...

    def slots(self, service: str) -> tuple[int, Slots] | None:
        """How many connections to a service there are, and who shares them out; None where they aren't shared."""
        ...


class SharedConnections(Limits):
    """Limits with connections that are this process's only while it has a slot for each.

    close_idle: closes sockets to the service that rest, except for so many.
    """

    def __init__(self, service: str, *, slots: Slots, close_idle: Callable[[int], None], **limits: Any) -> None:
        super().__init__(service, **limits)
        self._free = 0
        self._slots = slots
        self._close_idle = close_idle
        slots.serve(self)

    async def connect(self) -> None:
        """Wait for one of the service's connections; each is given back by one `release`."""
        if not self._free:
            self._slots.seek()
        await super().connect()

    def release(self) -> None:
        """Give a connection back: to who has waited longest, here or in another process."""
        if self._slots.takes_back():
            self._close_idle(self._free)
        else:
            super().release()

    @property
    def waiting(self) -> int:
        """How many wait for a connection."""
        return len(self._waiting)

    @property
    def free(self) -> int:
        """How many connections nobody uses."""
        return self._free

    def add(self) -> None:
        """One more for this process."""
        super().release()

    def withdraw(self) -> bool:
        """One less, if one is free."""
        if not self._free:
            return False
        self._free -= 1
        self._close_idle(self._free)
        return True


def close_idle(lifecycle: Lifecycle, url: str | None, but: int) -> None:
    """Close sockets to the server of a base URL that rest in the session's pool, except for so many.

    aiohttp has no way to ask for that. A pool that keeps none, as with force_close, has none to close.
    """
    session, where = lifecycle._http, URL(url or "")
    if session is None or session.connector is None:
        return
    for key, resting in session.connector._conns.items():
        while (key.host, key.port) == (where.host, where.port) and len(resting) > but:
            protocol, _ = resting.popleft()
            protocol.close()
