"""`directsuite sync audit` and `retry`: a wish in the store, beside the worker or without one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from directsuite.cli.command import Command
from directsuite.cli.sync.addresses import refuse_unknown
from directsuite.cli.sync.opening import conninfo, usable
from directsuite.cli.sync.table import mailboxes_in_words
from directsuite.secret import Secret
from directsuite.sync.database import STORE
from directsuite.sync.status import MailboxStatus, statuses
from directsuite.sync.wishes import Wish, wish_in

_WHAT = {
    Wish.AUDIT: "everything is compared with the server",
    Wish.RETRY: "what was set aside, or fails, is tried again",
}


def leave(wish: Wish, names: Sequence[str], store: Path, *, postgres: bool) -> int:
    """Leave a wish for mailboxes, or for all; the exit status."""
    return Command(resume="give the same command again").run(lambda: _leave(wish, names, store, postgres=postgres))


async def _leave(wish: Wish, names: Sequence[str], store: Path, *, postgres: bool) -> int:
    with usable():
        left = await _wish_in_fleet(conninfo(), wish, names) if postgres else _wish_in_file(store, wish, names)
    sys.stdout.write(f"{mailboxes_in_words(len(left))}: {_WHAT[wish]} by the worker that runs, or by the next one\n")
    return 0


def _wish_in_file(store: Path, wish: Wish, names: Sequence[str]) -> Sequence[str]:
    if names:
        with STORE.beside(store, read_only=True) as connection:
            known = statuses(connection)
        _refuse_unknown(names, known)
    return wish_in(store, wish, names)


def _refuse_unknown(names: Sequence[str], known: Sequence[MailboxStatus]) -> None:
    """Before anything is written, so that a command which is refused has done nothing."""
    refuse_unknown(names, {each.name for each in known})


async def _wish_in_fleet(conninfo: Secret, wish: Wish, names: Sequence[str]) -> Sequence[str]:
    from directsuite.sync.fleet_table import FleetTable
    from directsuite.sync.postgres import PostgresStore

    async with PostgresStore(conninfo, connections=1) as store:
        if names:
            _refuse_unknown(names, await store.status())
        left = await store.wish(wish, names)
        table = FleetTable(store.connections, "", 0.0)
        await table.prepare()
        await table.hasten(left)
        return left
