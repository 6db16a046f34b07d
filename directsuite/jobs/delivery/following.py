"""What all trackers of a mailbox on one open journal share, so that each sees what another adds."""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import Awaitable, Callable, Sequence

import attrs

from directsuite.errors import DirectSuiteError
from directsuite.jobs.delivery.changes import Followed
from directsuite.messaging.tracking import bare


class AnotherLoopError(DirectSuiteError):
    """Another loop reads the changes of this mailbox from this journal: there is one at a time."""


@attrs.define(kw_only=True, repr=False, eq=False)
class Following:
    """The messages of a mailbox that are followed. messages: by bare Message-ID. added: set when one is due earlier.

    is_loaded: False where the journal may know better. reader: the loop that reads the changes, while there is one.
    wakes_at: when a waiting loop finds one due, by the clock of waits.
    """

    messages: dict[str, Followed] = attrs.field(factory=dict[str, Followed])
    added: asyncio.Event = attrs.field(factory=asyncio.Event)
    is_loaded: bool = False
    reader: weakref.ref[object] | None = None
    wakes_at: float = -math.inf

    def begin(self, reader: weakref.ref[object]) -> None:
        """Have this loop read. One that nobody has any more is no obstacle, though it wasn't closed yet."""
        if self.reader is not None and self.reader() is not None:
            raise AnotherLoopError(
                "Another loop reads these changes: let it end, or leave it (`async with`, `aclose`), and begin again."
            )
        self.reader = reader

    def end(self, reader: weakref.ref[object]) -> None:
        """Let others read."""
        if self.reader is reader:
            self.reader = None

    def add(self, message: Followed) -> None:
        """Take in another one; wakes a loop that would find it due too late."""
        self.messages[bare(message.smtp_id)] = message
        if message.latest < self.wakes_at:
            self.added.set()

    def doubt(self) -> None:
        """Have what the journal has read again."""
        self.is_loaded = False
        self.added.set()

    async def load(self, read: Callable[[], Awaitable[Sequence[Followed]]]) -> None:
        """Take in what the journal has. It is right also about what stands here, but for when that is looked at."""
        self.is_loaded = True  # what is added meanwhile may undo it
        before, self.messages = self.messages, {}
        for message in await read():
            known = before.get(bare(message.smtp_id))
            if known is not None and known.number == message.number:
                message = attrs.evolve(known, seen=message.seen)
            self.messages.setdefault(bare(message.smtp_id), message)
