"""`directsuite sync status`, `audit` and `retry`, each beside the worker or without one.

the worker's status file ─┐
the store ────────────────┴─► StatusReport ──► a sentence and a table, or JSON
audit, retry ──► a request in the store, which the worker that runs applies, or the next one
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.text import Text

from directsuite.cli.command import Command
from directsuite.cli.errors import UsageError, exit_for_error, with_value
from directsuite.cli.options import DEFAULT_STORE, StoreOptions, SyncStatusOptions
from directsuite.cli.output import build_table, make_table_console, show_json
from directsuite.cli.process import ExitStatus, echo_err, is_verbose, make_printable, show_line
from directsuite.durable.postgres import Connections
from directsuite.errors import ConfigurationError
from directsuite.secret import Secret
from directsuite.sync.model import (
    QUARANTINED_STATES,
    FolderStatus,
    Kind,
    MailboxStatus,
    MessageState,
    OperatorRequest,
    QuarantinedMessage,
    StoreError,
)
from directsuite.sync.status import MailboxProgress, SyncStatus, WorkerStatus, build_status_path, read_status
from directsuite.sync.store import DatabaseStore, SqliteStore

SILENT_AFTER_SECONDS = 30.0
"""Seconds after which a worker that doesn't report is said to be silent; it reports every five."""
CONNINFO_VAR = "DIRECTSUITE_POSTGRES"

_STYLES = {
    SyncStatus.FAILING: "bold red",
    SyncStatus.CATCHING_UP: "yellow",
    SyncStatus.WAITING: "dim",
    SyncStatus.UP_TO_DATE: "green",
}
"""In the order in which they stand in the table: those that need somebody come first."""
_STATUS_ORDER = list(_STYLES)
_MAX_TABLE_ROWS = 200  # of the table
_REQUEST_TEXTS = {
    OperatorRequest.AUDIT: "everything is compared with the server",
    OperatorRequest.RETRY: "what was quarantined, or fails, is tried again",
}


@attrs.frozen(kw_only=True, repr=False)
class MailboxRow:
    """What is shown of a mailbox."""

    progress: MailboxProgress
    """What its worker says."""
    now: float
    """Unix time."""
    folders: Sequence[FolderStatus] | None = None
    """What the store has; None where nobody looked."""
    is_reported: bool = True
    """False where no worker says anything of it: a program of the user's own may synchronise it."""

    @property
    def status(self) -> str:
        """How it stands, in words."""
        return str(self.progress.status) if self.is_reported else "unknown"

    @property
    def lag(self) -> float | None:
        """Seconds since the mailbox was last up to date."""
        return self.progress.lag(self.now)

    @property
    def failing_for(self) -> float | None:
        """Seconds; None where it doesn't fail, or nobody knows since when."""
        since = self.progress.failing_since
        return None if since is None else max(0.0, self.now - since)

    @property
    def moved(self) -> int:
        """Messages that came from another folder, since the worker began."""
        return self.progress.changes[Kind.MOVED] + self.progress.changes[Kind.RESTORED]

    @property
    def messages(self) -> int | None:
        """How many messages the store has."""
        return None if self.folders is None else sum(_count_messages(each, MessageState.LIVE) for each in self.folders)

    @property
    def quarantined(self) -> int:
        """How many messages can't be fetched."""
        return (
            self.progress.quarantined
            if self.folders is None
            else sum(_count_messages(each, *QUARANTINED_STATES) for each in self.folders)
        )


_SORT_KEYS: Mapping[str, Callable[[MailboxRow], Any]] = {
    "status": lambda row: (_STATUS_ORDER.index(row.progress.status), row.progress.number or 0),
    "lag": lambda row: -math.inf if row.lag is None else -row.lag,  # first what was never up to date
    "messages": lambda row: -(row.messages or 0),
    "mailbox": lambda row: row.progress.name,
    "number": lambda row: row.progress.number or math.inf,
}
"""The order of rows, by --sort."""


@attrs.frozen(kw_only=True, repr=False)
class StatusReport:
    """All that is known, from the worker and from the store."""

    worker_summary: str
    """A sentence that says who synchronises the mailboxes."""
    is_silent: bool
    """True where nobody synchronises them though nobody has ended it, as after `kill -9`."""
    worker_details: Mapping[str, object]
    """What `worker` says, for programs."""
    mailboxes: Sequence[MailboxRow]


def show_status(options: SyncStatusOptions) -> int:
    """Tell how mailboxes stand; the exit status."""
    return Command().run(lambda: _show_status(options))


def audit(options: StoreOptions) -> int:
    """Have mailboxes compared with the server; the exit status."""
    return Command().run(lambda: _leave_request(OperatorRequest.AUDIT, options))


def retry(options: StoreOptions) -> int:
    """Have tried again what was quarantined, and mailboxes that fail; the exit status."""
    return Command().run(lambda: _leave_request(OperatorRequest.RETRY, options))


async def _show_status(options: SyncStatusOptions) -> int:
    store, path = options.store or DEFAULT_STORE, options.status_file
    if path is None and not options.postgres:
        path = build_status_path(store)
    if options.max_age is not None:
        return _show_age(path, options.max_age)
    if options.quarantined:
        return await _show_quarantined(options, store)
    with convert_store_errors(None if options.postgres else store):
        if options.postgres:
            report = await build_fleet_report(read_conninfo(), time.time())
        else:
            report = await build_worker_report(store, None if path is None else read_status(path), time.time())
    validate_mailboxes(options.mailbox, {each.progress.name for each in report.mailboxes})
    if options.failing:
        if not any(each.is_reported for each in report.mailboxes):
            echo_err("no worker has reported: whether a mailbox fails is not known here")
        failing = [each for each in report.mailboxes if each.progress.status is SyncStatus.FAILING]
        report = attrs.evolve(report, mailboxes=failing)
    if options.mailbox:
        shown = [each for each in report.mailboxes if each.progress.name in options.mailbox]
        report = attrs.evolve(report, mailboxes=shown)
    rows = sorted(report.mailboxes, key=_SORT_KEYS[options.sort])[options.offset :]
    limit = options.limit or (len(rows) if options.json else _MAX_TABLE_ROWS)
    if options.json:
        _show_report_json(attrs.evolve(report, mailboxes=rows[:limit]))
    else:
        _show_report(attrs.evolve(report, mailboxes=rows[:limit]))
        if rows[limit:]:
            following = options.offset + limit
            echo_err(f"{len(rows) - limit} more: --limit {len(rows)}, or --offset {following} for the next ones")
    is_failing = any(each.progress.status is SyncStatus.FAILING for each in report.mailboxes)
    return ExitStatus.FAILED if is_failing or report.is_silent else ExitStatus.DONE


async def _show_quarantined(options: SyncStatusOptions, path: Path) -> int:
    with convert_store_errors(None if options.postgres else path):
        if options.postgres:
            from directsuite.sync.postgres import PostgresStore

            async with PostgresStore(read_conninfo(), connections=1) as fleet_store:
                messages = await _read_quarantined(fleet_store, options.mailbox)
        else:
            async with SqliteStore(path, shared=True) as store:
                messages = await _read_quarantined(store, options.mailbox)
    shown = messages[options.offset :][: options.limit]
    if options.json:
        document = {"quarantined": [_message_to_dict(each) for each in shown]}
        show_json(document)
    elif not shown:
        show_line("no message is quarantined")
    else:
        console = make_table_console()
        cells = [
            (
                each.number,
                each.mailbox,
                each.folder,
                each.uid,
                each.problem or "",
                each.attempts,
                _format_next_try(each) or "",
            )
            for each in shown
        ]
        titles = ("no.", "mailbox", "folder", "uid", "problem", "attempts", "next try")
        text = build_table(
            console, titles, cells, right=("no.", "uid", "attempts"), no_wrap=("mailbox", "uid"), styles={}
        )
        console.print(text, soft_wrap=True)
    return ExitStatus.FAILED if messages else ExitStatus.DONE


async def _read_quarantined(store: DatabaseStore, names: Sequence[str]) -> Sequence[QuarantinedMessage]:
    """Those of some mailboxes, or of all."""
    if names:
        validate_mailboxes(names, {each.name for each in await store.status()})
    return [each for each in await store.quarantined() if not names or each.mailbox in names]


def _format_next_try(message: QuarantinedMessage) -> str | None:
    return None if message.retry_ms is None else _format_iso_time(message.retry_ms / 1000)


def _message_to_dict(message: QuarantinedMessage) -> dict[str, Any]:
    return {
        "mailbox": message.mailbox,
        "number": message.number,
        "folder": message.folder,
        "uid_validity": message.uid_validity,
        "uid": message.uid,
        "problem": message.problem,
        "attempts": message.attempts,
        "next_try_at": _format_next_try(message),
    }


def _show_age(path: Path | None, max_age: float) -> int:
    if path is None:
        raise UsageError("--max-age is about one worker: name its report, --status-file FILE, as in its own command")
    status = read_status(path)
    if status is None or status.ended:
        show_line("no worker is running")
        return ExitStatus.FAILED
    age = status.age(time.time())
    show_line(f"the worker has reported {age:.0f} s ago")
    return ExitStatus.FAILED if age > max_age else ExitStatus.DONE


async def _leave_request(request: OperatorRequest, options: StoreOptions) -> int:
    with convert_store_errors(None if options.postgres else options.store or DEFAULT_STORE):
        if options.postgres:
            from directsuite.sync.fleet import FleetTable
            from directsuite.sync.postgres import PostgresStore

            async with PostgresStore(read_conninfo(), connections=1) as fleet_store:
                requested_mailboxes = await _store_request(fleet_store, request, options.mailbox)
                table = FleetTable(fleet_store.connections, "", 0.0)
                await table.prepare()
                await table.reschedule_now(requested_mailboxes)
        else:
            async with SqliteStore(options.store or DEFAULT_STORE, shared=True) as store:
                requested_mailboxes = await _store_request(store, request, options.mailbox)
    show_line(
        f"{_format_mailbox_count(len(requested_mailboxes))}: {_REQUEST_TEXTS[request]} "
        "by the worker that runs, or by the next one"
    )
    return ExitStatus.DONE


async def _store_request(store: DatabaseStore, request: OperatorRequest, names: Sequence[str]) -> Sequence[str]:
    """Leave a request, and return the mailboxes that it is for. A command that is refused has written nothing."""
    if names:
        validate_mailboxes(names, {each.name for each in await store.status()})
    return await store.request(request, names)


def number_addresses(addresses: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The addresses of --mailbox, each with words that say which one is meant without showing it."""
    return ((f"number {number} of --mailbox", address) for number, address in enumerate(addresses, start=1))


def validate_mailboxes(addresses: Sequence[str], existing: Collection[str]) -> None:
    """Raise RefusedError where the store has none of the name that an option --mailbox gave."""
    for source, address in number_addresses(addresses):
        if address not in existing:
            raise UsageError(
                f"{with_value(source, address)} is not known to the store: `directsuite sync status` without it tells "
                "which ones are"
            )


def read_conninfo() -> Secret:
    """Where PostgreSQL is, from the environment: in an argument other users could read it. Raises RefusedError."""
    text = os.environ.get(CONNINFO_VAR)
    if not text:
        raise UsageError(f"set {CONNINFO_VAR} to where PostgreSQL is: postgresql://user@host/database")
    secret = Secret(text)
    del text  # this frame may stand in a traceback
    try:
        Connections(secret, error=StoreError)
    except ConfigurationError as error:
        raise UsageError(error.explanation.rstrip(".").replace("conninfo", CONNINFO_VAR)) from None
    return secret


@contextlib.contextmanager
def convert_store_errors(store: Path | None) -> Generator[None]:
    """Have a store that can't be used refuse the command, which has done nothing by then. Raises RefusedError.

    store: None for PostgreSQL.
    """
    try:
        yield
    except (StoreError, OSError) as error:
        raise make_store_usage_error(error, store) from None


def make_store_usage_error(error: StoreError | OSError, store: Path | None) -> UsageError:
    """The refusal of a store that can't be used. store: None for PostgreSQL."""
    what_to_do = f"check {CONNINFO_VAR}, and whether PostgreSQL runs"
    explanation = exit_for_error(error)[1].replace("the next call connects again", what_to_do)
    if store is not None and is_verbose():
        explanation = f"{with_value('--store', store)}: {explanation[:1].lower()}{explanation[1:]}"
    return UsageError(explanation)


async def build_worker_report(store: Path, status: WorkerStatus | None, now: float) -> StatusReport:
    """From a worker's status file and its SQLite store. Raises StoreError."""
    async with SqliteStore(store, shared=True) as opened:
        stored = {each.name: each for each in await opened.status()}
    reported: Mapping[str, MailboxProgress] = {} if status is None else status.mailboxes
    sentence = "no worker of `directsuite sync run` has reported: this is what the store knows"
    is_running = is_silent = False
    if status is not None:
        age = status.age(now)
        is_silent = not status.ended and (age >= SILENT_AFTER_SECONDS or status.is_killed())
        is_running = not status.ended and not is_silent
        worker = f"the worker (process {status.pid})"
        sentence = f"no worker is running: the last one ended {age:.0f} s ago"
        if is_running:
            sentence = f"{worker} has reported {age:.0f} s ago"
        elif is_silent:
            sentence = f"{worker} is silent, or was killed: it reported {age:.0f} s ago for the last time"
    return StatusReport(
        worker_summary=sentence,
        is_silent=is_silent,
        worker_details={
            "running": is_running,
            "pid": None if status is None else status.pid,
            "started": _format_iso_time(None if status is None else status.started),
            "reported": _format_iso_time(None if status is None else status.written_at),
        },
        mailboxes=[
            _make_row(reported.get(name), name, stored.get(name), now) for name in dict.fromkeys((*reported, *stored))
        ],
    )


async def build_fleet_report(conninfo: Secret, now: float) -> StatusReport:
    """From the tables of a fleet and its store. Raises StoreError."""
    from directsuite.sync.fleet import FleetMailbox, FleetTable
    from directsuite.sync.postgres import PostgresStore

    def make_progress(each: FleetMailbox) -> MailboxProgress:
        """What the table has of it, which doesn't know since when it fails."""
        status = SyncStatus.UP_TO_DATE if each.up_to_date_at is not None else SyncStatus.CATCHING_UP
        if each.failures:
            status = SyncStatus.FAILING
        elif not each.rounds:
            status = SyncStatus.WAITING
        return MailboxProgress(
            name=each.name,
            status=status,
            up_to_date_at=each.up_to_date_at,
            rounds=each.rounds,
            failures=each.failures,
            problem=each.problem if each.failures else None,
        )

    async with PostgresStore(conninfo, connections=2) as store:
        table = FleetTable(store.connections, "", SILENT_AFTER_SECONDS)
        await table.prepare()
        fleet, mailboxes, stored = await asyncio.gather(table.read_status(), table.list_mailboxes(), store.status())
    by_name = {each.name: each for each in stored}
    workers = "no worker synchronises"
    if fleet.workers:
        workers = "1 worker synchronises" if fleet.workers == 1 else f"{fleet.workers} workers synchronise"
    delay_text = (
        f", the one that waits longest was due {fleet.late:.0f} s ago" if fleet.late > SILENT_AFTER_SECONDS else ""
    )
    return StatusReport(
        worker_summary=f"{workers} {_format_mailbox_count(fleet.mailboxes)}{delay_text}",
        is_silent=not fleet.workers and fleet.late > SILENT_AFTER_SECONDS,  # its table doesn't tell an end from a kill
        worker_details={"running": fleet.workers > 0, "workers": fleet.workers, "late": fleet.late},
        mailboxes=[_make_row(make_progress(each), each.name, by_name.get(each.name), now) for each in mailboxes],
    )


def build_mailbox_table(console: Console, rows: Sequence[MailboxRow], *, max_rows: int | None = None) -> Text:
    """A table of at most `room` mailboxes; a last line says how many more there are."""
    with_messages = any(each.messages is not None for each in rows)
    numbers = ("lag", *(["messages"] if with_messages else []), "new", "moved", "gone", "quarantined")
    cells = list[Sequence[object]]()
    for row in rows[:max_rows]:
        progress = row.progress
        counts = [progress.changes[Kind.NEW], row.moved, progress.changes[Kind.GONE], row.quarantined]
        if with_messages:
            counts.insert(0, row.messages or 0)
        since = "" if row.failing_for is None else f" (for {format_duration(row.failing_for)})"
        problem = "" if progress.problem is None else f"{progress.problem}{since}"
        shown = [count or "" for count in counts]
        cells.append((progress.number, progress.name, row.status, format_duration(row.lag), *shown, problem))
    styles = {str(status): style for status, style in _STYLES.items()}
    titles = ("no.", "mailbox", "status", *numbers, "problem")
    text = build_table(console, titles, cells, right=("no.", *numbers), no_wrap=("mailbox",), styles=styles)
    if max_rows is not None and max_rows < len(rows):
        text.append(f"\nand {len(rows) - max_rows} more", "dim")
    return text


def format_duration(seconds: float | None) -> str:
    """A span of time for people; nothing for None."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def sort_by_urgency(rows: Iterable[MailboxRow]) -> list[MailboxRow]:
    """Rows in the order of --sort status."""
    return sorted(rows, key=_SORT_KEYS["status"])


def _make_row(reported: MailboxProgress | None, name: str, stored: MailboxStatus | None, now: float) -> MailboxRow:
    progress = reported or MailboxProgress(name=name)
    if stored is not None:
        progress = attrs.evolve(progress, number=stored.number)
    folders = () if stored is None else stored.folders
    return MailboxRow(progress=progress, now=now, folders=folders, is_reported=reported is not None)


def _count_messages(folder: FolderStatus, *states: MessageState) -> int:
    return sum(folder.messages.get(state, 0) for state in states)


def _format_mailbox_count(count: int) -> str:
    return f"{count} mailbox" if count == 1 else f"{count} mailboxes"


def _show_report(report: StatusReport) -> None:
    console = make_table_console()
    console.print(Text(make_printable(report.worker_summary)))
    if report.mailboxes:
        console.print(build_mailbox_table(console, report.mailboxes), soft_wrap=True)
    for each in report.mailboxes:
        for folder, problem in each.progress.folders.items():
            console.print(Text(make_printable(f"{each.progress.name}, {folder}: {problem}")))


def _show_report_json(report: StatusReport) -> None:
    """Times are in ISO 8601, in UTC; lag and failing_for are seconds."""
    document = {"worker": report.worker_details, "mailboxes": [_row_to_dict(each) for each in report.mailboxes]}
    show_json(document)


def _row_to_dict(row: MailboxRow) -> dict[str, Any]:
    progress = row.progress
    folders = {
        each.name: {
            "messages": _count_messages(each, MessageState.LIVE),
            "quarantined": _count_messages(each, *QUARANTINED_STATES),
            "uid_validity": each.uid_validity,
            "audited_at": _format_iso_time(each.audited_ms / 1000 if each.audited_ms else None),
        }
        for each in row.folders or ()
    }
    return {
        "mailbox": progress.name,
        "number": progress.number,
        "status": row.status,
        "up_to_date_at": _format_iso_time(progress.up_to_date_at),
        "lag": row.lag,
        "problem": progress.problem,
        "failing_for": row.failing_for,
        "since_the_start": {
            "new": progress.changes[Kind.NEW],
            "moved": row.moved,
            "gone": progress.changes[Kind.GONE],
        },
        "messages": row.messages,
        "quarantined": row.quarantined,
        "folders": {
            name: {**folders.get(name, {}), "problem": progress.folders.get(name)}
            for name in dict.fromkeys((*folders, *progress.folders))
        },
    }


def _format_iso_time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
