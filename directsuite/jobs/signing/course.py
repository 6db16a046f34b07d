"""The way of one document: each step is written into the journal before the next begins.

    NEW      save it                                         what gets lost on the way expires by itself
    SAVED    write SIGNING, then ask for signature and PDF   a stored document is asked for at most once, ever
    SIGNING  get the PDF, and count its signatures           exactly ours more: it is adopted; else it is abandoned
    SIGNED   delete what is stored

After an unknown outcome nothing is signed again: the first request may still be on its way. What is stored is abandoned
unless it shows the signatures, and the document is saved anew, under another identifier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from directsuite.errors import (
    AuthenticationError,
    BadRequestError,
    DirectSuiteError,
    InvalidArgumentError,
    NotFoundError,
    Outcome,
    OutcomeUnknownError,
    PermissionDeniedError,
    RateLimitedError,
    ServerError,
    ServiceError,
)
from directsuite.jobs.signing.documents import Elsewhere, Examined, Pdf, examined
from directsuite.jobs.signing.entry import Entry, State
from directsuite.jobs.signing.keeping import Keeping
from directsuite.jobs.signing.targets import Target, reason
from directsuite.signing.models import Signature
from directsuite.signing.service import Signing

_KEPT = 3.5 * 3600
"""Seconds for which a stored document is sure to be there: the service keeps it for 4 hours without activity."""

_TRIES = 5
"""Stored documents that may be abandoned for a document before it counts as failed."""

MISSING = (NotFoundError, BadRequestError)
"""What the service may say of an identifier that it doesn't know: the specification leaves open which."""

_DENIED = (AuthenticationError, PermissionDeniedError)
_OF_THE_SERVICE = (*_DENIED, RateLimitedError, ServerError)
"""What the service says whichever document it is asked about. All else that it says is about the document."""

CHANGED = "it is another document than when it was first read"
LOST = "its signature was asked for again and again, and never seen"


@attrs.define(kw_only=True, repr=False, eq=False)
class Course:
    """Brings documents through. workshop: a folder for PDFs while they come. now: Unix time."""

    signing: Signing
    journal: Keeping
    target: Target
    workshop: Path
    now: Callable[[], float]

    async def go(self, entry: Entry, pdf: Pdf, signatures: Sequence[Signature]) -> Entry:
        """The rest of a document's way. Raises what is no fault of the document's: its entry stays where it was."""
        if entry.state < State.SIGNED:
            room = self.workshop / f"{entry.number}.source.pdf"
            try:
                entry = await self._to_the_target(entry, pdf, room, signatures)
            finally:
                if isinstance(pdf.content, Elsewhere):
                    room.unlink(missing_ok=True)
                if entry.state is not State.SIGNED:
                    self._file(entry).unlink(missing_ok=True)
        # What has become of the source of a document that the target has is of no matter.
        return await self._clear(entry) if entry.state is State.SIGNED else entry

    async def give_up(self, entry: Entry, error: DirectSuiteError) -> Entry:
        """Count a document as failed, whatever the service may still do with it."""
        return await self._fail(entry, error)

    async def _to_the_target(self, entry: Entry, pdf: Pdf, room: Path, signatures: Sequence[Signature]) -> Entry:
        try:
            self.target.check(entry.name)
            content = await pdf.read(room)
            source = await asyncio.to_thread(examined, content)
        except InvalidArgumentError as error:
            return await self._fail(entry, error)
        except OSError as error:
            return await self._abandon(entry, State.FAILED, f"it can't be read ({reason(error)})")
        while entry.state < State.SIGNED:
            if entry.source_sha not in (None, source.sha256):
                entry = await self._abandon(entry, State.FAILED, CHANGED)
            elif entry.state is State.NEW:
                entry = await self._save(entry, content, source)
            elif entry.state is State.SAVED:
                entry = await self._sign(entry, signatures, source)
            else:
                entry = await self._look(entry, signatures, source)
        return entry

    async def _save(self, entry: Entry, content: bytes | Path, source: Examined) -> Entry:
        try:
            stored = await self.signing.save(content)
        except DirectSuiteError as error:
            if _is_its_own(error) and not isinstance(error, NotFoundError):  # nothing but the URL can be wrong then
                return await self._fail(entry, error)
            raise
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
            return await self._abandon(entry)
        entry = await self.journal.put(attrs.evolve(entry, state=State.SIGNING))
        file = self._file(entry)
        try:
            if len(signatures) == 1:
                await self.signing.sign_and_pull(identifier, signatures[0], destination=file)
            else:
                await self.signing.multi_sign_and_pull(identifier, signatures, destination=file)
        except OutcomeUnknownError:
            return entry
        except DirectSuiteError as error:
            if isinstance(error, MISSING) and not await self._is_there(identifier):
                return await self._abandon(attrs.evolve(entry, state=State.SAVED))
            if error.outcome in (Outcome.NOT_SENT, Outcome.REJECTED) or isinstance(error, _DENIED):
                await self.journal.put(attrs.evolve(entry, state=State.SAVED))  # nobody has signed it
                raise
            if _is_its_own(error):
                return await self._fail(attrs.evolve(entry, state=State.SAVED), error)
            raise
        return await self._keep(entry, file, len(signatures), source)

    async def _look(self, entry: Entry, signatures: Sequence[Signature], source: Examined) -> Entry:
        """What became of a request whose answer nobody has."""
        if entry.identifier is None:
            return await self._abandon(entry)
        file = self._file(entry)
        try:
            await self.signing.download(entry.identifier, file)
        except DirectSuiteError as error:
            if _is_its_own(error):  # MISSING for one
                return await self._abandon(entry)
            raise
        return await self._keep(entry, file, len(signatures), source)

    async def _keep(self, entry: Entry, file: Path, signatures: int, source: Examined) -> Entry:
        """Have the target take a PDF, if it has the signatures."""
        signed = await asyncio.to_thread(examined, file)
        if signed.signatures != source.signatures + signatures:
            return await self._abandon(entry)
        await self.journal.confirm()  # what is kept by one that had to give up its documents would be another's
        try:
            await self.target.keep(entry.name, file)
        except InvalidArgumentError as error:
            return await self._fail(entry, error)
        return await self.journal.put(attrs.evolve(entry, state=State.SIGNED, output_sha=signed.sha256))

    async def _is_there(self, identifier: str) -> bool:
        try:
            await self.signing.get_doc_info(identifier)
        except MISSING:
            return False
        return True

    async def _clear(self, entry: Entry) -> Entry:
        """What can't be deleted now is tried later: the document itself is done."""
        try:
            if entry.identifier is not None:
                await self.signing.delete(entry.identifier)
        except MISSING:
            pass
        except DirectSuiteError:
            return await self.journal.abandon(entry, at=self.now(), then=State.DONE)
        return await self.journal.put(attrs.evolve(entry, state=State.DONE, identifier=None, saved_at=None))

    async def _abandon(self, entry: Entry, then: State = State.NEW, problem: str | None = None) -> Entry:
        if then is State.NEW and entry.tries + 1 >= _TRIES:
            then, problem = State.FAILED, LOST
        return await self.journal.abandon(entry, at=self.now(), then=then, problem=problem)

    async def _fail(self, entry: Entry, error: DirectSuiteError) -> Entry:
        return await self._abandon(entry, State.FAILED, problem_of(error))

    def _file(self, entry: Entry) -> Path:
        return self.workshop / f"{entry.number}.pdf"


def _is_its_own(error: DirectSuiteError) -> bool:
    """Whether a failure is about the document, and would meet it again."""
    refused = isinstance(error, ServiceError) and not isinstance(error, _OF_THE_SERVICE)
    return refused or isinstance(error, InvalidArgumentError)


def problem_of(error: DirectSuiteError) -> str:
    """A failure in words: its kind, and our own sentence, in which nothing stands that a service wrote."""
    return f"{type(error).__name__}: {error.explanation}"
