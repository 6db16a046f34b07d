"""Where signed PDFs go: each appears whole, under its document's name, or not at all.

target/.directsuite/part.fence/lock     locked while a job signs into the target
target/.directsuite/part.fence/7.signed in the making
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from directsuite.core.failures import explain_os_error
from directsuite.core.files import resolve_path
from directsuite.core.privacy import scrub_class
from directsuite.durable import files
from directsuite.errors import ConfigurationError, InvalidArgumentError
from directsuite.jobs.signing.documents import STAGING_DIR, inspect_pdf

T = TypeVar("T")

_NAME_ERRNOS = (errno.ENAMETOOLONG, errno.EILSEQ, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL)
_NO_LOCK_ERRNOS = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_MAX_ATTEMPTS = 100
_NO_PATH = "this is no path below the target"
_NO_NORMAL_FORM = "this is no path in its normal form: leave out what it doesn't need, as in a/b.pdf"
_NO_NAME = "no file can have this name there ({why})"
_LOCK_FILE_NAME = "lock"

_STALE_SHARD_SECONDS = 24 * 3600.0
"""Seconds without a change after which a part that nobody has locked is taken away, whosever it is.

Its PDFs are of no use to anybody: a job that ended goes on without them, and what the service stores expires earlier.
"""


class Target(Protocol):
    """Takes signed PDFs."""

    def staging_dir(self, shard: str, lease_number: int = 0) -> AbstractAsyncContextManager[Path]:
        """A folder on this machine in which PDFs are while they come. It has none at first.

        part: of many jobs and processes that sign into one target, each has another one, which can be the name of a
        folder. fence: who has a later lease of the part takes away what an earlier one has in the making, so that
        that can't be kept any more.
        """
        ...

    def check(self, name: str) -> None:
        """Refuse a name that there can't be, before anything is signed. Raises InvalidArgumentError."""
        ...

    async def has(self, name: str) -> bool:
        """Whether there is something of this name, which is not to be replaced.

        Raises InvalidArgumentError where there can be no such name, and OSError.
        """
        ...

    async def contains(self, name: str, sha256: str) -> bool:
        """Whether the file of this name is the one of this SHA-256, in hex. Raises OSError."""
        ...

    async def publish(self, name: str, file: Path) -> None:
        """Have this file under the name before it returns. The file is taken over.

        One of the same bytes that is there is this one: a run kept it that ended before it had noted that. Raises
        FileExistsError where it is another, InvalidArgumentError where there can be no such name, and OSError.
        """
        ...


@scrub_class
class TargetFolder:
    """A folder of signed PDFs, which is made where its parent is there; folders in it are made as names ask for them.

    overwrite: replace files that are there already. Raises ConfigurationError where it can't be made.
    """

    def __init__(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        self._path = resolve_path(path, "path")
        self._overwrite = overwrite
        self.place = f"file://{self._path.as_posix()}/"
        """Where it is, as a URL."""
        try:
            self._path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            why = explain_os_error(error)
            raise ConfigurationError(f"the target's folder can't be made ({why}): name one that can") from None

    @contextlib.asynccontextmanager
    async def staging_dir(self, shard: str, lease_number: int = 0) -> AsyncGenerator[Path]:
        """On the folder's own file system, so that a finished file only has to be given its name.

        Parts that jobs left which ended in the middle, and whose journals are gone, are taken away after a day.
        """
        top = self._path / STAGING_DIR
        folder = top / f"{shard}.{lease_number}"

        def undo(lock: files.FileLock | None) -> None:
            """Unlock the folder, but leave it: the next run may have made it again, and otherwise removes it."""
            if lock is not None:
                lock.release()

        lock = await _finish_or_undo(asyncio.to_thread(_recreate_dir, top, shard, lease_number), undo=undo)
        try:
            await asyncio.to_thread(_remove_stale_shards, top, folder, time.time())
            yield folder
        finally:
            if lock is not None:
                lock.release()
            await asyncio.to_thread(_remove_dir, top, folder)

    def check(self, name: str) -> None:
        """Refuse a name that leads out of the folder, or isn't in its normal form. Raises InvalidArgumentError."""
        validate_path(name)
        # Windows has paths that POSIX doesn't take for such.
        if os.name == "nt" and (Path(name).is_absolute() or Path(name).as_posix() != name):
            raise InvalidArgumentError(_NO_PATH, parameter="name")
        validate_encodable(name, sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())

    async def has(self, name: str) -> bool:
        """Whether there is a file, a folder or a link of this name, and it isn't to be replaced.

        Raises InvalidArgumentError where there can be no such name, and OSError.
        """
        try:
            with translate_name_errors():
                (self._path / name).lstat()  # a thread would take longer than the answer
        except FileNotFoundError:
            return False
        return not self._overwrite

    async def contains(self, name: str, sha256: str) -> bool:
        """Whether the file of this name is the one of this SHA-256, in hex. Raises OSError."""
        return await asyncio.to_thread(_has_digest, self._path / name, sha256)

    async def publish(self, name: str, file: Path) -> None:
        """Give the file its name, and have both on the disk.

        No file that appears meanwhile is replaced, but where the file system has no hard links. Raises FileExistsError
        where another has the name, InvalidArgumentError where there can be no such name, and OSError.
        """
        self.check(name)
        with translate_name_errors():
            is_there = await asyncio.to_thread(_publish_file, file, self._path, name, overwrite=self._overwrite)
        if not is_there:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def validate_path(name: str) -> None:
    """Refuse a name that is no path downwards, or one of several of the same place. Raises InvalidArgumentError."""
    parts = name.split("/")
    is_empty = {"", "."}.issuperset(parts)
    if is_empty or name.startswith("/") or not {"..", STAGING_DIR}.isdisjoint(parts) or "\0" in name:
        raise InvalidArgumentError(_NO_PATH, parameter="name")
    if not {"", "."}.isdisjoint(parts):
        raise InvalidArgumentError(_NO_NORMAL_FORM, parameter="name")


@contextlib.contextmanager
def translate_name_errors() -> Generator[None]:
    """Within it, what a system or a storage says of a name becomes InvalidArgumentError."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NAME_ERRNOS:
            raise
        raise InvalidArgumentError(_NO_NAME.format(why=explain_os_error(error)), parameter="name") from None


def validate_encodable(name: str, encoding: str = "utf-8", errors: str = "strict") -> None:
    """Refuse a name that can't be written in this encoding. Raises InvalidArgumentError."""
    try:
        name.encode(encoding, errors)
    except UnicodeEncodeError:  # which has the name in it
        pass
    else:
        return
    raise InvalidArgumentError(_NO_NAME.format(why="it is no text"), parameter="name")


async def _finish_or_undo(making: Coroutine[Any, Any, T], *, undo: Callable[[T], object]) -> T:
    """What is made in a thread. Who is cancelled meanwhile has it undone as soon as it is there."""
    task = asyncio.ensure_future(making)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(lambda made: None if made.cancelled() or made.exception() else undo(made.result()))
        raise


def _recreate_dir(top: Path, shard: str, lease_number: int) -> files.FileLock | None:
    """Make the folder of a part for this lease alone. Return its lock, None if the file system has no locks.

    A worker that was paused may come late: what a later lease has stays there.
    """
    folder = top / f"{shard}.{lease_number}"
    for attempt in itertools.count(1):
        try:
            for each in top.glob(f"{shard}.*"):
                if int(each.suffix[1:]) <= lease_number:
                    shutil.rmtree(each, ignore_errors=True)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return _lock_dir(folder)
        except FileNotFoundError:  # another process has just removed the one above, which was empty
            if attempt == _MAX_ATTEMPTS:
                raise
        except BlockingIOError:  # another process is just removing the folder, which nobody had locked
            if attempt == _MAX_ATTEMPTS:
                return None
    raise AssertionError("the attempts don't end by themselves")


def _lock_dir(folder: Path) -> files.FileLock | None:
    try:
        return files.lock_file(folder / _LOCK_FILE_NAME)
    except OSError as error:
        if error.errno not in _NO_LOCK_ERRNOS:
            raise
        return None


def _remove_stale_shards(top: Path, own: Path, now: float) -> None:
    """Remove parts that no job has locked and that have not changed for a day. What cannot be locked stays.

    A part that seems to have changed more than a day after now was written while the clock was ahead.
    """
    if sys.platform == "win32":
        return
    for shard in top.glob("*"):
        with contextlib.suppress(OSError):  # it is locked, has no lock, or another takes it away
            changed_at = max(each.lstat().st_mtime for each in (shard, *shard.iterdir()))
            if shard == own or abs(now - changed_at) <= _STALE_SHARD_SECONDS:
                continue
            lock = files.lock_file(shard / _LOCK_FILE_NAME, create=False)
            try:
                shutil.rmtree(shard, ignore_errors=True)
            finally:
                lock.release()


def _remove_dir(top: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # it isn't empty: others are at work
        top.rmdir()


def _publish_file(file: Path, root: Path, name: str, *, overwrite: bool) -> bool:
    """Whether it is there by now, under its name. Otherwise another is."""
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
    except PermissionError:  # this user has written none that he may not read
        return False
