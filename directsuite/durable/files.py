"""Atomic creation and replacement of files, and flushes that survive a power failure."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from directsuite.core.files import find_file

DEVICE = re.compile(r"(?i:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(?:\.|\Z)")
"""Names that are devices in Windows, with any text after the first dot."""

_NO_HARD_LINK_ERRNOS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV)


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
