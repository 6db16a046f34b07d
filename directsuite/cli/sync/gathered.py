"""What is known of the mailboxes, from all who know something."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from directsuite.cli.sync.table import Shown, mailboxes_in_words
from directsuite.secret import Secret
from directsuite.sync.database import STORE
from directsuite.sync.progress import MailboxProgress, Standing
from directsuite.sync.status import FolderStatus, MailboxStatus, statuses
from directsuite.sync.status_file import WorkerStatus
from directsuite.sync.store import SET_ASIDE, State

SILENT = 30.0
"""Seconds after which a worker that doesn't report is said to be silent; it reports every five."""


@attrs.frozen(kw_only=True, repr=False)
class Mailbox:
    """One mailbox. folders: as the store has them; problems: of those that fail, by their names."""

    shown: Shown
    in_step_at: float | None
    folders: Sequence[FolderStatus]
    problems: Mapping[str, str]


@attrs.frozen(kw_only=True, repr=False)
class Gathered:
    """All of it. worker: a sentence about who keeps them in step. about: the same, for programs.

    is_silent: whether nobody keeps them in step though nobody has ended it, as after `kill -9`.
    """

    worker: str
    is_silent: bool
    about: Mapping[str, object]
    mailboxes: Sequence[Mailbox]


def of_one_worker(store: Path, report: WorkerStatus | None, now: float) -> Gathered:
    """From a worker's report and its SQLite store. Raises StoreError."""
    with STORE.beside(store, read_only=True) as connection:
        known = {each.name: each for each in statuses(connection)}
    reported: Mapping[str, MailboxProgress] = {} if report is None else report.mailboxes
    return Gathered(
        worker=_sentence(report, now),
        is_silent=report is not None and not report.ended and report.age(now) >= SILENT,
        about={
            "running": report is not None and not report.ended and report.age(now) < SILENT,
            "pid": None if report is None else report.pid,
            "started": None if report is None else report.started,
            "reported": None if report is None else report.written_at,
        },
        mailboxes=[
            _mailbox(reported.get(name) or MailboxProgress(name=name), known.get(name), now)
            for name in dict.fromkeys((*reported, *known))
        ],
    )


async def of_fleet(conninfo: Secret, now: float) -> Gathered:
    """From the tables of a fleet and its store. Raises StoreError."""
    from directsuite.sync.fleet_table import FleetMailbox, FleetTable
    from directsuite.sync.postgres import PostgresStore

    def progress(each: FleetMailbox) -> MailboxProgress:
        """What the table has of it; since when it fails it doesn't know."""
        standing = Standing.IN_STEP if each.in_step_at is not None else Standing.BEHIND
        if each.failures:
            standing = Standing.FAILING
        elif not each.turns:
            standing = Standing.WAITING
        return MailboxProgress(
            name=each.name,
            standing=standing,
            in_step_at=each.in_step_at,
            rounds=each.turns,
            failures=each.failures,
            problem=each.problem if each.failures else None,
        )

    async with PostgresStore(conninfo, connections=2) as store:
        table = FleetTable(store.connections, "", SILENT)
        await table.prepare()
        status, mailboxes, known = await asyncio.gather(table.status(), table.mailboxes(), store.status())
    by_name = {each.name: each for each in known}
    waits = f", the one that waits longest was due {status.late:.0f} s ago" if status.late > SILENT else ""
    return Gathered(
        worker=f"{_workers(status.workers)} {mailboxes_in_words(status.mailboxes)} in step{waits}",
        is_silent=not status.workers and status.late > SILENT,  # its table doesn't tell an end from a kill
        about={"running": status.workers > 0, "workers": status.workers, "late": status.late},
        mailboxes=[_mailbox(progress(each), by_name.get(each.name), now) for each in mailboxes],
    )


def _mailbox(progress: MailboxProgress, known: MailboxStatus | None, now: float) -> Mailbox:
    folders = () if known is None else known.folders
    live, aside = (
        sum(each.messages.get(state, 0) for each in folders for state in states)
        for states in ((State.LIVE,), SET_ASIDE)
    )
    return Mailbox(
        shown=Shown.of(progress, now, messages=live, aside=aside),
        in_step_at=progress.in_step_at,
        folders=folders,
        problems=progress.folders,
    )


def _workers(count: int) -> str:
    if count > 1:
        return f"{count} workers keep"
    return "1 worker keeps" if count else "no worker keeps"


def _sentence(report: WorkerStatus | None, now: float) -> str:
    if report is None:
        return "no worker is running: this is what the store knows"
    age = report.age(now)
    if report.ended:
        return f"no worker is running: the last one ended {age:.0f} s ago"
    if age >= SILENT:
        return (
            f"the worker (process {report.pid}) is silent, or was killed: it reported {age:.0f} s ago for the last time"
        )
    return f"the worker (process {report.pid}) has reported {age:.0f} s ago"
