"""Mailboxes of the server of canned answers, whose messages all have one date: sentinels are answered from memory."""

from __future__ import annotations

from collections.abc import Sequence

from directsuite.errors import ResponseDecodeError
from directsuite.messaging.models import MessageDetail
from directsuite.messaging.service import Mailbox
from directsuite.sync.remote import Remote, UidListing


class CannedRemote(Remote):
    """A mailbox whose INBOX has so many messages. It remembers the first and the last message that it gave."""

    def __init__(self, mailbox: Mailbox, messages: int) -> None:
        super().__init__(mailbox)
        self._folder = f"INBOX.{messages}"
        self._ends: list[MessageDetail] = []

    async def list_uids(self, folder: str, etag: bytes | None = None) -> UidListing | None:
        """Those of the canned folder."""
        return await super().list_uids(self._folder, etag)

    async def fetch_messages(self, folder: str, uids: Sequence[int]) -> Sequence[MessageDetail]:
        """Those of the canned folder."""
        return self._remember(await super().fetch_messages(self._folder, uids))

    async def fetch_and_measure(
        self, folder: str, uids: Sequence[int]
    ) -> tuple[Sequence[MessageDetail] | ResponseDecodeError, int]:
        """Those of the canned folder."""
        messages, size = await super().fetch_and_measure(self._folder, uids)
        return messages if isinstance(messages, ResponseDecodeError) else self._remember(messages), size

    def _remember(self, messages: Sequence[MessageDetail]) -> Sequence[MessageDetail]:
        ends = sorted([*self._ends, *messages], key=lambda each: each.uid or 0)
        self._ends = [ends[0], ends[-1]]
        return messages

    async def list_metadata_between(self, folder: str, begin_ms: int, end_ms: int) -> Sequence[MessageDetail]:
        """The ends."""
        return self._ends
