"""Turns: one round of one mailbox each, how it went, and when the next one is due.

The same turn is taken by one process for all its mailboxes (`synchronizer`), or by whichever worker of a fleet is free.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

import attrs

from directsuite.core.clock import Clock
from directsuite.core.failures import is_being_cancelled
from directsuite.errors import ConfigurationError, DirectSuiteError, ServiceError
from directsuite.secret import Secret
from directsuite.suite import DirectSuite
from directsuite.sync.commits import Deliver, SinkError, SinkHealth
from directsuite.sync.mailbox import MailboxRounds
from directsuite.sync.model import GrantsWishes, Kind, Report, StaleLeaseError, Store, StoreError
from directsuite.sync.pace import Pace
from directsuite.sync.remote import DirectRemote, Remote
from directsuite.sync.status import NO_SUCH_FOLDER, MailboxProgress, RoundFinished, Standing, problem_of

_LOGGER = logging.getLogger("directsuite")

Passwords = Callable[[str], Awaitable[str | Secret]]
"""Gives a mailbox's password, whenever it is needed: none is kept in a store."""

_OF_THE_STORE, _UNNAMED = "its own", "deliver"  # sinks, as stores name them
_JITTER = 0.1
_FRUITLESS = 4  # rounds in a row that have more to do, and do nothing: what the server says doesn't agree with itself
_FIRST_BACK_OFF, _LONGEST_BACK_OFF = 30.0, 3600.0  # seconds after failures
_STORE_AWAY = 10.0  # seconds after a failure of the store, which is no fault of the mailbox, and costs no request
_LONGEST_FOR_THE_SINK = 300.0  # seconds; what a sink lacks is given to it sooner than a mailbox its password


@attrs.frozen(kw_only=True)
class Turn:
    """How a turn went.

    report: None where the whole mailbox failed. rest: seconds until the next is due. fruitless: one of several in a row
    that had more to do, and came to nothing.
    """

    report: Report | None
    rest: float
    fruitless: bool = False

    @property
    def done(self) -> bool:
        """Whether another turn at once would find nothing to do, or fail as this one did."""
        if self.report is None or self.report.failed or self.fruitless:
            return True
        return not (self.report.more or self.report.waiting)


@attrs.define(eq=False, repr=False)
class _Mailbox:
    """What is remembered of a mailbox between its turns. fruitless: how many in a row had more to do, and did none."""

    status: MailboxProgress
    rounds: MailboxRounds | None = None
    remote: Remote | None = None
    fruitless: int = 0


class Turns:
    """Takes turns for any mailbox. pace: how long each rests after one that found nothing to go on with."""

    def __init__(
        self,
        suite: DirectSuite,
        store: Store,
        password: Passwords,
        *,
        deliver: Deliver | None,
        folders: Sequence[str] | None,
        pace: Pace,
        clock: Clock,
        now: Callable[[], float],
    ) -> None:
        self._suite = suite
        self._store = store
        self._password = password
        self.deliver = deliver
        self._folders = folders
        self._pace = pace
        self._clock = clock
        self._now = now
        self._wishes = store if isinstance(store, GrantsWishes) else None
        self._mailboxes: dict[str, _Mailbox] = {}
        self._health = SinkHealth()

    @property
    def status(self) -> Mapping[str, MailboxProgress]:
        """How each mailbox stands that had a turn, by its address."""
        return MappingProxyType({name: mailbox.status for name, mailbox in self._mailboxes.items()})

    async def bind(self) -> None:
        """Bind the store to the sink, by its attribute `sink_name` if it has one, before the first turn.

        Raises ConfigurationError where nobody would be told of changes, which count as done then, or where another
        sink was told of those so far; StoreError.
        """
        if self.deliver is not None:
            name: str = getattr(self.deliver, "sink_name", _UNNAMED)
        elif self._store.has_sink:
            name = _OF_THE_STORE
        else:
            raise ConfigurationError("nothing takes the changes: give deliver=, or the store a sink, or use changes()")
        await self._store.bind(name)

    def standing(self, name: str) -> Standing:
        """How a mailbox stands."""
        return self._mailboxes[name].status.standing if name in self._mailboxes else Standing.WAITING

    def forget(self, name: str, failures: int = 0) -> None:
        """Begin anew with a mailbox that another process had since, save for how often it has failed."""
        self._mailboxes[name] = _Mailbox(MailboxProgress(name=name, failures=failures))

    def drop(self, name: str) -> None:
        """Remember nothing of a mailbox."""
        self._mailboxes.pop(name, None)
        self._pace.forget(name)

    async def take(self, name: str) -> Turn:
        """One round of a mailbox. Its failures are in its status: whatever they are, the other mailboxes go on."""
        mailbox = self._mailboxes.setdefault(name, _Mailbox(MailboxProgress(name=name)))
        status, began = mailbox.status, self._clock.monotonic()
        status.rounds += 1
        try:
            report = await self._round(mailbox)
            self._pace.note(name, report)
            await self._note(mailbox, report)
        except (Exception, asyncio.CancelledError) as error:  # what isn't foreseen is no reason to end them all
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            mailbox.rounds = None  # its password may be another, or its lease another's
            self._fail(status, problem_of(error) if isinstance(error, DirectSuiteError) else _fault(error), {})
            elapsed = self._clock.monotonic() - began
            self._suite.runtime.emit(
                RoundFinished(failure=type(error).__name__, problem=status.problem, elapsed=elapsed)
            )
            return Turn(report=None, rest=_back_off(status, error))
        self._suite.runtime.emit(_finished(report, status.problem, self._clock.monotonic() - began))
        rest = self._rest(mailbox, report)
        return Turn(report=report, rest=rest, fruitless=mailbox.fruitless >= _FRUITLESS)

    async def _round(self, mailbox: _Mailbox) -> Report:
        name = mailbox.status.name
        if self._wishes is not None and await self._wishes.grant(name):
            mailbox.rounds = None  # what it remembers is from before that
        if mailbox.rounds is None:
            mailbox.remote = await self._opened(name)
            mailbox.rounds = MailboxRounds(
                mailbox.remote,
                self._store,
                name=name,
                folders=self._folders,
                deliver=self.deliver,
                clock=self._clock,
                now_ms=lambda: round(self._now() * 1000),
                health=self._health,
            )
        return await mailbox.rounds.round()

    async def _opened(self, name: str) -> Remote:
        try:
            password = await self._password(name)
        except DirectSuiteError:
            raise
        except Exception as error:
            text = f"The source of passwords raised {type(error).__name__}: see to it."
            raise ConfigurationError(text) from error
        return DirectRemote(self._suite.mailbox(name, password))

    async def _note(self, mailbox: _Mailbox, report: Report) -> None:
        status = mailbox.status
        status.changes.update(report.changes)
        status.set_aside += report.poison
        if report.failed:
            folders = await self._problems_of_folders(mailbox, report)
            if report.idle or report.changes.total():
                status.failures = 0  # of its other folders, which need not wait longer and longer
            self._fail(status, next(iter(folders.values())), folders)
            return
        status.failures, status.problem, status.failing_since, status.folders = 0, None, None, {}
        status.standing = Standing.BEHIND if report.more else Standing.IN_STEP
        if not report.more:
            status.in_step_at = self._now()

    def _fail(self, status: MailboxProgress, problem: str, folders: dict[str, str]) -> None:
        status.failures += 1
        status.standing, status.problem, status.folders = Standing.FAILING, problem, folders
        if status.failing_since is None:
            status.failing_since = self._now()

    async def _problems_of_folders(self, mailbox: _Mailbox, report: Report) -> dict[str, str]:
        """What is wrong with each. That one is no more has no error of its own: the list of folders tells."""
        there = set(report.failed)
        if mailbox.remote is not None and any(isinstance(error, ServiceError) for error in report.failed.values()):
            with contextlib.suppress(DirectSuiteError):
                there = set(await mailbox.remote.folders())
        return {name: problem_of(error) if name in there else NO_SUCH_FOLDER for name, error in report.failed.items()}

    def _rest(self, mailbox: _Mailbox, report: Report) -> float:
        """Seconds until a mailbox's next turn."""
        changed = report.changes.total() > 0
        mailbox.fruitless = mailbox.fruitless + 1 if report.more and not (changed or report.poison) else 0
        if report.failed and not (report.idle or changed):
            return _back_off(mailbox.status)  # else its other folders are none the worse for the one that fails
        goes_on = report.more and (changed or not report.failed)
        if goes_on and mailbox.fruitless < _FRUITLESS:
            return 0.0
        return _jittered(self._pace.rest(mailbox.status.name, waiting=report.waiting or goes_on))


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(1 - _JITTER, 1 + _JITTER)


def _fault(error: BaseException) -> str:
    """A sentence for whoever runs the synchronisation. The log has the lines of code, without values."""
    fault = f"A fault of directsuite itself ({type(error).__name__}): report it."
    _LOGGER.error("sync: %s\n%s", fault, "".join(traceback.format_tb(error.__traceback__)))
    return fault


def _back_off(status: MailboxProgress, error: BaseException | None = None) -> float:
    """Seconds until a mailbox's next turn after one that failed. error: of the whole mailbox."""
    if isinstance(error, StoreError) and not isinstance(error, StaleLeaseError):
        return _jittered(_STORE_AWAY)
    longest = _LONGEST_FOR_THE_SINK if isinstance(error, SinkError) else _LONGEST_BACK_OFF
    return _jittered(min(longest, _FIRST_BACK_OFF * 2.0 ** min(status.failures - 1, 10)))


def _finished(report: Report, problem: str | None, elapsed: float) -> RoundFinished:
    return RoundFinished(
        problem=problem,
        new=report.changes[Kind.NEW],
        moved=report.changes[Kind.MOVED],
        restored=report.changes[Kind.RESTORED],
        gone=report.changes[Kind.GONE],
        set_aside=report.poison,
        idle_folders=report.idle,
        failed_folders=len(report.failed),
        more=report.more,
        elapsed=elapsed,
    )
