"""The way of one document: each step is written into the journal before the next begins.

    NEW      save it, if the target has none of its name     what gets lost on the way expires by itself
    SAVED    write SIGNING, then ask for signature and PDF   a stored document is asked for at most once, ever
    SIGNING  get the PDF, and count its signatures           exactly ours more: it is adopted; else it is abandoned
             write its digest, and have the target keep it   found there by a later run, it is this document's own
    SIGNED   delete what is stored

After an unknown outcome nothing is signed again: the first request may still be on its way. What is stored is abandoned
unless it shows the signatures, and the document is saved anew, under another identifier.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import attrs

from directsuite.core.failures import is_being_cancelled
from directsuite.errors import (
    DirectSuiteError,
    InvalidArgumentError,
    NotFoundError,
    Outcome,
    OutcomeUnknownError,
    PermissionDeniedError,
)
from directsuite.jobs.signing.blame import DENIED, MISSING, is_astray, is_its_own, is_missing
from directsuite.jobs.signing.documents import Elsewhere, Examined, Pdf, SourceError, examined
from directsuite.jobs.signing.entry import Entry, State
from directsuite.jobs.signing.keeping import Keeping
from directsuite.jobs.signing.targets import Target
from directsuite.signing.models import Signature
from directsuite.signing.service import Signing

_KEPT = 3.5 * 3600
"""Seconds for which a stored document is sure to be there: the service keeps it for 4 hours without activity."""

_TRIES = 5
"""Stored documents that may be abandoned for a document before it counts as failed."""

CHANGED = "it is another document than when it was first read"
TAKEN = "the target has another file of this name, which is not replaced: move it away, or sign into another target"
OF_THE_PLACE = frozenset({CHANGED, TAKEN})
"""What says nothing of the service, however many documents meet it."""
LOST = "its signature was asked for again and again, and never seen"


class WorkshopError(OSError):
    """What comes from the service can't be put into the workshop. kind: why."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"no file can be made in the workshop ({kind})")
        self.kind = kind


@attrs.define(kw_only=True, repr=False, eq=False)
class Course:
    """Brings documents through. workshop: a folder for PDFs while they come. now: Unix time."""

    signing: Signing
    journal: Keeping
    target: Target
    workshop: Path
    now: Callable[[], float]
    signed: int = 0
    """How often the service has signed."""
    read: int = attrs.field(default=0, init=False)
    """How many documents could be read."""
    _stored: set[str | None] = attrs.field(factory=set[str | None], init=False)  # by this run, as long as it is of use

    async def go(self, entry: Entry, pdf: Pdf, signatures: Sequence[Signature]) -> Entry:
        """The rest of a document's way. Raises what is no fault of the document's: its entry stays where it was.

        That is SourceError where it may be that others can't be read either, and OSError of target and workshop.
        """
        if entry.state is State.FAILED:
            entry = await self.journal.put(entry.renewed())
        if entry.state is State.SIGNING and await self._is_kept(entry):
            entry = await self.journal.put(attrs.evolve(entry, state=State.SIGNED))
        if entry.state < State.SIGNED:
            room = self.workshop / f"{entry.number}.source.pdf"
            try:
                entry = await self._to_the_target(entry, pdf, room, signatures)
            finally:
                if isinstance(pdf.content, Elsewhere):
                    _remove(room)
                if entry.state is not State.SIGNED:
                    self._file(entry).unlink(missing_ok=True)
        # What has become of the source of a document that the target has is of no matter.
        return await self._clear(entry) if entry.state is State.SIGNED else entry

    async def fail(self, entry: Entry, error: DirectSuiteError | SourceError) -> Entry:
        """Count a document as failed, whatever the service may still do with it: in our own words, not a service's."""
        if isinstance(error, SourceError):
            problem = f"it can't be read ({error.kind})"
        else:
            problem = f"{type(error).__name__}: {error.explanation}"
        return await self._abandon(entry, State.FAILED, problem)

    async def _is_kept(self, entry: Entry) -> bool:
        """Whether an earlier run had the target keep it, and ended before it had noted that."""
        return entry.output_sha is not None and await self.target.holds(entry.name, entry.output_sha)

    async def _to_the_target(self, entry: Entry, pdf: Pdf, room: Path, signatures: Sequence[Signature]) -> Entry:
        try:
            self.target.check(entry.name)
            with _reading():
                content = await pdf.read(room)
            source = await _examined(content)
            self.read += 1
            while entry.state < State.SIGNED:
                if entry.source_sha not in (None, source.sha256):
                    return await self._abandon(entry, State.FAILED, CHANGED)
                if entry.state is State.NEW:
                    entry = await self._save(entry, content, source)
                elif entry.state is State.SAVED:
                    entry = await self._sign(entry, signatures, source)
                else:
                    entry = await self._look(entry, signatures, source)
                if entry.state is State.NEW:  # it is saved anew, and may be another by now
                    source = await _examined(content)
        except InvalidArgumentError as error:
            return await self.fail(entry, error)
        except SourceError as error:
            if not error.is_its_own:
                raise
            return await self.fail(entry, error)
        return entry

    async def _save(self, entry: Entry, content: bytes | Path, source: Examined) -> Entry:
        if await self.target.has(entry.name):
            return await self._abandon(entry, State.FAILED, TAKEN)
        try:
            with _reading():
                stored = await self.signing.save(content)
        except DirectSuiteError as error:
            if is_its_own(error) and not is_missing(error):  # nothing but the URL can be wrong then
                return await self.fail(entry, error)
            raise
        self._stored.add(stored.identifier)
        saved = attrs.evolve(
            entry,
            state=State.SAVED,
            identifier=stored.identifier,
            saved_at=self.now(),
            source_sha=source.sha256,
        )
        return await self.journal.put(saved)

    async def _sign(self, entry: Entry, signatures: Sequence[Signature], source: Examined) -> Entry:
        identifier = entry.identifier
        if identifier is None or entry.saved_at is None or self.now() - entry.saved_at > _KEPT:
            return await self._abandon(entry, is_try=False)
        entry = await self.journal.put(attrs.evolve(entry, state=State.SIGNING))
        file = self._file(entry)
        try:
            with _into_the_workshop():
                if len(signatures) == 1:
                    await self.signing.sign_and_pull(identifier, signatures[0], destination=file)
                else:
                    await self.signing.multi_sign_and_pull(identifier, signatures, destination=file)
        except OutcomeUnknownError:
            return entry
        except WorkshopError:
            await self.journal.put(attrs.evolve(entry, state=State.SAVED))  # it was refused before anything was sent
            raise
        except DirectSuiteError as error:
            if self._is_anothers(identifier, error) or (
                isinstance(error, MISSING) and not await self._is_there(identifier)
            ):
                return await self._abandon(attrs.evolve(entry, state=State.SAVED))
            if error.outcome in (Outcome.NOT_SENT, Outcome.REJECTED) or isinstance(error, DENIED) or is_astray(error):
                await self.journal.put(attrs.evolve(entry, state=State.SAVED))  # nobody has signed it
                raise
            if is_its_own(error):
                return await self.fail(attrs.evolve(entry, state=State.SAVED), error)
            raise
        self.signed += 1
        return await self._keep(entry, file, len(signatures), source)

    async def _look(self, entry: Entry, signatures: Sequence[Signature], source: Examined) -> Entry:
        """What became of a request whose answer nobody has."""
        if entry.identifier is None:
            return await self._abandon(entry)
        file = self._file(entry)
        try:
            with _into_the_workshop():
                await self.signing.download(entry.identifier, file)
        except DirectSuiteError as error:
            if is_its_own(error) or self._is_anothers(entry.identifier, error):  # MISSING for one
                return await self._abandon(entry)
            raise
        return await self._keep(entry, file, len(signatures), source)

    async def _keep(self, entry: Entry, file: Path, signatures: int, source: Examined) -> Entry:
        """Have the target take a PDF, if it has the signatures."""
        signed = await asyncio.to_thread(examined, file)
        if signed.signatures != source.signatures + signatures:
            return await self._abandon(entry)
        # It is known then if this run dies; and who had to give up its documents keeps none that is another's by now.
        entry = await self.journal.put(attrs.evolve(entry, output_sha=signed.sha256))
        try:
            await self.target.keep(entry.name, file)
        except FileExistsError:
            return await self._abandon(entry, State.FAILED, TAKEN)
        except InvalidArgumentError as error:
            return await self.fail(entry, error)
        return await self.journal.put(attrs.evolve(entry, state=State.SIGNED))

    async def _is_there(self, identifier: str) -> bool:
        try:
            await self.signing.get_doc_info(identifier)
        except DirectSuiteError as error:
            if isinstance(error, MISSING) or self._is_anothers(identifier, error):
                return False
            raise
        return True

    def _is_anothers(self, identifier: str, error: DirectSuiteError) -> bool:
        """Whether this account may not have what an earlier run stored, perhaps with another's token.

        What this run has stored is its own: who may not have that may have nothing.
        """
        return isinstance(error, (PermissionDeniedError, NotFoundError)) and identifier not in self._stored

    async def _clear(self, entry: Entry) -> Entry:
        """What can't be deleted now is tried later: the document itself is done."""
        self._stored.discard(entry.identifier)
        try:
            if entry.identifier is not None:
                await self.signing.delete(entry.identifier)
        except MISSING:
            pass
        except DirectSuiteError:
            return await self.journal.abandon(entry, at=self.now(), then=State.DONE)
        return await self.journal.put(
            attrs.evolve(entry, state=State.DONE, identifier=None, saved_at=None, problem=None)
        )

    async def _abandon(
        self, entry: Entry, then: State = State.NEW, problem: str | None = None, *, is_try: bool = True
    ) -> Entry:
        """is_try: whether its signature was asked for."""
        is_earlier = entry.state is State.SAVED and entry.identifier not in self._stored  # by a run that ended there
        if then is State.NEW and (is_earlier or not is_try):
            entry = attrs.evolve(entry, tries=entry.tries - 1)
        self._stored.discard(entry.identifier)
        if then is State.NEW and entry.tries + 1 >= _TRIES:
            then, problem = State.FAILED, LOST
        return await self.journal.abandon(entry, at=self.now(), then=then, problem=problem)

    def _file(self, entry: Entry) -> Path:
        return self.workshop / f"{entry.number}.pdf"


async def _examined(content: bytes | Path) -> Examined:
    with _reading():
        return await asyncio.to_thread(examined, content)


def _remove(room: Path) -> None:
    if room.is_dir():  # some storages have folders under a document's name
        shutil.rmtree(room, ignore_errors=True)
    else:
        room.unlink(missing_ok=True)


@contextlib.contextmanager
def _reading() -> Generator[None]:
    """Raise SourceError in place of OSError, which names the document, and where what was waited for was cancelled."""
    try:
        yield
    except OSError as error:
        failure = SourceError.of(error)
    except asyncio.CancelledError:
        if is_being_cancelled():
            raise
        failure = SourceError("it was cancelled")
    else:
        return
    raise failure


@contextlib.contextmanager
def _into_the_workshop() -> Generator[None]:
    """A file that can't be made there is no fault of the document's. Raises WorkshopError."""
    try:
        yield
    except InvalidArgumentError as error:
        if error.parameter != "destination":
            raise
        failure = WorkshopError(error.explanation.removeprefix("destination: "))
    else:
        return
    raise failure
