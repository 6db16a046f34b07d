"""Four worker processes that are killed, paused, or lose PostgreSQL: each message is NEW once in the sink."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import directsuite as ds
from directsuite.sandbox.server import Sandbox
from directsuite.sync.model import StoreError
from directsuite.sync.postgres import PostgresStore

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer

pytest.importorskip("procrastinate", reason="procrastinate isn't installed: the extra 'fleet' brings it")
from tests.sync.fleet.fleet_worker import FOLDERS, PASSWORD, LoggingSink, make_fleet
from tests.sync.fleet.test_fleet import make_raw_message

pytestmark = pytest.mark.process

NAMES = [f"user{number}@direct.example.test" for number in range(16)]


@attrs.define
class SharedStoreScenario:
    sandbox: Sandbox
    suite: ds.DirectSuite
    store: PostgresStore
    conninfo: str
    workers: list[subprocess.Popen[bytes]] = attrs.field(factory=list[Any])
    delivered: int = 0
    rng: random.Random = attrs.field(factory=lambda: random.Random(7))

    async def start_worker(self) -> None:
        command = [sys.executable, "-m", "tests.sync.fleet.fleet_worker", self.sandbox.message_url, self.conninfo]
        self.workers.append(await asyncio.to_thread(subprocess.Popen, command))

    async def change(self, times: int) -> None:
        for _ in range(times):
            name, folder = self.rng.choice(NAMES), self.rng.choice(FOLDERS)
            box = self.suite.mailbox(name, PASSWORD)
            uids = await box.get_uids(folder)
            what = self.rng.choices(["deliver", "delete", "move"], [8, 1, 1])[0]
            if what == "delete" and uids:
                await box.delete_messages_by_uids(folder, self.rng.sample(uids, 1), forever=True)
            elif what == "move" and uids:
                other = FOLDERS[1 - FOLDERS.index(folder)]
                await box.move_messages_by_uids(folder, other, self.rng.sample(uids, 1))
            else:
                self.delivered += 1
                await self.sandbox.deliver(name, make_raw_message(f"number {self.delivered}"), folder)

    async def on_server(self) -> list[tuple[str, str, int, str | None]]:
        return sorted(
            [
                (name, folder, message.uid or 0, message.subject)
                for name in NAMES
                for folder in FOLDERS
                async for message in self.suite.mailbox(name, PASSWORD).iter_metadata(folder)
            ],
            key=str,
        )

    async def in_sink(self) -> list[tuple[Any, ...]]:
        query = "SELECT mailbox, folder, uid, subject FROM directsuite.message WHERE present"
        return sorted(await self.store.connections.fetch(query), key=str)

    async def told(self) -> Counter[tuple[Any, ...]]:
        query = "SELECT subject FROM told WHERE kind = 'new'"
        return Counter(await self.store.connections.fetch(query))

    async def turns(self) -> list[int]:
        query = "SELECT fence FROM directsuite.schedule"
        return [number for (number,) in await self.store.connections.fetch(query)]

    async def in_step(self) -> bool:
        with contextlib.suppress(StoreError):
            return await self.in_sink() == await self.on_server()
        return False

    async def all_had_turns(self) -> bool:
        return min(await self.turns()) > 1

    async def until(self, seen: Callable[[], Awaitable[bool]], seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while not await seen():  # noqa: ASYNC110
                await asyncio.sleep(0.2)

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
        async with (
            ds.DirectSuite(settings) as suite,
            PostgresStore(conninfo, sink=LoggingSink(), timeout=5) as store,
        ):
            for name in NAMES:
                await sandbox.add_account(name, PASSWORD)
                await suite.mailbox(name, PASSWORD).create_folder("INBOX.Archive")
            scene = SharedStoreScenario(sandbox, suite, store, conninfo)
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
        fleet = make_fleet(scene.suite, scene.store)
        await fleet.add(NAMES)
        for _ in range(4):
            await scene.start_worker()
        await scene.until(scene.all_had_turns, 30)
        changing = asyncio.create_task(scene.change(400))
        await asyncio.sleep(2)
        scene.workers[0].kill()
        scene.workers[1].send_signal(signal.SIGSTOP)
        await asyncio.sleep(6)  # twice as long as the others wait for it
        scene.workers[1].send_signal(signal.SIGCONT)
        await changing
        await scene.until(scene.in_step, 45)
        told = await scene.told()
        assert set(told.values()) == {1}
        assert len(told) <= scene.delivered  # some were deleted before anybody saw them
        turns = await scene.turns()

        async def all_had_another() -> bool:
            return all(now > before for now, before in zip(await scene.turns(), turns, strict=True))

        await scene.until(all_had_another, 20)  # none was left behind by the dead
        assert all(worker.poll() is None for worker in scene.workers[1:])
        await scene.stop_workers()
        assert (await fleet.status()).workers == 0


@pytest.mark.postgres
@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.slow)])
async def test_workers_survive_restarts_of_postgresql(shaky_postgres: PostgresServer, times: int) -> None:
    async with a_scene(shaky_postgres.create_database()) as scene:
        await make_fleet(scene.suite, scene.store).add(NAMES)
        for _ in range(4):
            await scene.start_worker()
        await scene.until(scene.all_had_turns, 30)
        for _ in range(times):
            changing = asyncio.create_task(scene.change(60))
            await asyncio.to_thread(shaky_postgres.stop)
            await asyncio.to_thread(shaky_postgres.start)
            await changing
            await scene.until(scene.in_step, 20)  # less than the back-off of a mailbox that fails
        assert set((await scene.told()).values()) == {1}
        assert all(worker.poll() is None for worker in scene.workers)
        await scene.stop_workers()
