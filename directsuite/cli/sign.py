"""`directsuite sign`: sign PDFs and folders of PDFs. Each PDF is signed once, even if the command is interrupted.

sources ──► Admission ──► SigningJob ──► --output
             │  skips and reports: files that are not PDFs, PDFs signed before, names that the output has
journal ─────┴─ next to the output: the same command continues an interrupted run
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import tempfile
import zoneinfo
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated

import attrs
from cyclopts import Group, Parameter

import directsuite as ds
from directsuite.cli import options as opt
from directsuite.cli import sign_sources
from directsuite.cli.command import Command, Work, make_request_listeners
from directsuite.cli.credentials import load_settings, read_input, read_token
from directsuite.cli.errors import (
    UsageError,
    create_folder,
    exit_for_error,
    explain_write_error,
    validate_text,
    with_value,
)
from directsuite.cli.output import Bar, format_count, show_json, show_progress, show_table, show_text
from directsuite.cli.process import ExitStatus, echo_err
from directsuite.core.files import run_in_thread
from directsuite.jobs.signing import (
    DocumentState,
    JobStoppedError,
    SigningEntry,
    SigningJob,
    SigningJournal,
    SigningJournalError,
    SigningProgress,
    TargetFolder,
)
from directsuite.jobs.signing.journal import compute_signatures_digest

app = opt.make_app(
    "sign",
    "consent.pdf --output signed.pdf --name PatientSignature",
    "consents --output signed --name PatientSignature --dry-run",
    "consents --output signed --name PatientSignature",
    "form.pdf --output form-signed.pdf --widget 72,620,200,70",
)
_SIGNATURE_GROUP = Group("Signatures", sort_key=1)
_PROCESSING_GROUP = Group("Processing", sort_key=2)
_SignatureParameter = Parameter(group=_SIGNATURE_GROUP)
_ProcessingParameter = Parameter(group=_PROCESSING_GROUP)


@opt.record
class SignOptions(opt.CommonOptions):
    """Options of `sign`."""

    output: Annotated[Path, Parameter(converter=opt.convert_path)]
    """The folder for the signed files, which keep their names; it is created if necessary. For a single PDF, it can be
    a file that ends in .pdf.
    """
    recursive: Annotated[bool, opt.Flag] = False
    """Include subfolders."""
    name: Annotated[tuple[str, ...], opt.Repeatable, _SignatureParameter] = ()
    """A signature's name. Can be repeated. Without --widget, it names an empty signature field: a PDF without that
    field is not signed.
    """
    widget: Annotated[tuple[str, ...], opt.Repeatable, _SignatureParameter] = ()
    """The position of a signature: X,Y,WIDTH,HEIGHT or X,Y,WIDTH,HEIGHT,PAGE, in points from the top left corner of the
    page. PAGE counts from 1, the default; `directsuite sign info` shows the number of pages and their size. Can be
    repeated. Without it, a signature is in the field named by --name, or invisible.
    """
    image: Annotated[Path | None, _SignatureParameter, Parameter(converter=opt.convert_path)] = None
    """A PNG or JPEG file that the signatures show."""
    reason: Annotated[str | None, _SignatureParameter] = None
    """The reason for signing."""
    signer: Annotated[str | None, _SignatureParameter] = None
    """The name of the signer."""
    timezone: Annotated[str | None, _SignatureParameter] = None
    """The signer's time zone, such as America/New_York."""
    dry_run: Annotated[bool, opt.Flag, _ProcessingParameter] = False
    """Show which PDFs would be signed, and why others would not; send nothing. Only if --output is a folder."""
    again: Annotated[bool, opt.Flag, _ProcessingParameter] = False
    """Also sign the PDFs that failed before. Only if --output is a folder."""
    overwrite: Annotated[bool, opt.Flag, _ProcessingParameter] = False
    """Replace existing files."""
    concurrency: Annotated[int, opt.integer_parameter(gte=1, lte=100), _ProcessingParameter] = 10
    """The number of PDFs processed at the same time. Only if --output is a folder."""
    patience: Annotated[float, opt.seconds_parameter(gte=0), _ProcessingParameter] = 120.0
    """Seconds to wait for a failing service; with 0, nothing is retried. Only if --output is a folder."""
    token_file: opt.TokenFile = None
    json: opt.Json = False


_HINT_REPEAT_COMMAND = "run the same command again: it skips signed PDFs and signs the others"
_HINT_USE_AGAIN_OPTION = "The table shows the reasons. Fix them, then run the same command with --again."
_WITHIN_SOURCES_TEXT = " within the sources"
_HINT_CHECK_URL = (
    "check DIRECTSUITE_SIGNING_URL and the proxies between here and the service; if they are right, ask its provider"
)
_NOT_DELETED_MESSAGE = (
    "The service still stores signed PDFs that could not be deleted there: {count}. The next command with this "
    "--output deletes them. Otherwise they expire 4 hours after their last use."
)
_SIGNATURES_DIFFER = (
    "--output contains PDFs that were signed with other options (--name, --widget, --image and so on). "
    "Name a different --output, or use the same options as before."
)
_OUTAGE_CAUSES = {
    "ConnectFailedError": "Could not connect to the service (run `directsuite doctor` to see why)",
    "RateLimitedError": "The service gets too many requests",
}
"""The reason for waiting, by the name of the error with which the outage began."""
_MAX_TABLE_ROWS = 200

_NUMBER = r"([0-9]{1,9}(?:\.[0-9]+)?)"
_WIDGET_PATTERN = re.compile(rf"{_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER}(?:,([1-9][0-9]{{0,8}}))?")
_IMAGE_MAGIC_BYTES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_MAX_IMAGE_BYTES = 1_000_000  # sent with each signature, and providers limit request bodies to a megabyte


def sign_into_folder(command: Command, paths: Sequence[Path], options: SignOptions) -> Work:
    """Sign several PDFs, or one into a folder. Return the coroutine."""
    command.resume_hint = "nothing was sent: run the same command again" if options.dry_run else _HINT_REPEAT_COMMAND
    options = dataclasses.replace(options, output=_resolve_output(options.output))
    signatures = make_signatures(options)
    if not options.output.name:
        raise UsageError("--output is the root folder, and the journal must be next to --output. Name another folder.")
    sources = sign_sources.PdfSources(paths, output=options.output, recursive=options.recursive)
    for number, problem in sources.problems.items():
        echo_err(f"{with_value(f'Source {number}', paths[number - 1])} {problem}. It is not signed.")
    if not sources:
        raise UsageError("There is nothing to sign. Name PDFs, or folders that contain PDFs.")
    if sign_sources.is_named_as_pdf(options.output):
        raise UsageError("--output ends in .pdf, which is only possible for a single PDF. Name a folder.")
    if len(paths) == 1 and not paths[0].is_dir() and options.output.suffix and not options.output.exists():
        raise UsageError(
            f"{with_value('--output', options.output)} looks like a file that is not a PDF. Name a file that ends in "
            ".pdf, or a folder without a file extension."
        )
    if options.dry_run:
        return _show_plan(signatures, sources, options)
    return _sign_sources(load_settings("signing"), read_token(options.token_file), signatures, sources, options)


async def _show_plan(signatures: Sequence[ds.Signature], sources: sign_sources.PdfSources, options: SignOptions) -> int:
    async with _open_admission(sources, signatures, options) as admission, show_progress("reading"):
        verdicts = [each async for each in admission.iter_verdicts()]
    if options.json:
        show_json(
            [
                {
                    "source": str(each.candidate.file),
                    "output": str(options.output / each.candidate.name),
                    "would_be_signed": each.is_wanted,
                    "signed_before": each.decision is sign_sources.Decision.SIGNED_BEFORE,
                    "problem": each.reason,
                }
                for each in verdicts
            ]
        )
    else:
        rows = [(str(each.candidate.file), _describe_plan(each, options.output)) for each in verdicts]
        _show_rows(("file", "would be"), rows)
    sign_sources.report_skipped(sources.skipped, _WITHIN_SOURCES_TEXT)
    echo_err(f"Dry run: nothing was sent. {format_count(admission.wanted_count, 'PDF')} would be signed.")
    return _get_exit_status(sources, admission, options)


async def _sign_sources(
    settings: ds.Settings,
    access_token: ds.Secret | ds.ClientCredentials | ds.RefreshToken,
    signatures: Sequence[ds.Signature],
    sources: sign_sources.PdfSources,
    options: SignOptions,
) -> int:
    from tenacity import stop_before_delay  # slow to import

    create_folder("--output", options.output)
    retry_policy = attrs.evolve(settings.retry, stop=stop_before_delay(options.patience))
    stopped: tuple[ExitStatus, str] | None = None
    # Not Command.make_suite: the journal resolves unknown outcomes.
    async with (
        ds.DirectSuite(settings, token=access_token, listeners=make_request_listeners()) as suite,
        _open_admission(sources, signatures, options) as admission,
    ):
        async with show_progress("signing", unit="pieces") as bar:
            job = SigningJob(
                suite.signing.with_options(retry=retry_policy),
                admission,
                TargetFolder(options.output, overwrite=options.overwrite),
                signatures,
                journal=admission.journal,
                concurrency=options.concurrency,
                max_outage=options.patience,
                check_fields=True,
                progress=_make_reporter(admission, bar, await run_in_thread(sources.count), options.patience),
            )
            try:
                await job.run()
            except JobStoppedError as error:
                stopped = _exit_for_stopped_job(error)
            except asyncio.CancelledError:
                echo_err(f"{format_count(job.progress.done, 'PDF')} signed.")
                raise
        entries = await admission.journal.lease.find_entries(admission.failed_names | job.failed_names)
        failed = sorted(entries.values(), key=lambda entry: entry.number)
        left = len(await admission.journal.lease.list_abandoned())
    if admission.counts.total():
        sign_sources.report_skipped(sources.skipped, _WITHIN_SOURCES_TEXT)
    if left:
        echo_err(_NOT_DELETED_MESSAGE.format(count=format_count(left, "stored copy", "stored copies")))
    _show_report(job, admission, failed, stopped and stopped[1], options)
    if stopped is None:
        return _get_exit_status(sources, admission, options, failed=len(failed))
    echo_err(stopped[1])
    echo_err(f"Stopped. After the fix, {_HINT_REPEAT_COMMAND}.")
    if failed and not admission.again:
        echo_err(f"{format_count(len(failed), 'PDF')} failed and would be skipped. {_HINT_USE_AGAIN_OPTION}")
    return stopped[0]


@asynccontextmanager
async def _open_admission(
    sources: sign_sources.PdfSources, signatures: Sequence[ds.Signature], options: SignOptions
) -> AsyncGenerator[sign_sources.Admission]:
    """Open the journal, for a dry run a temporary one if there is none.

    A journal of other signatures, with which no PDF was signed, is replaced, because a user may have corrected a
    --widget.
    """
    path = options.output.with_name(f"{options.output.name}.signing.db")
    is_known = await run_in_thread(os.path.lexists, path)
    is_obsolete = is_known and await _is_journal_obsolete(path, signatures)
    again = options.again and not is_obsolete
    async with AsyncExitStack() as stack:
        if options.dry_run and (is_obsolete or not is_known):
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / path.name
        elif is_obsolete:
            for end in ("", "-wal", "-shm"):  # SQLite's files next to the database
                path.with_name(f"{path.name}{end}").unlink(missing_ok=True)
        journal = await stack.enter_async_context(_open_journal(path))
        if again and not options.dry_run:
            await journal.retry()
        yield sign_sources.Admission(sources, journal, options.output, again=again, overwrite=options.overwrite)


def _make_reporter(
    admission: sign_sources.Admission, bar: Bar, total: int, patience: float
) -> Callable[[SigningProgress], None]:
    """Return the function that updates the bar, and reports the first outage on stderr."""
    is_reported = False

    def report(progress: SigningProgress) -> None:
        nonlocal is_reported
        skipped = admission.counts.total() - admission.wanted_count
        bar.update(progress.done + progress.failed + skipped, total)
        if progress.trouble is not None and not is_reported:
            is_reported = True
            trouble = _OUTAGE_CAUSES.get(progress.trouble, "The service is unavailable")
            echo_err(f"{trouble}. Retrying for up to {patience:g} s; press Ctrl-C to stop.")

    return report


def _show_report(
    job: SigningJob,
    admission: sign_sources.Admission,
    failed: Sequence[SigningEntry],
    stopped: str | None,
    options: SignOptions,
) -> None:
    signed, signed_before = job.progress.done, admission.counts[sign_sources.Decision.SIGNED_BEFORE]
    if options.json:
        show_json(
            {
                "output": str(options.output),
                "signed": signed,
                "signed_before": signed_before,
                "failed": [
                    {"name": each.name, "problem": each.problem, "service_message": each.service_message}
                    for each in failed
                ],
                "refused": [
                    {"name": each.candidate.name, "source": str(each.candidate.file), "problem": each.reason}
                    for each in admission.rejected
                ],
                "stopped": stopped,
            }
        )
        return
    counts = {"signed before": signed_before, "failed": len(failed), "not signed": len(admission.rejected)}
    words = [f"{signed} signed", *(f"{count} {what}" for what, count in counts.items() if count)]
    show_text(f"{', '.join(words)}. Output folder: {options.output}")
    if signed and is_invisible(options):
        echo_err(HINT_INVISIBLE)
    rows = [(each.name, sign_sources.describe_failure(each)) for each in failed]
    rows += [(each.candidate.display_name, each.reason or "") for each in admission.rejected]
    _show_rows(("file", "reason"), rows)


def _get_exit_status(
    sources: sign_sources.PdfSources, admission: sign_sources.Admission, options: SignOptions, *, failed: int = 0
) -> int:
    """Report the number of unsigned PDFs. Return 0 if all are signed, 1 otherwise, or without a PDF or usable source.

    failed: the number of PDFs that failed in this run or before.
    """
    is_empty = not admission.counts.total()
    if is_empty:
        echo_err(sign_sources.describe_no_pdf(sources.folders, recursive=options.recursive))
    unsigned = failed + (0 if options.dry_run else len(admission.rejected))
    if unsigned:
        echo_err(f"{format_count(unsigned, 'PDF')} not signed. {_HINT_USE_AGAIN_OPTION}")
    failed += admission.counts[sign_sources.Decision.FAILED] if options.dry_run else 0
    return ExitStatus.FAILED if failed or admission.rejected or sources.problems or is_empty else ExitStatus.DONE


def _exit_for_stopped_job(stopped: JobStoppedError) -> tuple[ExitStatus, str]:
    cause = stopped.__cause__
    if not isinstance(cause, ds.DirectSuiteError):
        return ExitStatus.FAILED, f"{stopped.why}: fix this first"
    return exit_for_error(cause, recovery_hint=_HINT_REPEAT_COMMAND, advice={ds.ServiceError: _HINT_CHECK_URL})


def _describe_plan(verdict: sign_sources.CandidateVerdict, output: Path) -> str:
    match verdict.decision:
        case sign_sources.Decision.SIGN | sign_sources.Decision.SIGN_AGAIN:
            return f"signed into {output / verdict.candidate.name}"
        case sign_sources.Decision.REJECTED:
            return f"not signed: {verdict.reason}"
        case sign_sources.Decision.FAILED:
            return f"skipped: it failed before ({verdict.reason}); --again retries it"
        case sign_sources.Decision.SIGNED_BEFORE:
            return "skipped: it is signed"


def _show_rows(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    if rows:
        show_table(titles, sorted(rows, key=lambda row: str(row[0]))[:_MAX_TABLE_ROWS], no_wrap=titles[:1])
    if len(rows) > _MAX_TABLE_ROWS:
        show_text(f"{len(rows) - _MAX_TABLE_ROWS} more. --json shows all.")


def _resolve_output(output: Path) -> Path:
    try:
        folder = output.resolve()
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{with_value('--output', output)} is a file. Name a folder.")
    except OSError as error:
        raise UsageError(explain_write_error(error, with_value("--output", output))) from None
    except (RuntimeError, ValueError) as error:
        problem = "is a link that leads to itself" if isinstance(error, RuntimeError) else "has a NUL byte"
        raise UsageError(f"{with_value('--output', output)} {problem}. Name a different folder.") from None
    return folder


@asynccontextmanager
async def _open_journal(path: Path) -> AsyncGenerator[SigningJournal]:
    async with AsyncExitStack() as stack:
        try:
            journal = await stack.enter_async_context(SigningJournal(path))
        except SigningJournalError as error:
            label = with_value("the journal next to --output", path)
            raise UsageError(f"Could not open {label}. {error.explanation.rstrip('.')}.") from None
        yield journal


async def _is_journal_obsolete(path: Path, signatures: Sequence[ds.Signature]) -> bool:
    """Return True if the journal belongs to other signatures, with which no PDF was signed."""
    async with _open_journal(path) as journal:
        if await journal.read_claim() in (None, compute_signatures_digest(signatures)):
            return False
        states = (await journal.tally()).states
    if any(count for state, count in states.items() if state not in (DocumentState.NEW, DocumentState.FAILED)):
        raise UsageError(_SIGNATURES_DIFFER)
    return True


HINT_INVISIBLE = (
    "The signatures are invisible. To make them visible, give --widget X,Y,WIDTH,HEIGHT, or give --name to sign in a "
    "field of the PDF."
)


def is_invisible(options: SignOptions) -> bool:
    """Return True if no option gives the signatures a position."""
    return not options.name and not options.widget


def make_signatures(options: SignOptions) -> list[ds.Signature]:
    """Make a signature for each --name and --widget, paired in their order, or one without either."""
    for number, name in enumerate(options.name, start=1):
        validate_text(name, f"--name number {number}")
    validate_text(options.reason, "--reason")
    validate_text(options.signer, "--signer")
    names, many = options.name, len(options.widget) > 1
    widgets = [
        _parse_widget(text, f"--widget number {number}" if many else "--widget")
        for number, text in enumerate(options.widget, start=1)
    ]
    if names and widgets and len(names) != len(widgets):
        raise UsageError(
            f"--name is given {len(names)} times and --widget {len(widgets)} times. Give both for each signature, "
            "in the same order."
        )
    if not all(name.strip() for name in names):
        raise UsageError("A --name is empty. Name each signature, or omit --name.")
    if len(set(names)) < len(names):
        raise UsageError("The same --name is given twice. Use a different name for each signature.")
    zone = options.timezone
    # Some machines have no time zone data.
    if zone is not None and (zones := zoneinfo.available_timezones()) and zone not in zones:
        raise UsageError(
            f"{with_value('--timezone', zone)} is not a known time zone. Expected something like America/New_York "
            "or UTC."
        )
    image = None
    if options.image is not None:
        label = with_value("The file of --image", options.image)
        image = read_input(options.image, label, limit=_MAX_IMAGE_BYTES, advice="Name a smaller one.")
        if not image.startswith(_IMAGE_MAGIC_BYTES):
            raise UsageError(f"{label} is not a PNG or JPEG. Name a PNG or JPEG file.")
    if image is not None and is_invisible(options):
        raise UsageError("--image needs a visible signature. Give its position with --widget, or omit --image.")
    return [
        ds.Signature(
            name=names[number] if names else None,
            widget=widgets[number] if widgets else None,
            reason=options.reason,
            gs_name=options.signer,
            timezone=zone,
            graphical_signature=image,
        )
        for number in range(max(len(names), len(widgets), 1))
    ]


def _parse_widget(text: str, option: str) -> ds.Widget:
    found = _WIDGET_PATTERN.fullmatch(",".join(part.strip() for part in text.split(",")))
    x, y, width, height = map(float, found.groups()[:4]) if found else (0.0, 0.0, 0.0, 0.0)
    if found and width and height:
        return ds.Widget(x=x, y=y, width=width, height=height, page=int(found[5] or 1))
    raise UsageError(
        f"{with_value(option, text)} is not a position. Expected X,Y,WIDTH,HEIGHT or X,Y,WIDTH,HEIGHT,PAGE, such as "
        "72,620,200,70,1, in points from the top left corner of the page. No number may be below 0, WIDTH and HEIGHT "
        "must be above 0, and PAGE must be an integer of at least 1."
    )
