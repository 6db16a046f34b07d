"""A sink that writes messages as files in Maildirs, one Maildir per folder, for mail programs such as dovecot and mutt.

    folder/nurse@direct.example.org/            INBOX of the mailbox
        tmp/ ──► fsync ──► new/ ──► cur/        up to 16 files a step; the mail program does the last one
        .Sent/tmp/ new/ cur/ maildirfolder      INBOX.Sent (Maildir++)

A file name consists of a time, a hash of the message's key and a hash of its digest, so a change that is delivered
again finds its file. A read message is written to cur/ with the flag S, any other to new/. Files are not rewritten.
Flags set by a mail program survive a move.

Directory names follow Maildir++, in modified UTF-7 (RFC 3501, 5.1.3), and differ for different folders:

    INBOX ──────────► (the mailbox's directory)
    INBOX.Sent ─────► .Sent
    INBOX.A.B/C ────► .A.B%2FC        printable ASCII that a file name cannot contain is percent-encoded
    Bücher ─────────► .%~B&APw-cher   the prefix %~ marks folders outside INBOX
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import re
import secrets
import threading
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Self

from directsuite.core.files import DEVICE, create_file, explain_os_error, run_in_thread, sync_folder, to_path
from directsuite.core.privacy import scrub_class
from directsuite.errors import InvalidArgumentError
from directsuite.messaging.arguments import INBOX
from directsuite.messaging.models import MessageDetail
from directsuite.sync.commits import SYSTEM_ERRNOS
from directsuite.sync.model import Change, Key, Kind, SinkError
from directsuite.sync.sinks.eml import iter_eml

_NAME = re.compile(
    r"(?P<seconds>\d+)\.(?P<key>[0-9a-f]{32})-(?P<digest>[0-9a-f]{16})\.eml(?P<marks>[:;!].*)?", re.DOTALL
)
_TEMPORARY = re.compile(r"\d+\.[0-9a-f]{32}-[0-9a-f]{16}\.eml\.[0-9a-f]{16}")
_MAX_CACHED_KEYS = 250_000  # of all Maildirs together
_MAX_TIMESTAMP = 253_402_300_799  # the last second of the year 9999
_READ_FLAG_SUFFIX = f"{'!' if os.name == 'nt' else ':'}2,S"
_MAX_UNSYNCED_FILES = 16  # open files of each delivery; macOS allows 256 for a process
_MAX_SCANS = 3  # a mail program may rename files during a scan

_MAX_NAME_BYTES = 200  # file systems allow 255
_SHORT_NAME_CHARS = 20  # of a name that is too long; a character takes at most 8 bytes
_UNSAFE_CHARS = re.compile(r"""[^ -~]+|[&%/\\:*?"<>|~]""")


class MaildirError(SinkError):
    """The files could not be written. errno: the operating system's error number, or None."""

    def __init__(self, explanation: str, *, errno: int | None = None) -> None:
        super().__init__(explanation, is_general=errno in SYSTEM_ERRNOS)
        self.errno = errno


@scrub_class
class MaildirSink:
    """Writes changes to Maildirs. Only one process may deliver the changes of a mailbox at a time.

    folder: the parent directory of the Maildirs, created if its own parent exists.
    keep_gone: True to keep the files of deleted messages.

    Raises MaildirError if a file cannot be written. It names no file, because the path contains the mailbox.
    """

    needs_read_state = True
    """Requests `Change.is_read`: see `Deliver`."""

    def __init__(self, folder: str | PathLike[str], *, keep_gone: bool = False) -> None:
        self._root = to_path(folder, "folder")
        self._keep_gone = keep_gone
        self._cache: dict[Path, _Maildir] = {}
        """Deliveries in several threads take entries out, and put them back."""
        try:
            self._root.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(PermissionError):  # the parent may be unreadable
                sync_folder(self._root.parent)
        except OSError as error:
            text = f"the directory can't be created ({explain_os_error(error)}): create it first, or name another one"
            if isinstance(error, FileExistsError):
                text = "it is a file: name a directory"
        else:
            return
        raise InvalidArgumentError(text, parameter="folder")

    @property
    def sink_name(self) -> str:
        """The name for the store: the hashed path, because a path may contain a person's name."""
        return f"maildir {hashlib.sha256(os.fsencode(self._root.resolve())).hexdigest()[:32]}"

    async def __call__(self, changes: Sequence[Change]) -> None:
        """Write the changes and flush them to disk. If cancelled, finish the change in progress first.

        Raises MaildirError; some changes may be written.
        """
        stop = threading.Event()
        work = asyncio.ensure_future(run_in_thread(self._deliver, changes, stop))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            while not work.done():  # the thread must not write during the next delivery
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([work])
            if not work.cancelled():
                work.exception()
            raise

    def _deliver(self, changes: Sequence[Change], stop: threading.Event) -> None:
        try:
            with _Delivery(self._root, changes, self._cache, keep_gone=self._keep_gone) as delivery:
                for change in changes:
                    if stop.is_set():
                        break
                    delivery.apply(change)
                delivery.sync()
        except OSError as error:
            failure = MaildirError(
                f"The Maildir can't be written ({explain_os_error(error)}). Check its disk and permissions. "
                "The changes will be delivered again.",
                errno=error.errno,
            )
        else:
            return
        raise failure


class _Maildir:
    """A Maildir, with its files that have a key of the current delivery.

    New messages need no listing, which is slow in a large directory, if `new` and `cur` are unchanged since the last
    delivery, and no file has their keys.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known_keys = set[int]()
        """The first 64 bits of each key, also of removed files."""
        self._change_stamps: tuple[tuple[int, int], ...] = ()
        """The inode and ctime in nanoseconds of `new` and `cur`."""

    def begin(self, keys: set[str], *, needs_scan: bool) -> None:
        self._keys = keys
        self._files: dict[tuple[str, str], Path] = {}
        for directory in (self.path.parent, self.path, *(self.path / each for each in ("tmp", "new", "cur"))):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(0o700)
        if self.path.name.startswith("."):
            os.close(os.open(self.path / "maildirfolder", os.O_WRONLY | os.O_CREAT, 0o600))
        for name in _list_names(self.path / "tmp"):
            if _TEMPORARY.fullmatch(name):
                (self.path / "tmp" / name).unlink(missing_ok=True)
        is_changed = self._read_change_stamps() != self._change_stamps
        if needs_scan or is_changed or not self.known_keys.isdisjoint(map(_parse_key_number, keys)):
            self.scan()

    def scan(self) -> None:
        self._files.clear()
        self.known_keys.clear()
        for place in ("new", "cur"):  # this order sees a file that a mail program moves during the scan
            for name in _list_names(self.path / place):
                if found := _NAME.fullmatch(name):
                    self.known_keys.add(_parse_key_number(found["key"]))
                    if found["key"] in self._keys:
                        self._files[found["key"], found["digest"]] = self.path / place / name

    def find(self, key: str, digest: str | None) -> Path | None:
        if digest is not None:
            return self._files.get((key, digest))
        return next((path for (each, _), path in self._files.items() if each == key), None)

    def find_others(self, key: str, digest: str) -> list[Path]:
        return [path for (each, other), path in self._files.items() if each == key and other != digest]

    def add(self, path: Path) -> None:
        if found := _NAME.fullmatch(path.name):
            self.known_keys.add(_parse_key_number(found["key"]))
            self._files[found["key"], found["digest"]] = path

    def forget(self, path: Path) -> None:
        self._files = {identifier: each for identifier, each in self._files.items() if each != path}

    def sync(self) -> None:
        for directory in (self.path / "new", self.path / "cur", self.path, self.path.parent):
            sync_folder(directory)
        self._change_stamps = self._read_change_stamps()
        self._keys, self._files = set[str](), {}  # the cache retains this object

    def _read_change_stamps(self) -> tuple[tuple[int, int], ...]:
        states = [(self.path / place).stat() for place in ("new", "cur")]
        return tuple((state.st_ino, state.st_ctime_ns) for state in states)


class _Delivery:
    def __init__(self, root: Path, changes: Sequence[Change], cache: dict[Path, _Maildir], *, keep_gone: bool) -> None:
        self._root = root
        self._cache = cache
        self._keep_gone = keep_gone
        self._unsynced: list[tuple[BinaryIO, Path, Path]] = []
        """The files in `tmp`: open, with their path there and their final path."""
        keys = [key for change in changes for key in (change.key, change.previous) if key is not None]
        hashes = {_hash_key(key) for key in keys}
        is_new = all(change.kind is Kind.NEW and change.previous is None for change in changes)
        self._maildirs: dict[Path, _Maildir] = {}
        for path in dict.fromkeys(map(self._build_path, keys)):
            self._maildirs[path] = self._cache.pop(path, _Maildir(path))
            self._maildirs[path].begin(hashes, needs_scan=not is_new)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file, _, _ in self._unsynced:  # the delivery has failed
            with contextlib.suppress(OSError):
                file.close()
        for _, temporary, _ in self._unsynced:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def _finish_files(self) -> None:
        """Flush the files in `tmp` to disk, then move them."""
        for file, _, _ in self._unsynced:
            if not file.closed:  # closed if an earlier move failed
                os.fsync(file.fileno())
        for file, temporary, path in self._unsynced:
            file.close()
            temporary.replace(path)
        self._unsynced.clear()

    def apply(self, change: Change) -> None:
        for _ in range(_MAX_SCANS - 1):
            with contextlib.suppress(FileNotFoundError):
                return self._apply(change)
            self._finish_files()
            for maildir in self._maildirs.values():
                maildir.scan()
        return self._apply(change)

    def sync(self) -> None:
        self._finish_files()
        for path, maildir in self._maildirs.items():
            maildir.sync()
            self._cache[path] = maildir
        cached = list(self._cache.items())  # other deliveries change the cache at the same time
        excess = sum(len(maildir.known_keys) for _, maildir in cached) - _MAX_CACHED_KEYS
        for path, maildir in cached[:-1]:
            if excess > 0:
                self._cache.pop(path, None)
                excess -= len(maildir.known_keys)
        sync_folder(self._root)

    def _apply(self, change: Change) -> None:
        digest = None if change.digest is None else _shorten_digest(change.digest)
        here = self._get_maildir(change.key)
        path = here.find(_hash_key(change.key), digest)
        if change.kind is Kind.GONE:
            if path is not None and not self._keep_gone:
                self._remove(here, path)
            return
        if change.previous is not None and change.previous != change.key:
            there = self._get_maildir(change.previous)
            before = there.find(_hash_key(change.previous), digest)
            if before is not None and path is None:
                path = self._rename(there, before, here, change.key)
            elif before is not None:
                self._remove(there, before)
        if path is None and change.message is not None:
            self._write(change, change.message, here, digest)
        if not self._keep_gone and digest is not None:
            for other in here.find_others(_hash_key(change.key), digest):  # a key identifies one message
                self._remove(here, other)

    def _write(self, change: Change, message: MessageDetail, here: _Maildir, digest: str | None) -> None:
        name = f"{_read_timestamp(message)}.{_hash_key(change.key)}-{digest or _shorten_digest('')}.eml"
        if len(self._unsynced) >= _MAX_UNSYNCED_FILES:
            self._finish_files()
        temporary = here.path / "tmp" / f"{name}.{secrets.token_hex(8)}"
        path = here.path / "cur" / f"{name}{_READ_FLAG_SUFFIX}" if change.is_read else here.path / "new" / name
        file = create_file(temporary)
        self._unsynced.append((file, temporary, path))
        file.writelines(iter_eml(message))
        file.flush()
        if message.received_date is not None:
            received = _read_timestamp(message)
            os.utime(temporary, (received, received))  # mail programs sort by mtime
        here.add(path)

    def _rename(self, there: _Maildir, before: Path, here: _Maildir, key: Key) -> Path:
        found = _NAME.fullmatch(before.name)
        assert found is not None  # noqa: S101 - `scan` and `add` accept only such names
        name = f"{found['seconds']}.{_hash_key(key)}-{found['digest']}.eml{found['marks'] or ''}"
        path = here.path / before.parent.name / name
        self._finish_files()
        before.rename(path)
        there.forget(before)
        here.add(path)
        return path

    def _remove(self, maildir: _Maildir, path: Path) -> None:
        self._finish_files()
        path.unlink()
        maildir.forget(path)

    def _build_path(self, key: Key) -> Path:
        return self._root / build_mailbox_dir(key.mailbox) / build_folder_dir(key.folder)

    def _get_maildir(self, key: Key) -> _Maildir:
        return self._maildirs[self._build_path(key)]


def _hash_key(key: Key) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    for part in (key.mailbox, key.folder, str(key.uid_validity), str(key.uid)):
        octets = part.encode("utf-8", "surrogatepass")
        hashed.update(len(octets).to_bytes(8, "big") + octets)
    return hashed.hexdigest()


def _parse_key_number(key: str) -> int:
    return int(key[:16], 16)


def _shorten_digest(digest: str) -> str:
    return hashlib.blake2b(digest.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _read_timestamp(message: MessageDetail) -> int:
    received = message.received_date
    return 0 if received is None else min(max(0, int(received.timestamp())), _MAX_TIMESTAMP)


def _list_names(directory: Path) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def build_mailbox_dir(mailbox: str) -> str:
    """Return the name of a mailbox's directory: for most Direct addresses, the address."""
    name = _encode_component(mailbox)
    if name.startswith(".") or DEVICE.match(name):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    return _encode_end(_shorten_name(name, mailbox))


def build_folder_dir(folder: str) -> str:
    """Return the name of a folder's directory in the mailbox's; empty for INBOX."""
    if folder == INBOX:
        return ""
    name = folder.removeprefix(f"{INBOX}.")
    prefix = ".%~" if name == folder else "."
    return prefix + _encode_end(_shorten_name(".".join(map(_encode_component, name.split("."))), name))


def _encode_component(text: str) -> str:
    return _UNSAFE_CHARS.sub(_encode_match, text) or "%"


def _encode_match(odd: re.Match[str]) -> str:
    text = odd[0]
    if text == "&":
        return "&-"
    if text.isascii() and text.isprintable():
        return f"%{ord(text):02X}"
    utf16 = text.encode("utf-16-be", "surrogatepass")
    return "&" + base64.b64encode(utf16, b"+,").rstrip(b"=").decode("ascii") + "-"


def _encode_end(name: str) -> str:
    # Windows drops a final space or dot.
    return f"{name[:-1]}%{ord(name[-1]):02X}" if name.endswith((" ", ".")) else name


def _shorten_name(name: str, text: str) -> str:
    if len(name) <= _MAX_NAME_BYTES:
        return name
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{_encode_component(text[:_SHORT_NAME_CHARS].replace('.', '_'))}%-{digest}"
