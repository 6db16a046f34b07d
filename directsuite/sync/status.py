"""The progress of each mailbox, messages about its problems, and the status file that other processes read.

The messages contain no mailbox, folder or secret. The status file is not in the store, because polling an idle mailbox
must not write to the database. It names mailboxes and folders, so only its owner may read it.
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

from directsuite import errors
from directsuite.core.events import Event
from directsuite.core.files import replace_file
from directsuite.core.privacy import scrub_class
from directsuite.errors import DirectSuiteError
from directsuite.sync.model import Kind, SinkError
from directsuite.sync.store import FILE


class SyncStatus(enum.StrEnum):
    """The status of a mailbox."""

    WAITING = "waiting"
    """No round has ended yet."""
    CATCHING_UP = "catching up"
    """More messages must be fetched."""
    UP_TO_DATE = "up to date"
    """The sink has all messages of the last listings."""
    FAILING = "failing"
    """The last round failed, completely or for a folder. Another one follows."""


@scrub_class
@attrs.define(kw_only=True, repr=False)
class MailboxProgress:
    """The status of a mailbox, and counters since the start of this process."""

    name: str
    """The address."""
    status: SyncStatus = SyncStatus.WAITING
    up_to_date_at: float | None = None
    """Unix time when it was last up to date, or None."""
    rounds: int = 0
    changes: Counter[Kind] = attrs.field(factory=Counter[Kind])
    """Changes that the sink accepted."""
    quarantined: int = 0
    """Messages that could not be fetched, or that the sink rejected."""
    failures: int = 0
    """Consecutive failed rounds."""
    problem: str | None = None
    """The problem of the last round and what to do, without names; None if there is none."""
    failing_since: float | None = None
    """Unix time of the first of these failures."""
    folders: dict[str, str] = attrs.field(factory=dict[str, str])
    """The problem of each failed folder."""
    number: int | None = None
    """The mailbox's number in the store; None before the first round."""

    def lag(self, now: float) -> float | None:
        """Return the seconds since the mailbox was last up to date, or None if it never was. now: Unix time."""
        # A later time was stored while a clock was ahead.
        return None if self.up_to_date_at is None else abs(now - self.up_to_date_at)

    def __repr__(self) -> str:
        return f"MailboxProgress({self.status})"


@scrub_class
class SyncProgress(dict[str, MailboxProgress]):
    """The progress of each mailbox, by address."""

    def raise_for_failures(self) -> None:
        """Raise DirectSuiteError if a mailbox is not up to date. It names mailboxes by their numbers."""
        incomplete = [each for each in self.values() if each.status is not SyncStatus.UP_TO_DATE]
        if incomplete:
            text = f"{len(incomplete)} of {len(self)} mailboxes were not synchronised completely."
            problems = [
                f"{'A mailbox' if each.number is None else f'Mailbox {each.number}'}: {each.problem}"
                for each in incomplete
                if each.problem
            ]
            if len(problems) < len(incomplete):
                problems.append("Call once() again to receive the rest.")
            raise DirectSuiteError(" ".join([text, *problems]))

    def __repr__(self) -> str:
        counts = Counter(each.status.value for each in self.values())
        return f"SyncProgress({', '.join(f'{number} {status}' for status, number in counts.items())})"


@attrs.frozen(kw_only=True, repr=False, eq=False)
class RoundFinished(Event):
    """A round of a mailbox has ended. The five fields after `mailbox` count messages."""

    mailbox: int | None = None
    """The mailbox's number in the store."""
    new: int = 0
    moved: int = 0
    restored: int = 0
    gone: int = 0
    quarantined: int = 0
    idle_folders: int = 0
    """Unchanged folders."""
    failed_folders: int = 0
    more: bool = False
    """True if there is more to do immediately."""
    elapsed: float = 0.0
    """Seconds."""
    failure: str | None = None
    """The class of the error if the complete mailbox failed, else None."""
    problem: str | None = None
    """The problem and what to do, without names; None if there is none."""


NO_SUCH_FOLDER = "The server has no such folder. Create it there, or remove it from the folders to synchronise."

_HINT_BY_ERROR: Mapping[type[DirectSuiteError], str] = {
    errors.AuthenticationError: "The service rejected the mailbox's password. Provide the correct one.",
    errors.CircuitOpenError: "The service has not responded for a while. It will be called again automatically. "
    "If this continues, ask its provider.",
    errors.ConnectFailedError: "The service can't be reached. Check the network and message_url.",
    errors.ConnectionLostError: "The service closes connections early. It will be called again automatically. "
    "If this continues, ask its provider.",
    errors.DeadlineExceededError: "The service does not respond in time. It will be called again automatically. "
    "If this continues, ask its provider.",
    errors.NotFoundError: "The service does not know the mailbox or the path. Check the address and message_url.",
    errors.PermissionDeniedError: "The service denies access to the mailbox. Ask its provider to grant access.",
    errors.RateLimitedError: "The service receives too many requests. Lower requests_per_second.",
    errors.ServerError: "The service has an internal error. It will be called again automatically. "
    "If this continues, ask its provider.",
}
"""By class of error; the nearest base class counts. Other errors have their own messages."""

_HINT_DISK_FULL = "The disk of the sink is full. Free some space."
_HINT_NOT_WRITABLE = "The folder of the sink can't be written. Let this user write to it."
_HINT_BY_ERRNO: Mapping[int, str] = {
    errno.ENOSPC: _HINT_DISK_FULL,
    errno.EDQUOT: _HINT_DISK_FULL,
    errno.EACCES: _HINT_NOT_WRITABLE,
    errno.EPERM: _HINT_NOT_WRITABLE,
    errno.EROFS: _HINT_NOT_WRITABLE,
}


def describe_problem(error: DirectSuiteError) -> str:
    """Return the operator's message about an error, and what to do. It contains no names."""
    if isinstance(error, SinkError):
        return _describe_sink_problem(error)
    return next((_HINT_BY_ERROR[kind] for kind in type(error).__mro__ if kind in _HINT_BY_ERROR), error.explanation)


def _describe_sink_problem(error: SinkError) -> str:
    cause = error.__cause__
    if isinstance(cause, sqlite3.Error):
        return FILE.explain(cause).explanation
    number: object = getattr(error if cause is None else cause, "errno", None)
    if type(number) is not int or number not in errno.errorcode:  # a program may set any value
        return error.explanation
    other = f"The sink can't be written ({os.strerror(number)}). Check its folder, disk or connection."
    return f"{_HINT_BY_ERRNO.get(number, other)} Changes that were not written will be delivered again."


_VERSION = 1
_BLOCK_BYTES = 4096


@attrs.frozen(kw_only=True)
class WorkerStatus:
    """The report of a worker. started, written_at: Unix time. ended: True in the last report of a stopped worker."""

    pid: int
    host: str | None = None
    started: float
    written_at: float
    ended: bool = False
    mailboxes: Mapping[str, MailboxProgress] = attrs.field(repr=False)

    def age(self, now: float) -> float:
        """Return the seconds since the report was written."""
        return abs(now - self.written_at)

    def is_killed(self) -> bool:
        """Return True if the process died without a last report. False if unknown: on another host or on Windows."""
        is_windows = sys.platform == "win32"  # where os.kill terminates the process
        if self.ended or self.host != socket.gethostname() or is_windows:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # the process exists, but belongs to another user
        return False


def build_status_path(store: Path) -> Path:
    """Return the path of a store's status file."""
    return store.with_name(f"{store.name}.status.json")


def write_status(path: Path, status: WorkerStatus) -> None:
    """Replace the status file. Raises OSError."""
    status = attrs.evolve(status, mailboxes=dict(status.mailboxes))  # `attrs.asdict` converts no other mappings
    # With the padding, it can be overwritten in place on a full disk, to show that problem.
    document = {"version": _VERSION} | attrs.asdict(status, filter=lambda field, _: field.name != "name")
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    text = text.ljust((len(text) * 3 // 2 // _BLOCK_BYTES + 1) * _BLOCK_BYTES)
    temporary = path.with_name(f"{path.name}.new")
    try:
        temporary.unlink(missing_ok=True)  # its mode may come from a backup
        with replace_file(path, temporary=temporary, synced=False) as file:
            file.write(text)
    except OSError:
        if not path.exists():  # for example in a folder that can't be written
            raise
        path.chmod(0o600)
        with path.open("r+b") as file:
            file.write(text)
            file.truncate()


def read_status(path: Path) -> WorkerStatus | None:
    """Return the last report; None if it is missing, unreadable or of another version."""
    try:
        document = json.loads(path.read_bytes())
        if document.pop("version") != _VERSION:
            return None
        mailboxes = {name: _from_values(name, values) for name, values in document.pop("mailboxes").items()}
        return WorkerStatus(**document, mailboxes=mailboxes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _from_values(name: str, values: dict[str, Any]) -> MailboxProgress:
    changes = Counter({Kind(kind): count for kind, count in values.pop("changes").items()})
    return MailboxProgress(name=name, status=SyncStatus(values.pop("status")), changes=changes, **values)
