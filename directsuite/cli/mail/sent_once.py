"""What this machine knows of messages that were sent with a --key, so that each is sent once, whatever happens.

    KEY's file:  {"message": its digest, "at": the first attempt}      on the disk before anything is sent
                 {"smtp_id": …}                                        once it is known

A file for each key, below DIRECTSUITE_STATE or the user's state folder, named by a hash. It is locked while a command
sends, and holds neither the key nor anything of the message but hashes.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

from directsuite.cli.errors import RefusedError
from directsuite.core.failures import reason_of
from directsuite.durable import files

STATE = "DIRECTSUITE_STATE"


class SendRecord:
    """What is known of one key. first_attempt: None where there was none that may have sent it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        lines = [known for line in file.read().splitlines() if (known := _known(line)) is not None]
        first = next((line for line in lines if "at" in line), None)
        self._digest = None if first is None else str(first["message"])
        self.first_attempt = None if first is None else datetime.fromisoformat(str(first["at"]))
        done = next((line for line in lines if "smtp_id" in line), None)
        self.is_sent = done is not None
        self.smtp_id = "" if done is None else str(done["smtp_id"] or "")

    def attempt(self, digest: str) -> None:
        """Note, before it is sent, that it may have been. Raises RefusedError where the key was another message's."""
        if self._digest not in (None, digest):
            raise RefusedError(
                "this --key was used for another message, which may have gone: give each message a --key of its own"
            )
        if self.first_attempt is None:
            self._write({"message": digest, "at": datetime.now(UTC).isoformat()})

    def sent(self, smtp_id: str) -> None:
        """Note that it went."""
        self._write({"smtp_id": smtp_id})

    def not_sent(self) -> None:
        """Forget the attempt, which sent nothing; one before it is still remembered."""
        if self.first_attempt is None:
            self._file.truncate(0)

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(b"\n" + json.dumps(line).encode() + b"\n")  # what broke off before it doesn't spoil it
        self._file.flush()
        os.fsync(self._file.fileno())


@contextlib.contextmanager
def record_of(mark: str) -> Generator[SendRecord]:
    """The record of a key, by the mark that stands for it, locked. Raises RefusedError."""
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / mark, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
        (folder / mark).chmod(0o600)  # it may come from a back-up
    except OSError as error:
        raise RefusedError(
            f"what --key needs to remember can't be written ({reason_of(error)}): name another folder with {STATE}"
        ) from None
    with os.fdopen(descriptor, "a+b") as file:
        _lock(file)
        files.sync_folder(folder)
        file.seek(0)
        yield SendRecord(file)


def _folder() -> Path:
    if named := os.environ.get(STATE):
        return Path(named) / "sends"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "directsuite" / "sends"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "directsuite" / "sends"


def _lock(file: BinaryIO) -> None:
    """Until the file is closed, or the process ends in any way."""
    try:
        files.lock(file.fileno())
    except BlockingIOError:
        raise RefusedError("another command is sending with this --key: wait until it has ended") from None


def _known(line: bytes) -> dict[str, Any] | None:
    try:
        found: object = json.loads(line)
    except ValueError:  # nothing, or a line that broke off with the machine
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None
