"""The messaging service as a process of its own, which a test may kill.

serve_mailboxes.py FOLDER ADDRESS...        prints its port
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from functools import partial
from pathlib import Path

from aiohttp import web

from directsuite.sandbox import ledger
from directsuite.sandbox.clock import Clock
from directsuite.sandbox.database import Database
from directsuite.sandbox.messaging import accounts
from directsuite.sandbox.messaging.service import SCHEMA, MessagingService


async def serve(folder: Path) -> None:
    database = Database(folder, [ledger.SCHEMA, SCHEMA])
    for address in sys.argv[2:]:
        with contextlib.suppress(accounts.AccountExists):
            await database.write(partial(accounts.create_account, address=address, password="pw", at_ms=0))
    application = web.Application()
    application.add_routes(MessagingService(database, Clock()).routes())
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
