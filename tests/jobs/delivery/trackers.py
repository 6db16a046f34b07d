"""Delivery trackers of Alice's mailbox on one journal file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import directsuite as ds
from directsuite.jobs.delivery import DeliveryChange, DeliveryJournal, DeliveryTracker
from tests.jobs.delivery.clinic import Clinic
from tests.waiting import wait_until

DELIVERED_RECIPIENT, SLOW_RECIPIENT = "deliver@hospital.example.test", "slow+30m@hospital.example.test"
UNCONFIRMED_RECIPIENT, REJECTED_RECIPIENT = "nomdn@pharmacy.example.test", "nocert@hospital.example.test"


class TrackerFactory:
    """Trackers of Alice's mailbox. clock_error: the seconds by which the machine's clock is ahead."""

    def __init__(self, clinic: Clinic, folder: Path) -> None:
        self.clinic = clinic
        self.file = folder / "delivery.db"
        self.clock_error = 0.0

    def now(self) -> float:
        return self.clinic.time.monotonic() + self.clock_error

    def make_journal(self) -> DeliveryJournal:
        return DeliveryJournal(self.file)

    def make_tracker(self, journal: DeliveryJournal, box: ds.Mailbox | None = None, **options: Any) -> DeliveryTracker:
        return DeliveryTracker(box or self.clinic.box, journal=journal, now=self.now, **options)

    @asynccontextmanager
    async def open_tracker(self, box: ds.Mailbox | None = None, **options: Any) -> AsyncGenerator[DeliveryTracker]:
        """Open the journal, and yield the tracker of a new run of the program."""
        async with self.make_journal() as journal:
            yield self.make_tracker(journal, box, **options)

    @asynccontextmanager
    async def wait_in_loop(self, tracker: DeliveryTracker) -> AsyncGenerator[asyncio.Task[DeliveryChange]]:
        """Hold the time, and start an endless loop, which sleeps. It is cancelled afterwards."""
        self.clinic.time.hold()
        loop = asyncio.create_task(anext(tracker.changes(endless=True)))
        await wait_until(lambda: len(self.clinic.time.sleeps) == 1)
        yield loop
        loop.cancel()
        await asyncio.wait([loop])

    @property
    def status_requests(self) -> int:
        return self.clinic.request_counts["GetMessageStatusMany"]


async def collect_changes(tracker: DeliveryTracker) -> list[DeliveryChange]:
    return [change async for change in tracker.changes()]


def list_statuses(changes: list[DeliveryChange], recipient: str) -> list[str]:
    return [str(change.status) for change in changes if change.recipient == recipient]


async def read_first_change(tracker: DeliveryTracker) -> AsyncIterator[DeliveryChange]:
    """Return the first change, and leave the loop in its body."""
    async with tracker.changes() as changes:
        async for change in changes:
            yield change
            break
