"""How each mailbox stands: while it runs, in words that say what to do, and in a file that other processes read.

The words name no mailbox, no folder and no secret. The file is JSON beside the store, for a look at a mailbox in which
nothing happens is to write nothing to the database; it names mailboxes and folders, and is for its owner alone.
"""

from __future__ import annotations

import enum
import errno
import json
import os
import socket
import sqlite3
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from directsuite.core.events import Event
from directsuite.core.privacy import scrub_class
from directsuite.durable.files import replace_file
from directsuite.errors import (
    AuthenticationError,
    CircuitOpenError,
    ConnectFailedError,
    ConnectionLostError,
    DeadlineExceededError,
    DirectSuiteError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    ServerError,
)
from directsuite.sync.commits import SinkError
from directsuite.sync.model import Kind
from directsuite.sync.store import FILE


class SyncStatus(enum.StrEnum):
    """How a mailbox stands."""

    WAITING = "waiting"
    """No round of it has ended yet."""
    CATCHING_UP = "catching up"
    """There is more to fetch."""
    UP_TO_DATE = "up to date"
    """The sink has all that the last listings showed."""
    FAILING = "failing"
    """Its last round failed, or a folder in it; it is tried again."""


@scrub_class
@attrs.define(kw_only=True, repr=False)
class MailboxProgress:
    """How one mailbox stands, and what was done for it since this process began."""

    name: str
    """Its address."""
    status: SyncStatus = SyncStatus.WAITING
    up_to_date_at: float | None = None
    """When it was last up to date, in Unix time; None if it never was."""
    rounds: int = 0
    changes: Counter[Kind] = attrs.field(factory=Counter[Kind])
    """How many changes the sink was told, by kind."""
    quarantined: int = 0
    """Messages that could not be fetched, or that the sink could not take."""
    failures: int = 0
    """Rounds that failed, in a row."""
    problem: str | None = None
    """What is wrong and what to do, in words that name nobody; None where nothing is."""
    failing_since: float | None = None
    """When the failures began, in Unix time."""
    folders: dict[str, str] = attrs.field(factory=dict[str, str])
    """The problem of each folder that failed."""
    number: int | None = None
    """The store's own number of it, which names nobody; None before its first round."""

    def lag(self, now: float) -> float | None:
        """Return the seconds since it was last up to date; None if it never was.

        A time in the future was set by a clock that was ahead, and counts as equally long ago.
        """
        return None if self.up_to_date_at is None else abs(now - self.up_to_date_at)

    def __repr__(self) -> str:
        return f"MailboxProgress({self.status})"


@attrs.frozen(kw_only=True, repr=False, eq=False)
class RoundFinished(Event):
    """A round of a mailbox has ended. The five fields after `mailbox` count messages."""

    mailbox: int | None = None
    """The store's own number of it, which names nobody and which MailboxProgress has, too."""
    new: int = 0
    moved: int = 0
    restored: int = 0
    gone: int = 0
    quarantined: int = 0
    idle_folders: int = 0
    """Folders that were as before."""
    failed_folders: int = 0
    more: bool = False
    """Whether there is more to fetch at once."""
    elapsed: float = 0.0
    """Seconds that the round took."""
    failure: str | None = None
    """The error's type, where the whole mailbox failed."""
    problem: str | None = None
    """What is wrong and what to do, in words that name nobody."""


NO_SUCH_FOLDER = "There is no such folder on the server: make it there, or leave it out here."

_HINT_BY_ERROR: Mapping[type[DirectSuiteError], str] = {
    AuthenticationError: "The password is refused: give the right one.",
    CircuitOpenError: "The service has not answered for a while: it is asked again by itself.",
    ConnectFailedError: "The service can't be reached: see to the network, and to message_url.",
    ConnectionLostError: "The service breaks connections off: it is asked again by itself.",
    DeadlineExceededError: "The service does not answer in time: it is asked again by itself.",
    NotFoundError: "The service knows no such mailbox or path: check the address, and message_url.",
    PermissionDeniedError: "The service denies access to the mailbox: ask its provider to grant it.",
    RateLimitedError: "The service wants fewer requests: lower requests_per_second.",
    ServerError: "The service itself fails: it is asked again, and its provider may know more.",
}
"""By the kind of error, or the nearest that it is a kind of. All others say in their own text what to do."""

_HINT_DISK_FULL = "The disk of the sink is full: free some space; what was not written is told again."
_HINT_NOT_WRITABLE = (
    "The folder of the sink can't be written: let this user write to it; what was not written is told again."
)
_HINT_BY_ERRNO: Mapping[int, str] = {
    errno.ENOSPC: _HINT_DISK_FULL,
    errno.EDQUOT: _HINT_DISK_FULL,
    errno.EACCES: _HINT_NOT_WRITABLE,
    errno.EPERM: _HINT_NOT_WRITABLE,
    errno.EROFS: _HINT_NOT_WRITABLE,
}


def describe_problem(error: DirectSuiteError) -> str:
    """A sentence for whoever runs the synchronisation."""
    if isinstance(error, SinkError):
        return _describe_sink_problem(error)
    return next((_HINT_BY_ERROR[kind] for kind in type(error).__mro__ if kind in _HINT_BY_ERROR), error.explanation)


def _describe_sink_problem(error: SinkError) -> str:
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        return FILE.explain(cause).explanation
    number: int | None = getattr(error if cause is None else cause, "errno", None)
    if number is None:
        return error.explanation
    other = f"The sink can't be written ({os.strerror(number)}): see to its disk; what was not written is told again."
    return _HINT_BY_ERRNO.get(number, other)


_VERSION = 1
_BLOCK_BYTES = 4096  # bytes
_FIELDS = [field.name for field in attrs.fields(MailboxProgress) if field.name != "name"]


@attrs.frozen(kw_only=True)
class WorkerStatus:
    """What a worker reports. started, written_at: Unix time. ended: it has stopped, and this is its last report."""

    pid: int
    host: str | None = None
    """The name of the machine that the process is on."""
    started: float
    written_at: float
    ended: bool = False
    mailboxes: Mapping[str, MailboxProgress] = attrs.field(repr=False)

    def age(self, now: float) -> float:
        """Return the seconds since it was written; one from the future, by a clock that was ahead, is equally old."""
        return abs(now - self.written_at)

    def is_killed(self) -> bool:
        """Return True if the process is no more and said nothing of its end; False where nobody can tell from here."""
        if self.ended or self.host != socket.gethostname() or sys.platform == "win32":  # where signal 0 ends a process
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # it is another user's
        return False


def build_status_path(store: Path) -> Path:
    """Where the report of the worker is that has a store open."""
    return store.with_name(f"{store.name}.status.json")


def write_status(path: Path, status: WorkerStatus) -> None:
    """Put a report in the place of the one before. Raises OSError.

    On a full disk it is written over the one before, which has room to spare: what is wrong can be read just then.
    """
    text = json.dumps(_to_document(status), ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )
    text = text.ljust((len(text) * 3 // 2 // _BLOCK_BYTES + 1) * _BLOCK_BYTES)
    temporary = path.with_name(f"{path.name}.new")
    try:
        temporary.unlink(missing_ok=True)  # with the mode that it may have got from a back-up
        with replace_file(path, temporary=temporary, synced=False) as file:
            file.write(text)
    except OSError:
        path.chmod(0o600)
        with path.open("r+b") as file:
            file.write(text)
            file.truncate()


def read_status(path: Path) -> WorkerStatus | None:
    """The last report; None where there is none, or none that can be read."""
    try:
        document = json.loads(path.read_bytes())
        if document["version"] != _VERSION:
            return None
        mailboxes = {name: _from_values(name, values) for name, values in document["mailboxes"].items()}
        about = {name: document[name] for name in ("pid", "started", "written_at", "ended")}
        host = document.get("host")  # which the first release doesn't tell
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return WorkerStatus(**about, host=host, mailboxes=mailboxes)


def _to_document(status: WorkerStatus) -> dict[str, Any]:
    about = {name: getattr(status, name) for name in ("pid", "host", "started", "written_at", "ended")}
    return {
        "version": _VERSION,
        **about,
        "mailboxes": {name: _to_values(each) for name, each in status.mailboxes.items()},
    }


def _to_values(progress: MailboxProgress) -> dict[str, Any]:
    return {name: getattr(progress, name) for name in _FIELDS}


def _from_values(name: str, values: dict[str, Any]) -> MailboxProgress:
    changes = Counter({Kind(kind): count for kind, count in values.pop("changes").items()})
    return MailboxProgress(name=name, status=SyncStatus(values.pop("status")), changes=changes, **values)
