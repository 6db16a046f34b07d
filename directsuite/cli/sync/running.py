"""`directsuite sync run`: from the options to a plan, and from the plan to the exit status."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import attrs

from directsuite.cli.command import Command
from directsuite.cli.credentials import MAILBOX, settings_for
from directsuite.cli.errors import RefusedError
from directsuite.cli.sync.addresses import addresses_of
from directsuite.cli.sync.command import keep_in_step
from directsuite.cli.sync.displays import Display, Lines, display_for
from directsuite.cli.sync.folders import folders_of
from directsuite.cli.sync.opening import conninfo
from directsuite.cli.sync.passwords import passwords_for
from directsuite.cli.sync.unbroken import Unbroken
from directsuite.cli.sync.worker import Plan
from directsuite.sync.status_file import status_file_of


@attrs.frozen(kw_only=True)
class Asked:
    """The options of the command. named, listed: the mailboxes, and a file of them."""

    named: Sequence[str] = attrs.field(repr=False)
    listed: Path | None
    passwords: Path | None
    folders: Sequence[str] | None = attrs.field(repr=False)
    store: Path
    postgres: bool
    workers: int
    maildir: Path | None
    keep_gone: bool
    once: bool
    interval: float | None
    grace: float
    status_file: Path | None
    as_json: bool


def run_worker(asked: Asked) -> int:
    """Run it; the exit status."""
    command = Command(resume="the same command goes on from here", options={"folder": "--maildir"})
    return command.run(lambda: _run(_plan_of(asked), as_json=asked.as_json))


async def _run(plan: Plan, *, as_json: bool) -> int:
    display = display_for(as_json=as_json)
    with _logged_beside(display):
        return await keep_in_step(plan, Unbroken(display))


def _plan_of(asked: Asked) -> Plan:
    addresses = addresses_of(asked.named, asked.listed, None if asked.postgres else os.environ.get(MAILBOX))
    if not addresses and not asked.postgres:
        raise RefusedError(
            f"which mailbox? Give --mailbox ADDRESS, as often as there are, or --mailboxes FILE, or set {MAILBOX}"
        )
    if asked.postgres and asked.once:
        raise RefusedError("--once is for a worker of its own: one of a fleet runs until it is stopped")
    folders = None if asked.folders is None else folders_of(asked.folders)
    settings = settings_for("message")
    database = conninfo() if asked.postgres else None
    status_file = asked.status_file
    if status_file is None and not asked.postgres:
        status_file = status_file_of(asked.store)
    return Plan(
        settings=settings,
        passwords=passwords_for(addresses, asked.passwords),
        addresses=addresses,
        folders=folders,
        store=asked.store,
        conninfo=database,
        workers=asked.workers,
        maildir=asked.maildir,
        keep_gone=asked.keep_gone,
        once=asked.once,
        interval=asked.interval,
        grace=asked.grace,
        status_file=status_file,
    )


@contextlib.contextmanager
def _logged_beside(display: Display) -> Generator[None]:
    """Warnings of the package on stderr, where they don't tear a table."""
    if not isinstance(display, Lines):
        yield
        return
    logger, handler = logging.getLogger("directsuite"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
