"""A tracker in a process: `python -m tests.jobs.delivery.killing.worker URL ADDRESS FOLDER MESSAGES EVENTS`.

It sends MESSAGES messages, follows them, and writes the key, smtp_id and status of each result into FOLDER/told.
It prints an empty line before and after each message, and after each result. If EVENTS is not 0, it kills itself in the
event of that number, for example when a message was sent and the journal has not recorded it. Its password is in the
environment.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from pathlib import Path

import directsuite as ds
from directsuite.core.events import Event
from directsuite.jobs.delivery import DeliveryJournal, DeliveryTracker

PASSWORD = "TRACKER_PASSWORD"


RECIPIENTS = [ds.Recipient(f"{name}@hospital.example.test") for name in ("slow+1s", "bounce")]


async def work(url: str, address: str, folder: Path, messages: int, events: int) -> None:
    numbers = itertools.count(1)

    def kill_in_event(_: Event) -> None:
        if next(numbers) == events:
            os.kill(os.getpid(), signal.SIGKILL)

    settings = ds.Settings(message_url=url, requests_per_second=1_000, burst=1_000)
    suite = ds.DirectSuite(settings, listeners=[kill_in_event])
    async with suite, DeliveryJournal(folder / "delivery.db") as journal:
        tracker = DeliveryTracker(suite.mailbox(address, os.environ[PASSWORD]), journal=journal)
        for number in range(messages):
            _signal_ready()
            # the request of a killed process arrives long before the next process starts
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
    asyncio.run(work(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])))
