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

from directsuite.cli.errors import UsageError, quote_message
from directsuite.cli.process import echo_err
from directsuite.core.failures import explain_os_error
from directsuite.jobs.signing import DocumentState, Pdf, SigningEntry, SigningJournal
from directsuite.jobs.signing.documents import CUT_OFF_PROBLEM, PDF_MARKER_BYTES, STAGING_DIR, inspect_pdf
from directsuite.jobs.signing.workflow import FieldProblem

_CANDIDATE_BATCH_SIZE = 100
_PDF_SUFFIX = ".pdf"
_NOT_A_FILE = "is no file"
_NOT_A_PDF = "is no PDF"
_EMPTY_FILE = "is empty: get a whole copy"
_OVERLAPPING_SOURCES = "a source lies within another, and would be signed under two names: leave one out"
_NAME_CONFLICT = "another source has one of the same name: rename one, or give one another --output"
_OUTPUT_EXISTS = "the output has a file of this name: name another --output, or give --overwrite to replace it"
_OTHER_DOCUMENT_SIGNED = (
    "another document of this name was signed into the output: name another --output, or give --overwrite to replace "
    "it; those that are unchanged stay as they are"
)
_NOT_WRITABLE = "this user may not write to its folder in the output: see to that, or name another --output"
_HINT_FIELDS = (
    "; `directsuite sign info` lists the fields that there are, and --widget makes one: then name another --output if "
    "this one has signed PDFs"
)
_SIGNED_FILE_MISSING = "it was signed, and the signed file is gone: give --overwrite to sign it again"


@attrs.frozen(repr=False)
class Candidate:
    """A file that may be signed."""

    name: str
    """Its name at the output."""
    file: Path
    problem: str | None = None
    """Why it can't be signed."""

    @property
    def display_name(self) -> str:
        """What people know it by: its name, or its path where another one has that name."""
        return str(self.file) if self.problem == _NAME_CONFLICT else self.name


class PdfSources:
    """The candidates of one command. output: a folder that is passed over where it is within a source.

    Raises RefusedError where signed files would take the places of the sources themselves, or have two names.
    """

    def __init__(self, sources: Sequence[Path], *, output: Path, recursive: bool) -> None:
        self._output = output.resolve()
        self._recursive = recursive
        self._files = dict[str, Path]()
        self._folders = dict[Path, Path]()  # by what they are, without links
        self._name_conflicts = list[Candidate]()
        self.problems = dict[int, str]()
        """Why a source is none, by its number from 1."""
        self.skipped = set[str]()
        """Paths of folders within the sources that were not looked into."""
        for number, source in enumerate(sources, 1):
            problem = find_source_problem(source)
            if problem is not None:
                self.problems[number] = problem
            elif source.is_dir():
                self._folders.setdefault(source.resolve(), source)
            elif (earlier := self._files.setdefault(source.name, source)) is not source and not is_same_file(
                earlier, source
            ):
                self._name_conflicts.append(Candidate(source.name, source, _NAME_CONFLICT))
        files = {name: each.resolve() for name, each in self._files.items()}
        places = {*self._folders, *(each.parent for each in files.values())}
        if recursive and any(not self._folders.keys().isdisjoint(each.parents) for each in places):
            raise UsageError(_OVERLAPPING_SOURCES)
        if any(each.parent in self._folders and each.name != name for name, each in files.items()):
            raise UsageError(_OVERLAPPING_SOURCES)
        if self._output in places:
            raise UsageError("--output is the folder of the PDFs themselves: name another")

    def __bool__(self) -> bool:
        return bool(self._files or self._folders)

    def __iter__(self) -> Iterator[Candidate]:
        for name, file in self._files.items():
            yield _make_candidate(name, file)
        yield from self._name_conflicts
        for folder in self._folders.values():
            for file, problem in self._iter_pdfs(folder):
                name = file.relative_to(folder).as_posix()
                earlier = self._find_earlier(name, folder)
                if problem is not None:
                    yield Candidate(name, file, problem)
                elif earlier is None:
                    yield _make_candidate(name, file)
                elif not is_same_file(earlier, file):
                    yield Candidate(name, file, _NAME_CONFLICT)

    def count(self) -> int:
        """How many there are, about."""
        listed = (self._iter_pdfs(folder) for folder in self._folders.values())
        return len(self._files) + len(self._name_conflicts) + sum(1 for each in listed for _ in each)

    def matching(self, names: Sequence[str]) -> set[str]:
        """Those of the names that the sources have."""
        return {name for name in names if self._find_earlier(name, None) is not None}

    def _find_earlier(self, name: str, before_folder: Path | None) -> Path | None:
        """The file of this name that is signed, if it stands before this folder, or anywhere."""
        if name in self._files:
            return self._files[name]
        if name.lower().endswith(_PDF_SUFFIX):
            for folder in itertools.takewhile(lambda each: each is not before_folder, self._folders.values()):
                if _is_file(folder / name):
                    return folder / name
        return None

    def _iter_pdfs(self, folder: Path) -> Iterator[tuple[Path, str | None]]:
        return iter_pdfs(folder, recursive=self._recursive, excluded=self._output, skipped=self.skipped)


def iter_pdfs(
    folder: Path, *, recursive: bool, skipped: set[str], excluded: Path | None = None
) -> Iterator[tuple[Path, str | None]]:
    """Files in the system's order, and folders that can't be listed, each with its problem. No link is followed.

    without: a folder that is passed over. skipped: gets the paths of folders that are not looked into.
    """
    pending_folders = [folder]
    while pending_folders:
        current_folder = pending_folders.pop()
        try:
            with os.scandir(current_folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name == STAGING_DIR or Path(entry.path).resolve() == excluded:
                            continue
                        if recursive:
                            pending_folders.append(Path(entry.path))
                        else:
                            skipped.add(entry.path)
                    elif entry.name.lower().endswith(_PDF_SUFFIX):
                        yield Path(entry.path), None if _is_file(entry) else f"it {_NOT_A_FILE}"
        except OSError as error:
            yield current_folder, f"the folder can't be read ({explain_os_error(error)})"


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
    REJECTED = enum.auto()
    FAILED = enum.auto()
    """It failed before, and that is not tried again without --again."""


_SIGNING_DECISIONS = (Decision.SIGN, Decision.SIGN_AGAIN)


@attrs.frozen(repr=False)
class CandidateVerdict:
    """What becomes of a candidate, and why it is refused or has failed."""

    candidate: Candidate
    decision: Decision
    reason: str | None = None

    @property
    def is_wanted(self) -> bool:
        """Return True if the candidate is to be signed."""
        return self.decision in _SIGNING_DECISIONS


class Admission(AsyncIterable[Pdf]):
    """The PDFs to sign, in the form of a job's source. journal: None where there is none yet."""

    def __init__(
        self, sources: PdfSources, journal: SigningJournal | None, *, output: Path, again: bool, overwrite: bool
    ) -> None:
        self.counts = Counter[Decision]()
        """How many candidates there were so far, by what became of them."""
        self.rejected = list[CandidateVerdict]()
        """On those that aren't signed, and why."""
        self._sources = sources
        self._journal = journal
        self._output = output
        self._again = again
        self._overwrite = overwrite

    @property
    def wanted_count(self) -> int:
        """How many are to be signed."""
        return sum(self.counts[each] for each in _SIGNING_DECISIONS)

    async def __aiter__(self) -> AsyncGenerator[Pdf]:
        async for verdict in self.iter_verdicts():
            if not verdict.is_wanted:
                continue
            if verdict.decision is Decision.SIGN_AGAIN and self._journal is not None:
                await _reset_document(self._journal, verdict.candidate.name)
            yield Pdf(verdict.candidate.name, verdict.candidate.file)

    async def iter_verdicts(self) -> AsyncGenerator[CandidateVerdict]:
        """The verdicts on all candidates."""
        self.counts.clear()
        self.rejected.clear()
        candidates = iter(self._sources)
        while batch := await asyncio.to_thread(_take_batch, candidates):
            entries: Mapping[str, SigningEntry] = {}
            if self._journal is not None:
                entries = await self._journal.find_entries([each.name for each in batch])
            for verdict in await asyncio.to_thread(self._decide_batch, batch, entries):
                self.counts[verdict.decision] += 1
                if verdict.decision is Decision.REJECTED:
                    self.rejected.append(verdict)
                yield verdict

    def _decide_batch(self, batch: Sequence[Candidate], entries: Mapping[str, SigningEntry]) -> list[CandidateVerdict]:
        return [CandidateVerdict(each, *self._decide(each, entries.get(each.name))) for each in batch]

    def _decide(self, candidate: Candidate, entry: SigningEntry | None) -> tuple[Decision, str | None]:
        is_signed = entry is not None and entry.state.is_signed
        if candidate.problem is not None:
            return Decision.REJECTED, candidate.problem
        try:
            is_present = _is_present(self._output / candidate.name)
        except OSError as error:
            return Decision.REJECTED, f"its place in the output can't be looked at ({explain_os_error(error)})"
        if entry is not None and is_signed:
            return self._decide_on_signed(candidate, entry, is_present=is_present)
        if entry is not None and entry.state is DocumentState.FAILED and not self._again:
            return Decision.FAILED, describe_failure(entry)
        untouched = (
            entry is None
            or entry.state is DocumentState.FAILED
            or (entry.state is DocumentState.NEW and not entry.tries)
        )
        if untouched and is_present and not self._overwrite:
            return Decision.REJECTED, _OUTPUT_EXISTS
        return (Decision.SIGN, None) if self._may_write(candidate.name) else (Decision.REJECTED, _NOT_WRITABLE)

    def _decide_on_signed(
        self, candidate: Candidate, entry: SigningEntry, *, is_present: bool
    ) -> tuple[Decision, str | None]:
        try:
            is_same = inspect_pdf(candidate.file).sha256 == entry.source_sha
        except OSError as error:
            return Decision.REJECTED, f"it can't be read ({explain_os_error(error)})"
        if is_same and is_present:
            return Decision.SIGNED_BEFORE if entry.state is DocumentState.DONE else Decision.SIGN, None
        if self._overwrite:
            return Decision.SIGN_AGAIN, None
        return Decision.REJECTED, _SIGNED_FILE_MISSING if is_same else _OTHER_DOCUMENT_SIGNED

    def _may_write(self, name: str) -> bool:
        """Return True if this user may write to the file's folder in the output, or make it."""
        for folder in (self._output / name).parents:
            if folder == self._output:
                return True
            if folder.is_dir():
                return os.access(folder, os.W_OK | os.X_OK)
        return True


async def _reset_document(journal: SigningJournal, name: str) -> None:
    """Have a document that was signed signed again; what the service still has of it is deleted with the rest."""
    [entry] = await journal.entries([name])
    if entry.identifier is not None:
        entry = await journal.abandon(entry, at=time.time(), then=DocumentState.DONE)
    await journal.put(entry.reset())


def _take_batch(candidates: Iterator[Candidate]) -> list[Candidate]:
    return list(itertools.islice(candidates, _CANDIDATE_BATCH_SIZE))


def _is_present(place: Path) -> bool:
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


def _make_candidate(name: str, file: Path) -> Candidate:
    try:
        problem = _find_content_problem(file)
        return Candidate(name, file, None if problem is None else f"it {problem}")
    except OSError as error:
        return Candidate(name, file, f"it can't be read ({explain_os_error(error)})")


def describe_failure(entry: SigningEntry) -> str:
    """Why a document failed, with the service's own words, or what else tells more."""
    details = (
        _HINT_FIELDS if entry.problem == FieldProblem.MISSING.journal_text else quote_message(entry.service_message)
    )
    return f"{entry.problem or 'it failed'}{details}"


def find_source_problem(source: Path) -> str | None:
    """Why a file or folder can't be taken, without a subject."""
    try:
        if source.is_dir():
            with os.scandir(source):
                return None
        if not stat.S_ISREG(source.stat().st_mode):  # to open a pipe is to wait for somebody who writes
            return _NOT_A_FILE
        return _find_content_problem(source)
    except OSError as error:
        return f"can't be read, {explain_os_error(error)}"


def _find_content_problem(file: Path) -> str | None:
    with file.open("rb") as opened:
        if b"%PDF-" not in (first := opened.read(PDF_MARKER_BYTES)):
            return _NOT_A_PDF if first else _EMPTY_FILE
        opened.seek(max(0, opened.seek(0, os.SEEK_END) - PDF_MARKER_BYTES))
        return None if b"%%EOF" in opened.read() else CUT_OFF_PROBLEM


def report_skipped(folders: Collection[str], location: str = "") -> None:
    """Say how many folders were not looked into, if there were any."""
    if folders:
        echo_err(
            f"{len(folders)} folder{'s' * (len(folders) != 1)}{location} not looked into: --recursive includes them"
        )


def describe_no_pdf(*, recursive: bool) -> str:
    """The sentence about sources that have nothing to take."""
    deeper = "" if recursive else "; --recursive includes their subfolders"
    return f"there is no PDF in the folders{deeper}"


def is_named_as_pdf(output: Path) -> bool:
    """Return True for an --output that is meant as a file: its name is that of a PDF, and no folder has it."""
    return output.suffix.lower() == _PDF_SUFFIX and not output.is_dir()


def is_same_file(one: Path, other: Path) -> bool:
    """Return True if both paths lead to one file that is there."""
    try:
        return one.samefile(other)
    except OSError:  # one isn't there, or has gone meanwhile
        return False
