"""The steps of a document's workflow: calls of the service, journal, source and target, and their log lines.

    INFO signing: document 3 of the journal is tried again (ServerError, HTTP 500, in 4.0 s, call 9, group 7)
    WARNING signing: document 3 of the journal is FAILED (BadRequestError, HTTP 400, call 12, group 7)
    WARNING signing: document 4 of the journal is FAILED, but may be signed (ServerError, HTTP 500, call 14, group 9)
    WARNING signing: the job stopped (target not writable, what to do: fix the cause, then run the job again)

Log lines have the numbers of documents, never their names. Each record has the fields of its line in the dictionary
`record.directsuite`, and its kind as `event`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Generator, Sequence
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import attrs

from directsuite.core.clock import is_being_cancelled
from directsuite.core.events import FIELDS, get_group, group_calls
from directsuite.core.files import create_file, explain_os_error, run_in_thread
from directsuite.core.outcome import find_failure_reason, find_loggable_code
from directsuite.errors import DirectSuiteError, InvalidArgumentError, ServiceError, TransportError
from directsuite.jobs.signing.documents import (
    MAX_IN_MEMORY_BYTES,
    Pdf,
    PdfInfo,
    RemoteFile,
    SourceError,
    Target,
    has_changed,
    inspect_pdf,
    load_pdf,
    read_stamp,
)
from directsuite.jobs.signing.journal import Lease
from directsuite.jobs.signing.workflow import (
    UNKNOWN_IDENTIFIER_ERRORS,
    DocumentProblem,
    DocumentState,
    ErrorReaction,
    OutageTracker,
    RunContext,
    SigningEntry,
    SigningStep,
    classify_error,
    find_field_problem,
    may_belong_to_another_account,
    next_step,
)
from directsuite.signing.arguments import NOT_A_PDF
from directsuite.signing.models import Signature
from directsuite.signing.service import Signing

T = TypeVar("T")

_LOGGER = logging.getLogger("directsuite")

_PHRASES = {**FIELDS, "problem": "{}", "advice": "what to do: {}"}
_SHOWN_FIELDS = ("problem", "error", "reason", "status", "code", "wait", "call", "group", "advice")
"""The fields in the text of a log line, in this order. The others are only in the dictionary."""

_MAX_TRIES = 5
_MAX_MESSAGE_CHARS = 1000
_STEP_ORDER_ERROR = "a step of the workflow ran before a step that it depends on"
_MAX_STORED_SECONDS = 4 * 3600.0
"""The service deletes stored documents after this time without activity."""


class StagingError(OSError):
    """The staging folder is not writable. kind: the reason."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"the staging folder is not writable ({kind})")
        self.kind = kind

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kind,), self.__dict__


@attrs.define(repr=False, eq=False)
class _DocumentWork:
    pdf: Pdf
    signatures: Sequence[Signature]
    fetched_path: Path
    output_path: Path
    context: RunContext
    content: bytes | Path | None = None
    """The source, or None before it is read."""
    stamp: str | None = None
    """The stamp of the source before it was read."""
    body: bytes | Path = b""
    """Bytes if small, else a path."""
    failure: DirectSuiteError | None = None
    """The cause of an unknown outcome of this run's signing request."""
    is_downloaded: bool = False
    """True if the output was downloaded after an unknown outcome, and is not the response to the signing request."""


@attrs.define(kw_only=True, repr=False, eq=False)
class DocumentWorkflow:
    """Runs documents through the workflow."""

    signing: Signing
    lease: Lease
    target: Target
    staging_dir: Path
    """The folder for PDFs in progress."""
    outage: OutageTracker
    now: Callable[[], float]
    """Returns Unix time."""
    check_fields: bool = False
    """True if a named signature needs an empty field of its name, or a widget and no field."""
    # The group of the document's calls for each identifier that this run stored, and did not delete.
    _stored_by_run: dict[str | None, int | None] = attrs.field(factory=dict[str | None, int | None], init=False)

    async def run(self, entry: SigningEntry, pdf: Pdf, signatures: Sequence[Signature]) -> SigningEntry:
        """Run the remaining steps of a document. Return its last entry: DONE or FAILED.

        Raises errors that the document did not cause: DirectSuiteError, SourceError if other documents may also be
        unreadable, and OSError of the target or staging folder.
        """
        # Unique, because a thread may still write to the files of a cancelled run.
        stem = f"{entry.number}.{secrets.token_hex(8)}"
        fetched, output = (self.staging_dir / f"{stem}{suffix}" for suffix in (".source", ".signed"))
        work = _DocumentWork(pdf, signatures, fetched, output, RunContext(signature_count=len(signatures)))
        try:
            while (step := next_step(entry, work.context, self.now())) is not SigningStep.END:
                try:
                    entry = await self._run_step(step, entry, work)
                except (DirectSuiteError, SourceError) as error:
                    entry = await self._react(step, entry, work, error)
                if entry.state is DocumentState.FAILED:  # only another run retries it
                    break
        finally:
            if isinstance(pdf.content, RemoteFile):
                _remove(fetched)
            if entry.state is not DocumentState.DONE:
                output.unlink(missing_ok=True)
        return entry

    async def fail(self, entry: SigningEntry, error: DirectSuiteError | SourceError) -> SigningEntry:
        """Record that a document failed, and abandon its stored document."""
        if isinstance(error, SourceError):
            return await self._fail(entry, f"it can't be read ({error.kind})", error)
        text = _describe_problem(error)
        return await self._fail(entry, DocumentProblem.NOT_A_PDF if text == NOT_A_PDF else text, error)

    async def cleanup(self, concurrency: int) -> None:
        """Delete abandoned stored documents, `concurrency` at a time. Leave failures to a later call.

        Raises SigningJournalError.
        """
        await self.lease.forget_expired(self.now(), _MAX_STORED_SECONDS)
        last = ""
        while some := await self.lease.list_abandoned(after=last, limit=concurrency):
            gone = await asyncio.gather(*map(self._try_delete, some))
            await self.lease.forget([each for each, is_gone in zip(some, gone, strict=True) if is_gone])
            if not any(gone):
                return
            last = some[-1]

    async def _run_step(self, step: SigningStep, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        match step:
            case SigningStep.RESET:
                return await self.lease.put(entry.reset())
            case SigningStep.VERIFY_OUTPUT:
                return await self._verify_output(entry, work)
            case SigningStep.FETCH:
                return await self.fetch(entry, work)
            case SigningStep.FAIL_CHANGED:
                return await self._fail(entry, DocumentProblem.SOURCE_CHANGED)
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
            case ErrorReaction.UNDO | ErrorReaction.STOP:
                await self.lease.put(entry)
                if reaction is ErrorReaction.STOP:
                    raise StagingError(_describe_problem(error)) from None
                raise error
            case _:
                raise error

    async def _verify_output(self, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        work.context.is_output_verified = True
        if entry.output_sha is not None and await self.target.contains(entry.name, entry.output_sha):
            return await self.lease.put(attrs.evolve(entry, state=DocumentState.SIGNED))
        return entry

    async def fetch(self, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        """Fetch the source in the first call. Load it in every call: a file may have changed."""
        is_new = work.content is None
        if is_new:
            self.target.check(entry.name)
        with _translate_read_errors():
            work.stamp = read_stamp(work.pdf)
            if work.content is None:
                work.content = await work.pdf.read(work.fetched_path)
            work.body, source = await run_in_thread(load_pdf, work.content)
        self.outage.read_count += is_new
        work.context.source = source
        return entry

    async def _save(self, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        source = _require(work.context.source)
        if source.is_cut_off:
            return await self._fail(entry, DocumentProblem.INCOMPLETE)
        if await self.target.has(entry.name):
            return await self._fail(entry, DocumentProblem.NAME_CONFLICT)
        with _translate_read_errors():
            stored = await self.signing.save(work.body)
        self._stored_by_run[stored.identifier] = get_group()
        saved = attrs.evolve(
            entry,
            state=DocumentState.SAVED,
            identifier=stored.identifier,
            saved_at=self.now(),
            source_sha=source.sha256,
            source_stamp=work.stamp,
        )
        # A large file is read twice: the stored PDF may be another one, or a mixture of both.
        if isinstance(work.body, Path) and await run_in_thread(has_changed, work.pdf, work.stamp, source.sha256):
            return await self._fail(saved, DocumentProblem.SOURCE_CHANGED)
        return await self.lease.put(saved) if self.check_fields else saved  # else SIGNING follows immediately

    async def _sign(self, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        identifier = _require(entry.identifier)
        if self.check_fields and (problem := await self._find_field_problem(identifier, work.signatures)) is not None:
            return await self._fail(entry, problem)
        if isinstance(work.body, bytes) and len(work.body) <= MAX_IN_MEMORY_BYTES:
            with _open_staged(work.output_path) as file:
                signing = await self.lease.put(attrs.evolve(entry, state=DocumentState.SIGNING))
                signed: bytes = await self._sign_and_pull(identifier, work.signatures)
                work.context.output = await run_in_thread(_write_and_inspect, file, signed)
            return signing
        signing = await self.lease.put(attrs.evolve(entry, state=DocumentState.SIGNING))
        await self._sign_and_pull(identifier, work.signatures, destination=work.output_path)
        return await self._examine_output(signing, work)

    async def _find_field_problem(self, identifier: str, signatures: Sequence[Signature]) -> DocumentProblem | None:
        if all(signature.name is None for signature in signatures):
            return None
        fields = (await self.signing.get_doc_info(identifier)).signatures
        return next(filter(None, (find_field_problem(signature, fields) for signature in signatures)), None)

    async def _sign_and_pull(self, identifier: str, signatures: Sequence[Signature], **options: Path) -> Any:
        # The type of the result depends on `destination`.
        signing: Any = self.signing.with_job_finds_out()
        if len(signatures) == 1:
            signed = await signing.sign_and_pull(identifier, signatures[0], **options)
        else:
            signed = await signing.multi_sign_and_pull(identifier, signatures, **options)
        self.outage.signed_count += 1
        return signed

    async def _download(self, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        await self.signing.download(_require(entry.identifier), work.output_path)
        work.is_downloaded = True
        entry = await self._examine_output(entry, work)
        if next_step(entry, work.context, self.now()) is SigningStep.STORE:
            text = "is signed: an earlier request took effect"
            log_document(INFO, "OutcomeFound", entry.number, text, happened=True)
        return entry

    async def _examine_output(self, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        work.context.output = await run_in_thread(inspect_pdf, work.output_path)
        return entry

    async def publish_output(self, entry: SigningEntry, work: _DocumentWork) -> SigningEntry:
        """Record the output's digest, then publish it. Fail if the target has a different file of this name.

        After a crash, the next run recognizes the file by the digest. A worker without lease fails before publishing.
        """
        entry = await self.lease.put(attrs.evolve(entry, output_sha=_require(work.context.output).sha256))
        try:
            await self.target.publish(entry.name, work.output_path)
        except FileExistsError:
            return await self._fail(entry, DocumentProblem.NAME_CONFLICT)
        return await self.lease.put(attrs.evolve(entry, state=DocumentState.SIGNED))

    async def _delete(self, entry: SigningEntry) -> SigningEntry:
        if entry.identifier is not None and not await self._try_delete(entry.identifier):
            return await self.lease.abandon(entry, at=self.now(), then=DocumentState.DONE)
        return await self.lease.put(
            attrs.evolve(
                entry, state=DocumentState.DONE, identifier=None, saved_at=None, reason=None, service_message=None
            )
        )

    async def _try_delete(self, identifier: str) -> bool:
        try:
            with group_calls(self._stored_by_run.get(identifier)):
                await self.signing.delete(identifier)
        except UNKNOWN_IDENTIFIER_ERRORS:
            pass
        except DirectSuiteError:
            return False
        self._stored_by_run.pop(identifier, None)
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
        """Abandon the stored document. Fail the document after its last attempt. was_asked: signing was requested.

        Raises the failure of the signing request, if any, so that the job decides whether to wait for the service.
        """
        is_earlier = entry.state is DocumentState.SAVED and entry.identifier not in self._stored_by_run
        is_try = was_asked and not is_earlier
        failure, work.failure = work.failure, None
        if is_try and failure is None and entry.tries + 1 >= _MAX_TRIES:
            return await self._fail(entry, DocumentProblem.GAVE_UP)
        abandoned = await self.lease.abandon(entry, at=self.now(), is_try=is_try)
        _log_restart(entry, work.context.output, is_downloaded=work.is_downloaded)
        work.context.source = work.context.output = None
        work.is_downloaded = False
        if failure is not None:
            raise failure
        return abandoned

    async def _fail(
        self,
        entry: SigningEntry,
        reason: DocumentProblem | str,
        error: DirectSuiteError | SourceError | None = None,
    ) -> SigningEntry:
        message: str | None = None
        if isinstance(error, ServiceError) and error.message:  # databases cannot store all characters
            message = error.message[:_MAX_MESSAGE_CHARS].replace("\0", "").encode("utf-8", "replace").decode()
        failed = await self.lease.abandon(
            entry, at=self.now(), then=DocumentState.FAILED, reason=reason, service_message=message
        )
        problem = reason.value if isinstance(reason, DocumentProblem) else None
        may_be_signed = entry.state is DocumentState.SIGNING or None
        text = "is FAILED, but may be signed" if may_be_signed else "is FAILED"
        fields = {"state": "FAILED", "problem": problem, "may_be_signed": may_be_signed}
        log_document(WARNING, "DocumentEnded", entry.number, text, error=error, **fields)
        return failed


def log_document(
    level: int, event: str, number: int, text: str, *, error: Exception | None = None, **fields: str | float | None
) -> None:
    """Log what happened to a document, with the group of its calls.

    error: the cause, without its text, which may be that of a custom target.
    fields: further fields, of which those that are None are left out.
    """
    fields = {"event": event, "document": number, **fields, "group": get_group()}
    _log(level, f"document {number} of the journal {text}", fields, error)


def log_stopped(error: DirectSuiteError, reason: str | None) -> None:
    """Log that a job stopped, with the type of its cause. reason: that of the JobStoppedError `error`."""
    fields: dict[str, str | float | None]
    fields = {"event": "JobStopped", "reason": reason, "advice": error.advice, "group": error.group}
    _log(WARNING, "the job stopped", fields, error.__cause__)


def _log(level: int, text: str, fields: dict[str, str | float | None], error: BaseException | None) -> None:
    if not _LOGGER.isEnabledFor(level):
        return
    if error is not None:
        fields["error"] = type(error).__name__
        fields["reason"] = find_failure_reason(error)
        fields["status"] = error.status if isinstance(error, ServiceError) else None
        fields["code"] = find_loggable_code(error)
        fields["call"] = error.call if isinstance(error, DirectSuiteError) else None
    written = {name: value for name, value in fields.items() if value is not None}
    details = [_PHRASES[name].format(written[name]) for name in _SHOWN_FIELDS if name in written]
    if "document" in written and "group" not in written:
        details.append("no calls")
    line = f"{text} ({', '.join(details)})" if details else text
    _LOGGER.log(level, "signing: %s", line, extra={"directsuite": written})


def _log_restart(entry: SigningEntry, output: PdfInfo | None, *, is_downloaded: bool) -> None:
    """Log that a document starts again.

    output: the response to the signing request, or the stored document if `is_downloaded`. None if there is neither.
    is_downloaded: True if the output was downloaded because the outcome of the request was unknown.
    """
    subject = "its stored document"
    if output is None:
        was_unknown = may_be_signed = entry.state is DocumentState.SIGNING
        why = "is no longer available" if was_unknown else "has expired or is not available"
    else:
        was_unknown, may_be_signed = is_downloaded, output.is_cut_off
        why = "was not received completely" if output.is_cut_off else "is not signed"
        subject = subject if is_downloaded else "the response to its signing request"
    if may_be_signed:
        why += ", and the document may have been signed"
    event = "OutcomeFound" if was_unknown else "DocumentRetried"
    happened = False if was_unknown and not may_be_signed else None
    log_document(INFO, event, entry.number, f"starts again: {subject} {why}", happened=happened)


def _require(value: T | None) -> T:
    if value is None:
        raise AssertionError(_STEP_ORDER_ERROR)
    return value


def _describe_problem(error: DirectSuiteError | SourceError) -> str:
    if isinstance(error, InvalidArgumentError):
        return error.explanation.removeprefix(f"{error.parameter}: ")
    return error.kind if isinstance(error, SourceError) else error.explanation


@contextlib.contextmanager
def _open_staged(output: Path) -> Generator[BinaryIO]:
    """Create the file before signing is requested, and yield it. Raises InvalidArgumentError if it is not writable."""
    try:
        output.unlink(missing_ok=True)  # left by an earlier attempt
        file = create_file(output)
    except OSError as error:
        raise InvalidArgumentError(explain_os_error(error), parameter="destination") from None
    with file:
        yield file


def _write_and_inspect(file: BinaryIO, pdf: bytes) -> PdfInfo:
    file.write(pdf)
    file.flush()
    os.fsync(file.fileno())
    return inspect_pdf(pdf)


def _remove(fetched: Path) -> None:
    if fetched.is_dir():  # some storages create a folder
        shutil.rmtree(fetched, ignore_errors=True)
    else:
        fetched.unlink(missing_ok=True)


@contextlib.contextmanager
def _translate_read_errors() -> Generator[None]:
    """Raise SourceError instead of an OSError, which names the document, and if a task of the source was cancelled."""
    try:
        yield
    except TransportError:  # DeadlineExceededError is also an OSError
        raise
    except OSError as error:
        failure = SourceError.from_os_error(error)
    except asyncio.CancelledError:
        if is_being_cancelled():
            raise
        failure = SourceError("it was cancelled")
    else:
        return
    raise failure
