"""Trackers of a clinic's mailbox on one journal's file, and what is told by them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import directsuite as ds
from directsuite.jobs.delivery import DeliveryChange, DeliveryTracker, Journal
from tests.jobs.delivery.scene import Clinic

PROMPT, SLOW = "deliver@hospital.example.test", "slow+30m@hospital.example.test"
NEVER, REFUSED = "nomdn@pharmacy.example.test", "nocert@hospital.example.test"


class Scene:
    """Makes trackers of Alice's mailbox on one journal's file."""

    def __init__(self, clinic: Clinic, folder: Path) -> None:
        self.clinic = clinic
        self.file = folder / "delivery.db"

    def journal(self) -> Journal:
        """The journal, to be opened."""
        return Journal(self.file)

    def tracker(self, journal: Journal, box: ds.Mailbox | None = None, **options: Any) -> DeliveryTracker:
        """One of them."""
        now = self.clinic.time.monotonic
        return DeliveryTracker(box or self.clinic.box, journal=journal, now=now, **options)

    @property
    def asked(self) -> int:
        """Requests for the status of messages."""
        return self.clinic.requests["GetMessageStatusMany"]


async def told(tracker: DeliveryTracker) -> list[DeliveryChange]:
    """All changes until the loop ends by itself."""
    return [change async for change in tracker.changes()]


def course(changes: list[DeliveryChange], recipient: str) -> list[str]:
    """A recipient's statuses, one after the other."""
    return [str(change.status) for change in changes if change.recipient == recipient]


async def first_of(tracker: DeliveryTracker) -> AsyncIterator[DeliveryChange]:
    """The first change, whose loop is left in its body."""
    async with tracker.changes() as changes:
        async for change in changes:
            yield change
            break
