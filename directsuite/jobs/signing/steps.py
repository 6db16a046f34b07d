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

from directsuite.core.failures import explain_os_error, is_being_cancelled
from directsuite.durable.files import create_file
from directsuite.errors import DirectSuiteError, InvalidArgumentError
from directsuite.jobs.signing.documents import (
    MAX_IN_MEMORY_BYTES,
    Pdf,
    PdfInfo,
    RemoteFile,
    SourceError,
    inspect_pdf,
    load_pdf,
    read_stamp,
)
from directsuite.jobs.signing.journal import LeasedBatch
from directsuite.jobs.signing.targets import Target
from directsuite.jobs.signing.workflow import (
    GAVE_UP,
    INCOMPLETE,
    NAME_CONFLICT,
    SOURCE_CHANGED,
    UNKNOWN_IDENTIFIER_ERRORS,
    DocumentState,
    ErrorReaction,
    FieldProblem,
    OutageTracker,
    RunContext,
    SigningEntry,
    SigningStep,
    classify_error,
    find_field_problem,
    is_last_try,
    may_belong_to_another_account,
    next_step,
    storable_service_message,
)
from directsuite.signing.models import Signature
from directsuite.signing.service import Signing

T = TypeVar("T")

_STEP_ORDER_ERROR = "a step was taken before the one that it needs"
_MAX_STORED_SECONDS = 4 * 3600.0
"""Seconds after which the service has forgotten a stored document that nobody asks for."""


class StagingError(OSError):
    """What comes from the service can't be put into the staging folder. kind: why."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"no file can be made in the staging folder ({kind})")
        self.kind = kind

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kind,), self.__dict__


@attrs.define(repr=False, eq=False)
class _DocumentWork:
    """A document in the hands of a run."""

    pdf: Pdf
    signatures: Sequence[Signature]
    fetched_path: Path
    """Where the source goes if it has to be fetched."""
    output_path: Path
    """Where the PDF goes that comes from the service."""
    context: RunContext
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
    journal: LeasedBatch
    target: Target
    staging_dir: Path
    """Where PDFs are while they come."""
    outage: OutageTracker
    now: Callable[[], float]
    """Unix time."""
    check_fields: bool = False
    """Whether a signature that has a name needs an empty field of that name, or a widget and no such field."""
    _stored_by_run: set[str | None] = attrs.field(
        factory=set[str | None], init=False
    )  # by this run, as long as it is of use

    async def run(self, entry: SigningEntry, pdf: Pdf, signatures: Sequence[Signature]) -> SigningEntry:
        """Take the steps that a document has left. Raises what is no fault of the document's: its entry stays.

        That is SourceError where it may be that others can't be read either, and OSError of target and staging folder.
        """
        fetched, output = (self.staging_dir / f"{entry.number}{suffix}" for suffix in (".source", ".signed"))
        work = _DocumentWork(pdf, signatures, fetched, output, RunContext(signature_count=len(signatures)))
        try:
            while (step := next_step(entry, work.context, self.now())) is not SigningStep.END:
                try:
                    entry = await self._run_step(step, entry, work)
                except (DirectSuiteError, SourceError) as error:
                    entry = await self._react(step, entry, work, error)
                except StagingError:
                    await self.journal.put(entry)
                    raise
                if entry.state is DocumentState.FAILED:  # it begins anew in another run
                    break
        finally:
            if isinstance(pdf.content, RemoteFile):
                _remove(fetched)
            if entry.state is not DocumentState.DONE:
                output.unlink(missing_ok=True)
        return entry

    async def fail(self, entry: SigningEntry, error: DirectSuiteError | SourceError) -> SigningEntry:
        """Count a document as failed, whatever the service may still do with it."""
        if isinstance(error, SourceError):
            return await self._fail(entry, f"it can't be read ({error.kind})")
        return await self._fail(entry, _describe_problem(error), storable_service_message(error))

    async def cleanup(self, concurrency: int) -> None:
        """Delete what is abandoned, as far as that goes: what can't be deleted now is tried later.

        Some of it may be signed; the service forgets it by itself, some day. Raises JournalError.
        """
        await self.journal.forget_expired(self.now(), _MAX_STORED_SECONDS)
        last = ""
        while some := await self.journal.list_abandoned(after=last, limit=concurrency):
            gone = await asyncio.gather(*map(self._try_delete, some))
            await self.journal.forget([each for each, is_gone in zip(some, gone, strict=True) if is_gone])
            if not any(gone):
                return
            last = some[-1]

    async def _run_step(self, step: SigningStep, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        match step:
            case SigningStep.RESET:
                return await self.journal.put(entry.reset())
            case SigningStep.VERIFY_OUTPUT:
                return await self._verify_output(entry, work)
            case SigningStep.FETCH:
                return await self.fetch(entry, work)
            case SigningStep.FAIL_CHANGED:
                return await self._fail(entry, SOURCE_CHANGED)
            case SigningStep.SAVE:
                return await self._save(entry, work)
            case SigningStep.SIGN:
                return await self._sign(entry, work)
            case SigningStep.DOWNLOAD:
                return await self._download(entry, work)
            case SigningStep.STORE:
                return await self.publish_output(entry, work)
            case SigningStep.DELETE:
                return await self._delete(entry)
            case _:
                return await self._abandon(entry, work, was_asked=step is SigningStep.ABANDON)

    async def _react(
        self, step: SigningStep, entry: SigningEntry, work: _DocumentWork, error: DirectSuiteError | SourceError
    ) -> SigningEntry:
        """What becomes of a document after an error. entry: as it was before the step."""
        is_ours = entry.identifier in self._stored_by_run
        reaction = classify_error(step, error, is_ours=is_ours)
        if reaction is ErrorReaction.ASK:
            is_there = await self._is_stored(_require(entry.identifier))
            reaction = classify_error(step, error, is_ours=is_ours, is_there=is_there)
        match reaction:
            case ErrorReaction.FIND_OUT:
                work.failure = error.__cause__ if isinstance(error.__cause__, DirectSuiteError) else None
                return attrs.evolve(entry, state=DocumentState.SIGNING)
            case ErrorReaction.ABANDON:
                return await self._abandon(entry, work)
            case ErrorReaction.FAIL:
                return await self.fail(entry, error)
            case ErrorReaction.UNDO:
                await self.journal.put(entry)
                raise error
            case ErrorReaction.STOP:
                await self.journal.put(entry)
                raise StagingError(_describe_problem(error)) from None
            case _:
                raise error

    async def _verify_output(self, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        """Ask whether an earlier run had the target keep it, and ended before it had noted that."""
        work.context.is_output_verified = True
        if entry.output_sha is not None and await self.target.contains(entry.name, entry.output_sha):
            return await self.journal.put(attrs.evolve(entry, state=DocumentState.SIGNED))
        return entry

    async def fetch(self, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        """Read the source; when the document is saved anew, read once more what came then, which may have changed."""
        is_new = work.content is None
        if is_new:
            self.target.check(entry.name)
        with _translate_read_errors():
            work.stamp = read_stamp(work.pdf)
            if work.content is None:
                work.content = await work.pdf.read(work.fetched_path)
            work.body, source = await asyncio.to_thread(load_pdf, work.content)
        self.outage.read_count += is_new
        work.context.source = source
        return entry

    async def _save(self, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        source = _require(work.context.source)
        if source.is_cut_off:
            return await self._fail(entry, INCOMPLETE)
        if await self.target.has(entry.name):
            return await self._fail(entry, NAME_CONFLICT)
        with _translate_read_errors():
            stored = await self.signing.save(work.body)
        self._stored_by_run.add(stored.identifier)
        saved = attrs.evolve(
            entry,
            state=DocumentState.SAVED,
            identifier=stored.identifier,
            saved_at=self.now(),
            source_sha=source.sha256,
            source_stamp=work.stamp,
        )
        return await self.journal.put(saved) if self.check_fields else saved  # else SIGNING is written at once

    async def _sign(self, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        identifier = _require(entry.identifier)
        if self.check_fields and (problem := await self._find_field_problem(identifier, work.signatures)) is not None:
            return await self._fail(entry, problem.journal_text)
        if isinstance(work.body, bytes) and len(work.body) <= MAX_IN_MEMORY_BYTES:
            with _open_staged(work.output_path) as file:
                signing = await self.journal.put(attrs.evolve(entry, state=DocumentState.SIGNING))
                signed: bytes = await self._sign_and_pull(identifier, work.signatures)
                work.context.output = await asyncio.to_thread(_write_and_inspect, file, signed)
            return signing
        signing = await self.journal.put(attrs.evolve(entry, state=DocumentState.SIGNING))
        await self._sign_and_pull(identifier, work.signatures, destination=work.output_path)
        return await self._examine_output(signing, work)

    async def _find_field_problem(self, identifier: str, signatures: Sequence[Signature]) -> FieldProblem | None:
        if all(signature.name is None for signature in signatures):
            return None
        fields = (await self.signing.get_doc_info(identifier)).signatures
        return next(filter(None, (find_field_problem(signature, fields) for signature in signatures)), None)

    async def _sign_and_pull(self, identifier: str, signatures: Sequence[Signature], **options: Path) -> Any:
        """The signed PDF; with `destination`, where it was put."""
        signing: Any = self.signing  # its overloads say which of the two it gives
        if len(signatures) == 1:
            signed = await signing.sign_and_pull(identifier, signatures[0], **options)
        else:
            signed = await signing.multi_sign_and_pull(identifier, signatures, **options)
        self.outage.signed_count += 1
        return signed

    async def _download(self, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        """Get what became of a request whose answer nobody has."""
        await self.signing.download(_require(entry.identifier), work.output_path)
        return await self._examine_output(entry, work)

    async def _examine_output(self, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        work.context.output = await asyncio.to_thread(inspect_pdf, work.output_path)
        return entry

    async def publish_output(self, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        """Have the target keep the signed PDF.

        Its digest is written first: it is known then if this run dies, and who had to give up its documents keeps none
        that is another's by now.
        """
        entry = await self.journal.put(attrs.evolve(entry, output_sha=_require(work.context.output).sha256))
        try:
            await self.target.publish(entry.name, work.output_path)
        except FileExistsError:
            return await self._fail(entry, NAME_CONFLICT)
        return await self.journal.put(attrs.evolve(entry, state=DocumentState.SIGNED))

    async def _delete(self, entry: SigningEntry) -> SigningEntry:
        """Delete what is stored. What can't be deleted now is tried later: the document itself is done."""
        self._stored_by_run.discard(entry.identifier)
        if entry.identifier is not None and not await self._try_delete(entry.identifier):
            return await self.journal.abandon(entry, at=self.now(), then=DocumentState.DONE)
        return await self.journal.put(
            attrs.evolve(
                entry, state=DocumentState.DONE, identifier=None, saved_at=None, problem=None, service_message=None
            )
        )

    async def _try_delete(self, identifier: str) -> bool:
        try:
            await self.signing.delete(identifier)
        except UNKNOWN_IDENTIFIER_ERRORS:
            return True
        except DirectSuiteError:
            return False
        return True

    async def _is_stored(self, identifier: str) -> bool:
        try:
            await self.signing.get_doc_info(identifier)
        except DirectSuiteError as error:
            if isinstance(error, UNKNOWN_IDENTIFIER_ERRORS) or may_belong_to_another_account(
                error, is_ours=identifier in self._stored_by_run
            ):
                return False
            raise
        return True

    async def _abandon(self, entry: SigningEntry, work: _DocumentWork, *, was_asked: bool = True) -> SigningEntry:
        """Begin anew without what is stored, unless that has been done too often. was_asked: for its signature.

        Raises the failure of the request that left no signature: the job judges whether to wait for the service.
        """
        is_earlier = (
            entry.state is DocumentState.SAVED and entry.identifier not in self._stored_by_run
        )  # by a run that ended there
        is_try = was_asked and not is_earlier
        failure, work.failure = work.failure, None
        if is_try and failure is None and is_last_try(entry):
            return await self._fail(entry, GAVE_UP)
        self._stored_by_run.discard(entry.identifier)
        work.context.source = work.context.output = None
        entry = await self.journal.abandon(entry, at=self.now(), is_try=is_try)
        if failure is not None:
            raise failure
        return entry

    async def _fail(self, entry: SigningEntry, problem: str, service_message: str | None = None) -> SigningEntry:
        self._stored_by_run.discard(entry.identifier)
        return await self.journal.abandon(
            entry, at=self.now(), then=DocumentState.FAILED, problem=problem, service_message=service_message
        )


def _require(value: T | None) -> T:
    """A value that the workflow has by the time of the step that needs it."""
    if value is None:
        raise AssertionError(_STEP_ORDER_ERROR)
    return value


def _describe_problem(error: DirectSuiteError | SourceError) -> str:
    if isinstance(error, InvalidArgumentError):
        return error.explanation.removeprefix(f"{error.parameter}: ")
    return error.kind if isinstance(error, SourceError) else error.explanation


@contextlib.contextmanager
def _open_staged(output: Path) -> Generator[BinaryIO]:
    """The file for a signed PDF, made before anything is signed. Raises StagingError where it can't be."""
    try:
        try:
            file = create_file(output)
        except FileExistsError:  # of an earlier try
            output.unlink()
            file = create_file(output)
    except OSError as error:
        kind = explain_os_error(error)
    else:
        with file:
            yield file
        return
    raise StagingError(kind)


def _write_and_inspect(file: BinaryIO, pdf: bytes) -> PdfInfo:
    """What a PDF is like, once it is on the disk."""
    file.write(pdf)
    file.flush()
    os.fsync(file.fileno())
    return inspect_pdf(pdf)


def _remove(fetched: Path) -> None:
    if fetched.is_dir():  # some storages have folders under a document's name
        shutil.rmtree(fetched, ignore_errors=True)
    else:
        fetched.unlink(missing_ok=True)


@contextlib.contextmanager
def _translate_read_errors() -> Generator[None]:
    """Raise SourceError in place of OSError, which names the document, and where what was waited for was cancelled."""
    try:
        yield
    except OSError as error:
        failure = SourceError.from_os_error(error)
    except asyncio.CancelledError:
        if is_being_cancelled():
            raise
        failure = SourceError("it was cancelled")
    else:
        return
    raise failure
