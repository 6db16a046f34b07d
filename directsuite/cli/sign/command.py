"""`directsuite sign` from its options to its exit status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.command import Command
from directsuite.cli.credentials import settings_for, token
from directsuite.cli.errors import RefusedError, ending_of, in_own_words
from directsuite.cli.output import Bar, progress
from directsuite.cli.process import ExitStatus, say
from directsuite.cli.sign.admission import Admission
from directsuite.cli.sign.journal import JournalOfRun, is_there, is_vain, journal_of, opened, remove
from directsuite.cli.sign.report import Report, show_plan, show_plan_as_json
from directsuite.cli.sign.signatures import Wanted, signatures_of
from directsuite.cli.sign.sources import Sources
from directsuite.core.failures import reason_of
from directsuite.errors import ConfigurationError, DirectSuiteError, ServiceError
from directsuite.jobs.signing import JobStoppedError, Journal, SigningJob, TargetFolder
from directsuite.secret import Secret
from directsuite.settings import Settings
from directsuite.signing.models import Signature
from directsuite.suite import DirectSuite

_AGAIN = "give the same command again: what is signed is passed over, and the rest goes on"
_WITHOUT_AGAIN = "give the command without --again: what is signed is passed over, and the rest goes on"
_WITH_AGAIN = "see to the reason of each, and give the command with --again"
_SEE_TO_IT = "see to that before you go on"
_ASTRAY = "check the service's URL, and proxies on the way to it; if they are right, ask its provider"
_CANT_BE_MADE = "--output can't be made ({why}): name a folder that can"
_LOOK = 0.2  # seconds between two looks at a job
_AT_A_TIME = 500  # failures read from the journal


@attrs.frozen(kw_only=True, repr=False)
class Asked(Wanted):
    """The options of the command."""

    sources: Sequence[Path]
    output: Path
    recursive: bool
    dry_run: bool
    again: bool
    overwrite: bool
    at_a_time: int
    patience: float
    token_file: Path | None
    as_json: bool


def sign_all(asked: Asked) -> int:
    """Sign them; the exit status."""

    def begin() -> Coroutine[Any, Any, int]:
        return _begun(attrs.evolve(asked, output=_without_links(asked.output)))

    return Command(resume="nothing was sent: give the same command again" if asked.dry_run else _AGAIN).run(begin)


def _begun(asked: Asked) -> Coroutine[Any, Any, int]:
    """What is to be done, when the options were found right. Raises RefusedError."""
    signatures = signatures_of(asked)
    if not asked.output.name:
        raise RefusedError("--output is the root of all folders, beside which is no place for a journal: name one")
    sources = Sources(asked.sources, output=asked.output, recursive=asked.recursive)
    for number, problem in sources.problems.items():
        say(f"number {number} of the sources {problem}: it isn't signed")
    if not sources:
        raise RefusedError("there is nothing to sign: give PDFs, or folders that have some")
    if asked.again and not is_there(journal_of(asked.output)):
        raise RefusedError("nothing has failed yet, for nothing was signed into --output: leave --again out")
    if asked.dry_run:
        return _tell(signatures, sources, asked)
    return _sign(settings_for("signing"), token(asked.token_file), signatures, sources, asked)


def _without_links(output: Path) -> Path:
    """Raises RefusedError where it can't become a folder."""
    try:
        found = output.resolve()
        is_other = found.exists() and not found.is_dir()
    except OSError as error:
        why = reason_of(error)
    except RuntimeError:
        why = "it is a link that leads to itself"
    except ValueError:
        why = "it has a NUL byte"
    else:
        if is_other:
            raise RefusedError("--output is a file: name a folder")
        return found
    raise RefusedError(_CANT_BE_MADE.format(why=why))


def _target(output: Path, *, overwrite: bool) -> TargetFolder:
    try:
        output.mkdir(mode=0o700, parents=True, exist_ok=True)
        return TargetFolder(output, overwrite=overwrite)
    except (OSError, ConfigurationError) as error:
        why = reason_of(error) if isinstance(error, OSError) else "it is no folder"
        raise RefusedError(_CANT_BE_MADE.format(why=why)) from None


async def _tell(signatures: Sequence[Signature], sources: Sources, asked: Asked) -> int:
    """What would be signed. Raises RefusedError."""
    async with AsyncExitStack() as stack:
        journal, path = None, journal_of(asked.output)
        if await is_vain(path, signatures):
            asked = attrs.evolve(asked, again=False)  # what failed is all that there is
        elif is_there(path):
            journal = await stack.enter_async_context(opened(path))
        admission = _admission(sources, journal, asked)
        async with progress("reading"):
            verdicts = [each async for each in admission.verdicts()]
    output = asked.output
    if asked.as_json:
        show_plan_as_json(verdicts, output)
    else:
        show_plan(verdicts, output)
    say(f"this was a dry run: {_counted(admission.wanted)} would be signed, and nothing was sent")
    _tell_unsigned(admission)
    is_all = not (sources.problems or admission.unsigned or any(each.refused or each.failed for each in verdicts))
    return ExitStatus.DONE if is_all else ExitStatus.FAILED


async def _sign(
    settings: Settings,
    secret: Secret,
    signatures: Sequence[Signature],
    sources: Sources,
    asked: Asked,
) -> int:
    output = asked.output
    target, path = _target(output, overwrite=asked.overwrite), journal_of(output)
    async with DirectSuite(settings, token=secret) as suite:  # what is left unknown is the journal's to find out
        if await is_vain(path, signatures):
            await asyncio.to_thread(remove, path)
            asked = attrs.evolve(asked, again=False)  # what failed is all that there is
        async with opened(path) as journal:
            admission = _admission(sources, journal, asked)
            job = SigningJob(
                suite.signing,
                admission,
                target,
                signatures,
                journal=journal,
                at_a_time=asked.at_a_time,
                patience=asked.patience,
            )
            status, report = await _done(job, admission, journal, sources, asked)
            return _told(report, status, sources, admission, asked)


async def _done(
    job: SigningJob, admission: Admission, journal: JournalOfRun, sources: Sources, asked: Asked
) -> tuple[ExitStatus, Report]:
    """What the job came to. Raises DirectSuiteError, too, where it didn't begin."""
    stopped: JobStoppedError | None = None
    async with progress("signing", unit="pieces") as bar, _watched(job, admission, sources, bar, asked):
        try:
            await (job.run_failed() if asked.again else job.run())
        except JobStoppedError as error:
            stopped = error
        except asyncio.CancelledError:
            say(f"{_counted(job.progress.done)} signed")
            raise
    status, sentence = _ending(stopped)
    report = Report(
        output=asked.output,
        signed=job.progress.done,
        signed_before=admission.signed_before,
        failed=await _failures(journal, sources),
        refused=admission.refused,
        stopped=sentence,
    )
    return status, report


def _told(report: Report, status: ExitStatus, sources: Sources, admission: Admission, asked: Asked) -> int:
    if asked.as_json:
        report.show_json()
    else:
        report.show()
    if report.stopped is not None:
        say(report.stopped)
        say(f"stopped; {_AGAIN}")
        if report.failed and not asked.again:
            say(f"{_counted(len(report.failed))} failed, and are passed over, too: {_WITH_AGAIN}")
        return status
    if not admission.seen:
        deeper = "" if asked.recursive else "; --recursive looks into the folders in them, too"
        say(f"there is no PDF in the folders{deeper}")
    if report.failed:
        say(f"{_counted(len(report.failed))} failed: {_WITH_AGAIN}")
    if report.refused:
        say(f"{_counted(len(report.refused))} not signed: see to the reason of each, and give the command again")
    _tell_unsigned(admission)
    is_all = not (report.failed or report.refused or admission.unsigned or sources.problems)
    return ExitStatus.DONE if is_all else ExitStatus.FAILED


def _tell_unsigned(admission: Admission) -> None:
    if admission.unsigned:
        say(f"{_counted(admission.unsigned)} not signed yet, for only failures were tried again: {_WITHOUT_AGAIN}")


def _admission(sources: Sources, journal: Journal | None, asked: Asked) -> Admission:
    return Admission(sources, journal, output=asked.output, again=asked.again, overwrite=asked.overwrite)


def _ending(stopped: JobStoppedError | None) -> tuple[ExitStatus, str | None]:
    if stopped is None:
        return ExitStatus.DONE, None
    cause = stopped.__cause__
    if not isinstance(cause, DirectSuiteError):
        why = in_own_words(stopped.why).replace("the target", "--output")
        return ExitStatus.FAILED, f"{why}: {_SEE_TO_IT}"
    says_it = isinstance(cause, ServiceError) and 300 <= cause.status < 400  # that the URL is to be checked
    return ending_of(cause, find_out=_AGAIN, advice={ServiceError: "" if says_it else _ASTRAY})


async def _failures(journal: JournalOfRun, sources: Sources) -> list[tuple[str, str]]:
    """Of this command, or of these sources: the journal has those of earlier commands, too."""
    found, last = list[tuple[str, str]](), 0
    while some := await journal.failures(after=last, most=_AT_A_TIME):
        there = journal.failed | await asyncio.to_thread(sources.those_of, [each.name for each in some])
        found += [(each.name, each.problem or "it failed") for each in some if each.name in there]
        last = some[-1].number
    return found


@asynccontextmanager
async def _watched(
    job: SigningJob, admission: Admission, sources: Sources, bar: Bar, asked: Asked
) -> AsyncGenerator[None]:
    """Show how the job stands, and say once that the service is in trouble."""

    async def watch() -> None:
        is_told = False
        while True:
            await asyncio.sleep(_LOOK)
            at = job.progress
            passed_over = admission.seen - admission.wanted
            total = counting.result() if counting.done() and not counting.cancelled() else None
            bar.tell(at.done + at.failed + passed_over, total)
            if at.trouble is not None and not is_told:
                is_told = True
                say(
                    f"the service is in trouble ({at.trouble}): it is waited for, up to {asked.patience:g} s; "
                    "Ctrl-C stops"
                )

    counting = asyncio.create_task(asyncio.to_thread(sources.count))
    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        counting.cancel()
        await asyncio.wait([watching, counting])


def _counted(number: int) -> str:
    return f"{number} PDF{'s' * (number != 1)}"
