"""`directsuite sign`: PDFs and folders of them in, signed PDFs out, each signed once whatever happens meanwhile.

    sources ──► Admission ──► SigningJob ──► --output
                 │  no PDF, signed before, or the output is taken: told, and passed over
    journal ─────┴─ beside the output, so that the same command goes on where it was broken off

What is signed keeps its name: that of a file, or its path below the folder that was given.
"""

from __future__ import annotations

import asyncio
import math
import re
import zoneinfo
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.command import Command, make_request_listeners
from directsuite.cli.credentials import load_settings, read_token
from directsuite.cli.errors import UsageError, exit_for_error, rewrite_explanation, validate_text, with_value
from directsuite.cli.options import SignOptions
from directsuite.cli.output import Bar, show_json, show_progress, show_table, show_text
from directsuite.cli.process import ExitStatus, echo_err
from directsuite.cli.sign_sources import (
    Admission,
    CandidateVerdict,
    Decision,
    PdfSources,
    describe_failure,
    describe_no_pdf,
    is_named_as_pdf,
    report_skipped,
)
from directsuite.core.failures import explain_os_error
from directsuite.errors import ConfigurationError, DirectSuiteError, ServiceError
from directsuite.jobs.signing import (
    DocumentState,
    JobStoppedError,
    SigningEntry,
    SigningJob,
    SigningJournal,
    SigningJournalError,
    TargetFolder,
)
from directsuite.jobs.signing.journal import compute_signatures_digest
from directsuite.secret import Secret
from directsuite.settings import Settings
from directsuite.signing.models import Signature, Widget
from directsuite.suite import DirectSuite

_HINT_REPEAT_COMMAND = "give the same command again: it skips signed PDFs, and signs the others"
_HINT_USE_AGAIN_OPTION = "the table says why; put that right, and give the same command with --again"
_WITHIN_SOURCES_TEXT = " within the sources"
_HINT_FIX_CAUSE = "see to that before you go on"
_HINT_CHECK_URL = (
    "check DIRECTSUITE_SIGNING_URL, and proxies on the way to the service; if they are right, ask its provider"
)
_NOT_DELETED_MESSAGE = (
    "{count} could not be deleted at the service after signing: the next command on this --output deletes them, "
    "or they expire there, 4 hours after their last use"
)
_OUTPUT_NOT_CREATABLE = "--output can't be made ({why}): name a folder that can"
_SIGNATURES_DIFFER = (
    "--output has PDFs that were signed in another way (--name, --widget, --image and so on): "
    "name another --output, or sign as before"
)
_OUTAGE_CAUSES = {
    "ConnectFailedError": "the service can't be reached, `directsuite doctor` says why",
    "RateLimitedError": "the service gets too many requests",
}
"""What is waited for, by the type of the error with which it began."""
_PROGRESS_INTERVAL = 0.2  # seconds
_FAILURE_BATCH_ROWS = 500  # failures read from the journal
_MAX_TABLE_ROWS = 200  # of a table that people read

_IMAGE_MAGIC_BYTES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_MAX_IMAGE_BYTES = 1_000_000  # bytes: it goes with each signature, and such providers ask for bodies below a megabyte
_PAGE_NUMBER_PATTERN = re.compile(r"[0-9]{1,9}")


def sign(sources: Sequence[Path], options: SignOptions) -> int:
    """Sign the PDFs of the sources; the exit status."""
    resume = "nothing was sent: give the same command again" if options.dry_run else _HINT_REPEAT_COMMAND
    return Command(resume_hint=resume).run(lambda: _prepare_run(sources, options))


def _prepare_run(paths: Sequence[Path], options: SignOptions) -> Coroutine[Any, Any, int]:
    """Check the options, and ask for the token. Raises RefusedError."""
    options = attrs.evolve(options, output=_resolve_output(options.output))
    signatures = make_signatures(options)
    if not options.output.name:
        raise UsageError("--output is the root of all folders, beside which is no place for a journal: name one")
    sources = PdfSources(paths, output=options.output, recursive=options.recursive)
    for number, problem in sources.problems.items():
        echo_err(f"{with_value(f'number {number} of the sources', paths[number - 1])} {problem}: it isn't signed")
    if not sources:
        raise UsageError("there is nothing to sign: give PDFs, or folders that have some")
    if is_named_as_pdf(options.output):
        raise UsageError("--output ends in .pdf, which is for a single PDF: name a folder")
    if len(paths) == 1 and not paths[0].is_dir() and options.output.suffix and not options.output.exists():
        raise UsageError(
            f"{with_value('--output', options.output)} looks like a file that is no PDF: name one that ends in .pdf, "
            "or a folder without an ending"
        )
    if options.dry_run:
        return _show_plan(signatures, sources, options)
    return _sign_sources(load_settings("signing"), read_token(options.token_file), signatures, sources, options)


async def _show_plan(signatures: Sequence[Signature], sources: PdfSources, options: SignOptions) -> int:
    """Tell what would be signed. Raises RefusedError."""
    async with AsyncExitStack() as stack:
        journal, path = None, _get_journal_path(options.output)
        if await _is_journal_obsolete(path, signatures):
            options = attrs.evolve(options, again=False)  # what failed is all that there is
        elif _has_journal(path):
            journal = await stack.enter_async_context(_open_journal(path))
        admission = _make_admission(sources, journal, options)
        async with show_progress("reading"):
            verdicts = [each async for each in admission.iter_verdicts()]
    if options.json:
        show_json(
            [
                {
                    "source": str(each.candidate.file),
                    "output": str(options.output / each.candidate.name),
                    "would_be_signed": each.is_wanted,
                    "signed_before": each.decision is Decision.SIGNED_BEFORE,
                    "problem": each.reason,
                }
                for each in verdicts
            ]
        )
    else:
        rows = [(str(each.candidate.file), _describe_plan(each, options.output)) for each in verdicts]
        _show_rows(("file", "would be"), rows)
    report_skipped(sources.skipped, _WITHIN_SOURCES_TEXT)
    echo_err(f"this was a dry run: {_format_count(admission.wanted_count)} would be signed, and nothing was sent")
    return _get_exit_status(sources, admission, options)


async def _sign_sources(
    settings: Settings, access_token: Secret, signatures: Sequence[Signature], sources: PdfSources, options: SignOptions
) -> int:
    """Sign, and report. Raises RefusedError, and DirectSuiteError where the job didn't begin."""
    from tenacity import stop_before_delay  # commands that sign nothing don't pay for it

    target, path = _make_target(options.output, overwrite=options.overwrite), _get_journal_path(options.output)
    async with DirectSuite(
        settings, token=access_token, listeners=make_request_listeners()
    ) as suite:  # what is left unknown is the journal's to find out
        if await _is_journal_obsolete(path, signatures):
            await asyncio.to_thread(_remove_journal, path)
            options = attrs.evolve(options, again=False)  # what failed is all that there is
        async with _open_journal(path) as journal:
            if options.again:
                await journal.retry()
            admission = _make_admission(sources, journal, options)
            retry_policy = attrs.evolve(settings.retry, stop=stop_before_delay(options.patience))
            job = SigningJob(
                suite.signing.with_options(retry=retry_policy),
                admission,
                target,
                signatures,
                journal=journal,
                concurrency=options.concurrency,
                max_outage=options.patience,
                check_fields=True,
            )
            stopped: JobStoppedError | None = None
            async with (
                show_progress("signing", unit="pieces") as bar,
                _show_job_progress(job, admission, sources, bar, options),
            ):
                try:
                    await job.run()
                except JobStoppedError as error:
                    stopped = error
                except asyncio.CancelledError:
                    echo_err(f"{_format_count(job.progress.done)} signed")
                    raise
            failed = await _read_failures(journal, sources)
            left = len(await journal.list_abandoned())
        if admission.counts.total():
            report_skipped(sources.skipped, _WITHIN_SOURCES_TEXT)
        if left:
            echo_err(_NOT_DELETED_MESSAGE.format(count="1 stored copy" if left == 1 else f"{left} stored copies"))
        if stopped is None:
            _show_report(job, admission, failed, None, options)
            return _get_exit_status(sources, admission, options, failed=len(failed))
        status, sentence = _exit_for_stopped_job(stopped)
        _show_report(job, admission, failed, sentence, options)
        echo_err(sentence)
        echo_err(f"stopped; when that is put right, {_HINT_REPEAT_COMMAND}")
        if failed and not options.again:
            echo_err(f"{_format_count(len(failed))} failed, which the same command skips: {_HINT_USE_AGAIN_OPTION}")
        return status


def _show_report(
    job: SigningJob,
    admission: Admission,
    failed: Sequence[SigningEntry],
    stopped: str | None,
    options: SignOptions,
) -> None:
    """Show what was signed and what wasn't. stopped: why it did not come to its end."""
    signed, signed_before = job.progress.done, admission.counts[Decision.SIGNED_BEFORE]
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
    show_text(f"{', '.join(words)}; into {options.output}")
    if signed and is_invisible(options):
        echo_err(HINT_INVISIBLE)
    rows = [(each.name, describe_failure(each)) for each in failed]
    rows += [(each.candidate.display_name, each.reason or "") for each in admission.rejected]
    _show_rows(("file", "why it isn't signed"), rows)


def _get_exit_status(sources: PdfSources, admission: Admission, options: SignOptions, *, failed: int = 0) -> int:
    """The exit status of a command that came to its end, and on stderr what is left to do. failed: documents."""
    if not admission.counts.total() and not options.dry_run:
        echo_err(describe_no_pdf(recursive=options.recursive))
    unsigned = failed + (0 if options.dry_run else len(admission.rejected))
    if unsigned:
        echo_err(f"{_format_count(unsigned)} not signed: {_HINT_USE_AGAIN_OPTION}")
    failed += admission.counts[Decision.FAILED] if options.dry_run else 0
    return ExitStatus.FAILED if failed or admission.rejected or sources.problems else ExitStatus.DONE


def _exit_for_stopped_job(stopped: JobStoppedError) -> tuple[ExitStatus, str]:
    cause = stopped.__cause__
    if not isinstance(cause, DirectSuiteError):
        why = rewrite_explanation(stopped.why).replace("the target", "--output")
        return ExitStatus.FAILED, f"{why}: {_HINT_FIX_CAUSE}"
    says_it = isinstance(cause, ServiceError) and 300 <= cause.status < 400  # that the URL is to be checked
    return exit_for_error(
        cause, recovery_hint=_HINT_REPEAT_COMMAND, advice={ServiceError: "" if says_it else _HINT_CHECK_URL}
    )


@asynccontextmanager
async def _show_job_progress(
    job: SigningJob, admission: Admission, sources: PdfSources, bar: Bar, options: SignOptions
) -> AsyncGenerator[None]:
    """Show how the job stands, and say once that the service is in trouble."""

    async def update_bar() -> None:
        is_reported = False
        while True:
            await asyncio.sleep(_PROGRESS_INTERVAL)
            at = job.progress
            passed_over = admission.counts.total() - admission.wanted_count
            total = counting.result() if counting.done() and not counting.cancelled() else None
            bar.update(at.done + at.failed + passed_over, total)
            if at.trouble is not None and not is_reported:
                is_reported = True
                trouble = _OUTAGE_CAUSES.get(at.trouble, "the service is in trouble")
                echo_err(f"{trouble}: waiting for it, up to {options.patience:g} s; Ctrl-C stops")

    counting = asyncio.create_task(asyncio.to_thread(sources.count))
    watching = asyncio.create_task(update_bar())
    try:
        yield
    finally:
        watching.cancel()
        counting.cancel()
        await asyncio.wait([watching, counting])


def _make_admission(sources: PdfSources, journal: SigningJournal | None, options: SignOptions) -> Admission:
    return Admission(sources, journal, output=options.output, again=options.again, overwrite=options.overwrite)


def _describe_plan(verdict: CandidateVerdict, output: Path) -> str:
    match verdict.decision:
        case Decision.SIGN | Decision.SIGN_AGAIN:
            return f"signed into {output / verdict.candidate.name}"
        case Decision.REJECTED:
            return f"refused: {verdict.reason}"
        case Decision.FAILED:
            return f"passed over: it failed before ({verdict.reason}); --again tries it again"
        case Decision.SIGNED_BEFORE:
            return "passed over: it is signed"


def _show_rows(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    if rows:
        show_table(titles, sorted(rows, key=lambda row: str(row[0]))[:_MAX_TABLE_ROWS], no_wrap=titles[:1])
    if len(rows) > _MAX_TABLE_ROWS:
        show_text(f"and {len(rows) - _MAX_TABLE_ROWS} more, which --json has")


def _format_count(number: int) -> str:
    return f"{number} PDF{'s' * (number != 1)}"


def _resolve_output(output: Path) -> Path:
    """The output without symbolic links. Raises RefusedError where it can't become a folder."""
    try:
        folder = output.resolve()
        is_other = folder.exists() and not folder.is_dir()
    except OSError as error:
        why = explain_os_error(error)
    except RuntimeError:
        why = "it is a link that leads to itself"
    except ValueError:
        why = "it has a NUL byte"
    else:
        if is_other:
            raise UsageError("--output is a file: name a folder")
        return folder
    raise UsageError(_OUTPUT_NOT_CREATABLE.format(why=why))


def _make_target(output: Path, *, overwrite: bool) -> TargetFolder:
    try:
        output.mkdir(mode=0o700, parents=True, exist_ok=True)
        return TargetFolder(output, overwrite=overwrite)
    except (OSError, ConfigurationError) as error:
        why = explain_os_error(error) if isinstance(error, OSError) else "it is no folder"
        raise UsageError(_OUTPUT_NOT_CREATABLE.format(why=why)) from None


class _RunJournal(SigningJournal):
    """A journal that knows what has failed since it was opened, by the names: a source may be gone by then."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.failed_names = set[str]()

    async def abandon(
        self, entry: SigningEntry, *, then: DocumentState = DocumentState.NEW, **how: Any
    ) -> SigningEntry:
        """Do as any journal does, and note the name of a document that fails."""
        if then is DocumentState.FAILED:
            self.failed_names.add(entry.name)
        return await super().abandon(entry, then=then, **how)


async def _read_failures(journal: _RunJournal, sources: PdfSources) -> list[SigningEntry]:
    """The failures of this command, or of these sources: the journal has those of earlier commands, too."""
    failures, last = list[SigningEntry](), 0
    while batch := await journal.failures(after=last, most=_FAILURE_BATCH_ROWS):
        matching_names = journal.failed_names | await asyncio.to_thread(sources.matching, [each.name for each in batch])
        failures += [each for each in batch if each.name in matching_names]
        last = batch[-1].number
    return failures


def _get_journal_path(output: Path) -> Path:
    """The journal's path, beside the output and without links, so that the same command finds it."""
    return output.with_name(f"{output.name}.signing.db")


def _has_journal(path: Path) -> bool:
    """Return True if there is a journal. Raises RefusedError where there can't be one."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        why = explain_os_error(error)
        raise UsageError(
            f"{with_value('the journal beside --output', path)} can't be made ({why}): name another --output"
        ) from None
    return True


@asynccontextmanager
async def _open_journal(path: Path) -> AsyncGenerator[_RunJournal]:
    """Open the journal. Raises RefusedError where it can't be opened."""
    async with AsyncExitStack() as stack:
        try:
            journal = await stack.enter_async_context(_RunJournal(path))
        except SigningJournalError as error:
            said = rewrite_explanation(error.explanation.rstrip("."))
            said = said.replace("give the journal another path", "name another --output")
            raise UsageError(f"{with_value('the journal beside --output', path)} can't be opened. {said}") from None
        yield journal


async def _is_journal_obsolete(path: Path, signatures: Sequence[Signature]) -> bool:
    """Return True if a journal is of other signatures, with which nothing was signed.

    It is removed then: who finds that --widget was wrong corrects it. Raises RefusedError where something was signed
    with them, or is under way.
    """
    if not await asyncio.to_thread(_has_journal, path):
        return False
    async with _open_journal(path) as journal:
        if await journal.read_claim() in (None, compute_signatures_digest(signatures)):
            return False
        states = (await journal.tally()).states
    if any(count for state, count in states.items() if state not in (DocumentState.NEW, DocumentState.FAILED)):
        raise UsageError(_SIGNATURES_DIFFER)
    return True


def _remove_journal(path: Path) -> None:
    """Remove it with the files that SQLite keeps beside it."""
    for end in ("", "-wal", "-shm"):
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)


HINT_INVISIBLE = "the signatures are invisible: --widget X,Y,WIDTH,HEIGHT shows them, --name signs a field of the PDF"


def is_invisible(options: SignOptions) -> bool:
    """Return True if nothing says where a signature stands."""
    return not options.name and not options.widget


def make_signatures(options: SignOptions) -> list[Signature]:
    """One for each --name and --widget, which go together in their order; a single one where there are none.

    Raises RefusedError, which names the option.
    """
    for number, name in enumerate(options.name, start=1):
        validate_text(name, f"number {number} of --name")
    validate_text(options.reason, "--reason")
    validate_text(options.signer, "--signer")
    names, many = options.name, len(options.widget) > 1
    widgets = [
        _parse_widget(text, f"number {number} of --widget" if many else "--widget")
        for number, text in enumerate(options.widget, start=1)
    ]
    if names and widgets and len(names) != len(widgets):
        raise UsageError(
            f"--name is given {len(names)} times and --widget {len(widgets)} times: give both for each signature, "
            "in the same order"
        )
    if not all(name.strip() for name in names):
        raise UsageError("a --name is empty: give each signature a name, or leave --name out")
    if len(set(names)) < len(names):
        raise UsageError("a --name is there twice: give each signature a name of its own")
    zone = options.timezone
    if zone is not None and (zones := zoneinfo.available_timezones()) and zone not in zones:  # a machine may know none
        raise UsageError(
            f"{with_value('--timezone', zone)} is not a known time zone: give one such as America/New_York or UTC"
        )
    image = _read_image(options.image)
    if image is not None and is_invisible(options):
        raise UsageError("--image is of a signature that can be seen: say where with --widget, or leave --image out")
    return [
        Signature(
            name=names[number] if names else None,
            widget=widgets[number] if widgets else None,
            reason=options.reason,
            gs_name=options.signer,
            timezone=zone,
            graphical_signature=image,
        )
        for number in range(max(len(names), len(widgets), 1))
    ]


def _parse_widget(text: str, option: str) -> Widget:
    """X,Y,WIDTH,HEIGHT[,PAGE]. Raises RefusedError, which names the option."""
    parts = [part.strip() for part in text.split(",")]
    error = UsageError(
        f"{with_value(option, text)} is not a position: give X,Y,WIDTH,HEIGHT or X,Y,WIDTH,HEIGHT,PAGE, "
        "such as 72,620,200,70,1, in points from the top left corner of the page"
    )
    if len(parts) not in (4, 5):
        raise error
    try:
        x, y, width, height = (float(part) for part in parts[:4])
    except ValueError:
        raise error from None
    if not all(math.isfinite(each) for each in (x, y, width, height)):
        raise error
    if x < 0 or y < 0:
        raise UsageError(f"{option} begins outside the page: its first and second numbers, X and Y, are not below 0")
    if width <= 0 or height <= 0:
        raise UsageError(f"{option} has no size: its third and fourth numbers, WIDTH and HEIGHT, are above 0")
    page = parts[4] if len(parts) == 5 else "1"
    if _PAGE_NUMBER_PATTERN.fullmatch(page) is None or int(page) < 1:
        raise UsageError(f"the page of {option}, its fifth number, is a whole one that counts from 1")
    return Widget(x=x, y=y, width=width, height=height, page=int(page))


def _read_image(file: Path | None) -> bytes | None:
    if file is None:
        return None
    image = with_value("the file of --image", file)
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{image} can't be read ({explain_os_error(error)}): name a PNG or JPEG file") from None
    if not content.startswith(_IMAGE_MAGIC_BYTES):
        raise UsageError(f"{image} is no PNG or JPEG: name one that is")
    if len(content) > _MAX_IMAGE_BYTES:
        raise UsageError(f"{image} has more than 1 MB, and goes with each signature: make it smaller")
    return content
