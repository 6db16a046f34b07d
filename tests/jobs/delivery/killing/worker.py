"""A tracker in a process of its own: `python -m tests.jobs.delivery.killing.worker URL ADDRESS FOLDER MESSAGES`.

It sends so many messages, follows them, and writes each end that it is told of into FOLDER/told: its key, smtp_id and
status. It prints an empty line before and after each message, and after each end. Its password stands in the
environment.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import directsuite as ds
from directsuite.jobs.delivery import DeliveryJournal, DeliveryTracker

PASSWORD = "TRACKER_PASSWORD"


RECIPIENTS = [ds.Recipient(f"{name}@hospital.example.test") for name in ("slow+1s", "bounce")]


async def work(url: str, address: str, folder: Path, messages: int) -> None:
    """Send and follow them all."""
    settings = ds.Settings(message_url=url, requests_per_second=1_000, burst=1_000)
    async with ds.DirectSuite(settings) as suite, DeliveryJournal(folder / "delivery.db") as journal:
        tracker = DeliveryTracker(suite.mailbox(address, os.environ[PASSWORD]), journal=journal)
        for number in range(messages):
            _signal_ready()
            # A killed process' request has arrived long before the next one has started.
            await tracker.send(ds.Message(subject="Referral", recipients=RECIPIENTS), key=str(number), settle=0.0)
            _signal_ready()
        with (folder / "told").open("a") as told:
            async for change in tracker.changes():
                if change.is_end:
                    told.write(f"{change.id} {change.smtp_id} {change.status}\n")
                    told.flush()
                    _signal_ready()


def _signal_ready() -> None:
    sys.stdout.write("\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
