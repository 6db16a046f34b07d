"""How often a worker's mailboxes are looked at where nobody says so, and that wishes are heard on its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import attrs
import pytest

from directsuite.errors import ClosedError
from directsuite.sync import Change, RoundFinished, SqliteStore, Synchronizer
from tests.integration.conftest import world as world
from tests.integration.world import ALICE, PASSWORD, World


async def password_of(_: str) -> str:
    return PASSWORD


async def forget(_: Sequence[Change]) -> None:
    pass


@attrs.define
class Slept:
    """Time that stands still: who sleeps longer than a moment never wakes. `woken` sleeps end at once."""

    woken: int = 0
    seconds: asyncio.Queue[float] = attrs.field(factory=asyncio.Queue[float])

    def monotonic(self) -> float:
        """No time has passed."""
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Return while there are sleeps that end at once."""
        self.seconds.put_nowait(seconds)
        if self.woken:
            self.woken -= 1
            return
        await asyncio.Event().wait()

    async def has_slept(self, least: float, most: float) -> None:
        """Return when somebody sleeps for so long."""
        async with asyncio.timeout(10):
            while not least <= await self.seconds.get() <= most:
                pass


class ClosedForWishes(SqliteStore):
    """A store that was closed while a worker listens."""

    async def wished(self) -> Sequence[str]:
        """Nothing can be asked any more."""
        raise ClosedError("The store is closed.")


@pytest.mark.parametrize("interval", [None, 500.0])
async def test_every_folder_that_was_seen_counts_for_the_interval(world: World, interval: float | None) -> None:
    for number in range(4):
        await world.box.create_folder(f"INBOX.Ward{number}")
    asked = 1 + len({"INBOX", *await world.box.get_folders()})
    seconds = 20.0  # for each request: more than the least interval allows
    clock = Slept()
    async with SqliteStore(":memory:") as store:
        sync = Synchronizer(
            world.suite,
            store,
            [ALICE],
            password_of,
            deliver=forget,
            folders=None,
            interval=interval,
            requests_per_second=1 / (0.7 * seconds),
            clock=clock,
        )
        await sync.once()
        await sync.once()  # what is found for the first time is no idle look
        running = asyncio.create_task(sync.run())
        expected = asked * seconds if interval is None else interval
        await clock.has_slept(0.9 * expected, 1.1 * expected)
        running.cancel()
        await asyncio.wait([running])


async def test_a_store_that_was_closed_ends_no_worker_that_listens_for_wishes(world: World) -> None:
    clock, rounds = Slept(woken=5), asyncio.Queue[RoundFinished]()
    world.suite.add_listener(lambda event: rounds.put_nowait(event) if isinstance(event, RoundFinished) else None)
    async with ClosedForWishes(":memory:") as store:
        sync = Synchronizer(world.suite, store, [ALICE], password_of, deliver=forget, clock=clock)
        running = asyncio.create_task(sync.run())
        await rounds.get()
        for _ in range(2):
            await clock.has_slept(2.0, 2.0)
        assert not running.done()
        sync.stop()
        await running
