"""Files that one process at a time has locked, that appear whole or not at all, and that outlast a loss of power."""

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
"""Names that Windows takes for devices, whatever follows their first dot."""

_NO_HARD_LINK_ERRNOS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV)


_LOCKED_DESCRIPTORS: dict[tuple[int, int, int], list[int]] = {}
"""The descriptors of each locked file, by process id, device and inode.

A record lock belongs to a process. It does not exclude a second lock by the same process, and closing any descriptor of
the file ends it. Forked children do not inherit it, unlike a lock by flock, which an orphan would hold.
"""


class FileLock:
    """A file that this process has locked until `release`, or until the process ends in any way.

    The process must not open the file by other means, because closing it ends the lock: use `descriptor`.
    """

    def __init__(self, key: tuple[int, int, int], descriptors: list[int]) -> None:
        self._key = key
        self._descriptors = descriptors
        self.descriptor = descriptors[0]

    def release(self) -> None:
        """Unlock the file, and close it. Do nothing if it is released already: another holder may have locked it."""
        if _LOCKED_DESCRIPTORS.get(self._key) is self._descriptors:
            try:
                for each in self._descriptors:
                    os.close(each)
            finally:
                del _LOCKED_DESCRIPTORS[
                    self._key
                ]  # last: a thread that locked the file before a close would lose its lock


def lock_file(path: Path, *, create: bool = True) -> FileLock:
    """Lock a file for this process, whose children do not inherit the lock.

    create: make the file, for its owner alone, if it is missing. Raises BlockingIOError if another holder has locked
    it, here or in another process, and OSError if it cannot be opened or the file system has no locks.
    """
    with contextlib.suppress(FileNotFoundError):
        if make_lock_key(path.stat()) in _LOCKED_DESCRIPTORS:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    flags = os.O_RDWR | (os.O_CREAT if create else 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o600)
    key = make_lock_key(os.fstat(descriptor))
    descriptors = [descriptor]
    if (holders := _LOCKED_DESCRIPTORS.setdefault(key, descriptors)) is not descriptors:
        holders.append(descriptor)  # another thread was faster: closing it now would end that thread's lock
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    lock = FileLock(key, descriptors)
    try:
        _lock_descriptor(descriptor)
    except BaseException:
        lock.release()
        raise
    return lock


def make_lock_key(status: os.stat_result) -> tuple[int, int, int]:
    """Return what identifies a file in this process: the process id, the device and the inode."""
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
    """Make a file, for its owner alone, to be written. Raises FileExistsError where there is one, or a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o600), "wb")


@contextlib.contextmanager
def replace_file(path: Path, *, temporary: Path, synced: bool) -> Generator[BinaryIO]:
    """Write a file under another name; it gets its own when the block ends, and is removed where that raises.

    synced: whether its content is on the disk before it gets its name, which `sync_folder` has there. A link stays a
    link: the file that it leads to is replaced. A FIFO or a device is written to.
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
    """Give a file another name on its file system. Return False, and do nothing, where something has that name.

    No other process can come between, but where the file system has no hard links.
    """
    try:
        if os.name == "nt":
            file.rename(place)  # which replaces nothing there
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
    """Have the names in a folder on the disk. Where a folder can't be opened, as on Windows, nothing is done."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
