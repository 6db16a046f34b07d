"""`directsuite sync status`, `audit` and `retry`, which work whether or not a worker is running.

the worker's status file ─┐
the store ────────────────┴─► StatusReport ──► a sentence and a table, or JSON
audit, retry ──► a request in the store, which the running worker or the next one applies
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import attrs
from cyclopts import Group, Parameter
from cyclopts.validators import mutually_exclusive

import directsuite as ds
from directsuite.cli import options as opt
from directsuite.cli.errors import UsageError, exit_for_error, with_value
from directsuite.cli.output import format_count, show_json, show_table
from directsuite.cli.process import ExitStatus, echo_err, is_verbose, show_line
from directsuite.durable.postgres import PostgresDatabase
from directsuite.sync.model import (
    QUARANTINED_STATES,
    Kind,
    MailboxStatus,
    MessageState,
    OperatorRequest,
    QuarantinedMessage,
    StoreError,
)
from directsuite.sync.status import MailboxProgress, SyncStatus, WorkerStatus, build_status_path, read_status
from directsuite.sync.store import SqliteStore, Store

if TYPE_CHECKING:
    from directsuite.sync.fleet import FleetMailbox, FleetTable
    from directsuite.sync.postgres import PostgresStore

app = opt.make_app("sync", "run --once", "status")

DEFAULT_STORE = Path("directsuite-sync.db")
"""The store if --store is not given."""

_STORE_GROUP = Group("Store", sort_key=1, validator=mutually_exclusive)
_CONTENT_GROUP = Group("What to show", sort_key=1, validator=mutually_exclusive)
FileOption = Annotated[Path | None, Parameter(converter=opt.convert_file_path)]
StoreOption = Annotated[Path, Parameter(group=_STORE_GROUP, converter=opt.convert_file_path)]
PostgresOption = Annotated[bool, opt.Flag, Parameter(group=_STORE_GROUP)]


@opt.record
class StoreOptions(opt.CommonOptions):
    """Options of `sync audit` and `sync retry`."""

    mailbox: Annotated[tuple[str, ...], opt.Repeatable] = ()
    """A mailbox's address. Can be repeated. The default is all mailboxes."""
    store: StoreOption = DEFAULT_STORE
    """The store's SQLite file."""
    postgres: PostgresOption = False
    """Use the PostgreSQL database named by DIRECTSUITE_POSTGRES."""


@opt.record
class _SyncStatusOptions(StoreOptions):
    status_file: FileOption = None
    """The file with the worker's report. The default is next to the store."""
    max_age: Annotated[float | None, opt.seconds_parameter(gt=0), Parameter(group=_CONTENT_GROUP)] = None
    """Check only whether the worker's last report is at most this many seconds old."""
    failing: Annotated[bool, opt.Flag, Parameter(group=_CONTENT_GROUP)] = False
    """Show only failing mailboxes."""
    quarantined: Annotated[bool, opt.Flag, Parameter(group=_CONTENT_GROUP)] = False
    """Show the quarantined messages, which can't be fetched, with the reason and the time of the next try."""
    json: opt.Json = False


SILENT_AFTER_SECONDS = 30.0
"""Seconds without a report after which a worker counts as silent. It reports every 5 seconds."""
CONNINFO_VAR = "DIRECTSUITE_POSTGRES"

_UNKNOWN = "unknown"
"""The status of a mailbox that no worker reports, as if the user's own program synchronises it."""
_STYLES = {
    str(SyncStatus.FAILING): "bold red",
    str(SyncStatus.CATCHING_UP): "yellow",
    str(SyncStatus.WAITING): "dim",
    _UNKNOWN: "dim",
    str(SyncStatus.UP_TO_DATE): "green",
}
_STATUS_ORDER = {status: position for position, status in enumerate(_STYLES)}
_REQUEST_TEXTS = {
    OperatorRequest.AUDIT: "compares all messages with the server",
    OperatorRequest.RETRY: "retries quarantined messages and failing mailboxes",
}


@attrs.frozen(repr=False)
class StatusReport:
    """The status of the workers and the mailboxes."""

    worker_summary: str
    """A sentence about the workers."""
    is_silent: bool
    """True if no worker is running although none was stopped, as after `kill -9`."""
    worker_details: Mapping[str, object]
    """The member `worker` of the JSON document."""
    mailboxes: Sequence[Mapping[str, Any]]
    """The member `mailboxes` of the JSON document. Times are in ISO 8601, in UTC; lag and failing_for are seconds."""


@opt.register(app, "status", "--failing", "--quarantined --json")
async def show_status(*, options: _SyncStatusOptions = _SyncStatusOptions()) -> int:
    """Show the status of each mailbox, failing ones first, whether or not a worker is running.

    Exit status 0 means that no mailbox is failing; 1 that one is, or that the worker has not reported for 30 seconds
    although it didn't stop; 2 that the store can't be used. With --max-age, the command only checks whether the worker
    is alive: 0 if its last report is at most that old, 1 if it is older or missing. The JSON document is then
    {"age": SECONDS}, or {"age": null} if no worker is running.
    """
    path = options.status_file or (None if options.postgres else build_status_path(options.store))
    if options.max_age is not None:
        return _show_age(path, options.max_age, as_json=options.json)
    if options.quarantined:
        return await _show_quarantined(options)
    async with _open_store(options) as store:
        if options.postgres:
            report = await build_fleet_report(store, time.time())
        else:
            worker = None if path is None else read_status(path)
            report = build_worker_report(await store.status(), worker, time.time())
    _validate_mailboxes(options.mailbox, (each["mailbox"] for each in report.mailboxes))
    rows = sorted(report.mailboxes, key=lambda row: (_STATUS_ORDER[row["status"]], row["number"] or 0))
    if options.failing:
        if all(each["status"] == _UNKNOWN for each in rows):
            echo_err("No worker has reported, so it is unknown whether a mailbox is failing.")
        rows = [each for each in rows if each["status"] == SyncStatus.FAILING]
    if options.mailbox:
        rows = [each for each in rows if each["mailbox"] in options.mailbox]
    if options.json:
        show_json({"worker": report.worker_details, "mailboxes": rows})
    else:
        show_line(report.worker_summary)
        _show_mailboxes(rows)
    is_failing = any(each["status"] == SyncStatus.FAILING for each in rows)
    return ExitStatus.FAILED if is_failing or report.is_silent else ExitStatus.DONE


@opt.register(app, "audit", "", "--mailbox alice@direct.example.test")
async def audit(*, options: StoreOptions = StoreOptions()) -> None:
    """Ask the running worker, or the next one, to compare all messages with the server."""
    await _leave_request(OperatorRequest.AUDIT, options)


@opt.register(app, "retry", "", "--mailbox alice@direct.example.test")
async def retry(*, options: StoreOptions = StoreOptions()) -> None:
    """Ask the running worker, or the next one, to retry quarantined messages and failing mailboxes."""
    await _leave_request(OperatorRequest.RETRY, options)


async def _show_quarantined(options: _SyncStatusOptions) -> int:
    async with _open_store(options) as store:
        _validate_mailboxes(options.mailbox, await store.mailbox_names())
        messages = [
            each for each in await store.quarantined() if not options.mailbox or each.mailbox in options.mailbox
        ]
    document = [_message_to_dict(each) for each in messages]
    if options.json:
        show_json({"quarantined": document})
    elif not document:
        show_line("No message is quarantined.")
    else:
        members = ("number", "mailbox", "folder", "uid", "problem", "attempts", "next_try_at")
        titles = ("no.", "mailbox", "folder", "uid", "problem", "attempts", "next try")
        rows = [[each[name] for name in members] for each in document]
        show_table(titles, rows, right=("no.", "uid", "attempts"), no_wrap=("mailbox", "uid"))
    return ExitStatus.FAILED if messages else ExitStatus.DONE


def _message_to_dict(message: QuarantinedMessage) -> dict[str, Any]:
    document = attrs.asdict(message)
    retry_ms = document.pop("retry_ms")
    return {**document, "next_try_at": None if retry_ms is None else _format_iso_time(retry_ms / 1000)}


def _show_age(path: Path | None, max_age: float, *, as_json: bool) -> int:
    if path is None:
        raise UsageError(
            "--max-age needs the report of one worker. Give --status-file FILE, as in that worker's command."
        )
    status = read_status(path)
    age = None if status is None or status.ended else status.age(time.time())
    if as_json:
        show_json({"age": age})
    else:
        show_line("No worker is running." if age is None else f"The worker reported {age:.0f} s ago.")
    return ExitStatus.FAILED if age is None or age > max_age else ExitStatus.DONE


@contextlib.asynccontextmanager
async def _open_store(options: StoreOptions) -> AsyncGenerator[Store]:
    with convert_store_errors(None if options.postgres else options.store):
        if options.postgres:
            from directsuite.sync.postgres import PostgresStore

            async with PostgresStore(read_conninfo(), connections=2) as fleet_store:
                yield fleet_store
        else:
            async with SqliteStore(options.store, shared=True) as store:
                yield store


async def _leave_request(request: OperatorRequest, options: StoreOptions) -> None:
    async with _open_store(options) as store:
        _validate_mailboxes(options.mailbox, await store.mailbox_names())
        requested_mailboxes = await store.request(request, options.mailbox)
        if options.postgres:
            await (await _open_fleet_table(store)).reschedule_now(requested_mailboxes)
    count = format_count(len(requested_mailboxes), "mailbox", "mailboxes")
    show_line(f"Requested for {count}: the running worker or the next one {_REQUEST_TEXTS[request]}.")


async def _open_fleet_table(store: Store) -> FleetTable:
    from directsuite.sync.fleet import FleetTable

    table = FleetTable(cast("PostgresStore", store).database, "", SILENT_AFTER_SECONDS)
    await table.prepare()
    return table


def number_addresses(addresses: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each address of --mailbox after its position, such as "--mailbox number 2", for messages."""
    return ((f"--mailbox number {number}", address) for number, address in enumerate(addresses, start=1))


def _validate_mailboxes(addresses: Sequence[str], existing: Iterable[str]) -> None:
    known = {*existing}
    for source, address in number_addresses(addresses):
        if address not in known:
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
        PostgresDatabase(secret, error=StoreError)
    except ds.ConfigurationError as error:
        raise UsageError(f"{CONNINFO_VAR}: {error.explanation.rstrip('.')}.") from None
    return secret


@contextlib.contextmanager
def convert_store_errors(store: Path | None) -> Generator[None]:
    """Convert an error of an unusable store to UsageError. store: None for PostgreSQL."""
    try:
        yield
    except (StoreError, OSError) as error:
        explanation = exit_for_error(error)[1]
        if store is None:
            explanation = f"{explanation.rstrip('.')}. Check {CONNINFO_VAR}, and whether PostgreSQL is running."
        elif is_verbose():
            explanation = f"{with_value('--store', store)}: {explanation[:1].lower()}{explanation[1:]}"
        raise UsageError(explanation) from None


def build_worker_report(mailboxes: Sequence[MailboxStatus], status: WorkerStatus | None, now: float) -> StatusReport:
    """Build the report from a worker's status file and the mailboxes of its SQLite store.

    status: None if the status file doesn't exist. now: Unix time in seconds.
    """
    stored = {each.name: each for each in mailboxes}
    reported: Mapping[str, MailboxProgress] = {} if status is None else status.mailboxes
    is_running = is_silent = False
    details: dict[str, object] = {"pid": None, "started": None, "reported": None}
    sentence = "No worker of `directsuite sync run` has reported. The table shows only the content of the store."
    if status is not None:
        age = status.age(now)
        is_silent = not status.ended and (age >= SILENT_AFTER_SECONDS or status.is_killed())
        is_running = not status.ended and not is_silent
        started, reported_at = map(_format_iso_time, (status.started, status.written_at))
        details = {"pid": status.pid, "started": started, "reported": reported_at}
        worker = f"The worker (process {status.pid})"
        sentence = f"No worker is running. The last one stopped {age:.0f} s ago."
        if is_running:
            sentence = f"{worker} reported {age:.0f} s ago."
        elif is_silent:
            sentence = (
                f"{worker} doesn't respond or was killed. Its last report was {age:.0f} s ago. "
                "If it is gone, start it again with `directsuite sync run`."
            )
    rows = [_row_to_dict(reported.get(name), name, stored.get(name), now) for name in {**reported, **stored}]
    return StatusReport(sentence, is_silent, {"running": is_running, **details}, rows)


async def build_fleet_report(store: Store, now: float) -> StatusReport:
    """Build the report from the tables of a fleet and its store. Raises StoreError. now: Unix time in seconds."""
    table = await _open_fleet_table(store)
    fleet, mailboxes, stored = await asyncio.gather(table.read_status(), table.list_mailboxes(), store.status())
    by_name = {each.name: each for each in stored}
    workers = format_count(fleet.workers, "worker synchronises", "workers synchronise")
    sentence = f"{workers if fleet.workers else 'No worker synchronises'} "
    sentence += format_count(fleet.mailboxes, "mailbox", "mailboxes")
    is_late = fleet.late > SILENT_AFTER_SECONDS
    late_text = f". The most overdue one is {fleet.late:.0f} s late" if is_late else ""
    return StatusReport(
        f"{sentence}{late_text}.",
        is_late and not fleet.workers,  # the table has no record of a stop
        {"running": fleet.workers > 0, "workers": fleet.workers, "late": fleet.late},
        [_row_to_dict(_make_progress(each), each.name, by_name.get(each.name), now) for each in mailboxes],
    )


def _make_progress(mailbox: FleetMailbox) -> MailboxProgress:
    status = SyncStatus.UP_TO_DATE if mailbox.up_to_date_at is not None else SyncStatus.CATCHING_UP
    if mailbox.failures:
        status = SyncStatus.FAILING
    elif not mailbox.rounds:
        status = SyncStatus.WAITING
    return MailboxProgress(
        name=mailbox.name,
        status=status,
        up_to_date_at=mailbox.up_to_date_at,
        rounds=mailbox.rounds,
        failures=mailbox.failures,
        problem=mailbox.problem if mailbox.failures else None,
    )


def _show_mailboxes(rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    numbers = ("messages", "new", "moved", "gone", "quarantined")
    cells = list[Sequence[object]]()
    for row in rows:
        since = "" if row["failing_for"] is None else f" (for {format_duration(row['failing_for'])})"
        problem = "" if row["problem"] is None else f"{row['problem']}{since}"
        counts = [(row | row["since_the_start"])[name] or "" for name in numbers]
        cells.append((row["number"], row["mailbox"], row["status"], format_duration(row["lag"]), *counts, problem))
    titles = ("no.", "mailbox", "status", "lag", *numbers, "problem")
    show_table(titles, cells, right=("no.", "lag", *numbers), no_wrap=("mailbox",), styles=_STYLES)
    for row in rows:
        for name, folder in row["folders"].items():
            if folder["problem"] is not None:
                show_line(f"{row['mailbox']}, {name}: {folder['problem']}")


def format_duration(seconds: float | None) -> str:
    """Format a number of seconds in the largest unit of which it has at least two, such as "3 h"; "" for None."""
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _row_to_dict(
    reported: MailboxProgress | None, name: str, stored: MailboxStatus | None, now: float
) -> dict[str, Any]:
    progress = reported or MailboxProgress(name=name)
    folders: dict[str, dict[str, Any]] = {
        each.name: {
            "messages": each.messages.get(MessageState.LIVE, 0),
            "quarantined": sum(each.messages.get(state, 0) for state in QUARANTINED_STATES),
            "uid_validity": each.uid_validity,
            "audited_at": _format_iso_time(each.audited_ms / 1000 if each.audited_ms else None),
        }
        for each in (() if stored is None else stored.folders)
    }
    changes, failing_since = progress.changes, progress.failing_since
    return {
        "mailbox": progress.name,
        "number": progress.number if stored is None else stored.number,
        "status": _UNKNOWN if reported is None else str(progress.status),
        "up_to_date_at": _format_iso_time(progress.up_to_date_at),
        "lag": progress.lag(now),
        "problem": progress.problem,
        "failing_for": None if failing_since is None else max(0.0, now - failing_since),
        "since_the_start": {
            "new": changes[Kind.NEW],
            "moved": changes[Kind.MOVED] + changes[Kind.RESTORED],
            "gone": changes[Kind.GONE],
        },
        "messages": sum(each["messages"] for each in folders.values()),
        "quarantined": sum(each["quarantined"] for each in folders.values()),
        "folders": {
            name: {**folders.get(name, {}), "problem": progress.folders.get(name)}
            for name in dict.fromkeys((*folders, *progress.folders))
        },
    }


def _format_iso_time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
