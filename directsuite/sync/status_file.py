"""A worker's report beside its store: how each mailbox stands, for whoever looks from another process.

It is a file of JSON, for a look at a mailbox in which nothing happens is to write nothing to the database. It names
mailboxes and folders, and is for its owner alone.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from directsuite.sync.changes import Kind
from directsuite.sync.progress import MailboxProgress, Standing

_VERSION = 1
_BLOCK = 4096  # bytes
_FIELDS = [field.name for field in attrs.fields(MailboxProgress) if field.name != "name"]


@attrs.frozen(kw_only=True)
class WorkerStatus:
    """What a worker reports. started, written_at: Unix time. ended: it has stopped, and this is its last report."""

    pid: int
    started: float
    written_at: float
    ended: bool = False
    mailboxes: Mapping[str, MailboxProgress] = attrs.field(repr=False)

    def age(self, now: float) -> float:
        """Seconds since it was written."""
        return max(0.0, now - self.written_at)


def status_file_of(store: Path) -> Path:
    """Where the report of the worker is that has a store open."""
    return store.with_name(f"{store.name}.status.json")


def write_status(path: Path, status: WorkerStatus) -> None:
    """Put a report in the place of the one before. Raises OSError.

    On a full disk it is written over the one before, which has room to spare: what is wrong can be read just then.
    """
    text = json.dumps(_document(status), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    text = text.ljust((len(text) * 3 // 2 // _BLOCK + 1) * _BLOCK)
    temporary = path.with_name(f"{path.name}.new")
    try:
        temporary.unlink(missing_ok=True)  # with the mode that it may have got from a back-up
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, for its mode
            file.write(text)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
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
        mailboxes = {name: _progress(name, values) for name, values in document["mailboxes"].items()}
        about = {name: document[name] for name in ("pid", "started", "written_at", "ended")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return WorkerStatus(**about, mailboxes=mailboxes)


def _document(status: WorkerStatus) -> dict[str, Any]:
    about = {name: getattr(status, name) for name in ("pid", "started", "written_at", "ended")}
    return {"version": _VERSION, **about, "mailboxes": {name: _values(each) for name, each in status.mailboxes.items()}}


def _values(progress: MailboxProgress) -> dict[str, Any]:
    return {name: getattr(progress, name) for name in _FIELDS}


def _progress(name: str, values: dict[str, Any]) -> MailboxProgress:
    changes = Counter({Kind(kind): count for kind, count in values.pop("changes").items()})
    return MailboxProgress(name=name, standing=Standing(values.pop("standing")), changes=changes, **values)
