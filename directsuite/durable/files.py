"""Files of which one process at a time is in charge, and names that a loss of power leaves in their folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


def lock(descriptor: int) -> None:
    """Lock an open file until it is closed, or the process ends in any way.

    Raises BlockingIOError where another has locked it, and OSError where the file system has no locks.
    """
    if sys.platform == "win32":
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(*error.args) from None
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def open_locked(path: Path) -> int:
    """Open a file, made for its owner alone where there is none, and lock it. Raises as `lock`."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        lock(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk. Where a folder can't be opened, as on Windows, nothing is done."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
