"""`directsuite sync status`: what the worker reports and what the store knows, put together."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from directsuite.cli.command import Command
from directsuite.cli.errors import RefusedError
from directsuite.cli.sync.addresses import refuse_unknown
from directsuite.cli.sync.gathered import Gathered, of_fleet, of_one_worker
from directsuite.cli.sync.opening import conninfo, usable
from directsuite.cli.sync.told import document, show
from directsuite.sync.progress import Standing
from directsuite.sync.status_file import read_status, status_file_of

FAILING = 1
"""The exit status where a mailbox is failing or the worker is silent, or with --max-age where it doesn't live."""


@attrs.frozen(kw_only=True)
class Looked:
    """The options of the command. max_age: seconds."""

    mailboxes: Sequence[str] = attrs.field(repr=False)
    store: Path
    postgres: bool
    status_file: Path | None
    max_age: float | None
    as_json: bool


def tell(looked: Looked) -> int:
    """Tell it; the exit status."""
    return Command().run(lambda: _tell(looked))


async def _tell(looked: Looked) -> int:
    path = looked.status_file
    if path is None and not looked.postgres:
        path = status_file_of(looked.store)
    if looked.max_age is not None:
        return _tell_age(path, looked.max_age)
    now = time.time()
    with usable():
        if looked.postgres:
            gathered = await of_fleet(conninfo(), now)
        else:
            gathered = of_one_worker(looked.store, None if path is None else read_status(path), now)
    gathered = _only(gathered, looked.mailboxes)
    sys.stdout.write(document(gathered)) if looked.as_json else show(gathered)
    is_failing = any(each.shown.standing is Standing.FAILING for each in gathered.mailboxes)
    return FAILING if is_failing or gathered.is_silent else 0


def _tell_age(path: Path | None, most: float) -> int:
    if path is None:
        raise RefusedError("--max-age is about one worker: name its report, --status-file FILE, as in its own command")
    report = read_status(path)
    if report is None or report.ended:
        sys.stdout.write("no worker is running\n")
        return FAILING
    age = report.age(time.time())
    sys.stdout.write(f"the worker has reported {age:.0f} s ago\n")
    return FAILING if age > most else 0


def _only(gathered: Gathered, names: Sequence[str]) -> Gathered:
    known = {each.shown.name for each in gathered.mailboxes}
    refuse_unknown(names, known)
    wanted = set(names) or known
    return attrs.evolve(gathered, mailboxes=[each for each in gathered.mailboxes if each.shown.name in wanted])
