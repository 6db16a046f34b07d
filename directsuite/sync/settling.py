"""What is gone: told only when nothing that is fetched from now on can be the same message somewhere else.

What comes back while a sink is told, or after that, is fetched again, and told with its content, even under the uid
that it had.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from directsuite.sync.commits import Commits, Step
from directsuite.sync.identity import hex_of
from directsuite.sync.model import Change, Kind, Row, State

_PATIENCE = 3
"""Rounds in which a folder that can't be seen whole keeps the messages of others from being told GONE."""


@attrs.frozen
class Settled:
    """told: how many messages are GONE now. waiting: others may turn up yet; the next round tells.

    set_aside: whether the sink couldn't take some, and is told of them later.
    """

    told: int
    waiting: bool
    set_aside: bool


class Settling:
    """LEFT and ORPHAN rows of a mailbox, from round to round."""

    def __init__(self) -> None:
        self._since: dict[tuple[int, int, int], int] = {}

    async def settle(self, commits: Commits, number: int, incomplete: Collection[str], *, several: bool) -> Settled:
        """Tell what is gone, after a round.

        number: of the round. incomplete: folders that were not seen whole in it; what they lack isn't looked at before
        they are. several: the mailbox has other folders to which a message may have gone; then it waits for a whole
        round of looks at them.
        """
        gone = list[tuple[str, Row]]()
        waiting = set_aside = False
        since, self._since = self._since, {}  # of those that still wait: who came back begins anew
        for state in (State.LEFT, State.ORPHAN):
            for name, row in await commits.store.in_state(commits.lease, state, but=incomplete):
                waited = number - since.get(row.key, number)
                if row.retry_ms is not None and row.retry_ms > commits.now_ms():
                    set_aside = True
                elif several and (waited < 1 or (incomplete and waited < _PATIENCE)):
                    waiting = True
                    self._since[row.key] = number - waited
                else:
                    gone.append((name, row))
        told = await commits.tell(_step(commits, name, row) for name, row in gone)
        return Settled(len(told), waiting, set_aside or len(told) < len(gone))


def _step(commits: Commits, name: str, row: Row) -> Step:
    change = Change(kind=Kind.GONE, key=commits.key(name, row), digest=hex_of(row.digest))
    return Step(change=change, before=row)
