"""The PDFs that the sources are, one by one: a folder may have a million.

A file is known by its name, a file of a folder by its path below that folder. Files come first, then folders; of two of
one name the first is signed.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from directsuite.cli.errors import RefusedError
from directsuite.core.failures import reason_of
from directsuite.jobs.signing.documents import WORKSHOP

_HEAD = 1024  # bytes in which a PDF says that it is one
_ENDING = ".pdf"
_NO_FILE = "is no file"
_TWO_NAMES = "a source lies within another, and would be signed under two names: leave one out"
_TAKEN = "another source has one of the same name: rename one, or give one another --output"


@attrs.frozen(repr=False)
class Candidate:
    """A file that may be signed. name: at the output. problem: why it is not."""

    name: str
    file: Path
    problem: str | None = None


class Sources:
    """Of one command. output: a folder that is passed over where it is within a source.

    Raises RefusedError where signed files would take the places of the sources themselves, or have two names.
    """

    def __init__(self, sources: Sequence[Path], *, output: Path, recursive: bool) -> None:
        self._output = output.resolve()
        self._recursive = recursive
        self._files = dict[str, Path]()
        self._folders = dict[Path, Path]()  # by what they are, without links
        self._taken = list[Candidate]()
        self.problems = dict[int, str]()
        """Why a source is none, by its number from 1."""
        for number, source in enumerate(sources, 1):
            problem = _problem_of_source(source)
            if problem is not None:
                self.problems[number] = problem
            elif source.is_dir():
                self._folders.setdefault(source.resolve(), source)
            elif (earlier := self._files.setdefault(source.name, source)) is not source and not _same(earlier, source):
                self._taken.append(Candidate(source.name, source, _TAKEN))
        files = {name: each.resolve() for name, each in self._files.items()}
        places = {*self._folders, *(each.parent for each in files.values())}
        if recursive and any(not self._folders.keys().isdisjoint(each.parents) for each in places):
            raise RefusedError(_TWO_NAMES)
        if any(each.parent in self._folders and each.name != name for name, each in files.items()):
            raise RefusedError(_TWO_NAMES)
        if self._output in places:
            raise RefusedError("--output is the folder of the PDFs themselves: name another")

    def __bool__(self) -> bool:
        return bool(self._files or self._folders)

    def __iter__(self) -> Iterator[Candidate]:
        for name, file in self._files.items():
            yield _candidate(name, file)
        yield from self._taken
        for folder in self._folders.values():
            for file, problem in self._listed(folder):
                name = file.relative_to(folder).as_posix()
                earlier = self._earlier(name, folder)
                if problem is not None:
                    yield Candidate(name, file, problem)
                elif earlier is None:
                    yield _candidate(name, file)
                elif not _same(earlier, file):
                    yield Candidate(name, file, _TAKEN)

    def count(self) -> int:
        """How many there are, about."""
        listed = (self._listed(folder) for folder in self._folders.values())
        return len(self._files) + len(self._taken) + sum(1 for each in listed for _ in each)

    def those_of(self, names: Sequence[str]) -> set[str]:
        """The names that the sources have."""
        return {name for name in names if self._earlier(name, None) is not None}

    def _earlier(self, name: str, before: Path | None) -> Path | None:
        """The file of this name that is signed, if it stands before this folder, or anywhere."""
        if name in self._files:
            return self._files[name]
        if name.lower().endswith(_ENDING):
            for folder in itertools.takewhile(lambda each: each is not before, self._folders.values()):
                if _is_file(folder / name):
                    return folder / name
        return None

    def _listed(self, folder: Path) -> Iterator[tuple[Path, str | None]]:
        """As the system lists them, and folders with why they can't be listed; links to folders aren't followed."""
        below = [folder]
        while below:
            listed = below.pop()
            try:
                with os.scandir(listed) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            is_source = entry.name != WORKSHOP and Path(entry.path).resolve() != self._output
                            if self._recursive and is_source:
                                below.append(Path(entry.path))
                        elif entry.name.lower().endswith(_ENDING):
                            yield Path(entry.path), None if _is_file(entry) else f"it {_NO_FILE}"
            except OSError as error:
                yield listed, f"the folder can't be read ({reason_of(error)})"


def _is_file(entry: os.DirEntry[str] | Path) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link that leads to itself, or it is in a folder that this user may not look into
        return False


def _candidate(name: str, file: Path) -> Candidate:
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEAD)
    except OSError as error:
        return Candidate(name, file, f"it can't be read ({reason_of(error)})")
    return Candidate(name, file, None if b"%PDF-" in head else "it is no PDF")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # it has gone meanwhile
        return False


def _problem_of_source(source: Path) -> str | None:
    try:
        if source.is_dir():
            with os.scandir(source):
                return None
        if not stat.S_ISREG(source.stat().st_mode):  # to open a pipe is to wait for somebody who writes
            return _NO_FILE
        with source.open("rb") as opened:
            return None if b"%PDF-" in opened.read(_HEAD) else "is no PDF"
    except OSError as error:
        return f"can't be read ({reason_of(error)})"
