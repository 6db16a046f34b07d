"""A tracker in a process of its own: `python -m tests.jobs.delivery.killing.worker URL ADDRESS FOLDER`.

It follows the messages whose smtp_ids stand in FOLDER/sent, line by line, and writes each end that it is told of into
FOLDER/told: its key, smtp_id and status; then it prints an empty line. Its password stands in the environment.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import directsuite as ds
from directsuite.jobs.delivery import DeliveryTracker, Journal

PASSWORD = "TRACKER_PASSWORD"


async def work(url: str, address: str, folder: Path) -> None:
    """Follow them all."""
    sent = (folder / "sent").read_text().split()
    settings = ds.Settings(message_url=url, requests_per_second=1_000, burst=1_000)
    async with ds.DirectSuite(settings) as suite, Journal(folder / "delivery.db") as journal:
        tracker = DeliveryTracker(suite.mailbox(address, os.environ[PASSWORD]), journal=journal)
        for smtp_id in sent:
            await tracker.add(smtp_id, recipients=2)
        with (folder / "told").open("a") as told:
            async for change in tracker.changes():
                if change.is_end:
                    told.write(f"{change.key} {change.smtp_id} {change.status}\n")
                    told.flush()
                    sys.stdout.write("\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
