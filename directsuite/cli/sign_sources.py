"""Find the PDFs that `directsuite sign` has to sign.

    PdfSources ──► Candidate ──► Admission ──► CandidateVerdict: sign, skip or reject, with the reason

A candidate's name is the file's name, or its path below the source folder. Files come first, then folders. If two have
the same name, only the first is signed. A folder may contain a million files.
"""

from __future__ import annotations

import enum
import itertools
import os
import stat
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from directsuite.cli.errors import UsageError, quote_message, with_value
from directsuite.cli.output import format_count
from directsuite.cli.process import echo_err
from directsuite.core.files import explain_os_error, run_in_thread
from directsuite.jobs.signing import DocumentState, Pdf, SigningEntry, SigningJournal
from directsuite.jobs.signing.documents import PDF_MARKER_BYTES, STAGING_DIR, inspect_pdf
from directsuite.jobs.signing.workflow import DocumentProblem

_CANDIDATE_BATCH_SIZE = 100
_PDF_SUFFIX = ".pdf"
_NOT_A_FILE = "is not a file"
_NOT_A_PDF = "is not a PDF"
_EMPTY_FILE = "is empty; get a complete copy"
_OVERLAPPING_SOURCES = "One source is inside another, and its PDFs would be signed under two names. Omit one of them."
_NAME_CONFLICT = "another source has a PDF with the same name; rename one, or sign it into a different --output"
_OUTPUT_EXISTS = "--output has a file with this name; name a different --output, or give --overwrite to replace it"
_OTHER_DOCUMENT_SIGNED = (
    "a different document with this name was signed into --output; name a different --output, or give --overwrite to "
    "replace it (unchanged documents are not signed again)"
)
_NOT_WRITABLE = (
    "this user can't write to the PDF's folder in --output; change the folder's permissions, or name a different "
    "--output"
)
_HINT_FIELDS = (
    "; `directsuite sign info` lists the fields of the PDF, and --widget creates a new one (then name a different "
    "--output if this one has signed PDFs)"
)
_SIGNED_FILE_MISSING = "it was signed, but the signed file no longer exists; give --overwrite to sign it again"


@attrs.frozen(repr=False)
class Candidate:
    """A file that may be signed."""

    name: str
    """The path of the signed file, relative to the output folder."""
    file: Path
    problem: str | None = None
    """The reason why it can't be signed, if any."""

    @property
    def display_name(self) -> str:
        """The name, or the path of the file if another candidate has the same name."""
        return str(self.file) if self.problem == _NAME_CONFLICT else self.name


class PdfSources:
    """The candidates of one command. output: the folder of the signed files, which is skipped inside a source.

    Raises UsageError if signed files would replace the sources, or if a PDF would be signed under two names.
    """

    def __init__(self, sources: Sequence[Path], *, output: Path, recursive: bool) -> None:
        self._output = output.resolve()
        self._recursive = recursive
        self._files = dict[str, Path]()
        self._folders = dict[Path, Path]()  # by the path without symbolic links
        self._name_conflicts = list[Candidate]()
        self.problems = dict[int, str]()
        """The problems of unusable sources, by the position of the source, from 1."""
        self.skipped = set[str]()
        """The paths of subfolders of the sources that were not read."""
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
            raise UsageError(
                f"{with_value('--output', output)} is the folder of the source PDFs. Name a different folder."
            )

    @property
    def folders(self) -> Collection[Path]:
        """The usable sources that are folders."""
        return self._folders.values()

    def __bool__(self) -> bool:
        return bool(self._files or self._folders)

    def __iter__(self) -> Iterator[Candidate]:
        for name, file in self._files.items():
            yield _make_candidate(name, file)
        yield from self._name_conflicts
        folder_by_name = dict[str, Path]()
        for number, folder in enumerate(self._folders.values(), start=1):
            for file, problem in self._iter_pdfs(folder):
                name = file.relative_to(folder).as_posix()
                earlier = folder_by_name[name] / name if name in folder_by_name else self._files.get(name)
                if problem is not None:
                    yield Candidate(name, file, problem)
                elif earlier is None:
                    if number < len(self._folders):  # nothing follows the last folder, which may be very large
                        folder_by_name[name] = folder
                    yield _make_candidate(name, file)
                elif not is_same_file(earlier, file):
                    yield Candidate(name, file, _NAME_CONFLICT)

    def count(self) -> int:
        """Return the number of candidates, or more if a folder and another source have the same file."""
        listed = (self._iter_pdfs(folder) for folder in self._folders.values())
        return len(self._files) + len(self._name_conflicts) + sum(1 for each in listed for _ in each)

    def _iter_pdfs(self, folder: Path) -> Iterator[tuple[Path, str | None]]:
        return iter_pdfs(folder, recursive=self._recursive, excluded=self._output, skipped=self.skipped)


def iter_pdfs(
    folder: Path, *, recursive: bool, skipped: set[str], excluded: Path | None = None
) -> Iterator[tuple[Path, str | None]]:
    """Yield the PDFs of a folder in any order, and folders that can't be read, each with its problem or None.

    Links to folders are not followed.
    skipped: receives the paths of subfolders that are not read because `recursive` is False. excluded: a folder to
    ignore.
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
                        yield Path(entry.path), None if os.path.isfile(entry) else f"it {_NOT_A_FILE}"  # noqa: PTH113
        except OSError as error:
            yield current_folder, f"the folder can't be read ({explain_os_error(error)})"


class Decision(enum.Enum):
    """The action for a candidate.

    in the journal   file in --output   action
    no               no                 sign
    no               yes                reject; with --overwrite, sign and replace the file
    started          any                continue
    signed           yes                skip, or finish if not done; if the source has changed, as in the next row
    signed           no                 reject; with --overwrite, sign again
    failed           any                report; with --again, as if it were not in the journal
    any              unknown            reject

    A candidate that can't be read, or a file that can't be written, is also rejected.
    """

    SIGN = enum.auto()
    SIGN_AGAIN = enum.auto()
    """The journal entry, which says that the document is signed, is reset first."""
    SIGNED_BEFORE = enum.auto()
    REJECTED = enum.auto()
    FAILED = enum.auto()
    """It failed before, and --again was not given."""


_SIGNING_DECISIONS = (Decision.SIGN, Decision.SIGN_AGAIN)


@attrs.frozen(repr=False)
class CandidateVerdict:
    """The decision about a candidate, with the reason if it is rejected or has failed."""

    candidate: Candidate
    decision: Decision
    reason: str | None = None

    @property
    def is_wanted(self) -> bool:
        """True if the candidate must be signed."""
        return self.decision in _SIGNING_DECISIONS


@attrs.define(repr=False, eq=False)
class Admission(AsyncIterable[Pdf]):
    """The source of a signing job: yields the PDFs that must be signed."""

    sources: PdfSources
    journal: SigningJournal
    output: Path
    again: bool
    overwrite: bool
    counts: Counter[Decision] = attrs.field(factory=Counter[Decision], init=False)
    """The number of candidates so far, by decision."""
    rejected: list[CandidateVerdict] = attrs.field(factory=list[CandidateVerdict], init=False)
    """The verdicts with the decision REJECTED so far."""
    failed_names: set[str] = attrs.field(factory=set[str], init=False)
    """The names of the candidates so far with the decision FAILED."""

    @property
    def wanted_count(self) -> int:
        """The number of candidates so far that must be signed."""
        return sum(self.counts[each] for each in _SIGNING_DECISIONS)

    async def __aiter__(self) -> AsyncGenerator[Pdf]:
        async for verdict in self.iter_verdicts():
            if not verdict.is_wanted:
                continue
            if verdict.decision is Decision.SIGN_AGAIN:
                [entry] = await self.journal.lease.entries([verdict.candidate.name])
                if entry.identifier is not None:  # the job deletes the stored document later
                    entry = await self.journal.lease.abandon(entry, at=time.time(), then=DocumentState.DONE)
                await self.journal.lease.put(entry.reset())
            yield Pdf(verdict.candidate.name, verdict.candidate.file)

    async def iter_verdicts(self) -> AsyncGenerator[CandidateVerdict]:
        """Yield the verdicts on all candidates. Reset the counts, `rejected` and `failed_names` first."""
        self.counts.clear()
        self.rejected.clear()
        self.failed_names.clear()
        candidates = iter(self.sources)
        while batch := await run_in_thread(lambda: list(itertools.islice(candidates, _CANDIDATE_BATCH_SIZE))):
            entries = await self.journal.lease.find_entries([each.name for each in batch])
            for verdict in await run_in_thread(self._decide_batch, batch, entries):
                self.counts[verdict.decision] += 1
                if verdict.decision is Decision.FAILED:
                    self.failed_names.add(verdict.candidate.name)
                if verdict.decision is Decision.REJECTED:
                    self.rejected.append(verdict)
                yield verdict

    def _decide_batch(self, batch: Sequence[Candidate], entries: Mapping[str, SigningEntry]) -> list[CandidateVerdict]:
        return [CandidateVerdict(each, *self._decide(each, entries.get(each.name))) for each in batch]

    def _decide(self, candidate: Candidate, entry: SigningEntry | None) -> tuple[Decision, str | None]:
        if candidate.problem is not None:
            return Decision.REJECTED, candidate.problem
        try:
            is_present = _is_present(self.output / candidate.name)
        except OSError as error:
            return Decision.REJECTED, f"its path in --output can't be checked ({explain_os_error(error)})"
        if entry is not None and entry.state.is_signed:
            return self._decide_on_signed(candidate, entry, is_present=is_present)
        if entry is not None and entry.state is DocumentState.FAILED and not self.again:
            return Decision.FAILED, describe_failure(entry)
        is_new = entry is None or (entry.state is DocumentState.NEW and not entry.tries)
        is_untouched = is_new or (entry is not None and entry.state is DocumentState.FAILED)
        if is_untouched and is_present and not self.overwrite:
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
        if self.overwrite:
            return Decision.SIGN_AGAIN, None
        return Decision.REJECTED, _SIGNED_FILE_MISSING if is_same else _OTHER_DOCUMENT_SIGNED

    def _may_write(self, name: str) -> bool:
        for folder in (self.output / name).parents:
            if folder == self.output:
                return True
            if folder.is_dir():
                return os.access(folder, os.W_OK | os.X_OK)
        return True


def _is_present(place: Path) -> bool:
    try:
        place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _make_candidate(name: str, file: Path) -> Candidate:
    problem = find_source_problem(file)
    return Candidate(name, file, None if problem is None else f"it {problem}")


def describe_failure(entry: SigningEntry) -> str:
    """Return why a document failed, with the service's message or a hint."""
    details = _HINT_FIELDS if entry.reason is DocumentProblem.FIELD_MISSING else quote_message(entry.service_message)
    return f"{entry.problem or 'it failed'}{details}"


def find_source_problem(source: Path, *, allows_folder: bool = True) -> str | None:
    """Return why a file or folder can't be signed, such as "is not a PDF"; None if it can."""
    try:
        if source.is_dir():
            if not allows_folder:
                return "is a folder; name a PDF in it"
            with os.scandir(source):
                return None
        if not stat.S_ISREG(source.stat().st_mode):  # opening a pipe would block until there is a writer
            return _NOT_A_FILE
        with source.open("rb") as opened:
            if b"%PDF-" not in (first := opened.read(PDF_MARKER_BYTES)):
                return _NOT_A_PDF if first else _EMPTY_FILE
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - PDF_MARKER_BYTES))
            return None if b"%%EOF" in opened.read() else DocumentProblem.INCOMPLETE.predicate
    except OSError as error:
        return f"can't be read ({explain_os_error(error)})"


def report_skipped(folders: Collection[str], location: str = "") -> None:
    """Report on stderr how many folders were not read, if any. location: such as " within the sources"."""
    if folders:
        echo_err(f"{format_count(len(folders), 'folder')}{location} not read. --recursive includes them.")


def describe_no_pdf(folders: Iterable[Path], *, recursive: bool) -> str:
    """Return the message for folders without a PDF."""
    deeper = "" if recursive else " --recursive includes their subfolders."
    return f"There is no PDF in {with_value('the folders', ', '.join(map(str, folders)))}.{deeper}"


def is_named_as_pdf(output: Path) -> bool:
    """Return True if --output is meant as a file: it ends in .pdf, and is not a folder."""
    return output.suffix.lower() == _PDF_SUFFIX and not output.is_dir()


def is_same_file(one: Path, other: Path) -> bool:
    """Return True if both paths exist and are the same file."""
    try:
        return one.samefile(other)
    except OSError:  # one does not exist
        return False
