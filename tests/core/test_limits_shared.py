"""Limits that other processes share: connections that come and go, and places that are not this suite's own."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator

import pytest

import directsuite as ds
from directsuite.core.clock import Clock
from directsuite.core.events import Event
from directsuite.core.limits import Limits, Places, Rate
from directsuite.core.operation import Service
from directsuite.core.shared_connections import SharedConnections, Stock
from tests.chaos.stepping import Way, interrupted

from . import plays
from .opened import ALICE, PASSWORD, settings
from .scripted_server import ScriptedServer
from .virtual_time import LoopClock, VirtualTimeLoop, turns

ANSWER = plays.answer({"success": True, "count": 7})
TAKES = 0.1
"""Virtual seconds until a connection that was sought is there."""


class Lender:
    """Shares connections out, as another process would have it: a second after they are sought, and takes them back."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.lent = 0
        self.sought = 0
        self._stock: Stock | None = None

    @property
    def stock(self) -> Stock:
        assert self._stock is not None
        return self._stock

    def serve(self, stock: Stock) -> None:
        self._stock = stock

    def seek(self) -> None:
        self.sought += 1
        asyncio.get_running_loop().call_later(TAKES, self._lend)

    def _lend(self) -> None:
        if self.lent < self.most:
            self.lent += 1
            self.stock.add()

    def takes_back(self) -> bool:
        if self.lent <= self.most:
            return False
        self.lent -= 1
        return True


class Shared:
    """What a suite is given: of messaging the connections are shared, of the others only the places."""

    def __init__(self, most: int = 3) -> None:
        self.lender = Lender(most)
        self.rates = dict[str, Rate]()

    def places(self, service: str, *, per_second: float, burst: int, clock: Clock) -> Places:
        return self.rates.setdefault(service, Rate(per_second, burst, clock))

    def slots(self, service: str) -> tuple[int, Lender] | None:
        return (self.lender.most, self.lender) if service == Service.MESSAGING.value else None


@contextlib.asynccontextmanager
async def sharing(server: ScriptedServer, shared: Shared, **others: object) -> AsyncGenerator[ds.DirectSuite]:
    suite = ds.DirectSuite(settings(server, **others), token="token", clock=LoopClock(), shared_limits=shared)
    async with suite:
        yield suite


def limits_of(suite: ds.DirectSuite) -> Limits:
    return suite._transport._endpoints[Service.MESSAGING].limits


async def count(suite: ds.DirectSuite) -> int:
    return await suite.mailbox(ALICE, PASSWORD).get_message_count()


async def test_a_call_waits_for_a_connection_that_the_next_one_finds(server: ScriptedServer) -> None:
    server.otherwise, shared = ANSWER, Shared()
    async with sharing(server, shared) as suite:
        began = asyncio.get_running_loop().time()
        assert await count(suite) == 7
        assert asyncio.get_running_loop().time() - began == pytest.approx(TAKES)
        assert await count(suite) == 7
        assert asyncio.get_running_loop().time() - began == pytest.approx(TAKES)
    assert shared.lender.sought == 1


async def test_never_more_are_used_than_there_are(server: ScriptedServer) -> None:
    server.otherwise, shared = plays.slow(0.1, ANSWER), Shared(most=3)
    async with sharing(server, shared) as suite:
        await asyncio.gather(*(count(suite) for _ in range(40)))
        assert limits_of(suite).connections == 3
    assert server.busiest == server.connections == 3


async def test_one_that_is_taken_back_is_closed_and_its_caller_has_the_answer(server: ScriptedServer) -> None:
    server.otherwise, shared = plays.slow(1, ANSWER), Shared(most=3)
    async with sharing(server, shared) as suite:
        calls = [asyncio.create_task(count(suite)) for _ in range(4)]
        await asyncio.sleep(0.5)
        assert server.busy == 3
        shared.lender.most = 1
        assert await asyncio.gather(*calls) == [7] * 4
        assert (shared.lender.lent, shared.lender.stock.free) == (1, 1)
        await turns()
        assert server.open_connections == 1


async def test_of_those_that_rest_so_many_are_closed_as_are_withdrawn(server: ScriptedServer) -> None:
    server.otherwise, shared = plays.slow(1, ANSWER), Shared(most=3)
    async with sharing(server, shared) as suite:
        await asyncio.gather(*(count(suite) for _ in range(3)))
        for left in (2, 1, 0):
            assert shared.lender.stock.withdraw()
            await turns()
            assert server.open_connections == left
        assert not shared.lender.stock.withdraw()


async def test_places_are_those_that_were_given_and_a_pause_is_told_to_them(server: ScriptedServer) -> None:
    shared = Shared()
    server.plays(plays.answer({}, 429, retry_after="20"))
    server.otherwise = plays.answer({"identifier": "doc"})
    async with sharing(server, shared) as suite:
        began = asyncio.get_running_loop().time()
        await suite.signing.get_doc_info("doc")
        assert asyncio.get_running_loop().time() - began >= 20
    assert not shared.rates["signing"].hold(0)
    assert shared.rates["fax"].hold(0)


class Stepwise:
    """Slots that come and go as a test says."""

    stock: Stock

    def serve(self, stock: Stock) -> None:
        self.stock = stock

    def seek(self) -> None:
        pass

    def takes_back(self) -> bool:
        return False


def no_sockets(_: int) -> None:
    """There are none to close."""


def nobody(_: Event) -> None:
    """Is told of it."""


def a_stock(slots: Stepwise) -> SharedConnections:
    return SharedConnections(
        "fax",
        slots=slots,
        close_idle=no_sockets,
        connections=2,
        requests_per_second=1.0,
        burst=1,
        circuit_failures=0,
        circuit_pause=1.0,
        clock=LoopClock(),
        tell=nobody,
    )


async def test_nobody_goes_past_those_who_wait_for_a_slot() -> None:
    slots = Stepwise()
    limits = a_stock(slots)
    assert not limits.go(connect=True)
    first, second = (asyncio.create_task(limits.connect()) for _ in range(2))
    await turns()
    assert slots.stock.waiting == 2
    slots.stock.add()
    assert not limits.go(connect=True)
    await first
    assert not second.done()
    limits.release()
    await second
    limits.release()
    assert slots.stock.free == 1
    assert limits.go(connect=True)
    assert limits.exhausted
    limits.release()
    assert not limits.go(connect=True)  # it is there, and the place isn't
    assert slots.stock.free == 1


@pytest.mark.parametrize("way", Way, ids=str)
def test_a_call_ended_at_any_wait_keeps_no_connection(way: Way) -> None:
    async def at_every_wait() -> int:
        for at in itertools.count(1):
            shared = Shared(most=1)
            async with ScriptedServer(ANSWER) as server, sharing(server, shared) as suite:
                server.plays(plays.slow(1, ANSWER))
                other = asyncio.create_task(count(suite))
                await asyncio.sleep(2 * TAKES)
                ending = await interrupted(suite.mailbox(ALICE, PASSWORD).get_message_count(), at=at, way=way)
                await asyncio.gather(other, return_exceptions=True)
                assert (shared.lender.lent, shared.lender.stock.free, shared.lender.stock.waiting) == (1, 1, 0)
                assert limits_of(suite).go()
                assert await count(suite) == 7
            if not ending.reached:
                return at
        raise AssertionError

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(at_every_wait()) > 2
