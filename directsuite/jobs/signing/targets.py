"""Targets for signed PDFs. A file appears complete, with its document's name, or not at all.

target/.directsuite/shard.lease_number/7.signed  a PDF in progress
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from directsuite.core.files import explain_os_error, resolve_path
from directsuite.core.privacy import scrub_class
from directsuite.durable import files
from directsuite.errors import ConfigurationError, InvalidArgumentError
from directsuite.jobs.signing.documents import STAGING_DIR, inspect_pdf

_NAME_ERRNOS = (errno.ENAMETOOLONG, errno.EILSEQ, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL)
_MAX_ATTEMPTS = 100
_NO_PATH = "the name is not a path below the target (the parts .. and .directsuite are not allowed)"
_NO_NORMAL_FORM = "the name is not a normalized path: leave out empty parts and dots, as in a/b.pdf"
_NO_NAME = "the target does not allow a file of this name ({why})"
_STALE_SECONDS = 7 * 24 * 3600.0
"""No job retries that long. A job whose staging folder is removed stops. Run again, it signs nothing twice."""


class Target(Protocol):
    """Receives signed PDFs."""

    def staging_dir(self, shard: str, lease_number: int = 0) -> AbstractAsyncContextManager[Path]:
        """Return a context manager for an empty local folder for PDFs in progress.

        shard: a folder name, unique to the job and batch.
        lease_number: a later lease of the shard removes the files of earlier ones, so that they cannot be published.
        """
        ...

    def check(self, name: str) -> None:
        """Raise InvalidArgumentError if a name is invalid. Called before signing."""
        ...

    async def has(self, name: str) -> bool:
        """Return True if the name is in use, and its file is not replaced.

        Raises InvalidArgumentError if the name is invalid, and OSError.
        """
        ...

    async def contains(self, name: str, sha256: str) -> bool:
        """Return True if the file of this name has this SHA-256, in hex. Raises OSError."""
        ...

    async def publish(self, name: str, file: Path) -> None:
        """Move a local file to this name, permanently. A file with the same content counts as published.

        Raises FileExistsError if the name has different content, InvalidArgumentError if it is invalid, and OSError.
        """
        ...


@scrub_class
class TargetFolder:
    """A folder for signed PDFs, created if its parent exists. Subfolders are created as needed.

    overwrite: replace existing files. Raises ConfigurationError if the folder cannot be created.
    """

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self._path = resolve_path(path, "path")
        self._overwrite = overwrite
        self.place = f"file://{self._path.as_posix()}/"
        """The folder's URL."""
        try:
            self._path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            why = explain_os_error(error)
            raise ConfigurationError(f"the target's folder can't be created ({why}): choose another folder") from None

    @contextlib.asynccontextmanager
    async def staging_dir(self, shard: str, lease_number: int = 0) -> AsyncGenerator[Path]:
        """Create a folder on the target's file system. Those that interrupted jobs left are removed after a week."""
        folder = self._path / STAGING_DIR / f"{shard}.{lease_number}"
        # Not in threads: after a cancellation, they might remove files when the next run already uses the folder.
        _recreate_dir(folder, time.time())
        try:
            yield folder
        finally:
            _remove_dir(folder)

    def check(self, name: str) -> None:
        """See `Target.check`."""
        validate_path(name)
        # Some paths are only absolute or denormalized on Windows.
        if os.name == "nt" and (Path(name).is_absolute() or Path(name).as_posix() != name):
            raise InvalidArgumentError(_NO_PATH, parameter="name")
        validate_encodable(name, sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())

    async def has(self, name: str) -> bool:
        """Return True if a file, folder or link has this name and `overwrite` is False. Raises as `Target.has`."""
        try:
            with translate_name_errors():
                (self._path / name).lstat()  # faster than the switch to a thread
        except FileNotFoundError:
            return False
        return not self._overwrite

    async def contains(self, name: str, sha256: str) -> bool:
        """See `Target.contains`."""
        return await asyncio.to_thread(_has_digest, self._path / name, sha256)

    async def publish(self, name: str, file: Path) -> None:
        """Rename the file, which must have been synced to disk, and sync the folders.

        An existing file is replaced if `overwrite` is True. Otherwise, one with the same content counts as published,
        and one created at the same time is not replaced, except on file systems without hard links. Raises the
        exceptions of `Target.publish`.
        """
        self.check(name)
        with translate_name_errors():
            is_there = await asyncio.to_thread(_publish_file, file, self._path, name, overwrite=self._overwrite)
        if not is_there:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def validate_path(name: str) -> None:
    """Raise InvalidArgumentError if a name is not a normalized path below the target."""
    parts = name.split("/")
    is_empty = {"", "."}.issuperset(parts)
    if is_empty or name.startswith("/") or not {"..", STAGING_DIR}.isdisjoint(parts) or "\0" in name:
        raise InvalidArgumentError(_NO_PATH, parameter="name")
    if not {"", "."}.isdisjoint(parts):
        raise InvalidArgumentError(_NO_NORMAL_FORM, parameter="name")


@contextlib.contextmanager
def translate_name_errors() -> Generator[None]:
    """Raise InvalidArgumentError instead of an OSError that is caused by a name."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NAME_ERRNOS:
            raise
        raise InvalidArgumentError(_NO_NAME.format(why=explain_os_error(error)), parameter="name") from None


def validate_encodable(name: str, encoding: str = "utf-8", errors: str = "strict") -> None:
    """Raise InvalidArgumentError if a name cannot be encoded."""
    try:
        name.encode(encoding, errors)
    except UnicodeEncodeError:  # not chained, because it contains the name
        pass
    else:
        return
    raise InvalidArgumentError(_NO_NAME.format(why="it is not valid text"), parameter="name")


def _recreate_dir(folder: Path, now: float) -> None:
    """Create an empty folder. Remove its shard's folders of this and earlier leases, and any unchanged for a week."""
    for other in folder.parent.glob("*.*"):
        with contextlib.suppress(OSError, ValueError):  # just removed, or not a staging folder
            if other.stem == folder.stem:
                is_obsolete = int(other.suffix[1:]) <= int(folder.suffix[1:])
            else:
                changed_at = max(each.lstat().st_mtime for each in (other, *other.iterdir()))
                is_obsolete = abs(now - changed_at) > _STALE_SECONDS
            if is_obsolete:
                shutil.rmtree(other, ignore_errors=True)
    for _ in range(_MAX_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):  # another process has just removed the empty parent folder
            return folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _remove_dir(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # not empty: other jobs use it
        folder.parent.rmdir()


def _publish_file(file: Path, root: Path, name: str, *, overwrite: bool) -> bool:
    """Move the file. Return False if the name has different content."""
    place, made = root.joinpath(name), list[Path]()
    try:
        is_there = _move_into_place(file, place, overwrite=overwrite)
    except FileNotFoundError:
        made = [each for each in place.parents if each.is_relative_to(root) and not each.exists()]
        for folder in reversed(made):
            folder.mkdir(mode=0o700, exist_ok=True)
        is_there = _move_into_place(file, place, overwrite=overwrite)
    for folder in [place.parent, *(each.parent for each in made)] if is_there else ():
        files.sync_folder(folder)
    return is_there


def _move_into_place(file: Path, place: Path, *, overwrite: bool) -> bool:
    if overwrite:
        file.replace(place)
    elif not files.move_new(file, place):
        if not _has_digest(place, inspect_pdf(file).sha256):
            return False
        file.unlink()
    return True


def _has_digest(place: Path, sha256: str) -> bool:
    try:
        return place.is_file() and inspect_pdf(place).sha256 == sha256
    except PermissionError:  # not readable, so not written by this user
        return False
