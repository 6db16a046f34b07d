"""Connections that processes share: never more than there are, its part for each process, none kept by the dead."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from directsuite.core.clock import SystemClock
from directsuite.core.events import Event
from directsuite.core.shared_connections import SharedConnections
from directsuite.sync.shared_slots import SharedSlots

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

NOWHERE = "host=127.0.0.1 port=1 user=tester"


def no_sockets(_: int) -> None:
    """There are none to close."""


def nobody(_: Event) -> None:
    """Is told of it."""


def served(slots: SharedSlots, most: int = 8) -> SharedConnections:
    """The limits of a suite that has its connections from there."""
    return SharedConnections(
        "fax",
        slots=slots,
        close_idle=no_sockets,
        connections=most,
        requests_per_second=1000.0,
        burst=1000,
        circuit_failures=0,
        circuit_pause=1.0,
        clock=SystemClock(),
        tell=nobody,
    )


@contextlib.asynccontextmanager
async def a_connection(limits: SharedConnections) -> AsyncGenerator[None]:
    await limits.connect()
    try:
        yield
    finally:
        limits.release()


async def is_refused(limits: SharedConnections) -> bool:
    """Whether nobody gets a connection for a while."""
    try:
        await asyncio.wait_for(limits.connect(), 0.4)
    except TimeoutError:
        return True
    limits.release()
    return False


async def test_slots_are_never_more_than_there_are(conninfo: str) -> None:
    used, most = 0, 0

    async def use(limits: SharedConnections) -> None:
        nonlocal used, most
        for _ in range(5):
            async with a_connection(limits):
                used += 1
                most = max(most, used)
                await asyncio.sleep(0.002)
                used -= 1

    async with (
        SharedSlots(conninfo, "x", slots=3, processes=2) as one,
        SharedSlots(conninfo, "x", slots=3, processes=2) as other,
    ):
        both = served(one), served(other)
        await asyncio.gather(*(use(limits) for limits in both for _ in range(4)))
    assert most == 3


async def test_who_has_more_than_its_part_gives_way_to_who_has_less(conninfo: str) -> None:
    async with (
        SharedSlots(conninfo, "x", slots=4, processes=2) as one,
        SharedSlots(conninfo, "x", slots=4, processes=2) as other,
    ):
        busy, late = served(one), served(other)

        async def go_on() -> None:
            while True:
                async with a_connection(busy):
                    await asyncio.sleep(0.01)

        users = [asyncio.create_task(go_on()) for _ in range(12)]
        async with asyncio.timeout(5):
            while one._lent < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        async with asyncio.timeout(5), a_connection(late), a_connection(late):
            assert one._lent <= 2
        for user in users:
            user.cancel()
        await asyncio.gather(*users, return_exceptions=True)


async def test_more_than_its_part_is_kept_no_longer_than_it_is_used(conninfo: str) -> None:
    async with SharedSlots(conninfo, "x", slots=4, processes=2) as slots:
        limits = served(slots)
        async with a_connection(limits), a_connection(limits), a_connection(limits), a_connection(limits):
            assert slots._lent == 4
        async with asyncio.timeout(5):
            while slots._lent > 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert limits.free == 2


async def test_who_waits_for_its_own_bound_wants_none_from_others(conninfo: str) -> None:
    async with (
        SharedSlots(conninfo, "x", slots=4, processes=2) as one,
        SharedSlots(conninfo, "x", slots=4, processes=2) as other,
    ):
        small, large = served(one, most=1), served(other)
        async with a_connection(small):
            waiting = asyncio.create_task(small.connect())
            async with asyncio.timeout(5), a_connection(large), a_connection(large), a_connection(large):
                assert await is_refused(small)
                assert other._lent == 3
        await waiting


async def test_a_process_that_dies_gives_its_slots_back(conninfo: str) -> None:
    program = (
        "import asyncio, sys\n"
        "from directsuite.sync.shared_slots import SharedSlots\n"
        "from tests.sync.fleet.test_shared_slots import served\n"
        "async def main():\n"
        "    limits = served(SharedSlots(sys.argv[1], 'x', slots=1, processes=2))\n"
        "    await limits.connect()\n"
        "    print('taken', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.to_thread(
        subprocess.Popen, [sys.executable, "-c", program, conninfo], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "taken\n"
        async with SharedSlots(conninfo, "x", slots=1, processes=2) as slots:
            limits = served(slots)
            assert await is_refused(limits)
            process.kill()
            async with asyncio.timeout(10), a_connection(limits):
                pass
    finally:
        process.kill()
        process.communicate()


async def test_where_postgresql_is_away_each_has_its_part_of_the_slots() -> None:
    async with SharedSlots(NOWHERE, "x", slots=8, processes=4) as slots:
        limits = served(slots)
        async with a_connection(limits), a_connection(limits):
            assert slots.is_lost
            assert await is_refused(limits)
        async with a_connection(limits):
            pass


async def test_slots_in_use_while_postgresql_restarted_still_count(shaky_postgres: PostgresServer) -> None:
    conninfo = shaky_postgres.new_database()
    async with (
        SharedSlots(conninfo, "x", slots=2, processes=2) as one,
        SharedSlots(conninfo, "x", slots=2, processes=2) as other,
    ):
        first, second = served(one), served(other)
        async with a_connection(first):
            await asyncio.to_thread(shaky_postgres.stop)
            await asyncio.to_thread(shaky_postgres.start)
            async with asyncio.timeout(10):
                while one.is_lost or not one._locked:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            async with a_connection(first):
                assert await is_refused(second)
        async with asyncio.timeout(10), a_connection(second):
            pass
