"""Rounds of a mailbox that continue after an error, as those of a worker do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from directsuite.core.clock import Clock
from directsuite.sync.commits import Commits, Deliver, SinkHealth
from directsuite.sync.model import RoundReport
from directsuite.sync.remote import Remote
from directsuite.sync.round import MailboxRounds


class Rounds:
    """Runs rounds of a mailbox. After an error, the next round has a new lease."""

    def __init__(
        self,
        remote: Remote,
        store: Any,
        mailbox: str,
        folders: Sequence[str] | None,
        *,
        deliver: Deliver | None,
        clock: Clock,
        now_ms: Callable[[], int],
    ) -> None:
        self._remote, self._store, self._mailbox, self._folders = remote, store, mailbox, folders
        self._deliver, self._clock, self._now_ms = deliver, clock, now_ms
        self._health = SinkHealth()
        self._rounds: MailboxRounds | None = None

    async def run_round(self) -> RoundReport:
        try:
            if self._rounds is None:
                lease = await self._store.claim(self._mailbox)
                commits = Commits(self._store, lease, self._deliver, self._clock, self._now_ms, self._health)
                self._rounds = MailboxRounds(self._remote, commits, self._folders)
            return await self._rounds.run_round()
        except BaseException:
            self._rounds = None
            raise
