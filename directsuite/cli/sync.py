"""`directsuite sync run`: a worker that synchronises mailboxes, from its options to its exit status.

    run ──► addresses, folders, passwords ──► suite and store ──► Synchronizer, or with --postgres a Fleet's worker
                                                                    └─► a display, and the status file for `sync status`

The worker outlasts whoever reads what it tells: mail matters more than lines about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import logging
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self, TypedDict

import attrs
from rich.console import Console
from rich.live import Live

from directsuite.cli.command import Command, request_listeners, signals_call
from directsuite.cli.credentials import (
    MAILBOX,
    MAILBOX_PASSWORD,
    configured,
    has_keyring,
    in_keyring,
    is_address,
    is_somebody_there,
    mailbox_password,
    private_passwords,
    settings_for,
)
from directsuite.cli.errors import RefusedError, naming, refuse_no_text
from directsuite.cli.options import DEFAULT_STORE, SyncRunOptions
from directsuite.cli.process import ExitStatus, forgiving_stdout, printable, show_line
from directsuite.cli.sync_status import (
    CONNINFO,
    MailboxRow,
    conninfo,
    numbered,
    table_of,
    those_that_need_somebody_first,
    usable_store,
)
from directsuite.configuration import Configuration
from directsuite.core.events import Event, Listener
from directsuite.core.failures import reason_of
from directsuite.errors import ConfigurationError
from directsuite.secret import Secret
from directsuite.suite import DirectSuite
from directsuite.sync.commits import Deliver
from directsuite.sync.schedule import Passwords
from directsuite.sync.sinks import MaildirSink, TableSink
from directsuite.sync.status import (
    MailboxProgress,
    RoundFinished,
    SyncStatus,
    WorkerStatus,
    status_file_of,
    write_status,
)
from directsuite.sync.store import DatabaseStore, SqliteStore
from directsuite.sync.synchronizer import Synchronizer

_SHOWN_EVERY = 0.5  # seconds
_REPORTED_EVERY = 5.0  # seconds
_SUMMARY_EVERY = 60.0  # seconds
_COUNTS = ("new", "moved", "restored", "gone", "quarantined")
_INBOX = "INBOX"
_OTHER_PASSWORDS = f"give --passwords FILE, or {MAILBOX_PASSWORD} for a single mailbox, or put it into a keyring"
_Mailboxes = Callable[[], Mapping[str, MailboxProgress]]
_LOGGER = logging.getLogger("directsuite")


class _SyncArguments(TypedDict, total=False):
    """What a Synchronizer and a Fleet both take. What the options don't say is left out: their defaults hold."""

    deliver: Deliver
    folders: Sequence[str] | None
    interval: float
    requests_per_second: float


@attrs.frozen
class _Worker:
    """A Synchronizer, or the worker of a Fleet."""

    work: Callable[[], Awaitable[object]]
    stop: Callable[[], None]
    mailboxes: _Mailboxes
    store: DatabaseStore


def run(options: SyncRunOptions) -> int:
    """Run a worker until it is done or a signal comes; the exit status."""
    command = Command(resume="the same command goes on from here", options={"folder": "--maildir"})
    return command.run(lambda: _begin(options))


def _begin(options: SyncRunOptions) -> Coroutine[Any, Any, int]:
    """Check the options, and ask for passwords. Raises RefusedError and ConfigurationError."""
    addresses = addresses_of(options.mailbox, options.mailboxes, None if options.postgres else configured("mailbox"))
    if not addresses and not options.postgres:
        raise RefusedError(
            f"which mailbox? Give --mailbox ADDRESS, as often as there are, or --mailboxes FILE, or set {MAILBOX}"
        )
    if options.postgres and options.once:
        raise RefusedError("--once is for a worker of its own: one of a fleet runs until it is stopped")
    arguments = _SyncArguments()
    if options.all_folders:
        arguments["folders"] = None
    elif options.folder:
        arguments["folders"] = folders_of(options.folder)
    if options.interval is not None:
        arguments["interval"] = options.interval
    settings = settings_for("message")
    arguments["requests_per_second"] = settings.requests_per_second
    database = conninfo() if options.postgres else None
    passwords = passwords_for(addresses, options.passwords)
    sink: TableSink | None = TableSink(keep_gone=options.keep_gone)
    if options.maildir is not None:
        sink, arguments["deliver"] = None, MaildirSink(options.maildir, keep_gone=options.keep_gone)

    async def synchronizer(stack: AsyncExitStack, listener: Listener) -> _Worker:
        suite = await stack.enter_async_context(DirectSuite(settings, listeners=[listener, *request_listeners()]))
        store = await stack.enter_async_context(SqliteStore(options.store or DEFAULT_STORE, sink=sink))
        sync = Synchronizer(suite, store, addresses, passwords, **arguments)
        await sync.bind()
        return _Worker(sync.once if options.once else sync.run, sync.stop, lambda: sync.status, store)

    async def fleet(database: Secret, stack: AsyncExitStack, listener: Listener) -> _Worker:
        from directsuite.sync.fleet import Fleet
        from directsuite.sync.postgres import PostgresStore
        from directsuite.sync.shared_limits import SharedLimits

        shared = await stack.enter_async_context(SharedLimits(database, processes=options.workers))
        suite = await stack.enter_async_context(
            DirectSuite(settings, listeners=[listener, *request_listeners()], shared_limits=shared)
        )
        store = await stack.enter_async_context(PostgresStore(database, sink=sink))
        worker = Fleet(suite, store, passwords, grace=options.grace, **arguments)
        await worker.bind()
        await worker.add(addresses)
        return _Worker(worker.run, worker.stop, lambda: worker.progress, store)

    return _keep_in_step(options, synchronizer if database is None else partial(fleet, database))


async def _keep_in_step(
    options: SyncRunOptions, open_worker: Callable[[AsyncExitStack, Listener], Awaitable[_Worker]]
) -> int:
    display = display_for(as_json=options.json, mailboxes=(lambda: worker.mailboxes()) if options.log_names else None)
    store = None if options.postgres else options.store or DEFAULT_STORE
    status_file = options.status_file
    if status_file is None and store is not None:
        status_file = status_file_of(store)
    async with AsyncExitStack() as stack:
        stack.enter_context(_logged_beside(display))
        stack.enter_context(forgiving_stdout(_warn_of_stdout))
        with usable_store(store):
            worker = await open_worker(stack, display.round)
        received = list[int]()

        def came(number: int) -> None:
            """Stop the worker at the first signal; break it off at the second, or when its grace is over."""
            received.append(number)
            if len(received) > 1:
                work.cancel()
            elif not work.done():
                worker.stop()
                grace = f"{options.grace:g} s"
                display.say("stopping", f"stopping: what is under way gets {grace}; another signal breaks it off")
                asyncio.get_running_loop().call_later(options.grace, work.cancel)

        with display, signals_call(came, (signal.SIGINT, signal.SIGTERM)):
            display.say("started", f"messages go into {_place_of(options)}")
            work: asyncio.Future[Any] = asyncio.ensure_future(worker.work())
            async with _reported(worker, status_file, display):
                await _ended(work)
            mailboxes = worker.mailboxes()
            if not options.once:
                display.say("stopped", f"stopped: {counted_by_status(mailboxes)}; the same command goes on from here")
                return ExitStatus.DONE
            if received:
                display.say("stopped", "broken off, nothing is lost: the same command goes on from here")
                return 128 + received[0]  # as shells count it
            quarantined = sum(each.mailbox in mailboxes for each in await worker.store.quarantined())
            messages = "message" if quarantined == 1 else "messages"
            and_more = f", {quarantined} {messages} quarantined" if quarantined else ""
            display.say("done", f"{counted_by_status(mailboxes)}{and_more}")
            is_up_to_date = all(each.status is SyncStatus.UP_TO_DATE for each in mailboxes.values())
            return ExitStatus.DONE if is_up_to_date else ExitStatus.FAILED


def _place_of(options: SyncRunOptions) -> str:
    """Where messages are written."""
    if options.maildir is not None:
        return f"Maildirs below {options.maildir.absolute()}"
    return f"the database of {CONNINFO}" if options.postgres else f"{(options.store or DEFAULT_STORE).absolute()}"


async def _ended(work: asyncio.Future[Any]) -> None:
    """Return when the work has ended or was broken off. Raises what it raised."""
    try:
        await asyncio.wait([work])
    finally:
        work.cancel()
        await asyncio.wait([work])
    if not work.cancelled():
        work.result()


@contextlib.asynccontextmanager
async def _reported(worker: _Worker, status_file: Path | None, display: LiveTable | Lines) -> AsyncGenerator[None]:
    """Show how the mailboxes stand, and write it to the status file, meanwhile and at the end."""
    started = time.time()

    def report(*, ended: bool) -> None:
        if status_file is None:
            return
        status = WorkerStatus(
            pid=os.getpid(),
            host=socket.gethostname(),
            started=started,
            written_at=time.time(),
            ended=ended,
            mailboxes=worker.mailboxes(),
        )
        try:
            write_status(status_file, status)
        except OSError as error:
            _LOGGER.warning("the status file can't be written (%s)", type(error).__name__)

    async def report_and_show() -> None:
        reported = float("-inf")
        while True:
            if time.monotonic() - reported >= _REPORTED_EVERY:  # first, for whoever asks whether the worker lives
                report(ended=False)
                reported = time.monotonic()
            display.show(worker.mailboxes(), time.time())
            await asyncio.sleep(_SHOWN_EVERY)

    reporting = asyncio.create_task(report_and_show())
    try:
        yield
    finally:
        reporting.cancel()
        await asyncio.wait([reporting])
        report(ended=True)
        display.show(worker.mailboxes(), time.time())


def addresses_of(named: Sequence[str], file: Path | None, variable: str | None = None) -> list[str]:
    """The addresses of --mailbox and of a file, each once; where neither is given, that of the variable.

    Raises RefusedError, which says where an address stands.
    """
    addresses = [(source, address.strip()) for source, address in numbered(named)]
    if file is not None:
        addresses += _lines_of(file)
    elif not addresses and variable:
        addresses = [(MAILBOX if os.environ.get(MAILBOX) else "mailbox in the settings file", variable)]
    kept = dict[str, tuple[str, str]]()
    for source, address in addresses:
        refuse_no_text(address, source)
        if not is_address(address):
            raise RefusedError(f"{naming(source, address)} is no address: nurse@direct.example.org is one")
        earlier, spelt = kept.setdefault(address.lower(), (source, address))
        if spelt != address:  # a store would have it twice, with all its messages
            raise RefusedError(
                f"{earlier} and {source} are one mailbox, in large and small letters: leave one of them out"
            )
    return [address for _, address in kept.values()]


def _lines_of(file: Path) -> Iterator[tuple[str, str]]:
    """The addresses of a file, one a line; blank lines and those that begin with # don't count."""
    try:
        lines = file.read_text("utf-8-sig").splitlines()  # Windows editors begin a file with a mark
    except FileNotFoundError:
        raise RefusedError(f"there is no file {file}: give --mailboxes a file with one address a line") from None
    except OSError as error:
        raise RefusedError(f"the file {file} can't be read ({reason_of(error)}): give another") from None
    except UnicodeDecodeError:
        raise RefusedError(f"the file {file} is no text in UTF-8: save it as such") from None
    for number, line in enumerate(lines, start=1):
        address = line.strip()
        if address and not address.startswith("#"):
            yield f"line {number} of the file {file}", address


def folders_of(named: Sequence[str]) -> list[str]:
    """The folders of --folder, each once; INBOX in whatever case, as RFC 3501, 5.1 has it. Raises RefusedError."""
    for number, name in enumerate(named, start=1):
        source = f"number {number} of --folder"
        refuse_no_text(name, source)
        if not name.strip() or name in (".", ".."):  # which no URL can have
            raise RefusedError(f"{naming(source, name)} is no folder's name: give one as INBOX.Sent, or --all-folders")
    return list(dict.fromkeys(_INBOX if name.upper() == _INBOX else name for name in named))


def passwords_for(
    addresses: Sequence[str],
    file: Path | None,
    environment: Mapping[str, str] = os.environ,
    ask: Callable[[str], str] = getpass.getpass,
) -> Passwords:
    """The source of the mailboxes' passwords. Raises RefusedError where there is none.

        --passwords FILE ──► the configuration, for a single mailbox ──► the keyring ──► a question on a terminal

    The first that has one counts.
    """
    if file is not None:
        of_file = _PasswordsFile(file)
        of_file.load()
        return of_file
    if (secret := Configuration.read(environment).secret("mailbox_password")) is not None:
        if len(addresses) != 1:
            raise RefusedError(f"{MAILBOX_PASSWORD} is for a single mailbox: give --passwords FILE for several")
        return _of_keyring_or({addresses[0]: secret})
    typed = dict[str, Secret]()
    if is_somebody_there():
        missing = [address for address in addresses if in_keyring(address) is None]
        typed = {address: mailbox_password(address, "--passwords").typed(ask) for address in missing}
    if typed or has_keyring():
        return _of_keyring_or(typed)
    raise RefusedError(f"there are no passwords: {_OTHER_PASSWORDS}")


class _PasswordsFile:
    """Passwords by address, in a private file that is read again where it has changed: no restart is needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, ...] = ()
        self._passwords: dict[str, Secret] = {}

    async def __call__(self, address: str) -> Secret:
        """The password of a mailbox. Raises ConfigurationError."""
        try:
            self.load()
        except RefusedError as error:
            raise ConfigurationError(f"No password can be had: {error}") from None
        if address not in self._passwords:
            raise ConfigurationError("The passwords file has none for this mailbox: add it, the file is read again.")
        return self._passwords[address]

    def load(self) -> None:
        """Read the file, if it is another than before. Raises RefusedError."""
        name = f"the passwords file {self._path}"
        try:
            about = self._path.stat()
        except OSError as error:
            raise RefusedError(f"{name} can't be read ({reason_of(error)}): give another") from None
        version = (about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino)
        if version != self._version:
            self._passwords = private_passwords(self._path, name)
            self._version = version


def _of_keyring_or(passwords: Mapping[str, Secret]) -> Passwords:
    async def password(address: str) -> Secret:
        """The password that was given, or else the one that stands in the keyring by now."""
        password = passwords.get(address) or await asyncio.to_thread(in_keyring, address)
        if password is None:
            raise ConfigurationError(
                f"The keyring has no password for this mailbox: put it there, or {_OTHER_PASSWORDS}."
            )
        return password

    return password


class LiveTable:
    """On a terminal: a table that changes in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def round(self, event: Event) -> None:
        """Do nothing with an event of the suite: the table shows it."""

    def show(self, mailboxes: Mapping[str, MailboxProgress], now: float) -> None:
        """Show those mailboxes that need somebody first, as many as there is room for. now: Unix time."""
        rows = [MailboxRow(progress=each, now=now) for each in mailboxes.values()]
        room = max(3, self._console.height - 6)
        self._live.update(table_of(self._console, those_that_need_somebody_first(rows), room=room), refresh=True)

    def say(self, event: str, words: str) -> None:
        """Print above the table what happened to the worker itself."""
        self._console.print(printable(words), highlight=False, markup=False, soft_wrap=True)


class Lines:
    """Elsewhere: a line for each round that brought something or failed, and one a minute; none names anybody.

    mailboxes: gives those that lines may name, nevertheless.
    """

    def __init__(self, *, as_json: bool, mailboxes: _Mailboxes | None = None) -> None:
        self._as_json = as_json
        self._mailboxes = mailboxes
        self._names: Mapping[int | None, str] = {}
        self._summarized_at: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def round(self, event: Event) -> None:
        """Print a line about an event of the suite, unless nothing happened."""
        if not isinstance(event, RoundFinished):
            return
        counts = {name: count for name in _COUNTS if (count := getattr(event, name))}
        if not counts and event.problem is None:
            return
        changed = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
        words = "; ".join(part for part in (changed, event.problem) if part)
        name = self._name_of(event.mailbox)
        named = "" if name is None else f" ({name})"
        self._write(
            "round",
            f"{'a mailbox' if event.mailbox is None else f'mailbox {event.mailbox}{named}'}: {words}",
            {"mailbox": event.mailbox}
            | ({} if name is None else {"name": name})
            | {**counts, "more": event.more, "problem": event.problem},
        )

    def _name_of(self, number: int | None) -> str | None:
        """The name of a mailbox, which gets its number when its first round begins."""
        if self._mailboxes is not None and number not in self._names:
            self._names = {each.number: each.name for each in self._mailboxes().values() if each.number is not None}
        return self._names.get(number)

    def show(self, mailboxes: Mapping[str, MailboxProgress], now: float) -> None:
        """Print a summary, a minute after the one before. now: Unix time."""
        if self._summarized_at is None:
            self._summarized_at = now
        if now - self._summarized_at < _SUMMARY_EVERY:
            return
        self._summarized_at = now
        lags = [lag for each in mailboxes.values() if (lag := each.lag(now)) is not None]
        counts = Counter(each.status for each in mailboxes.values())
        about = {str(status).replace(" ", "_"): counts[status] for status in SyncStatus}
        longest = round(max(lags, default=0.0), 1)
        self._write(
            "summary", f"{counted_by_status(mailboxes)}; longest lag {longest:.0f} s", {**about, "longest_lag": longest}
        )

    def say(self, event: str, words: str) -> None:
        """Print a line about what happened to the worker itself."""
        self._write(event, words, {"words": words})

    def _write(self, event: str, words: str, about: Mapping[str, Any]) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"at": at, "event": event, **about}) if self._as_json else f"{at} {words}"
        show_line(line)
        sys.stdout.flush()


def display_for(*, as_json: bool, mailboxes: _Mailboxes | None = None) -> LiveTable | Lines:
    """The display that fits where the output goes; the parameters are those of Lines."""
    console = Console(highlight=False)
    return LiveTable(console) if console.is_terminal and not as_json else Lines(as_json=as_json, mailboxes=mailboxes)


def counted_by_status(mailboxes: Mapping[str, MailboxProgress]) -> str:
    """How many mailboxes stand how, in words."""
    counts = Counter(each.status for each in mailboxes.values())
    return ", ".join(f"{counts[status]} {status}" for status in SyncStatus if counts[status]) or "no mailboxes"


def _warn_of_stdout(error: OSError) -> None:
    _LOGGER.warning("stdout can't be written (%s): the worker goes on", type(error).__name__)


@contextlib.contextmanager
def _logged_beside(display: LiveTable | Lines) -> Generator[None]:
    """Write the package's warnings to stderr, unless they would tear a table."""
    if not isinstance(display, Lines):
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    _LOGGER.addHandler(handler)
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)
