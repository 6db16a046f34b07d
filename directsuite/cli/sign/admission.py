"""Which candidates are signed: not those that were, and none whose place at the output is taken.

in the journal   at the output    it is
no               no               signed
no               yes              refused, unless --overwrite says to replace it
begun            whatever         gone on with
done             yes              passed over; another document than was signed is refused, unless --overwrite
done             no               refused, unless --overwrite says to sign it again
whatever         can't be known   refused
failed           whatever         told, and signed with --again
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from directsuite.cli.sign.sources import Candidate, Sources
from directsuite.core.failures import reason_of
from directsuite.jobs.signing import Entry, Journal, Pdf, State
from directsuite.jobs.signing.documents import examined

_AT_A_TIME = 100
_EXISTS = "the output has a file of this name: name another --output, or give --overwrite to replace it"
_OTHER = (
    "another document of this name was signed into the output: name another --output, or give --overwrite to replace it"
)
_NOT_WRITABLE = "this user may not write to its folder in the output: see to that, or name another --output"
_GONE = "it was signed, and the signed file is gone: give --overwrite to sign it again"


@attrs.frozen(repr=False)
class Verdict:
    """What becomes of a candidate. refused, failed: why. renewed: whether the journal has to forget it first.

    passed_over: it has not failed, and only what did is tried again; unsigned: nor is it signed.
    """

    candidate: Candidate
    signed_before: bool = False
    refused: str | None = None
    failed: str | None = None
    passed_over: bool = False
    unsigned: bool = False
    renewed: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether it is to be signed."""
        return not (self.signed_before or self.refused or self.failed or self.passed_over)


class Admission(AsyncIterable[Pdf]):
    """The PDFs to sign, in the form of a job's source. journal: None where there is none yet."""

    def __init__(
        self, sources: Sources, journal: Journal | None, *, output: Path, again: bool, overwrite: bool
    ) -> None:
        self.signed_before = 0
        self.seen = 0
        self.wanted = 0
        self.unsigned = 0
        self.refused = list[tuple[str, str]]()
        """Names, and why they aren't signed."""
        self._sources = sources
        self._journal = journal
        self._output = output
        self._again = again
        self._overwrite = overwrite

    async def __aiter__(self) -> AsyncGenerator[Pdf]:
        async for verdict in self.verdicts():
            if not verdict.is_wanted:
                continue
            if verdict.renewed and self._journal is not None:
                await _renew(self._journal, verdict.candidate.name)
            yield Pdf(verdict.candidate.name, verdict.candidate.file)

    async def verdicts(self) -> AsyncGenerator[Verdict]:
        """Of all candidates."""
        self.signed_before = self.seen = self.wanted = self.unsigned = 0
        self.refused.clear()
        coming = iter(self._sources)
        while some := await asyncio.to_thread(_next, coming):
            known: Mapping[str, Entry] = {}
            if self._journal is not None:
                known = await self._journal.known([each.name for each in some])
            for verdict in await asyncio.to_thread(self._verdicts, some, known):
                self.seen += 1
                self.signed_before += verdict.signed_before
                self.wanted += verdict.is_wanted
                self.unsigned += verdict.unsigned
                if verdict.refused is not None:
                    self.refused.append((verdict.candidate.name, verdict.refused))
                yield verdict

    def _verdicts(self, some: Sequence[Candidate], known: Mapping[str, Entry]) -> list[Verdict]:
        return [self._verdict(each, known.get(each.name)) for each in some]

    def _verdict(self, candidate: Candidate, entry: Entry | None) -> Verdict:
        if self._again and (entry is None or not entry.has_failed):
            is_signed = entry is not None and entry.state in (State.SIGNED, State.DONE)
            return Verdict(candidate, passed_over=True, unsigned=not is_signed)
        if candidate.problem is not None:
            return Verdict(candidate, refused=candidate.problem)
        try:
            is_there = _is_there(self._output / candidate.name)
        except OSError as error:
            return Verdict(candidate, refused=f"its place in the output can't be looked at ({reason_of(error)})")
        if entry is not None and entry.state in (State.SIGNED, State.DONE):
            return self._of_signed(candidate, entry, is_there=is_there)
        if entry is not None and entry.state is State.FAILED and not self._again:
            return Verdict(candidate, failed=entry.problem or "it failed")
        untouched = entry is None or entry.state is State.FAILED or (entry.state is State.NEW and not entry.tries)
        if untouched and is_there and not self._overwrite:
            return Verdict(candidate, refused=_EXISTS)
        return Verdict(candidate, refused=None if self._may_write(candidate.name) else _NOT_WRITABLE)

    def _of_signed(self, candidate: Candidate, entry: Entry, *, is_there: bool) -> Verdict:
        try:
            same = examined(candidate.file).sha256 == entry.source_sha
        except OSError as error:
            return Verdict(candidate, refused=f"it can't be read ({reason_of(error)})")
        if same and is_there:
            return Verdict(candidate, signed_before=entry.state is State.DONE)
        if self._overwrite:
            return Verdict(candidate, renewed=True)
        return Verdict(candidate, refused=_GONE if same else _OTHER)

    def _may_write(self, name: str) -> bool:
        """Whether this user may write to its folder in the output, or make that. The job tries the output itself."""
        for folder in (self._output / name).parents:
            if folder == self._output:
                return True
            if folder.is_dir():
                return os.access(folder, os.W_OK | os.X_OK)
        return True


def _is_there(place: Path) -> bool:
    """Raises OSError where nobody knows."""
    try:
        place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


async def _renew(journal: Journal, name: str) -> None:
    """Have a document that was signed signed again; what the service still has of it is deleted with the rest."""
    [entry] = await journal.entries([name])
    if entry.identifier is not None:
        entry = await journal.abandon(entry, at=time.time(), then=State.DONE)
    await journal.put(entry.renewed())


def _next(coming: Iterator[Candidate]) -> list[Candidate]:
    return list(itertools.islice(coming, _AT_A_TIME))
