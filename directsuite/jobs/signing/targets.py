"""Where signed PDFs go: each appears whole, under its document's name, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from directsuite.errors import ConfigurationError, InvalidArgumentError

_WORKSHOP = ".directsuite"


class Target(Protocol):
    """Takes signed PDFs."""

    def workshop(self) -> AbstractAsyncContextManager[Path]:
        """A folder on this machine in which PDFs are while they come. It is empty at first."""
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
        try:
            self._path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno is not None else type(error).__name__
            raise ConfigurationError(f"the target's folder can't be made ({reason}): name one that can") from None

    @contextlib.asynccontextmanager
    async def workshop(self) -> AsyncGenerator[Path]:
        """On the folder's own file system, so that a finished file only has to be given its name."""
        folder = self._path / _WORKSHOP
        await asyncio.to_thread(_emptied, folder)
        try:
            yield folder
        finally:
            await asyncio.to_thread(_removed, folder)

    async def keep(self, name: str, file: Path) -> None:
        """Give the file its name, and have both on the disk."""
        await asyncio.to_thread(_named, file, self._path, name)


def _emptied(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    for file in folder.iterdir():
        file.unlink(missing_ok=True)


def _removed(folder: Path) -> None:
    with contextlib.suppress(OSError):
        _emptied(folder)
        folder.rmdir()


def _named(file: Path, root: Path, name: str) -> None:
    place = root.joinpath(name)
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or parts[0] == _WORKSHOP or "\0" in name:
        raise InvalidArgumentError("this is no path below the target's folder", parameter="name")
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
