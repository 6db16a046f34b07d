"""The PDFs that `directsuite sign` signs: those of the sources, one by one, without those that are not to be signed.

    Sources ──► Candidate ──► Admission ──► Verdict: signed, passed over or refused, and why

A folder may have a million. A file is known by its name, a file of a folder by its path below that folder. Files come
first, then folders; of two of one name the first is signed.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import os
import stat
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from directsuite.cli.errors import RefusedError, quoted
from directsuite.cli.process import say
from directsuite.core.failures import reason_of
from directsuite.jobs.signing import Entry, Journal, Pdf, State
from directsuite.jobs.signing.documents import CUT_OFF, LAST, STAGING, examined
from directsuite.jobs.signing.workflow import FieldProblem

_AT_A_TIME = 100
_ENDING = ".pdf"
_NO_FILE = "is no file"
_NO_PDF = "is no PDF"
_EMPTY = "is empty: get a whole copy"
_TWO_NAMES = "a source lies within another, and would be signed under two names: leave one out"
_TAKEN = "another source has one of the same name: rename one, or give one another --output"
_EXISTS = "the output has a file of this name: name another --output, or give --overwrite to replace it"
_OTHER = (
    "another document of this name was signed into the output: name another --output, or give --overwrite to replace "
    "it; those that are unchanged stay as they are"
)
_NOT_WRITABLE = "this user may not write to its folder in the output: see to that, or name another --output"
_FIELDS = (
    "; `directsuite sign info` lists the fields that there are, and --widget makes one: then name another --output if "
    "this one has signed PDFs"
)
_GONE = "it was signed, and the signed file is gone: give --overwrite to sign it again"


@attrs.frozen(repr=False)
class Candidate:
    """A file that may be signed."""

    name: str
    """Its name at the output."""
    file: Path
    problem: str | None = None
    """Why it can't be signed."""

    @property
    def shown(self) -> str:
        """What people know it by: its name, or its path where another one has that name."""
        return str(self.file) if self.problem == _TAKEN else self.name


class Sources:
    """The candidates of one command. output: a folder that is passed over where it is within a source.

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
        self.skipped = set[str]()
        """Paths of folders within the sources that were not looked into."""
        for number, source in enumerate(sources, 1):
            problem = problem_of_source(source)
            if problem is not None:
                self.problems[number] = problem
            elif source.is_dir():
                self._folders.setdefault(source.resolve(), source)
            elif (earlier := self._files.setdefault(source.name, source)) is not source and not same_file(
                earlier, source
            ):
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
            for file, problem in self._pdfs_in(folder):
                name = file.relative_to(folder).as_posix()
                earlier = self._earlier(name, folder)
                if problem is not None:
                    yield Candidate(name, file, problem)
                elif earlier is None:
                    yield _candidate(name, file)
                elif not same_file(earlier, file):
                    yield Candidate(name, file, _TAKEN)

    def count(self) -> int:
        """How many there are, about."""
        listed = (self._pdfs_in(folder) for folder in self._folders.values())
        return len(self._files) + len(self._taken) + sum(1 for each in listed for _ in each)

    def those_of(self, names: Sequence[str]) -> set[str]:
        """Those of the names that the sources have."""
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

    def _pdfs_in(self, folder: Path) -> Iterator[tuple[Path, str | None]]:
        return pdfs_in(folder, recursive=self._recursive, without=self._output, skipped=self.skipped)


def pdfs_in(
    folder: Path, *, recursive: bool, skipped: set[str], without: Path | None = None
) -> Iterator[tuple[Path, str | None]]:
    """Files in the system's order, and folders that can't be listed, each with its problem. No link is followed.

    without: a folder that is passed over. skipped: gets the paths of folders that are not looked into.
    """
    below = [folder]
    while below:
        listed = below.pop()
        try:
            with os.scandir(listed) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name == STAGING or Path(entry.path).resolve() == without:
                            continue
                        if recursive:
                            below.append(Path(entry.path))
                        else:
                            skipped.add(entry.path)
                    elif entry.name.lower().endswith(_ENDING):
                        yield Path(entry.path), None if _is_file(entry) else f"it {_NO_FILE}"
        except OSError as error:
            yield listed, f"the folder can't be read ({reason_of(error)})"


class Decision(enum.Enum):
    """What becomes of a candidate.

    in the journal   at the output    it is
    no               no               signed
    no               yes              refused, unless --overwrite says to replace it
    begun            whatever         gone on with
    done             yes              passed over; another document than was signed is refused, unless --overwrite
    done             no               refused, unless --overwrite says to sign it again
    whatever         can't be known   refused
    failed           whatever         told, and signed with --again
    """

    SIGN = enum.auto()
    SIGN_AGAIN = enum.auto()
    """It is signed once the journal has forgotten that it was."""
    SIGNED_BEFORE = enum.auto()
    REFUSED = enum.auto()
    FAILED = enum.auto()
    """It failed before, and that is not tried again without --again."""


_WANTED = (Decision.SIGN, Decision.SIGN_AGAIN)


@attrs.frozen(repr=False)
class Verdict:
    """What becomes of a candidate, and why it is refused or has failed."""

    candidate: Candidate
    decision: Decision
    why: str | None = None

    @property
    def is_wanted(self) -> bool:
        """Return True if the candidate is to be signed."""
        return self.decision in _WANTED


class Admission(AsyncIterable[Pdf]):
    """The PDFs to sign, in the form of a job's source. journal: None where there is none yet."""

    def __init__(
        self, sources: Sources, journal: Journal | None, *, output: Path, again: bool, overwrite: bool
    ) -> None:
        self.counts = Counter[Decision]()
        """How many candidates there were so far, by what became of them."""
        self.refused = list[Verdict]()
        """On those that aren't signed, and why."""
        self._sources = sources
        self._journal = journal
        self._output = output
        self._again = again
        self._overwrite = overwrite

    @property
    def wanted(self) -> int:
        """How many are to be signed."""
        return sum(self.counts[each] for each in _WANTED)

    async def __aiter__(self) -> AsyncGenerator[Pdf]:
        async for verdict in self.verdicts():
            if not verdict.is_wanted:
                continue
            if verdict.decision is Decision.SIGN_AGAIN and self._journal is not None:
                await _renew(self._journal, verdict.candidate.name)
            yield Pdf(verdict.candidate.name, verdict.candidate.file)

    async def verdicts(self) -> AsyncGenerator[Verdict]:
        """The verdicts on all candidates."""
        self.counts.clear()
        self.refused.clear()
        coming = iter(self._sources)
        while some := await asyncio.to_thread(_next, coming):
            entries: Mapping[str, Entry] = {}
            if self._journal is not None:
                entries = await self._journal.known([each.name for each in some])
            for verdict in await asyncio.to_thread(self._verdicts, some, entries):
                self.counts[verdict.decision] += 1
                if verdict.decision is Decision.REFUSED:
                    self.refused.append(verdict)
                yield verdict

    def _verdicts(self, some: Sequence[Candidate], entries: Mapping[str, Entry]) -> list[Verdict]:
        return [Verdict(each, *self._decide(each, entries.get(each.name))) for each in some]

    def _decide(self, candidate: Candidate, entry: Entry | None) -> tuple[Decision, str | None]:
        is_signed = entry is not None and entry.state.is_signed
        if candidate.problem is not None:
            return Decision.REFUSED, candidate.problem
        try:
            is_there = _is_there(self._output / candidate.name)
        except OSError as error:
            return Decision.REFUSED, f"its place in the output can't be looked at ({reason_of(error)})"
        if entry is not None and is_signed:
            return self._decide_on_signed(candidate, entry, is_there=is_there)
        if entry is not None and entry.state is State.FAILED and not self._again:
            return Decision.FAILED, problem_of(entry)
        untouched = entry is None or entry.state is State.FAILED or (entry.state is State.NEW and not entry.tries)
        if untouched and is_there and not self._overwrite:
            return Decision.REFUSED, _EXISTS
        return (Decision.SIGN, None) if self._may_write(candidate.name) else (Decision.REFUSED, _NOT_WRITABLE)

    def _decide_on_signed(self, candidate: Candidate, entry: Entry, *, is_there: bool) -> tuple[Decision, str | None]:
        try:
            is_same = examined(candidate.file).sha256 == entry.source_sha
        except OSError as error:
            return Decision.REFUSED, f"it can't be read ({reason_of(error)})"
        if is_same and is_there:
            return Decision.SIGNED_BEFORE if entry.state is State.DONE else Decision.SIGN, None
        if self._overwrite:
            return Decision.SIGN_AGAIN, None
        return Decision.REFUSED, _GONE if is_same else _OTHER

    def _may_write(self, name: str) -> bool:
        """Return True if this user may write to the file's folder in the output, or make it."""
        for folder in (self._output / name).parents:
            if folder == self._output:
                return True
            if folder.is_dir():
                return os.access(folder, os.W_OK | os.X_OK)
        return True


async def _renew(journal: Journal, name: str) -> None:
    """Have a document that was signed signed again; what the service still has of it is deleted with the rest."""
    [entry] = await journal.entries([name])
    if entry.identifier is not None:
        entry = await journal.abandon(entry, at=time.time(), then=State.DONE)
    await journal.put(entry.renewed())


def _next(coming: Iterator[Candidate]) -> list[Candidate]:
    return list(itertools.islice(coming, _AT_A_TIME))


def _is_there(place: Path) -> bool:
    """Return True if there is a file. Raises OSError where nobody knows."""
    try:
        place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _is_file(entry: os.DirEntry[str] | Path) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link that leads to itself, or it is in a folder that this user may not look into
        return False


def _candidate(name: str, file: Path) -> Candidate:
    try:
        problem = _problem_of_content(file)
        return Candidate(name, file, None if problem is None else f"it {problem}")
    except OSError as error:
        return Candidate(name, file, f"it can't be read ({reason_of(error)})")


def problem_of(failed: Entry) -> str:
    """Why a document failed, with the service's own words, or what else tells more."""
    more = _FIELDS if failed.problem == FieldProblem.MISSING.of_it else quoted(failed.service_message)
    return f"{failed.problem or 'it failed'}{more}"


def problem_of_source(source: Path) -> str | None:
    """Why a file or folder can't be taken, without a subject."""
    try:
        if source.is_dir():
            with os.scandir(source):
                return None
        if not stat.S_ISREG(source.stat().st_mode):  # to open a pipe is to wait for somebody who writes
            return _NO_FILE
        return _problem_of_content(source)
    except OSError as error:
        return f"can't be read, {reason_of(error)}"


def _problem_of_content(file: Path) -> str | None:
    with file.open("rb") as opened:
        if b"%PDF-" not in (first := opened.read(LAST)):
            return _NO_PDF if first else _EMPTY
        opened.seek(max(0, opened.seek(0, os.SEEK_END) - LAST))
        return None if b"%%EOF" in opened.read() else CUT_OFF


def tell_skipped(folders: Collection[str], where: str = "") -> None:
    """Say how many folders were not looked into, if there were any."""
    if folders:
        say(f"{len(folders)} folder{'s' * (len(folders) != 1)}{where} not looked into: --recursive includes them")


def no_pdf(*, recursive: bool) -> str:
    """The sentence about sources that have nothing to take."""
    deeper = "" if recursive else "; --recursive includes their subfolders"
    return f"there is no PDF in the folders{deeper}"


def is_named_as_pdf(output: Path) -> bool:
    """Return True for an --output that is meant as a file: its name is that of a PDF, and no folder has it."""
    return output.suffix.lower() == _ENDING and not output.is_dir()


def same_file(one: Path, other: Path) -> bool:
    """Return True if both paths lead to one file that is there."""
    try:
        return one.samefile(other)
    except OSError:  # one isn't there, or has gone meanwhile
        return False
