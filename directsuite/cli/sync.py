"""`directsuite sync run`: a worker that synchronises mailboxes.

    run ──► addresses, folders, passwords ──► suite and store ──► Synchronizer, or with --postgres a Fleet's worker
                                                         └─► lines on stdout; the status file for `sync status`

The worker continues if stdout fails, because synchronising matters more than output.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import attrs
from cyclopts import Parameter

import directsuite as ds
from directsuite.cli import credentials, process, sync_status
from directsuite.cli import options as opt
from directsuite.cli.command import CommandParameter, Work, handle_signals, log_to_stderr, make_request_listeners
from directsuite.cli.errors import UsageError, validate_text, with_value
from directsuite.cli.output import format_count
from directsuite.cli.process import ExitStatus, ignore_stdout_errors, show_line
from directsuite.config_file import MAX_SECRETS_BYTES, Configuration
from directsuite.core.files import explain_os_error, run_in_thread
from directsuite.messaging.arguments import INBOX
from directsuite.sync.sinks.maildir import MaildirSink
from directsuite.sync.status import (
    MailboxProgress,
    RoundFinished,
    SyncStatus,
    WorkerStatus,
    build_status_path,
    write_status,
)
from directsuite.sync.store import SqliteStore, Store, TableSink
from directsuite.sync.synchronizer import Passwords, Synchronizer

app = sync_status.app


@opt.record
class SyncRunOptions(opt.CommonOptions):
    """Options of `sync run`."""

    mailbox: Annotated[tuple[str, ...], opt.Repeatable] = ()
    """A mailbox's address. Can be repeated. Without it and --mailboxes: DIRECTSUITE_MAILBOX."""
    mailboxes: sync_status.FileOption = None
    """A file with one address per line."""
    passwords: sync_status.FileOption = None
    """A JSON or TOML file of addresses and passwords that only its owner and its group can read. Without it:
    DIRECTSUITE_MAILBOX_PASSWORD for a single mailbox, the keyring, or a question on the terminal.
    """
    folder: Annotated[tuple[str, ...], opt.Repeatable, Parameter(group=opt.FOLDER_GROUP)] = (INBOX,)
    """A folder to synchronise. Can be repeated. The default is INBOX."""
    all_folders: Annotated[bool, opt.Flag, Parameter(group=opt.FOLDER_GROUP)] = False
    """Synchronise all folders of each mailbox."""
    store: sync_status.StoreOption = sync_status.DEFAULT_STORE
    """The store's SQLite file."""
    postgres: sync_status.PostgresOption = False
    """Run as one of several workers that share the PostgreSQL database named by DIRECTSUITE_POSTGRES."""
    workers: Annotated[int, opt.integer_parameter(gte=1)] = 4
    """The maximum number of workers with --postgres, which share the service's request rate."""
    maildir: Annotated[Path | None, Parameter(converter=opt.convert_path)] = None
    """Write messages into Maildirs below this folder instead of the store."""
    keep_gone: Annotated[bool, opt.Flag] = False
    """Keep messages that were deleted on the server."""
    once: Annotated[bool, opt.Flag] = False
    """Bring all mailboxes up to date, then exit."""
    interval: Annotated[float | None, opt.seconds_parameter(gt=0)] = None
    """Seconds between two checks of a mailbox. By default, as short as the service's request rate allows."""
    grace: Annotated[float, opt.seconds_parameter(gte=0)] = 30.0
    """Seconds after a signal in which the worker may finish work in progress."""
    status_file: sync_status.FileOption = None
    """The file for the worker's report, which `sync status` reads. The default is next to the store."""
    log_names: Annotated[bool, opt.Flag] = False
    """Show mailbox addresses and folders in log lines, as on a terminal. Otherwise logs contain only numbers."""
    json: opt.JsonLines = False


_REPORT_INTERVAL = 5.0  # seconds
_SUMMARY_INTERVAL = 60.0  # seconds
_COUNT_FIELDS = ("new", "moved", "restored", "gone", "quarantined")
_HINT_PASSWORD_SOURCES = (
    f"Give --passwords FILE, set {credentials.MAILBOX_PASSWORD_VAR} for a single mailbox, or add it to a keyring"
)
_MailboxesFunction = Callable[[], Mapping[str, MailboxProgress]]
_LOGGER = logging.getLogger("directsuite")


@attrs.frozen
class _SyncWorker:
    run: Callable[[], Awaitable[object]]
    stop: Callable[[], None]
    get_mailboxes: _MailboxesFunction
    store: Store


@opt.register(
    app,
    "run",
    "--once --folder INBOX --folder INBOX.Sent",
    "--once --mailboxes mailboxes.txt --passwords secrets.toml",
    "--once --maildir mail --store maildir.db",
)
def run_sync(*, command: CommandParameter, options: SyncRunOptions = SyncRunOptions()) -> Work:
    """Synchronise mailboxes until Ctrl-C or SIGTERM.

    Messages are written into the store, each exactly once, or into Maildirs. After a signal, the worker finishes work
    in progress. It continues even if stdout is closed.

    Exit status 0 means that the worker was stopped, or with --once that every mailbox is up to date; 1 that a mailbox
    is failing at the end of --once, or that the worker failed; 2 that it didn't start, because an option, a file or a
    variable is invalid or the store can't be used; 130 and 143 that a signal interrupted --once or the start.
    """
    command.resume_hint = "the same command continues from here"
    command.option_names = {"folder": with_value("--maildir", options.maildir)}
    if options.postgres and options.once:
        raise UsageError(
            "--once can't be combined with --postgres, because such a worker runs until it is stopped. Omit one."
        )
    addresses, settings = _read_addresses(options), credentials.load_settings("message")
    arguments: dict[str, Any] = {
        "folders": None if options.all_folders else parse_folders(options.folder),
        "interval": options.interval,
        "requests_per_second": settings.requests_per_second,
        "deliver": options.maildir and MaildirSink(options.maildir, keep_gone=options.keep_gone),
    }
    sink = None if options.maildir else TableSink(keep_gone=options.keep_gone)
    database = sync_status.read_conninfo() if options.postgres else None
    passwords = make_password_source(addresses, options.passwords)

    async def open_worker(stack: AsyncExitStack, listener: ds.Listener) -> _SyncWorker:
        listeners = [listener, *make_request_listeners()]
        if database is None:
            suite = await stack.enter_async_context(ds.DirectSuite(settings, listeners=listeners))
            store = await stack.enter_async_context(SqliteStore(options.store, sink=sink))
            # A mailbox without messages, for example after a misspelt address, does not count.
            _require_stored_case(await store.mailboxes_with_messages(), addresses)
            sync = Synchronizer(suite, store, addresses, passwords, **arguments)
            try:
                await sync.bind()
            except ds.ConfigurationError as error:  # the store is bound to another sink
                raise UsageError(f"{error.explanation} Name another file with --store.") from None
            return _SyncWorker(sync.once if options.once else sync.run, sync.stop, lambda: sync.status, store)
        from directsuite.sync.fleet import Fleet
        from directsuite.sync.postgres import PostgresStore
        from directsuite.sync.shared_limits import SharedLimits

        limits = await stack.enter_async_context(SharedLimits(database, processes=options.workers))
        suite = await stack.enter_async_context(ds.DirectSuite(settings, listeners=listeners, shared_limits=limits))
        fleet_store = await stack.enter_async_context(PostgresStore(database, sink=sink))
        # A mailbox without messages counts, because the fleet would synchronise both.
        _require_stored_case(await fleet_store.mailbox_names(), addresses)
        fleet = Fleet(suite, fleet_store, passwords, grace=options.grace, **arguments)
        await fleet.bind()
        await fleet.add(addresses)
        return _SyncWorker(fleet.run, fleet.stop, lambda: fleet.progress, fleet_store)

    return _run_worker(options, open_worker)


async def _run_worker(
    options: SyncRunOptions, open_worker: Callable[[AsyncExitStack, ds.Listener], Awaitable[_SyncWorker]]
) -> int:
    shows_names = options.log_names or (sys.stdout.isatty() and not options.json)
    display = LineDisplay(as_json=options.json, get_mailboxes=(lambda: worker.get_mailboxes()) if shows_names else None)
    store = None if options.postgres else options.store
    status_file = options.status_file or (store and build_status_path(store))
    destination = str(options.store.absolute())
    if options.maildir is not None:
        destination = f"Maildirs below {options.maildir.absolute()}"
    elif options.postgres:
        destination = f"the database named by {sync_status.CONNINFO_VAR}"
    async with AsyncExitStack() as stack:
        stack.enter_context(log_to_stderr())
        problem = "stdout can't be written (%s): the worker continues"
        stack.enter_context(ignore_stdout_errors(lambda error: _LOGGER.warning(problem, type(error).__name__)))
        with sync_status.convert_store_errors(store):
            worker = await open_worker(stack, display.handle_event)
        received = list[int]()

        def handle_signal(number: int) -> None:
            received.append(number)
            if len(received) > 1:
                work.cancel()
            elif not work.done():
                worker.stop()
                text = f"work in progress has {options.grace:g} s to finish; another signal cancels it"
                display.show_event("stopping", f"stopping: {text}")
                asyncio.get_running_loop().call_later(options.grace, work.cancel)

        with handle_signals(handle_signal, (signal.SIGINT, signal.SIGTERM)):
            display.show_event("started", f"messages are written into {destination}")
            work: asyncio.Future[Any] = asyncio.ensure_future(worker.run())
            await _report_until_end(work, worker, status_file, display)
            mailboxes = worker.get_mailboxes()
            if not options.once:
                display.show_event(
                    "stopped", f"stopped: {format_status_counts(mailboxes)}; the same command continues from here"
                )
                return ExitStatus.DONE
            if received:
                display.show_event("stopped", "interrupted; nothing is lost: the same command continues from here")
                return 128 + received[0]  # the convention of shells
            quarantined = sum(each.mailbox in mailboxes for each in await worker.store.quarantined())
            and_more = f", {format_count(quarantined, 'message')} quarantined" if quarantined else ""
            display.show_event("done", f"{format_status_counts(mailboxes)}{and_more}")
            is_up_to_date = all(each.status is SyncStatus.UP_TO_DATE for each in mailboxes.values())
            return ExitStatus.DONE if is_up_to_date else ExitStatus.FAILED


async def _report_until_end(
    work: asyncio.Future[Any], worker: _SyncWorker, status_file: Path | None, display: LineDisplay
) -> None:
    """Write the status file and summaries until the work ends. Raise its error. If cancelled, cancel the work."""
    started = time.time()

    def report(*, ended: bool) -> None:
        mailboxes, now = worker.get_mailboxes(), time.time()
        status = WorkerStatus(
            pid=os.getpid(),
            host=socket.gethostname(),
            started=started,
            written_at=now,
            ended=ended,
            mailboxes=mailboxes,
        )
        try:
            if status_file is not None:
                write_status(status_file, status)  # before the display, because monitoring depends on it
        except OSError as error:
            label, reason = with_value("the status file", status_file), explain_os_error(error)
            _LOGGER.warning("%s can't be written (%s): the worker continues", label, reason)
        display.show_progress(mailboxes, now)

    try:
        while not work.done():
            report(ended=False)
            await asyncio.wait([work], timeout=_REPORT_INTERVAL)
    finally:
        work.cancel()
        await asyncio.wait([work])
        report(ended=True)
    if not work.cancelled():
        work.result()


def _read_addresses(options: SyncRunOptions) -> list[str]:
    """Return the unique addresses. Raises UsageError if there is none, one is invalid, or two differ only in case."""
    addresses = [(source, address.strip()) for source, address in sync_status.number_addresses(options.mailbox)]
    if (file := options.mailboxes) is not None:
        name, advice = f"The file {file}", "Give --mailboxes a file in UTF-8 with one address per line."
        content = credentials.read_input(file, name, limit=MAX_SECRETS_BYTES, advice=advice)
        lines = map(str.strip, credentials.decode_input(content, name, advice=advice).splitlines())
        named = ((f"{file} line {number}", line) for number, line in enumerate(lines, start=1))
        addresses += [(source, line) for source, line in named if line and not line.startswith("#")]
    elif not addresses and not options.postgres:
        mailbox, source = credentials.find_setting(None, "--mailbox", "mailbox")
        addresses = [(source, mailbox)] if mailbox else []
    if not addresses and not options.postgres:
        raise UsageError(
            "No mailbox is given. Give --mailbox ADDRESS for each, or --mailboxes FILE, or set DIRECTSUITE_MAILBOX."
        )
    unique_addresses = dict[str, tuple[str, str]]()
    for source, address in addresses:
        validate_text(address, source)
        credentials.validate_address(address, source)
        earlier, spelt = unique_addresses.setdefault(address.lower(), (source, address))
        if spelt != address:  # the store would have the mailbox twice, with all its messages
            raise UsageError(f"{earlier} and {source} are the same mailbox in upper and lower case. Give only one.")
    return [address for _, address in unique_addresses.values()]


def _require_stored_case(names: Iterable[str], addresses: Sequence[str]) -> None:
    """Raise UsageError if one of the addresses is only in another case in the store. names: its mailboxes."""
    stored = set(names)
    stored_lower = set(map(str.lower, stored))
    for number, address in enumerate(addresses, start=1):
        if address not in stored and address.lower() in stored_lower:
            raise UsageError(
                f"{with_value(f'Mailbox number {number}', address)} is in the store in another case, and would be "
                "there twice, with all its messages. Give its address as `directsuite sync status` shows it."
            )


def parse_folders(option_values: Sequence[str]) -> list[str]:
    """Return the folders of --folder without duplicates. Raises UsageError for an invalid name.

    INBOX is not case-sensitive (RFC 3501, 5.1).
    """
    for number, name in enumerate(option_values, start=1):
        source = f"--folder number {number}"
        validate_text(name, source)
        if not name.strip() or name in (".", ".."):  # a URL can't contain these
            raise UsageError(
                f"{with_value(source, name)} is not a folder name. Give a name such as INBOX.Sent, or --all-folders."
            )
    return list(dict.fromkeys(INBOX if name.upper() == INBOX else name for name in option_values))


def make_password_source(addresses: Sequence[str], file: Path | None) -> Passwords:
    """Return the source of the mailboxes' passwords: the first of these places that has one.

        --passwords FILE ──► the configuration, for a single mailbox ──► the keyring ──► a question on a terminal

    addresses: the mailboxes to ask for on a terminal. file: the value of --passwords. Raises UsageError or
    ConfigurationError.
    """
    if file is not None:
        process.state.secret_sources["mailbox_password"] = with_value("the file of --passwords", file)
        return _make_file_source(file)
    configuration = Configuration.read()
    if (secret := configuration.read_secret("mailbox_password")) is not None:
        source = process.state.secret_sources["mailbox_password"] = configuration.find_origin("mailbox_password")
        if len(addresses) != 1:
            raise UsageError(
                f"The mailbox password of {source} is only for a single mailbox. Give --passwords FILE for several."
            )
        return _make_keyring_source({addresses[0]: secret})
    typed = dict[str, ds.Secret]()
    if credentials.is_interactive():
        missing = [address for address in addresses if credentials.find_in_keyring(address) is None]
        typed = {each: credentials.ask_for_secret("mailbox password", f"Password of {each}") for each in missing}
    process.state.secret_sources["mailbox_password"] = "your answer to the question" if typed else "the keyring"
    if typed or credentials.has_keyring():
        return _make_keyring_source(typed)
    raise UsageError(f"No password is set. {_HINT_PASSWORD_SOURCES}.")


def _make_file_source(path: Path) -> Passwords:
    """Read a private file of addresses and passwords. Return a source that reads it again after a change.

    Raises UsageError or ConfigurationError if it is unreadable or invalid. The source raises ConfigurationError.
    """
    name, passwords = f"the passwords file {path}", dict[str, ds.Secret]()
    read_version: tuple[int, ...] = ()

    def load() -> None:
        nonlocal read_version, passwords
        try:
            stat = path.stat()
        except OSError as error:
            raise UsageError(f"Could not read {name} ({explain_os_error(error)}). Name a different file.") from None
        version = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
        if version != read_version:
            passwords, read_version = credentials.read_private_passwords(path, name), version

    async def get_password(address: str) -> ds.Secret:
        try:
            load()
        except UsageError as error:
            raise ds.ConfigurationError(f"No password is available. {error}") from None
        if address not in passwords:
            raise ds.ConfigurationError(
                "The passwords file has no password for this mailbox. Add it; the worker reads the file again."
            )
        return passwords[address]

    load()
    return get_password


def _make_keyring_source(passwords: Mapping[str, ds.Secret]) -> Passwords:
    async def get_password(address: str) -> ds.Secret:
        password = passwords.get(address) or await run_in_thread(credentials.find_in_keyring, address)
        if password is None:
            raise ds.ConfigurationError(f"The keyring has no password for this mailbox. {_HINT_PASSWORD_SOURCES}.")
        return password

    return get_password


class LineDisplay:
    """Prints a line for each round with changes or a failure, and a summary each minute.

    as_json: True to print JSON lines.
    get_mailboxes: the source of addresses and folders to show; None to show only numbers.
    """

    def __init__(self, *, as_json: bool, get_mailboxes: _MailboxesFunction | None = None) -> None:
        self._as_json = as_json
        self._get_mailboxes = get_mailboxes
        self._mailboxes: Mapping[int | None, MailboxProgress] = {}
        self._summarized_at: float | None = None

    def handle_event(self, event: ds.Event) -> None:
        """Print a line about a round with changes or a problem."""
        if not isinstance(event, RoundFinished):
            return
        counts = {name: count for name in _COUNT_FIELDS if (count := getattr(event, name))}
        if not counts and event.problem is None:
            return
        changed = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
        mailbox = self._mailboxes.get(event.mailbox)
        # A mailbox gets its number when its first round begins, and is replaced after each.
        if self._get_mailboxes is not None and (mailbox is None or mailbox.problem != event.problem):
            mailboxes = self._get_mailboxes().values()
            self._mailboxes = {each.number: each for each in mailboxes if each.number is not None}
            mailbox = self._mailboxes.get(event.mailbox)
        problems, source = [event.problem or ""], process.state.secret_sources.get("mailbox_password")
        if event.problem is not None and mailbox is not None and mailbox.folders:
            problems = [f"{folder}: {problem}" for folder, problem in mailbox.folders.items()]
        elif event.failure == ds.AuthenticationError.__name__ and source is not None:
            problems = [f"{event.problem} It is from {source}."]
        title = "a mailbox" if event.mailbox is None else f"mailbox {event.mailbox}"
        title, names = (title, {}) if mailbox is None else (f"{title} ({mailbox.name})", {"name": mailbox.name})
        self._write_line(
            "round",
            f"{title}: {'; '.join(part for part in (changed, *problems) if part)}",
            {"mailbox": event.mailbox, **names, **counts, "more": event.more, "problem": event.problem},
        )

    def show_progress(self, mailboxes: Mapping[str, MailboxProgress], now: float) -> None:
        """Print a summary if a minute has passed. now: Unix time in seconds."""
        if self._summarized_at is None:
            self._summarized_at = now
        if 0 <= now - self._summarized_at < _SUMMARY_INTERVAL:  # the clock may have been set back
            return
        self._summarized_at = now
        lags = [lag for each in mailboxes.values() if (lag := each.lag(now)) is not None]
        counts = Counter(each.status for each in mailboxes.values())
        status_counts = {str(status).replace(" ", "_"): counts[status] for status in SyncStatus}
        max_lag = round(max(lags, default=0.0), 1)
        self._write_line(
            "summary",
            f"{format_status_counts(mailboxes)}; longest lag {max_lag:.0f} s",
            {**status_counts, "longest_lag": max_lag},
        )

    def show_event(self, event: str, words: str) -> None:
        """Print a line about an event of the worker."""
        self._write_line(event, words, {"words": words})

    def _write_line(self, event: str, words: str, members: Mapping[str, Any]) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        text = words if sys.stdout.isatty() else f"{at} {words}"
        show_line(json.dumps({"at": at, "event": event, **members}) if self._as_json else text)


def format_status_counts(mailboxes: Mapping[str, MailboxProgress]) -> str:
    """Return the number of mailboxes in each status, such as "3 up to date, 1 failing"."""
    counts = Counter(each.status for each in mailboxes.values())
    return ", ".join(f"{counts[status]} {status}" for status in SyncStatus if counts[status]) or "no mailboxes"
