"""Connections to a service that all processes of a fleet share: slots, each a lock of a session in PostgreSQL.

    lock ──► a slot is this process's ──► stock.add ─┬─► used again and again
    unlock ◄── withdrawn: not used lately, or others ┘
               have less than their part and want it

A process that dies gives its slots back at once, for its session ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Sequence
from types import TracebackType
from typing import Any, LiteralString, Self

from directsuite.core.shared_connections import Stock
from directsuite.durable.postgres import Connections
from directsuite.errors import DirectSuiteError
from directsuite.secret import Secret
from directsuite.sync.store import StoreError

_LOCK = """
    SELECT slot FROM unnest(%s::integer[]) slot WHERE pg_try_advisory_lock(%s::integer, slot) LIMIT %s
"""
_UNLOCK = "SELECT pg_advisory_unlock(%s::integer, slot) FROM unnest(%s::integer[]) slot"

# Who has less than its part and finds no slot shares one more lock, which nobody else can have alone meanwhile.
_WANT = "SELECT pg_try_advisory_lock_shared(%s::integer, -1)"
_WANT_NO_MORE = "SELECT pg_advisory_unlock_shared(%s::integer, -1)"
_IS_WANTED = """
    SELECT CASE WHEN pg_try_advisory_lock(%(key)s::integer, -1) THEN NOT pg_advisory_unlock(%(key)s::integer, -1)
    ELSE true END
"""

_TIMEOUT = 2.0  # seconds for an answer of PostgreSQL
_AGAIN = 1.0  # seconds until PostgreSQL is asked again after none
_SOONEST, _LATEST = 0.01, 0.25  # seconds between two looks for a free slot
_LOOK = 0.25  # seconds between two looks at who wants slots, and for which more than the part is kept unused
_KEPT = 5.0  # seconds for which the part is kept unused: a new connection to the service may cost more than a request


class SharedSlots:
    """So many at a time, over all processes that give the same name. Serves one stock, in one event loop.

    conninfo: as PostgresStore has it. processes: how many share them; where PostgreSQL doesn't answer, this one keeps
    to its part, which is one at least, and where it does, nobody waits for that part for longer than others need to
    end a request. Raises ConfigurationError.
    """

    def __init__(self, conninfo: str | Secret, name: str, *, slots: int, processes: int) -> None:
        self._connections = Connections(conninfo, error=StoreError, most=1, timeout=_TIMEOUT)
        del conninfo  # this frame may stand in a traceback
        self._key = zlib.crc32(f"directsuite {name}".encode()) - 2**31
        self._numbers = frozenset(range(slots))
        self._share = max(1, slots // processes)
        self._stock: Stock | None = None
        self._locked = set[int]()
        self._wants = False
        self._session = 0
        self._lent = 0  # to the stock: free there, or used
        self._limit = 0  # of those, for now
        self._unused = 0  # of those, at each look since that time
        self._unused_since = 0.0
        self._is_lost = False
        self._ask_at = float("-inf")
        self._is_seeking = False
        self._news = asyncio.Event()
        self._sharing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def is_lost(self) -> bool:
        """Whether PostgreSQL gave no answer, and this process keeps to its share."""
        return self._is_lost

    def serve(self, stock: Stock) -> None:
        """Fill this stock, which is empty. Called once, before anything else."""
        self._stock = stock
        self._share = min(self._share, self._most(stock))

    def seek(self) -> None:
        """Add one to the stock, for somebody is going to wait for it."""
        if self._stock is not None and (self._sharing is None or self._sharing.done()):
            self._sharing = asyncio.ensure_future(self._share_out(self._stock))
        elif not self._is_seeking:
            self._news.set()

    def takes_back(self) -> bool:
        """Whether a connection that is given back leaves this process."""
        if self._lent <= self._limit:
            return False
        self._lent -= 1
        self._news.set()
        return True

    async def aclose(self) -> None:
        """Give all slots back."""
        if self._sharing is not None:
            self._sharing.cancel()
            await asyncio.wait([self._sharing])
        await self._connections.aclose()

    async def _share_out(self, stock: Stock) -> None:
        """While the stock has any, or somebody waits for one."""
        loop = asyncio.get_running_loop()
        pause = _SOONEST
        while self._lent or self._locked or stock.waiting:
            self._news.clear()
            if loop.time() >= self._ask_at:
                await self._ask_postgres(stock)
            else:
                self._even_out(stock, self._share)
            self._is_seeking = bool(stock.waiting) and self._lent < self._most(stock)
            pause = min(2 * pause, _LATEST) if self._is_seeking else _SOONEST
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause if self._is_seeking else _LOOK):
                    await self._news.wait()

    async def _ask_postgres(self, stock: Stock) -> None:
        try:
            await self._lock(stock)
            self._even_out(stock, len(self._locked))
            await self._unlock(stock)
        except DirectSuiteError:
            self._is_lost, self._limit = True, self._share
            self._ask_at = asyncio.get_running_loop().time() + _AGAIN
            await self._connections.disconnect()  # so that no lock is left there that isn't known here
            self._even_out(stock, self._share)

    async def _lock(self, stock: Stock) -> None:
        """As many slots as are used and waited for, or as there are. Those in use whose locks were lost come first."""
        ((is_wanted,),) = await self._ask(_IS_WANTED, {"key": self._key})
        most = self._share if is_wanted else self._most(stock)
        missing = max(self._lent, min(self._lent + stock.waiting, most)) - len(self._locked)
        if missing > 0:
            found = await self._ask(_LOCK, (sorted(self._numbers - self._locked), self._key, missing))
            self._locked.update(slot for (slot,) in found)
        self._limit = most if self._lent <= len(self._locked) else min(most, len(self._locked))

    async def _unlock(self, stock: Stock) -> None:
        """What isn't lent; and say whether this process has to have more."""
        surplus = [self._locked.pop() for _ in range(len(self._locked) - self._lent)]
        if surplus:
            await self._ask(_UNLOCK, (self._key, surplus))
        wants = bool(stock.waiting) and self._lent < self._share
        if wants != self._wants:
            ((done,),) = await self._ask(_WANT if wants else _WANT_NO_MORE, (self._key,))
            self._wants = wants and done

    def _most(self, stock: Stock) -> int:
        return min(stock.connections, len(self._numbers))

    def _even_out(self, stock: Stock, most: int) -> None:
        """Give the stock what is waited for; take what is too much, and what wasn't used for a while."""
        while stock.waiting and self._lent < min(most, self._limit):
            self._lent += 1
            stock.add()
        now, more = asyncio.get_running_loop().time(), self._lent - self._share
        excess = self._lent - self._limit
        self._unused = min(self._unused, stock.free)
        is_over = now - self._unused_since >= (_LOOK if more > 0 else _KEPT)
        if is_over:
            excess = max(excess, min(self._unused, more) if more > 0 else self._unused)
        while excess > 0 and stock.withdraw():
            excess -= 1
            self._lent -= 1
        if is_over:
            self._unused, self._unused_since = stock.free, now

    async def _ask(self, query: LiteralString, values: Sequence[Any] | dict[str, Any]) -> list[tuple[Any, ...]]:
        """Rows from the one session, whose locks are gone where it is another one by now."""
        found = await self._connections.fetch(query, values)
        self._is_lost = False
        if self._connections.made != self._session:
            self._session = self._connections.made
            self._locked.clear()
            self._wants = False
        return found
