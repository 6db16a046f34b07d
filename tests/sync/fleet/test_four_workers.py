"""Four worker processes that are killed, paused, or lose PostgreSQL: each message is NEW once in the sink."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import directsuite as ds
from directsuite.sandbox.server import Sandbox
from directsuite.sync.model import StoreError
from directsuite.sync.postgres import PostgresStore
from tests.statements import sql
from tests.waiting import poll_until

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

pytest.importorskip("procrastinate", reason="procrastinate isn't installed: the extra 'fleet' brings it")
from tests.sync.fleet.fleet_worker import LoggingSink, make_fleet
from tests.sync.killing.traffic import Traffic, group_rows

pytestmark = pytest.mark.process

NAMES = [f"user{number}@direct.example.test" for number in range(16)]


@attrs.define
class SharedStoreScenario:
    traffic: Traffic
    store: PostgresStore
    conninfo: str
    workers: list[subprocess.Popen[bytes]] = attrs.field(factory=list[Any])

    async def start_worker(self) -> None:
        arguments = ["tests.sync.fleet.fleet_worker", self.traffic.sandbox.message_url, self.conninfo]
        command = [sys.executable, "-m", *arguments]
        self.workers.append(await asyncio.to_thread(subprocess.Popen, command))

    async def change(self, times: int) -> None:
        for _ in range(times):
            await self.traffic.make_change()

    async def told(self) -> Counter[tuple[Any, ...]]:
        query = "SELECT subject FROM told WHERE kind = 'new'"
        return Counter(await self.store.database.fetch(sql(query)))

    async def turns(self) -> list[int]:
        query = "SELECT fence FROM directsuite.schedule"
        return [number for (number,) in await self.store.database.fetch(sql(query))]

    async def in_step(self) -> bool:
        query = "SELECT mailbox, folder, uid, subject FROM directsuite.message WHERE present"
        with contextlib.suppress(StoreError):
            return group_rows(await self.store.database.fetch(sql(query))) == await self.traffic.list_server()
        return False

    async def all_had_turns(self) -> bool:
        if min(await self.turns()) <= 1:
            return False
        ((started,),) = await self.store.database.fetch(sql("SELECT count(*) FROM directsuite.procrastinate_workers"))
        return bool(started == len(self.workers))

    async def stop_workers(self) -> None:
        living = [worker for worker in self.workers if worker.poll() is None]
        for worker in living:
            worker.send_signal(signal.SIGTERM)
        for worker in living:
            assert await asyncio.to_thread(worker.wait, 15) == 0


@contextlib.asynccontextmanager
async def a_scene(conninfo: str) -> AsyncGenerator[SharedStoreScenario]:
    async with Sandbox() as sandbox:
        settings = ds.Settings(message_url=sandbox.message_url, requests_per_second=1000, burst=1000)
        async with ds.DirectSuite(settings) as suite, PostgresStore(conninfo, sink=LoggingSink(), timeout=5) as store:
            traffic = Traffic(sandbox, suite, random.Random(7), NAMES)
            await traffic.add_accounts()
            scene = SharedStoreScenario(traffic, store, conninfo)
            try:
                yield scene
            finally:
                for worker in scene.workers:
                    worker.kill()
                    worker.wait()


@pytest.mark.postgres
@pytest.mark.slow
async def test_killed_and_paused_workers_lose_and_duplicate_nothing(conninfo: str) -> None:
    async with a_scene(conninfo) as scene:
        fleet = make_fleet(scene.traffic.suite, scene.store)
        await fleet.add(NAMES)
        for _ in range(4):
            await scene.start_worker()
        await poll_until(scene.all_had_turns, 30)
        changing = asyncio.create_task(scene.change(400))
        await asyncio.sleep(2)
        scene.workers[0].kill()
        scene.workers[1].send_signal(signal.SIGSTOP)
        await asyncio.sleep(6)  # twice as long as the others wait for it
        scene.workers[1].send_signal(signal.SIGCONT)
        await changing
        await poll_until(scene.in_step, 45)
        told = await scene.told()
        assert set(told.values()) == {1}
        assert len(told) <= scene.traffic.delivered  # some were deleted before anybody saw them
        turns = await scene.turns()

        async def all_had_another() -> bool:
            return all(now > before for now, before in zip(await scene.turns(), turns, strict=True))

        await poll_until(all_had_another, 20)  # none was left behind by the dead
        assert all(worker.poll() is None for worker in scene.workers[1:])
        await scene.stop_workers()
        assert (await fleet.status()).workers == 0


@pytest.mark.postgres
@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.slow)])
async def test_workers_survive_restarts_of_postgresql(shaky_postgres: PostgresServer, times: int) -> None:
    async with a_scene(shaky_postgres.create_database()) as scene:
        await make_fleet(scene.traffic.suite, scene.store).add(NAMES)
        for _ in range(4):
            await scene.start_worker()
        await poll_until(scene.all_had_turns, 30)
        for _ in range(times):
            changing = asyncio.create_task(scene.change(60))
            await asyncio.to_thread(shaky_postgres.stop)
            await asyncio.to_thread(shaky_postgres.start)
            await changing
            await poll_until(scene.in_step, 20)  # less than the back-off of a mailbox that fails
        assert set((await scene.told()).values()) == {1}
        assert all(worker.poll() is None for worker in scene.workers)
        await scene.stop_workers()
