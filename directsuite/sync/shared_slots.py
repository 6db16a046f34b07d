"""Connections to a service that all processes of a fleet share: slots, each a lock of a session in PostgreSQL.

A process that dies gives its slots back at once, for its session ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Any, LiteralString, Self

from directsuite.core.clock import Clock, SystemClock
from directsuite.secret import Secret
from directsuite.sync.postgres_connections import Connections
from directsuite.sync.store import StoreError

_LOCK = """
    SELECT slot FROM unnest(%s::integer[]) slot WHERE pg_try_advisory_lock(%s::integer, slot) LIMIT 1
"""
_UNLOCK = "SELECT pg_advisory_unlock(%s::integer, %s::integer)"

_TIMEOUT = 2.0  # seconds for an answer of PostgreSQL
_AGAIN = 1.0  # seconds until PostgreSQL is asked again after none
_SOONEST, _LATEST = 0.01, 0.25  # seconds between two looks for a free slot


class SharedSlots:
    """So many at a time, over all processes that give the same name. One event loop each.

    conninfo: as PostgresStore has it. processes: how many share them; where PostgreSQL doesn't answer, this one keeps
    to its part, which is one at least. Raises ConfigurationError.
    """

    def __init__(
        self, conninfo: str | Secret, name: str, *, slots: int, processes: int, clock: Clock | None = None
    ) -> None:
        self._connections = Connections(conninfo, most=1, timeout=_TIMEOUT)
        del conninfo  # this frame may stand in a traceback
        self._key = zlib.crc32(f"directsuite {name}".encode()) - 2**31
        self._numbers = frozenset(range(slots))
        self._share = max(1, slots // processes)
        self._clock = clock or SystemClock()
        self._used = 0
        self._locked = set[int]()
        self._session = 0
        self._is_lost = True
        self._ask_at = float("-inf")
        self._turn = asyncio.Lock()
        self._unlocking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """A slot while the block runs; waits for one."""
        pause = _SOONEST
        while not await self._take():
            await self._clock.sleep(pause)
            pause = min(2 * pause, _LATEST)
        try:
            yield
        finally:
            self._used -= 1
            if self._unlocking is None or self._unlocking.done():
                self._unlocking = asyncio.ensure_future(self._unlock())

    async def aclose(self) -> None:
        """Give all slots back."""
        if self._unlocking is not None:
            await self._unlocking
        await self._connections.aclose()

    async def _take(self) -> bool:
        """Whether there is one more. For those in use whose locks were lost with a session, others are locked first."""
        async with self._turn:
            if self._clock.monotonic() >= self._ask_at:
                with contextlib.suppress(StoreError):
                    while len(self._locked) <= self._used and await self._lock_one():
                        pass
            if self._used >= (self._share if self._is_lost else len(self._locked)):
                return False
            self._used += 1
            return True

    async def _unlock(self) -> None:
        """Give back what isn't used."""
        async with self._turn:
            with contextlib.suppress(StoreError):
                while len(self._locked) > self._used:
                    slot = self._locked.pop()
                    await self._ask(_UNLOCK, (self._key, slot))

    async def _lock_one(self) -> bool:
        found = await self._ask(_LOCK, (sorted(self._numbers - self._locked), self._key))
        self._locked.update(slot for (slot,) in found)
        return bool(found)

    async def _ask(self, query: LiteralString, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Rows from the one session, whose locks are gone where it is another one by now."""
        try:
            found = await self._connections.fetch(query, values)
        except StoreError:
            self._is_lost = True
            self._locked.clear()
            self._ask_at = self._clock.monotonic() + _AGAIN
            raise
        self._is_lost = False
        if self._connections.made != self._session:
            self._session = self._connections.made
            self._locked.clear()
        return found
