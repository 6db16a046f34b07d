"""Takes the steps of a document's workflow: what calls the service, the journal, the source and the target."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import attrs

from directsuite.core.failures import is_being_cancelled, reason_of
from directsuite.durable.files import create
from directsuite.errors import DirectSuiteError, InvalidArgumentError
from directsuite.jobs.signing.documents import (
    SMALL,
    Examined,
    Pdf,
    RemoteFile,
    SourceError,
    examined,
    loaded,
    stamp_of,
)
from directsuite.jobs.signing.journal import Chunk
from directsuite.jobs.signing.targets import Target
from directsuite.jobs.signing.workflow import (
    CHANGED,
    INCOMPLETE,
    LOST,
    MISSING,
    TAKEN,
    Entry,
    Facts,
    FieldProblem,
    OutageTracker,
    Reaction,
    State,
    Step,
    classify_error,
    field_problem,
    is_anothers,
    is_last_try,
    next_step,
    service_message_of,
)
from directsuite.signing.models import Signature
from directsuite.signing.service import Signing

T = TypeVar("T")

_OUT_OF_ORDER = "a step was taken before the one that it needs"
_EXPIRES = 4 * 3600.0
"""Seconds after which the service has forgotten a stored document that nobody asks for."""


class StagingError(OSError):
    """What comes from the service can't be put into the staging folder. kind: why."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"no file can be made in the staging folder ({kind})")
        self.kind = kind

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kind,), self.__dict__


@attrs.define(repr=False, eq=False)
class _Work:
    """A document in the hands of a run."""

    pdf: Pdf
    signatures: Sequence[Signature]
    fetched: Path
    """Where the source goes if it has to be fetched."""
    output: Path
    """Where the PDF goes that comes from the service."""
    facts: Facts
    content: bytes | Path | None = None
    """As the source gave it."""
    stamp: str | None = None
    """Of the source's file, from before it was read."""
    body: bytes | Path = b""
    """What is saved: the bytes of a small one."""
    failure: DirectSuiteError | None = None
    """Why the answer to this run's request for a signature is not known."""


@attrs.define(kw_only=True, repr=False, eq=False)
class DocumentWorkflow:
    """Brings documents to their ends."""

    signing: Signing
    journal: Chunk
    target: Target
    staging_dir: Path
    """Where PDFs are while they come."""
    outage: OutageTracker
    now: Callable[[], float]
    """Unix time."""
    check_fields: bool = False
    """Whether a signature that has a name needs an empty field of that name, or a widget and no such field."""
    _stored: set[str | None] = attrs.field(factory=set[str | None], init=False)  # by this run, as long as it is of use

    async def run(self, entry: Entry, pdf: Pdf, signatures: Sequence[Signature]) -> Entry:
        """Take the steps that a document has left. Raises what is no fault of the document's: its entry stays.

        That is SourceError where it may be that others can't be read either, and OSError of target and staging folder.
        """
        fetched, output = (self.staging_dir / f"{entry.number}{suffix}" for suffix in (".source", ".signed"))
        work = _Work(pdf, signatures, fetched, output, Facts(signatures=len(signatures)))
        try:
            while (step := next_step(entry, work.facts, self.now())) is not Step.END:
                try:
                    entry = await self._take(step, entry, work)
                except (DirectSuiteError, SourceError) as error:
                    entry = await self._react(step, entry, work, error)
                except StagingError:
                    await self.journal.put(entry)
                    raise
                if entry.state is State.FAILED:  # it begins anew in another run
                    break
        finally:
            if isinstance(pdf.content, RemoteFile):
                _remove(fetched)
            if entry.state is not State.DONE:
                output.unlink(missing_ok=True)
        return entry

    async def fail(self, entry: Entry, error: DirectSuiteError | SourceError) -> Entry:
        """Count a document as failed, whatever the service may still do with it."""
        if isinstance(error, SourceError):
            return await self._fail(entry, f"it can't be read ({error.kind})")
        return await self._fail(entry, _why(error), service_message_of(error))

    async def cleanup(self, concurrency: int) -> None:
        """Delete what is abandoned, as far as that goes: what can't be deleted now is tried later.

        Some of it may be signed; the service forgets it by itself, some day. Raises JournalError.
        """
        await self.journal.forget_expired(self.now(), _EXPIRES)
        last = ""
        while some := await self.journal.abandoned(after=last, most=concurrency):
            gone = await asyncio.gather(*map(self._is_deleted, some))
            await self.journal.forget([each for each, is_gone in zip(some, gone, strict=True) if is_gone])
            if not any(gone):
                return
            last = some[-1]

    async def _take(self, step: Step, entry: Entry, work: _Work) -> Entry:
        match step:
            case Step.RENEW:
                return await self.journal.put(entry.renewed())
            case Step.VERIFY_OUTPUT:
                return await self._verify_output(entry, work)
            case Step.FETCH:
                return await self.fetch(entry, work)
            case Step.REFUSE:
                return await self._fail(entry, CHANGED)
            case Step.SAVE:
                return await self._save(entry, work)
            case Step.SIGN:
                return await self._sign(entry, work)
            case Step.DOWNLOAD:
                return await self._download(entry, work)
            case Step.STORE:
                return await self.store_output(entry, work)
            case Step.DELETE:
                return await self._delete(entry)
            case _:
                return await self._abandon(entry, work, was_asked=step is Step.ABANDON)

    async def _react(self, step: Step, entry: Entry, work: _Work, error: DirectSuiteError | SourceError) -> Entry:
        """What becomes of a document after an error. entry: as it was before the step."""
        is_ours = entry.identifier in self._stored
        reaction = classify_error(step, error, is_ours=is_ours)
        if reaction is Reaction.ASK:
            is_there = await self._is_there(_present(entry.identifier))
            reaction = classify_error(step, error, is_ours=is_ours, is_there=is_there)
        match reaction:
            case Reaction.FIND_OUT:
                work.failure = error.__cause__ if isinstance(error.__cause__, DirectSuiteError) else None
                return attrs.evolve(entry, state=State.SIGNING)
            case Reaction.ABANDON:
                return await self._abandon(entry, work)
            case Reaction.FAIL:
                return await self.fail(entry, error)
            case Reaction.UNDO:
                await self.journal.put(entry)
                raise error
            case Reaction.STOP:
                await self.journal.put(entry)
                raise StagingError(_why(error)) from None
            case _:
                raise error

    async def _verify_output(self, entry: Entry, work: _Work) -> Entry:
        """Ask whether an earlier run had the target keep it, and ended before it had noted that."""
        work.facts.is_output_verified = True
        if entry.output_sha is not None and await self.target.holds(entry.name, entry.output_sha):
            return await self.journal.put(attrs.evolve(entry, state=State.SIGNED))
        return entry

    async def fetch(self, entry: Entry, work: _Work) -> Entry:
        """Read the source; when the document is saved anew, read once more what came then, which may have changed."""
        is_new = work.content is None
        if is_new:
            self.target.check(entry.name)
        with _reading():
            work.stamp = stamp_of(work.pdf)
            if work.content is None:
                work.content = await work.pdf.read(work.fetched)
            work.body, source = await asyncio.to_thread(loaded, work.content)
        self.outage.read += is_new
        work.facts.source = source
        return entry

    async def _save(self, entry: Entry, work: _Work) -> Entry:
        source = _present(work.facts.source)
        if source.is_cut_off:
            return await self._fail(entry, INCOMPLETE)
        if await self.target.has(entry.name):
            return await self._fail(entry, TAKEN)
        with _reading():
            stored = await self.signing.save(work.body)
        self._stored.add(stored.identifier)
        saved = attrs.evolve(
            entry,
            state=State.SAVED,
            identifier=stored.identifier,
            saved_at=self.now(),
            source_sha=source.sha256,
            source_stamp=work.stamp,
        )
        return await self.journal.put(saved) if self.check_fields else saved  # else SIGNING is written at once

    async def _sign(self, entry: Entry, work: _Work) -> Entry:
        identifier = _present(entry.identifier)
        if self.check_fields and (problem := await self._field_problem(identifier, work.signatures)) is not None:
            return await self._fail(entry, problem.of_it)
        if isinstance(work.body, bytes) and len(work.body) <= SMALL:
            with _staged(work.output) as file:
                signing = await self.journal.put(attrs.evolve(entry, state=State.SIGNING))
                signed: bytes = await self._signed(identifier, work.signatures)
                work.facts.output = await asyncio.to_thread(_written, file, signed)
            return signing
        signing = await self.journal.put(attrs.evolve(entry, state=State.SIGNING))
        await self._signed(identifier, work.signatures, destination=work.output)
        return await self._examine_output(signing, work)

    async def _field_problem(self, identifier: str, signatures: Sequence[Signature]) -> FieldProblem | None:
        if all(signature.name is None for signature in signatures):
            return None
        fields = (await self.signing.get_doc_info(identifier)).signatures
        return next(filter(None, (field_problem(signature, fields) for signature in signatures)), None)

    async def _signed(self, identifier: str, signatures: Sequence[Signature], **where: Path) -> Any:
        """The signed PDF; with `destination`, where it was put."""
        signing: Any = self.signing  # its overloads say which of the two it gives
        if len(signatures) == 1:
            signed = await signing.sign_and_pull(identifier, signatures[0], **where)
        else:
            signed = await signing.multi_sign_and_pull(identifier, signatures, **where)
        self.outage.signed += 1
        return signed

    async def _download(self, entry: Entry, work: _Work) -> Entry:
        """Get what became of a request whose answer nobody has."""
        await self.signing.download(_present(entry.identifier), work.output)
        return await self._examine_output(entry, work)

    async def _examine_output(self, entry: Entry, work: _Work) -> Entry:
        work.facts.output = await asyncio.to_thread(examined, work.output)
        return entry

    async def store_output(self, entry: Entry, work: _Work) -> Entry:
        """Have the target keep the signed PDF.

        Its digest is written first: it is known then if this run dies, and who had to give up its documents keeps none
        that is another's by now.
        """
        entry = await self.journal.put(attrs.evolve(entry, output_sha=_present(work.facts.output).sha256))
        try:
            await self.target.keep(entry.name, work.output)
        except FileExistsError:
            return await self._fail(entry, TAKEN)
        return await self.journal.put(attrs.evolve(entry, state=State.SIGNED))

    async def _delete(self, entry: Entry) -> Entry:
        """Delete what is stored. What can't be deleted now is tried later: the document itself is done."""
        self._stored.discard(entry.identifier)
        if entry.identifier is not None and not await self._is_deleted(entry.identifier):
            return await self.journal.abandon(entry, at=self.now(), then=State.DONE)
        return await self.journal.put(
            attrs.evolve(entry, state=State.DONE, identifier=None, saved_at=None, problem=None, service_message=None)
        )

    async def _is_deleted(self, identifier: str) -> bool:
        try:
            await self.signing.delete(identifier)
        except MISSING:
            return True
        except DirectSuiteError:
            return False
        return True

    async def _is_there(self, identifier: str) -> bool:
        try:
            await self.signing.get_doc_info(identifier)
        except DirectSuiteError as error:
            if isinstance(error, MISSING) or is_anothers(error, is_ours=identifier in self._stored):
                return False
            raise
        return True

    async def _abandon(self, entry: Entry, work: _Work, *, was_asked: bool = True) -> Entry:
        """Begin anew without what is stored, unless that has been done too often. was_asked: for its signature.

        Raises the failure of the request that left no signature: the job judges whether to wait for the service.
        """
        is_earlier = entry.state is State.SAVED and entry.identifier not in self._stored  # by a run that ended there
        is_try = was_asked and not is_earlier
        failure, work.failure = work.failure, None
        if is_try and failure is None and is_last_try(entry):
            return await self._fail(entry, LOST)
        self._stored.discard(entry.identifier)
        work.facts.source = work.facts.output = None
        entry = await self.journal.abandon(entry, at=self.now(), is_try=is_try)
        if failure is not None:
            raise failure
        return entry

    async def _fail(self, entry: Entry, problem: str, service_message: str | None = None) -> Entry:
        self._stored.discard(entry.identifier)
        return await self.journal.abandon(
            entry, at=self.now(), then=State.FAILED, problem=problem, service_message=service_message
        )


def _present(value: T | None) -> T:
    """A value that the workflow has by the time of the step that needs it."""
    if value is None:
        raise AssertionError(_OUT_OF_ORDER)
    return value


def _why(error: DirectSuiteError | SourceError) -> str:
    if isinstance(error, InvalidArgumentError):
        return error.explanation.removeprefix(f"{error.parameter}: ")
    return error.kind if isinstance(error, SourceError) else error.explanation


@contextlib.contextmanager
def _staged(output: Path) -> Generator[BinaryIO]:
    """The file for a signed PDF, made before anything is signed. Raises StagingError where it can't be."""
    try:
        try:
            file = create(output)
        except FileExistsError:  # of an earlier try
            output.unlink()
            file = create(output)
    except OSError as error:
        kind = reason_of(error)
    else:
        with file:
            yield file
        return
    raise StagingError(kind)


def _written(file: BinaryIO, pdf: bytes) -> Examined:
    """What a PDF is like, once it is on the disk."""
    file.write(pdf)
    file.flush()
    os.fsync(file.fileno())
    return examined(pdf)


def _remove(fetched: Path) -> None:
    if fetched.is_dir():  # some storages have folders under a document's name
        shutil.rmtree(fetched, ignore_errors=True)
    else:
        fetched.unlink(missing_ok=True)


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
