"""Mailboxes of the server of canned answers, whose messages all have one date: canaries are answered from memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from directsuite.core.call import Exchanged
from directsuite.messaging.models import MessageDetail
from directsuite.messaging.service import Mailbox
from directsuite.sync.remote import DirectRemote, Listed


class CannedRemote(DirectRemote):
    """A mailbox whose INBOX has so many messages. It remembers the first and the last message that it gave."""

    def __init__(self, mailbox: Mailbox, messages: int) -> None:
        super().__init__(mailbox)
        self._folder = f"INBOX.{messages}"
        self._ends: list[MessageDetail] = []

    async def uids(self, folder: str, mark: bytes | None = None) -> Listed | None:
        """Those of the canned folder."""
        return await super().uids(self._folder, mark)

    async def messages(
        self, folder: str, uids: Sequence[int], weigh: Callable[[Exchanged], None] | None = None
    ) -> Sequence[MessageDetail]:
        """Those of the canned folder."""
        found = await super().messages(self._folder, uids, weigh)
        ends = sorted([*self._ends, *found], key=lambda each: each.uid or 0)
        self._ends = [ends[0], ends[-1]]
        return found

    async def metadata_between(self, folder: str, begin_ms: int, end_ms: int) -> Sequence[MessageDetail]:
        """The ends."""
        return self._ends
