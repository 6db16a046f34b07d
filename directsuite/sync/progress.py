"""What is told of a synchronisation while it runs: how each mailbox stands, and events without anybody's name."""

from __future__ import annotations

import enum
from collections import Counter

import attrs

from directsuite.core.events import Event
from directsuite.sync.changes import Kind


class Standing(enum.StrEnum):
    """How a mailbox stands."""

    WAITING = "waiting"
    """It was not looked at yet."""
    BEHIND = "behind"
    """There is more to fetch."""
    IN_STEP = "in step"
    """The sink has all that the last listings showed."""
    FAILING = "failing"
    """Its last round failed, or a folder in it; it is tried again."""


@attrs.define(kw_only=True, repr=False)
class MailboxProgress:
    """One mailbox, since this process began. in_step_at: seconds of the day's clock (Unix time), when it last was.

    problem: what is wrong and what to do, in words that name nobody; None where nothing is. failing_since: when that
    began, in Unix time. folders: those that failed, with what is wrong. failures: rounds that failed, in a row.
    set_aside: messages that could not be fetched.
    """

    name: str
    standing: Standing = Standing.WAITING
    in_step_at: float | None = None
    rounds: int = 0
    changes: Counter[Kind] = attrs.field(factory=Counter[Kind])
    set_aside: int = 0
    failures: int = 0
    problem: str | None = None
    failing_since: float | None = None
    folders: dict[str, str] = attrs.field(factory=dict[str, str])

    def lag(self, now: float) -> float | None:
        """Seconds since it was last in step; None where it never was."""
        return None if self.in_step_at is None else max(0.0, now - self.in_step_at)

    def __repr__(self) -> str:
        return f"MailboxProgress({self.standing})"


@attrs.frozen(kw_only=True, repr=False, eq=False)
class RoundFinished(Event):
    """A mailbox was looked at. elapsed: seconds. failure: the error's type where the whole mailbox failed.

    problem: what is wrong, in words, where anything is.
    """

    new: int = 0
    moved: int = 0
    restored: int = 0
    gone: int = 0
    set_aside: int = 0
    idle_folders: int = 0
    failed_folders: int = 0
    more: bool = False
    elapsed: float = 0.0
    failure: str | None = None
    problem: str | None = None
