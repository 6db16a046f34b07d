"""Where signed PDFs go: each appears whole, under its document's name, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path, PurePosixPath
from typing import Protocol

from directsuite.errors import ConfigurationError, InvalidArgumentError

WORKSHOP = ".directsuite"
"""What is in the making, in a target."""

_OF_THE_NAME = (errno.ENAMETOOLONG, errno.EILSEQ, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL)
_ATTEMPTS = 100
_NO_PATH = "this is no path below the target"


class Target(Protocol):
    """Takes signed PDFs."""

    def workshop(self, part: str, turn: int = 0) -> AbstractAsyncContextManager[Path]:
        """A folder on this machine in which PDFs are while they come. It is empty at first.

        part, turn: of many jobs and processes that sign into one target, each has another part, which can be the name
        of a folder; one that begins a later turn of it takes away what an earlier one has in the making, so that this
        can't keep it any more.
        """
        ...

    def check(self, name: str) -> None:
        """Refuse a name that there can't be, before anything is signed. Raises InvalidArgumentError."""
        ...

    async def keep(self, name: str, file: Path) -> None:
        """Have this file under the name, in the place of an earlier one, before it returns. The file is taken over.

        Raises InvalidArgumentError where there can be no such name, and OSError.
        """
        ...


class TargetFolder:
    """A folder of signed PDFs, which is made where its parent is there; folders in it are made as names ask for them.

    Raises ConfigurationError where it can't be made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).resolve()
        self.place = f"file://{self._path.as_posix()}/"
        """Where it is, as a URL."""
        try:
            self._path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            why = reason(error)
            raise ConfigurationError(f"the target's folder can't be made ({why}): name one that can") from None

    @contextlib.asynccontextmanager
    async def workshop(self, part: str, turn: int = 0) -> AsyncGenerator[Path]:
        """On the folder's own file system, so that a finished file only has to be given its name."""
        top = self._path / WORKSHOP
        folder = top / f"{part}.{turn}"
        await asyncio.to_thread(_made_anew, top, part, folder)
        try:
            yield folder
        finally:
            await asyncio.to_thread(_removed, top, folder)

    def check(self, name: str) -> None:
        """Refuse a name that leads out of the folder. Raises InvalidArgumentError."""
        refuse_outside(name)
        if Path(name).is_absolute():  # by the rules of this system
            raise InvalidArgumentError(_NO_PATH, parameter="name")

    async def keep(self, name: str, file: Path) -> None:
        """Give the file its name, and have both on the disk."""
        self.check(name)
        try:
            await asyncio.to_thread(_named, file, self._path, name)
        except OSError as error:
            if error.errno not in _OF_THE_NAME:
                raise
            why = reason(error)
        else:
            return
        raise InvalidArgumentError(f"no file can have this name there ({why})", parameter="name")


def reason(error: OSError) -> str:
    """Why something can't be read or written, without its name."""
    kind: str = getattr(error, "kind", type(error).__name__)
    return kind if error.errno is None else os.strerror(error.errno)


def refuse_outside(name: str) -> None:
    """Refuse a name that is no path downwards. Raises InvalidArgumentError."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or parts[0] == WORKSHOP or "\0" in name:
        raise InvalidArgumentError(_NO_PATH, parameter="name")


def _made_anew(top: Path, part: str, folder: Path) -> None:
    for attempt in itertools.count(1):
        try:
            for each in top.glob(f"{part}.*"):
                shutil.rmtree(each, ignore_errors=True)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileNotFoundError:  # another process has just removed the one above, which was empty
            if attempt == _ATTEMPTS:
                raise
        else:
            return


def _removed(top: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # it isn't empty: others are at work
        top.rmdir()


def _named(file: Path, root: Path, name: str) -> None:
    place = root.joinpath(name)
    missing = [each for each in place.parents if each.is_relative_to(root) and not each.exists()]
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.replace(place)
    for folder in [place.parent, *(each.parent for each in missing)]:
        _have_on_disk(folder)


def _have_on_disk(folder: Path) -> None:
    if os.name == "nt":
        return  # a folder can't be opened there
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
