"""`directsuite sync audit` and `retry`: a wish in the store, beside the worker or without one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from directsuite.cli.sync.refusal import RefusedError, conninfo
from directsuite.secret import Secret
from directsuite.sync.wishes import Wish, wish_in

_WHAT = {
    Wish.AUDIT: "everything is compared with the server",
    Wish.RETRY: "what was set aside, or fails, is tried again",
}


def leave(wish: Wish, names: Sequence[str], store: Path, *, postgres: bool) -> int:
    """Leave a wish for mailboxes, or for all. Raises RefusedError for one that isn't known, and StoreError."""
    left = asyncio.run(_wish_in_fleet(conninfo(), wish, names)) if postgres else wish_in(store, wish, names)
    unknown = [name for name in names if name not in left]
    if unknown:
        raise RefusedError(f"{unknown[0]} is not known to the store: see `directsuite sync status`")
    sys.stdout.write(f"{len(left)} mailboxes: {_WHAT[wish]} by the worker that runs, or by the next one\n")
    return 0


async def _wish_in_fleet(conninfo: Secret, wish: Wish, names: Sequence[str]) -> Sequence[str]:
    from directsuite.sync.fleet_table import FleetTable
    from directsuite.sync.postgres import PostgresStore

    async with PostgresStore(conninfo, connections=1) as store:
        left = await store.wish(wish, names)
        table = FleetTable(store.connections, "", 0.0)
        await table.prepare()
        await table.hasten(left)
        return left
