"""Turns: one round of one mailbox each, how it went, and when the next one is due.

The same turn is taken by one process for all its mailboxes (`synchronizer`), or by whichever worker of a fleet is free.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

import attrs

from directsuite.core.clock import Clock
from directsuite.errors import ConfigurationError, DirectSuiteError
from directsuite.secret import Secret
from directsuite.suite import DirectSuite
from directsuite.sync.changes import Kind
from directsuite.sync.commits import Deliver
from directsuite.sync.mailbox import MailboxRounds, Report
from directsuite.sync.progress import MailboxProgress, RoundFinished, Standing
from directsuite.sync.remote import DirectRemote
from directsuite.sync.store import Store

Passwords = Callable[[str], Awaitable[str | Secret]]
"""Gives a mailbox's password, whenever it is needed: none is kept in a store."""

SOONEST = 30.0
"""Seconds between looks at a mailbox: the least where nothing happens, the most where mail came in the last hour."""
_SHARE = 0.7  # of the requests a second that looking for changes may take
_HOT = 3600.0  # seconds for which a mailbox is looked at more often after a change
_JITTER = 0.1
_FIRST_BACK_OFF, _LONGEST_BACK_OFF = 30.0, 3600.0  # seconds after failures


@attrs.frozen(kw_only=True)
class Turn:
    """How a turn went. report: None where the whole mailbox failed. rest: seconds until the next is due."""

    report: Report | None
    rest: float

    @property
    def done(self) -> bool:
        """Whether another turn at once would find nothing to do, or fail as this one did."""
        return self.report is None or bool(self.report.failed) or not (self.report.more or self.report.waiting)


@attrs.define(eq=False, repr=False)
class _Mailbox:
    """What is remembered of a mailbox between its turns. hot_until: monotonic seconds."""

    status: MailboxProgress
    rounds: MailboxRounds | None = None
    hot_until: float = 0.0


def interval_of(looks: float, requests_per_second: float) -> float:
    """Seconds between two looks at a mailbox, where so many looks are to be had by so many requests a second."""
    return max(SOONEST, looks / (_SHARE * requests_per_second))


class Turns:
    """Takes turns for any mailbox. interval: seconds between two looks at one in which nothing happens."""

    def __init__(
        self,
        suite: DirectSuite,
        store: Store,
        password: Passwords,
        *,
        deliver: Deliver | None,
        folders: Sequence[str] | None,
        interval: float,
        clock: Clock,
        now: Callable[[], float],
    ) -> None:
        self._suite = suite
        self._store = store
        self._password = password
        self.deliver = deliver
        self._folders = folders
        self.interval = interval
        self._clock = clock
        self._now = now
        self._mailboxes: dict[str, _Mailbox] = {}

    @property
    def status(self) -> Mapping[str, MailboxProgress]:
        """How each mailbox stands that had a turn, by its address."""
        return MappingProxyType({name: mailbox.status for name, mailbox in self._mailboxes.items()})

    def refuse_without_sink(self) -> None:
        """Raise ConfigurationError where nobody would be told of changes, which count as done then."""
        if self.deliver is None and not self._store.has_sink:
            raise ConfigurationError("nothing takes the changes: give deliver=, or the store a sink, or use changes()")

    def standing(self, name: str) -> Standing:
        """How a mailbox stands."""
        return self._mailboxes[name].status.standing if name in self._mailboxes else Standing.WAITING

    def forget(self, name: str, failures: int = 0) -> None:
        """Begin anew with a mailbox that another process had since, save for how often it has failed."""
        self._mailboxes[name] = _Mailbox(MailboxProgress(name=name, failures=failures))

    def drop(self, name: str) -> None:
        """Remember nothing of a mailbox."""
        self._mailboxes.pop(name, None)

    async def take(self, name: str) -> Turn:
        """One round of a mailbox. Its failures are in its status."""
        mailbox = self._mailboxes.setdefault(name, _Mailbox(MailboxProgress(name=name)))
        report = await self._round(mailbox)
        return Turn(report=report, rest=self._rest(mailbox, report))

    async def _round(self, mailbox: _Mailbox) -> Report | None:
        """One round; None where the whole mailbox failed."""
        status, began = mailbox.status, self._clock.monotonic()
        status.rounds += 1
        try:
            if mailbox.rounds is None:
                mailbox.rounds = await self._opened(status.name)
            report = await mailbox.rounds.round()
        except DirectSuiteError as error:
            mailbox.rounds = None  # its password may be another, or its lease another's
            status.failures += 1
            status.standing, status.problem = Standing.FAILING, type(error).__name__
            elapsed = self._clock.monotonic() - began
            self._suite._events.emit(RoundFinished(failure=status.problem, elapsed=elapsed))
            return None
        self._note(status, report)
        self._suite._events.emit(_finished(report, self._clock.monotonic() - began))
        return report

    async def _opened(self, name: str) -> MailboxRounds:
        try:
            password = await self._password(name)
        except Exception as error:
            text = f"the source of passwords raised {type(error).__name__}"
            raise ConfigurationError(text) from error
        remote = DirectRemote(self._suite.mailbox(name, password))
        return MailboxRounds(
            remote,
            self._store,
            name=name,
            folders=self._folders,
            deliver=self.deliver,
            clock=self._clock,
            now_ms=lambda: round(self._now() * 1000),
        )

    def _note(self, status: MailboxProgress, report: Report) -> None:
        status.changes.update(report.changes)
        status.set_aside += report.poison
        status.folders = {name: type(error).__name__ for name, error in report.failed.items()}
        if report.failed:
            status.failures += 1
            status.standing, status.problem = Standing.FAILING, next(iter(status.folders.values()))
            return
        status.failures, status.problem = 0, None
        status.standing = Standing.BEHIND if report.more else Standing.IN_STEP
        if not report.more:
            status.in_step_at = self._now()

    def _rest(self, mailbox: _Mailbox, report: Report | None) -> float:
        """Seconds until a mailbox's next turn."""
        if report is None or report.failed:
            wait = _FIRST_BACK_OFF * 2.0 ** min(mailbox.status.failures - 1, 10)
            return min(wait, _LONGEST_BACK_OFF) * random.uniform(1 - _JITTER, 1 + _JITTER)
        if report.more:
            return 0.0
        now = self._clock.monotonic()
        if report.changes:
            mailbox.hot_until = now + _HOT
        hot = now < mailbox.hot_until or report.waiting
        wait = min(SOONEST, self.interval) if hot else self.interval
        return wait * random.uniform(1 - _JITTER, 1 + _JITTER)


def _finished(report: Report, elapsed: float) -> RoundFinished:
    return RoundFinished(
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
