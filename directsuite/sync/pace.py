"""How long mailboxes rest between two looks, so that all looks fit into the requests that may go in a second."""

from __future__ import annotations

from collections.abc import Sequence

from directsuite.core.checks import INTERVAL, POSITIVE
from directsuite.core.clock import Clock
from directsuite.sync.model import Report

_SOONEST = 30.0
"""Seconds between two looks at a mailbox, at the least."""
_SHARE, _SHARE_OF_HOT = 0.7, 0.25  # of the requests a second: for a look at every mailbox, and for the hot ones' more
_HOT = 3600.0  # seconds for which a mailbox is looked at more often after a change


class Pace:
    """The looks at mailboxes, of which this process may have some only.

    mailboxes: how many there are in all processes; None for those that had a turn here. interval: seconds between two
    looks at one in which nothing happens; None for what the requests allow. folders: of each mailbox; None for all that
    it has, which the rounds find out. Raises ConfigurationError for an interval that is none.
    """

    def __init__(
        self, *, interval: float | None, folders: Sequence[str] | None, requests_per_second: float, clock: Clock
    ) -> None:
        INTERVAL.or_none().require("interval", interval)
        POSITIVE.require("requests_per_second", requests_per_second)
        self.mailboxes: int | None = None
        self._interval = interval
        self._is_learning = folders is None
        self._least = 1 if folders is None else len(folders)
        self._requests_per_second = requests_per_second
        self._clock = clock
        self._looks: dict[str, int] = {}  # of mailboxes that had a turn here
        self._all_looks = 0
        self._hot: dict[str, float] = {}  # until when; who was hot last stands last

    def note(self, name: str, report: Report) -> None:
        """Learn from a round."""
        looks = self._looks.get(name, self._least)
        if self._is_learning:  # it asks for their list, and once for each: how often is known once they are idle
            looks = max(looks, 1 + report.idle + len(report.failed))
        self._all_looks += looks - self._looks.get(name, 0)
        self._looks[name] = looks
        if report.changes.total() > 0:
            self._hot.pop(name, None)
            self._hot[name] = self._clock.monotonic() + _HOT

    def forget(self, name: str) -> None:
        """Count a mailbox no more: another process has it."""
        self._all_looks -= self._looks.pop(name, 0)
        self._hot.pop(name, None)

    def rest(self, name: str, *, waiting: bool) -> float:
        """Seconds until the next look at a mailbox that is in step. waiting: for what the next look tells."""
        while self._hot and next(iter(self._hot.values())) <= self._clock.monotonic():
            del self._hot[next(iter(self._hot))]
        interval = self._fitting(1.0, _SHARE) if self._interval is None else self._interval
        if name not in self._hot and not waiting:
            return interval
        return min(interval, self._fitting(len(self._hot) / max(1, len(self._looks)), _SHARE_OF_HOT))

    def _fitting(self, part: float, share: float) -> float:
        """Seconds for so large a part of all mailboxes to be looked at once by a share of the requests."""
        here = max(1, len(self._looks))
        mailboxes = here if self.mailboxes is None else self.mailboxes
        looks = (self._all_looks or self._least) / here * mailboxes * part
        return max(_SOONEST, looks / (share * self._requests_per_second))
