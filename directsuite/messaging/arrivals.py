"""Proof that messages were appended to a folder: their Message-IDs, new there since a look before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import attrs

from directsuite.core.call import SETTLE, Proof
from directsuite.messaging.deadline import Deadline
from directsuite.messaging.models import APIResponse
from directsuite.messaging.reading import Reading


@attrs.frozen
class Arrivals:
    """What is to arrive in a folder. known: the uids there before. deadline: that of the whole method."""

    mailbox: Reading
    folder: str
    known: frozenset[int]
    message_ids: Counter[str]
    deadline: Deadline

    @classmethod
    async def expected(
        cls, mailbox: Reading, folder: str, expected: Iterable[str | None], deadline: Deadline
    ) -> Proof[APIResponse] | None:
        """Note what is there now; None where a message has no Message-ID, so that nothing could prove its arrival."""
        wanted = [None if each is None else each.strip() for each in expected]
        if not wanted or None in wanted:
            return None
        known = frozenset(await mailbox.get_uids(folder, timeout=deadline.left()))
        message_ids = Counter(each for each in wanted if each is not None)
        arrivals = cls(mailbox._within_a_call(), folder, known, message_ids, deadline)
        return Proof(look=arrivals.look, seconds=SETTLE)

    async def look(self) -> APIResponse | None:
        """Success where all of them are there, as often as they were to arrive."""
        now = await self.mailbox.get_message_metadata(self.folder, timeout=self.deadline.left())
        arrived = Counter(message.msg_id for message in now if message.uid not in self.known)
        if all(arrived[message_id] >= times for message_id, times in self.message_ids.items()):
            return APIResponse(success=True, code=0)
        return None
