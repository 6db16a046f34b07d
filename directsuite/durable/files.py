"""File locks, atomic creation and replacement of files, and flushes that survive a power failure."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from directsuite.core.files import find_file

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

DEVICE = re.compile(r"(?i:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(?:\.|\Z)")
"""Names that are devices in Windows, with any text after the first dot."""

_NO_HARD_LINK_ERRNOS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV)


_LOCKED_DESCRIPTORS: dict[tuple[int, int, int], list[int]] = {}
"""The descriptors of each locked file, by process id, device and inode.

A process can lock a file twice with record locks, and closing any descriptor of the file ends them. Forked children do
not inherit them, unlike locks by flock.
"""


class FileLock:
    """A locked file, until `release` or the end of the process.

    Access the file only by `descriptor`, because closing another descriptor ends the lock.
    """

    def __init__(self, key: tuple[int, int, int], descriptors: list[int]) -> None:
        self._key = key
        self._descriptors = descriptors
        self.descriptor = descriptors[0]

    def release(self) -> None:
        """Unlock and close the file, unless that is already done."""
        if _LOCKED_DESCRIPTORS.get(self._key) is self._descriptors:
            try:
                for each in self._descriptors:
                    os.close(each)
            finally:
                # Last: a thread that locked the file before this would lose its lock to these closes.
                del _LOCKED_DESCRIPTORS[self._key]


def lock_file(path: Path) -> FileLock:
    """Lock a file for this process, but not for its children. Create a missing file, readable by its owner only.

    Raises BlockingIOError if it is locked, here or in another process; other OSErrors if it cannot be opened or locked.
    """
    with contextlib.suppress(FileNotFoundError):
        if make_lock_key(path.stat()) in _LOCKED_DESCRIPTORS:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    key = make_lock_key(os.fstat(descriptor))
    descriptors = [descriptor]
    if (holders := _LOCKED_DESCRIPTORS.setdefault(key, descriptors)) is not descriptors:
        holders.append(descriptor)  # closing it now would end the other thread's lock
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    lock = FileLock(key, descriptors)
    try:
        _lock_descriptor(descriptor)
    except BaseException:
        lock.release()
        raise
    return lock


def make_lock_key(status: os.stat_result) -> tuple[int, int, int]:
    """Return the id of this process, and the device and inode of a file."""
    return os.getpid(), status.st_dev, status.st_ino


def _lock_descriptor(descriptor: int) -> None:
    if sys.platform == "win32":
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(*error.args) from None
        return
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except PermissionError as error:  # some systems report a lock of another process as EACCES
        raise BlockingIOError(*error.args) from None


def create_file(path: Path) -> BinaryIO:
    """Create a file for writing, readable by its owner only. Raises FileExistsError if the path exists."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o600), "wb")


@contextlib.contextmanager
def replace_file(path: Path, *, temporary: Path, synced: bool) -> Generator[BinaryIO]:
    """Yield a temporary file that replaces `path` at the end of the block, unless the block raises.

    If `path` is a link, its target is replaced. A FIFO or device is written directly.

    synced: True to flush the content to disk before the rename. `sync_folder` flushes the rename.
    """
    place = find_file(path)
    if place is None:
        with path.open("wb") as file:
            yield file
        return
    if place != path:
        path, temporary = place, place.with_name(temporary.name)
    try:
        with create_file(temporary) as file:
            yield file
            if synced:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def move_new(file: Path, place: Path) -> bool:
    """Rename a file within its file system. Return True, or False if the new name exists and nothing was done.

    Without hard links, a file that is created at the same time may be replaced.
    """
    try:
        if os.name == "nt":
            file.rename(place)  # does not replace files in Windows
            return True
        place.hardlink_to(file)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINK_ERRNOS:
            raise
        if os.path.lexists(place):
            return False
        file.replace(place)
        return True
    file.unlink()
    return True


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, except on Windows."""
    if os.name == "nt":  # cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
