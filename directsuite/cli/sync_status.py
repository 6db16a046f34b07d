"""`directsuite sync status`, `audit` and `retry`, which work whether or not a worker is running.

the worker's status file ─┐
the store ────────────────┴─► StatusReport ──► a sentence and a table, or JSON
audit, retry ──► a request in the store, which the running worker or the next one applies
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
from cyclopts import Group, Parameter
from cyclopts.validators import mutually_exclusive

import directsuite as ds
from directsuite.cli.command import Command
from directsuite.cli.errors import UsageError, exit_for_error, with_value
from directsuite.cli.options import (
    CommonOptions,
    Flag,
    Json,
    Repeatable,
    convert_file_path,
    integer_parameter,
    make_app,
    record,
    register,
    seconds_parameter,
)
from directsuite.cli.output import show_json, show_table
from directsuite.cli.process import ExitStatus, echo_err, is_verbose, show_line
from directsuite.durable.postgres import Connections
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
from directsuite.sync.store import SqliteStore, Store

app = make_app("sync", "run --once", "status")

DEFAULT_STORE = Path("directsuite-sync.db")
"""The store if --store is not given."""

_STORE_GROUP = Group("Store", validator=mutually_exclusive)

FileOption = Annotated[Path | None, Parameter(converter=convert_file_path)]

StoreOption = Annotated[Path | None, Parameter(group=_STORE_GROUP, converter=convert_file_path)]

PostgresOption = Annotated[bool, Flag, Parameter(group=_STORE_GROUP)]


@record
class StoreOptions(CommonOptions):
    """Options of `sync audit` and `sync retry`."""

    mailbox: Annotated[tuple[str, ...], Repeatable] = ()
    """A mailbox's address. Can be repeated. The default is all mailboxes."""
    store: StoreOption = None
    """The store's SQLite file. The default is directsuite-sync.db."""
    postgres: PostgresOption = False
    """Use the PostgreSQL database named by DIRECTSUITE_POSTGRES."""


@record
class SyncStatusOptions(StoreOptions):
    """Options of `sync status`."""

    status_file: FileOption = None
    """The file with the worker's report. The default is next to the store."""
    max_age: Annotated[float | None, seconds_parameter(gt=0)] = None
    """Check only whether the worker's last report is at most this many seconds old."""
    failing: Annotated[bool, Flag] = False
    """Show only failing mailboxes."""
    quarantined: Annotated[bool, Flag] = False
    """Show the quarantined messages, which can't be fetched, with the reason and the time of the next try."""
    sort: Literal["status", "lag", "messages", "mailbox", "number"] = "status"
    """The order: failing mailboxes first, largest lag first, most messages first, or by address or number."""
    limit: Annotated[int | None, integer_parameter(gte=1)] = None
    """The number of rows to show. The default is 200 in a table, and all with --json."""
    offset: Annotated[int, integer_parameter(gte=0)] = 0
    """The number of rows to skip."""
    json: Json = False


SILENT_AFTER_SECONDS = 30.0
"""Seconds without a report after which a worker counts as silent. It reports every 5 seconds."""
CONNINFO_VAR = "DIRECTSUITE_POSTGRES"

_STYLES = {
    SyncStatus.FAILING: "bold red",
    SyncStatus.CATCHING_UP: "yellow",
    SyncStatus.WAITING: "dim",
    SyncStatus.UP_TO_DATE: "green",
}
_STATUS_ORDER = list(_STYLES)
_MAX_TABLE_ROWS = 200
_REQUEST_TEXTS = {
    OperatorRequest.AUDIT: "compares all messages with the server",
    OperatorRequest.RETRY: "retries quarantined messages and failing mailboxes",
}


@attrs.frozen(kw_only=True, repr=False)
class MailboxRow:
    """A mailbox in the table or in the JSON document."""

    progress: MailboxProgress
    """The worker's report."""
    now: float
    """Unix time in seconds."""
    folders: Sequence[FolderStatus] | None = None
    """The folders in the store; None if they were not read."""
    is_reported: bool = True
    """False if no worker reports the mailbox, as if the user's own program synchronises it."""

    @property
    def status(self) -> str:
        """The status as text; "unknown" if no worker reports it."""
        return str(self.progress.status) if self.is_reported else "unknown"

    @property
    def lag(self) -> float | None:
        """The seconds since the mailbox was last up to date; None if it never was."""
        return self.progress.lag(self.now)

    @property
    def failing_for(self) -> float | None:
        """The seconds for which the mailbox has been failing; None if it is not failing, or the start is unknown."""
        since = self.progress.failing_since
        return None if since is None else max(0.0, self.now - since)

    @property
    def moved(self) -> int:
        """The number of messages reported as moved or restored since the worker's start."""
        return self.progress.changes[Kind.MOVED] + self.progress.changes[Kind.RESTORED]

    @property
    def messages(self) -> int | None:
        """The number of messages in the store; None if it was not read."""
        return None if self.folders is None else sum(_count_messages(each, MessageState.LIVE) for each in self.folders)

    @property
    def quarantined(self) -> int:
        """The number of messages that can't be fetched, from the store if it was read, else from the worker."""
        return (
            self.progress.quarantined
            if self.folders is None
            else sum(_count_messages(each, *QUARANTINED_STATES) for each in self.folders)
        )


_SORT_KEYS: Mapping[str, Callable[[MailboxRow], Any]] = {
    "status": lambda row: (_STATUS_ORDER.index(row.progress.status), row.progress.number or 0),
    "lag": lambda row: -math.inf if row.lag is None else -row.lag,  # those never up to date first
    "messages": lambda row: -(row.messages or 0),
    "mailbox": lambda row: row.progress.name,
    "number": lambda row: row.progress.number or math.inf,
}


@attrs.frozen(kw_only=True, repr=False)
class StatusReport:
    """The status of the workers and the mailboxes."""

    worker_summary: str
    """A sentence about the workers."""
    is_silent: bool
    """True if no worker is running although none was stopped, as after `kill -9`."""
    worker_details: Mapping[str, object]
    """The member `worker` of the JSON document."""
    mailboxes: Sequence[MailboxRow]


@register(app, "status", "--sort messages", "--failing --json")
def show_status(options: SyncStatusOptions = SyncStatusOptions()) -> int:
    """Show the status of each mailbox, whether or not a worker is running.

    Exit status 0 means that no mailbox is failing; 1 that one is, or that the worker has not reported for 30 seconds
    although it didn't stop; 2 that the store can't be used. With --max-age, the command only checks whether the worker
    is alive: 0 if its last report is at most that old, 1 if it is older or missing.
    """
    return Command().run(lambda: _show_status(options))


@register(app, "audit", "", "--mailbox alice@direct.example.test")
def audit(options: StoreOptions = StoreOptions()) -> int:
    """Ask the running worker, or the next one, to compare all messages with the server."""
    return Command().run(lambda: _leave_request(OperatorRequest.AUDIT, options))


@register(app, "retry", "", "--mailbox alice@direct.example.test")
def retry(options: StoreOptions = StoreOptions()) -> int:
    """Ask the running worker, or the next one, to retry quarantined messages and failing mailboxes."""
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
            echo_err("No worker has reported, so it is unknown whether a mailbox is failing.")
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
            echo_err(
                f"{len(rows) - limit} more. Give --limit {len(rows)} for all, or --offset {following} for the next."
            )
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
        show_line("No message is quarantined.")
    else:
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
        show_table(titles, cells, right=("no.", "uid", "attempts"), no_wrap=("mailbox", "uid"))
    return ExitStatus.FAILED if messages else ExitStatus.DONE


async def _read_quarantined(store: Store, names: Sequence[str]) -> Sequence[QuarantinedMessage]:
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
        raise UsageError(
            "--max-age needs the report of one worker. Give --status-file FILE, as in that worker's command."
        )
    status = read_status(path)
    if status is None or status.ended:
        show_line("No worker is running.")
        return ExitStatus.FAILED
    age = status.age(time.time())
    show_line(f"The worker reported {age:.0f} s ago.")
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
        f"Requested for {_format_mailbox_count(len(requested_mailboxes))}: the running worker or the next one "
        f"{_REQUEST_TEXTS[request]}."
    )
    return ExitStatus.DONE


async def _store_request(store: Store, request: OperatorRequest, names: Sequence[str]) -> Sequence[str]:
    if names:
        validate_mailboxes(names, {each.name for each in await store.status()})
    return await store.request(request, names)


def number_addresses(addresses: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each address of --mailbox after its position, such as "--mailbox number 2", for messages."""
    return ((f"--mailbox number {number}", address) for number, address in enumerate(addresses, start=1))


def validate_mailboxes(addresses: Sequence[str], existing: Collection[str]) -> None:
    """Raise UsageError for an address that is not in `existing`, the mailboxes of the store or the report."""
    for source, address in number_addresses(addresses):
        if address not in existing:
            raise UsageError(
                f"{with_value(source, address)} is not in the store. `directsuite sync status` without --mailbox shows "
                "its mailboxes."
            )


def read_conninfo() -> ds.Secret:
    """Read PostgreSQL's connection string from the environment. Raises UsageError if it is missing or invalid."""
    text = os.environ.get(CONNINFO_VAR)
    if not text:
        raise UsageError(f"{CONNINFO_VAR} is not set. Set it to a URL such as postgresql://user@host/database.")
    secret = ds.Secret(text)
    del text  # because this frame can be part of a traceback
    try:
        Connections(secret, error=StoreError)
    except ds.ConfigurationError as error:
        raise UsageError(error.explanation.rstrip(".").replace("conninfo", CONNINFO_VAR)) from None
    return secret


@contextlib.contextmanager
def convert_store_errors(store: Path | None) -> Generator[None]:
    """Convert an error of an unusable store to UsageError. store: None for PostgreSQL."""
    try:
        yield
    except (StoreError, OSError) as error:
        raise make_store_usage_error(error, store) from None


def make_store_usage_error(error: StoreError | OSError, store: Path | None) -> UsageError:
    """Return the error of a command whose store is unusable. store: None for PostgreSQL."""
    what_to_do = f"check {CONNINFO_VAR}, and whether PostgreSQL is running"
    explanation = exit_for_error(error)[1].replace("the next call connects again", what_to_do)
    if store is not None and is_verbose():
        explanation = f"{with_value('--store', store)}: {explanation[:1].lower()}{explanation[1:]}"
    return UsageError(explanation)


async def build_worker_report(store: Path, status: WorkerStatus | None, now: float) -> StatusReport:
    """Build the report from a worker's status file and its SQLite store. Raises StoreError.

    status: None if the status file doesn't exist. now: Unix time in seconds.
    """
    async with SqliteStore(store, shared=True) as opened:
        stored = {each.name: each for each in await opened.status()}
    reported: Mapping[str, MailboxProgress] = {} if status is None else status.mailboxes
    sentence = "No worker of `directsuite sync run` has reported. The table shows only the content of the store."
    is_running = is_silent = False
    if status is not None:
        age = status.age(now)
        is_silent = not status.ended and (age >= SILENT_AFTER_SECONDS or status.is_killed())
        is_running = not status.ended and not is_silent
        worker = f"The worker (process {status.pid})"
        sentence = f"No worker is running. The last one stopped {age:.0f} s ago."
        if is_running:
            sentence = f"{worker} reported {age:.0f} s ago."
        elif is_silent:
            sentence = f"{worker} doesn't respond or was killed. Its last report was {age:.0f} s ago."
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


async def build_fleet_report(conninfo: ds.Secret, now: float) -> StatusReport:
    """Build the report from the tables of a fleet and its store. Raises StoreError. now: Unix time in seconds."""
    from directsuite.sync.fleet import FleetMailbox, FleetTable
    from directsuite.sync.postgres import PostgresStore

    def make_progress(each: FleetMailbox) -> MailboxProgress:
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
    workers = "No worker synchronises"
    if fleet.workers:
        workers = "1 worker synchronises" if fleet.workers == 1 else f"{fleet.workers} workers synchronise"
    delay_text = f". The most overdue one is {fleet.late:.0f} s late" if fleet.late > SILENT_AFTER_SECONDS else ""
    return StatusReport(
        worker_summary=f"{workers} {_format_mailbox_count(fleet.mailboxes)}{delay_text}.",
        is_silent=not fleet.workers and fleet.late > SILENT_AFTER_SECONDS,  # the table has no record of a stop
        worker_details={"running": fleet.workers > 0, "workers": fleet.workers, "late": fleet.late},
        mailboxes=[_make_row(make_progress(each), each.name, by_name.get(each.name), now) for each in mailboxes],
    )


def _show_mailboxes(rows: Sequence[MailboxRow]) -> None:
    with_messages = any(each.messages is not None for each in rows)
    numbers = ("lag", *(["messages"] if with_messages else []), "new", "moved", "gone", "quarantined")
    cells = list[Sequence[object]]()
    for row in rows:
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
    show_table(titles, cells, right=("no.", *numbers), no_wrap=("mailbox",), styles=styles)


def format_duration(seconds: float | None) -> str:
    """Format a number of seconds in the largest unit of which it has at least two, such as "3 h"; "" for None."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


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
    show_line(report.worker_summary)
    if report.mailboxes:
        _show_mailboxes(report.mailboxes)
    for each in report.mailboxes:
        for folder, problem in each.progress.folders.items():
            show_line(f"{each.progress.name}, {folder}: {problem}")


def _show_report_json(report: StatusReport) -> None:
    # Times are in ISO 8601, in UTC; lag and failing_for are seconds.
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
