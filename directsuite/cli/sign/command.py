"""`directsuite sign` from its options to its exit status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from directsuite.cli.access import settings_for, token
from directsuite.cli.exit_status import ExitStatus, ending_of
from directsuite.cli.private_files import reason_of
from directsuite.cli.progress import Bar, progress
from directsuite.cli.refusal import RefusedError
from directsuite.cli.running import Command, say
from directsuite.cli.sign.admission import Admission
from directsuite.cli.sign.report import Report, show_plan, show_plan_as_json
from directsuite.cli.sign.signatures import Wanted, signatures_of
from directsuite.cli.sign.sources import Sources
from directsuite.errors import ConfigurationError, DirectSuiteError
from directsuite.jobs.signing import (
    Entry,
    JobStoppedError,
    Journal,
    JournalError,
    SigningJob,
    State,
    Tally,
    TargetFolder,
)
from directsuite.secret import Secret
from directsuite.settings import Settings
from directsuite.signing.models import Signature
from directsuite.suite import DirectSuite

_AGAIN = "give the same command again: what is signed is passed over, and the rest goes on"
_WITHOUT_AGAIN = "give the command without --again: what is signed is passed over, and the rest goes on"
_WITH_AGAIN = "see to the reason of each, and give the command with --again"
_OTHER_SIGNATURES = (
    "--output has PDFs that were signed in another way (--name, --widget, --image and so on): "
    "name another --output, or sign as before"
)
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


class _JournalOfRun(Journal):
    """A journal that knows what has failed since it was opened, by the names: a source may be gone by then."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.failed = set[str]()

    async def abandon(self, entry: Entry, *, at: float, then: State = State.NEW, problem: str | None = None) -> Entry:
        """As a journal, and note what fails."""
        if then is State.FAILED:
            self.failed.add(entry.name)
        return await super().abandon(entry, at=at, then=then, problem=problem)


def sign_all(asked: Asked) -> int:
    """Sign them; the exit status."""

    def begin() -> Coroutine[Any, Any, int]:
        signatures = signatures_of(asked)
        if asked.output.exists() and not asked.output.is_dir():
            raise RefusedError("--output is a file: name a folder")
        if not asked.output.resolve().name:
            raise RefusedError("--output is the root of all folders, beside which is no place for a journal: name one")
        sources = Sources(asked.sources, output=asked.output, recursive=asked.recursive)
        for number, problem in sources.problems.items():
            say(f"number {number} of the sources {problem}: it isn't signed")
        if not sources:
            raise RefusedError("there is nothing to sign: give PDFs, or folders that have some")
        if asked.again and not _journal_of(asked.output).exists():
            raise RefusedError("nothing has failed yet, for nothing was signed into --output: leave --again out")
        if asked.dry_run:
            return _tell(sources, asked)
        return _sign(settings_for("signing"), token(asked.token_file), signatures, sources, asked)

    return Command(resume="nothing was sent: give the same command again" if asked.dry_run else _next_step(asked)).run(
        begin
    )


def _next_step(asked: Asked) -> str:
    """For a command that was broken off. What --again has begun is no failure any more, and --again passes it over."""
    return _WITHOUT_AGAIN if asked.again else _AGAIN


def _journal_of(output: Path) -> Path:
    """Beside the output, so that the same command finds it."""
    output = output.resolve()
    return output.with_name(f"{output.name}.signing.db")


@asynccontextmanager
async def _opened(path: Path) -> AsyncGenerator[_JournalOfRun]:
    """A journal. Raises RefusedError where it can't be opened."""
    async with AsyncExitStack() as stack:
        try:
            journal = await stack.enter_async_context(_JournalOfRun(path))
        except JournalError as error:
            said = error.explanation.rstrip(".")
            raise RefusedError(f"the journal beside --output, OUTPUT.signing.db, can't be opened. {said}") from None
        yield journal


def _target(output: Path) -> TargetFolder:
    try:
        output.mkdir(mode=0o700, parents=True, exist_ok=True)
        return TargetFolder(output)
    except (OSError, ConfigurationError) as error:
        why = f" ({reason_of(error)})" if isinstance(error, OSError) else ""
        raise RefusedError(f"--output can't be made{why}: name a folder that can") from None


async def _tell(sources: Sources, asked: Asked) -> int:
    """What would be signed."""
    async with AsyncExitStack() as stack:
        journal, path = None, _journal_of(asked.output)
        if path.exists():
            journal = await stack.enter_async_context(_opened(path))
        admission = _admission(sources, journal, asked)
        async with progress("reading"):
            verdicts = [each async for each in admission.verdicts()]
    output = asked.output.resolve()
    if asked.as_json:
        show_plan_as_json(verdicts, output)
    else:
        show_plan(verdicts, output)
    say(f"this was a dry run: {_counted(admission.wanted)} would be signed, and nothing was sent")
    is_all = not (sources.problems or any(each.refused or each.failed for each in verdicts))
    return ExitStatus.DONE if is_all else ExitStatus.FAILED


async def _sign(
    settings: Settings,
    secret: Secret,
    signatures: Sequence[Signature],
    sources: Sources,
    asked: Asked,
) -> int:
    output = asked.output.resolve()
    target, path = _target(output), _journal_of(output)
    async with DirectSuite(settings, token=secret) as suite:  # what is left unknown is the journal's to find out
        while True:
            async with _opened(path) as journal:
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
                try:
                    status, report = await _done(job, admission, journal, sources, asked)
                except ConfigurationError:  # the journal is of other signatures
                    if not _is_vain(await journal.tally()):
                        raise RefusedError(_OTHER_SIGNATURES) from None
                else:
                    return _told(report, status, sources, admission, asked)
            await asyncio.to_thread(_remove, path)
            asked = attrs.evolve(asked, again=False)  # what failed is all that there is


def _is_vain(tally: Tally) -> bool:
    """Whether nothing was signed, and nothing is under way: who finds that --widget was wrong corrects it."""
    return not any(count for state, count in tally.states.items() if state not in (State.NEW, State.FAILED))


def _remove(journal: Path) -> None:
    for end in ("", "-wal", "-shm"):
        journal.with_name(f"{journal.name}{end}").unlink(missing_ok=True)


async def _done(
    job: SigningJob, admission: Admission, journal: _JournalOfRun, sources: Sources, asked: Asked
) -> tuple[ExitStatus, Report]:
    """What the job came to. Raises ConfigurationError."""
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
        output=asked.output.resolve(),
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
        say(f"stopped; {_next_step(asked)}")
        if report.failed:
            say(f"{_counted(len(report.failed))} failed, and are passed over, too: {_WITH_AGAIN}")
        return status
    if not admission.seen:
        deeper = "" if asked.recursive else "; --recursive looks into the folders in them, too"
        say(f"there is no PDF in the folders{deeper}")
    if report.failed:
        say(f"{_counted(len(report.failed))} failed: {_WITH_AGAIN}")
    is_all = not (report.failed or report.refused or sources.problems)
    return ExitStatus.DONE if is_all else ExitStatus.FAILED


def _admission(sources: Sources, journal: Journal | None, asked: Asked) -> Admission:
    return Admission(sources, journal, output=asked.output.resolve(), again=asked.again, overwrite=asked.overwrite)


def _ending(stopped: JobStoppedError | None) -> tuple[ExitStatus, str | None]:
    if stopped is None:
        return ExitStatus.DONE, None
    cause = stopped.__cause__
    return ending_of(cause if isinstance(cause, DirectSuiteError) else stopped, options={}, find_out=_AGAIN)


async def _failures(journal: _JournalOfRun, sources: Sources) -> list[tuple[str, str]]:
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
