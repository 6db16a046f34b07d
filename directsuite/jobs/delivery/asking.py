"""Asks for messages in few requests, and finds out for which of them it is that a request is refused.

all of them, up to a thousand a request
  └─ nothing is answered ─► some of them alone, others each time ─► nothing still: it isn't the Message-IDs
       └─ something is ─► what is refused is cut in two, and each half is asked for, until those are found
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import attrs

from directsuite.errors import DirectSuiteError
from directsuite.jobs.delivery.changes import Followed

_CUTS = 24
"""Requests that may be cut in two for each that is refused: enough to find two bad Message-IDs among 1,000."""

_PROBES = 3
"""Messages that are asked for alone where nothing is answered: fewer requests than cuts, which would show no more."""


@attrs.frozen
class Refused:
    """A request that was refused, and cut no more."""

    messages: Sequence[Followed]
    error: DirectSuiteError


@attrs.define
class Asking:
    """What came of asking for messages. request: makes one and gives why it is refused; what it raises ends all.

    answered: whether any request was. refused: those that no answer is of. A message that is in neither wasn't asked
    for any more.
    """

    _request: Callable[[Sequence[Followed]], Awaitable[DirectSuiteError | None]]
    answered: bool = False
    refused: list[Refused] = attrs.field(factory=list[Refused])

    async def ask(self, groups: Sequence[Sequence[Followed]], *, turn: int) -> None:
        """Ask for each of these groups. turn: another each time, so that others are asked for alone."""
        self.refused = await self._refused(groups)
        if self.refused and not self.answered:
            await self._probe(turn)
        if self.answered:
            whole, self.refused = self.refused, []
            for each in whole:
                await self._cut(each)

    async def _refused(self, groups: Sequence[Sequence[Followed]]) -> list[Refused]:
        """Those that are."""
        refused = list[Refused]()
        for group in groups:
            error = await self._request(group)
            if error is None:
                self.answered = True
            else:
                refused.append(Refused(group, error))
        return refused

    async def _probe(self, turn: int) -> None:
        """Ask for some alone, until one is answered: then for the others again, since the refusal may be over."""
        several = [message for each in self.refused if len(each.messages) > 1 for message in each.messages]
        count = min(_PROBES, len(several))
        places = ((turn + len(several) * number // count) % len(several) for number in range(count))
        alone, refused = set[Followed](), list[Refused]()
        for place in places:
            message = several[place]
            alone.add(message)
            refused += await self._refused([[message]])
            if self.answered:
                break
        rest = [Refused([each for each in whole.messages if each not in alone], whole.error) for whole in self.refused]
        rest = [each for each in rest if each.messages]
        self.refused = refused + (await self._refused([each.messages for each in rest]) if self.answered else rest)

    async def _cut(self, whole: Refused) -> None:
        """Ask for the halves of what is refused, and for theirs, the first ones first."""
        parts, cuts = [whole], _CUTS
        while parts:
            part = parts.pop()
            if len(part.messages) == 1 or not cuts:
                self.refused.append(part)
                continue
            cuts -= 1
            middle = len(part.messages) // 2
            parts += reversed(await self._refused([part.messages[:middle], part.messages[middle:]]))
