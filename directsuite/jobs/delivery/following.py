"""What all trackers of a mailbox on one open journal share, so that each sees what another adds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import attrs

from directsuite.jobs.delivery.changes import Followed
from directsuite.messaging.tracking import bare


@attrs.define(kw_only=True, repr=False, eq=False)
class Following:
    """The messages of a mailbox that are followed. messages: by bare Message-ID. added: set when there may be more.

    is_loaded: False where the journal may know better. loop: the mark of the latest. is_looking: it makes requests.
    """

    messages: dict[str, Followed] = attrs.field(factory=dict[str, Followed])
    added: asyncio.Event = attrs.field(factory=asyncio.Event)
    is_loaded: bool = False
    is_looking: bool = False
    loop: object = None

    async def load(self, read: Callable[[], Awaitable[Sequence[Followed]]]) -> None:
        """Take in what the journal has. It is right also about what stands here, but for when that is looked at."""
        self.is_loaded = True  # what is added meanwhile may undo it
        before, self.messages = self.messages, {}
        for message in await read():
            known = before.get(bare(message.smtp_id))
            if known is not None and known.number == message.number:
                message = attrs.evolve(known, seen=message.seen)
            self.messages.setdefault(bare(message.smtp_id), message)
