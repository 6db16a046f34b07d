"""Mailboxes of the server of prepared responses."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import directsuite as ds
from benchmarks.peers import work
from benchmarks.server import make_scenario_url
from directsuite.core.clock import SystemClock
from directsuite.errors import ResponseDecodeError
from directsuite.messaging.models import MessageDetail
from directsuite.messaging.service import Mailbox
from directsuite.sync import Deliver, SqliteSink, SqliteStore, Synchronizer
from directsuite.sync.commits import Commits, SinkHealth
from directsuite.sync.decide import UidListing
from directsuite.sync.remote import Remote
from directsuite.sync.round import MailboxRounds
from directsuite.sync.store import Store


class CannedRemote(Remote):
    """A mailbox whose INBOX has the given number of messages.

    All messages of the server have the same date, so the remote answers searches by date itself, with the first and the
    last message that it fetched.
    """

    def __init__(self, mailbox: Mailbox, messages: int) -> None:
        super().__init__(mailbox)
        self.messages = messages
        self._ends: list[MessageDetail] = []

    async def list_uids(self, folder: str, etag: bytes | None = None) -> UidListing | None:
        return await super().list_uids(work.name_folder(self.messages), etag)

    async def fetch_messages(self, folder: str, uids: Sequence[int]) -> Sequence[MessageDetail]:
        return self._remember(await super().fetch_messages(work.name_folder(self.messages), uids))

    async def fetch_and_measure(
        self, folder: str, uids: Sequence[int]
    ) -> tuple[Sequence[MessageDetail] | ResponseDecodeError, int]:
        messages, size = await super().fetch_and_measure(work.name_folder(self.messages), uids)
        return messages if isinstance(messages, ResponseDecodeError) else self._remember(messages), size

    async def list_metadata_between(self, folder: str, begin_ms: int, end_ms: int) -> Sequence[MessageDetail]:
        return self._ends

    def _remember(self, messages: Sequence[MessageDetail]) -> Sequence[MessageDetail]:
        ends = sorted([*self._ends, *messages], key=lambda each: each.uid or 0)
        self._ends = [ends[0], ends[-1]]
        return messages


def make_suite(url: str, **scenario: int) -> ds.DirectSuite:
    """Return a client of the server, without a rate limit."""
    url = make_scenario_url(url, **scenario) + work.MESSAGING
    return ds.DirectSuite(ds.Settings(message_url=url, requests_per_second=1e9, burst=10**9))


def make_mailbox(suite: ds.DirectSuite) -> Mailbox:
    """Return the mailbox of the server."""
    return suite.mailbox(work.USERNAME, work.PASSWORD)


async def make_rounds(remote: CannedRemote, store: Store, deliver: Deliver | None = None) -> MailboxRounds:
    """Return the rounds of the mailbox's INBOX."""
    lease = await store.claim("alice")
    commits = Commits(store, lease, deliver, SystemClock(), lambda: int(time.time() * 1000), SinkHealth())
    return MailboxRounds(remote, commits, ("INBOX",))


async def run_all_rounds(rounds: MailboxRounds) -> None:
    """Run rounds until everything is synchronised."""
    while (await rounds.run_round()).has_more:
        pass


def use_canned_mailboxes(
    synchronizer: Any, suite: ds.DirectSuite, count_messages: Callable[[str], int]
) -> dict[str, CannedRemote]:
    """Let a Synchronizer or Fleet use mailboxes of the server. Return the mailboxes that it has opened, by name."""
    opened = dict[str, CannedRemote]()

    async def open_remote(name: str) -> Remote:
        opened[name] = CannedRemote(make_mailbox(suite), count_messages(name))
        return opened[name]

    synchronizer._worker._open = open_remote
    return opened


async def synchronise(suite: ds.DirectSuite, folder: Path, mailboxes: int, messages: int) -> None:
    """Bring mailboxes with the given number of messages up to date, in a new database in a folder."""
    async with SqliteStore(folder / "sync.db", sink=SqliteSink()) as store:
        sync = Synchronizer(suite, store, [f"mailbox-{number}" for number in range(mailboxes)], get_password)
        use_canned_mailboxes(sync, suite, lambda _: messages)
        status = await sync.once()
    assert not any(each.problem for each in status.values())


async def get_password(_: str) -> str:
    """Return the password of all mailboxes."""
    return work.PASSWORD
