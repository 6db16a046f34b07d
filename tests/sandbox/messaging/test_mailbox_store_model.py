"""The mailbox store compared with a model of dicts and lists, in any order of operations."""

from __future__ import annotations

import sqlite3
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.messaging.parsing import build_content
from directsuite.sandbox.messaging.service import SCHEMA
from directsuite.sandbox.rejections import MessagingError
from tests.examples import scale_examples

NAMES = ["INBOX", "INBOX.Sent", "INBOX.Trash", "INBOX.A", "INBOX.A.B", "INBOX.A.B.C", "INBOX.AB", "INBOX.D"]
names = st.sampled_from(NAMES)
uid_lists = st.lists(st.integers(1, 8), min_size=1, max_size=4)
# Few contents, so that several messages share one.
raws = st.sampled_from([b"Subject: %d\r\n\r\n" % number for number in range(3)])


class ModelFolder:
    """The bytes and the read flag by uid, and the highest uid."""

    def __init__(self) -> None:
        self.messages: dict[int, tuple[bytes, bool]] = {}
        self.given = 0

    def add(self, raw: bytes, seen: bool = False) -> int:
        self.given += 1
        self.messages[self.given] = (raw, seen)
        return self.given


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.db.row_factory = sqlite3.Row
        self.db.execute("PRAGMA foreign_keys=ON")
        self.db.executescript(SCHEMA)
        self.model = {name: ModelFolder() for name in (*mailboxes.RESERVED_FOLDERS, mailboxes.TRASH)}

    @initialize()
    def open_mailbox(self) -> None:
        self.account = mailboxes.create_account(self.db, "a@x.test", "p", at_ms=0)

    def folder(self, name: str) -> int | None:
        try:
            return mailboxes.get_folder(self.db, self.account, name).id
        except MessagingError:
            assert name not in self.model
            return None

    def agree(self, expected: bool, work: Any, *arguments: Any) -> bool:
        try:
            work(self.db, self.account, *arguments)
        except MessagingError:
            assert not expected
            return False
        assert expected
        return True

    @rule(name=names, raw=raws)
    def append(self, name: str, raw: bytes) -> None:
        if (folder := self.folder(name)) is not None:
            assert mailboxes.append_message(self.db, folder, build_content(raw), received_ms=0) == self.model[name].add(
                raw
            )

    @rule(name=names, destination=names, uids=uid_lists, moves=st.booleans())
    def copy_or_move(self, name: str, destination: str, uids: list[int], moves: bool) -> None:
        source, target = self.folder(name), self.folder(destination)
        if source is None or target is None:
            return
        transferred = (mailboxes.move_messages if moves else mailboxes.copy_messages)(self.db, source, target, uids)
        expected = dict[int, int]()
        if name != destination:
            for uid in sorted(set(uids) & self.model[name].messages.keys()):
                expected[uid] = self.model[destination].add(*self.model[name].messages[uid])
                if moves:
                    del self.model[name].messages[uid]
        assert transferred == expected

    @rule(name=names, uids=uid_lists)
    def remove(self, name: str, uids: list[int]) -> None:
        if (folder := self.folder(name)) is not None:
            there = sorted(set(uids) & self.model[name].messages.keys())
            assert mailboxes.remove_messages(self.db, folder, uids) == there
            for uid in there:
                del self.model[name].messages[uid]

    @rule(name=names, uids=uid_lists, seen=st.booleans())
    def mark(self, name: str, uids: list[int], seen: bool) -> None:
        if (folder := self.folder(name)) is not None:
            messages = self.model[name].messages
            changed = sorted(uid for uid in set(uids) & messages.keys() if messages[uid][1] != seen)
            assert mailboxes.set_seen(self.db, folder, uids, seen=seen) == changed
            for uid in changed:
                self.model[name].messages[uid] = (self.model[name].messages[uid][0], seen)

    @rule(name=names)
    def create_folder(self, name: str) -> None:
        possible = name not in self.model and name not in mailboxes.RESERVED_FOLDERS
        if self.agree(possible, mailboxes.create_folder, name):
            self.make(name)

    @rule(name=names, new_name=names)
    def rename_folder(self, name: str, new_name: str) -> None:
        possible = (
            name in self.model
            and new_name not in self.model
            and name not in mailboxes.RESERVED_FOLDERS
            and not f"{new_name}.".startswith(f"{name}.")
        )
        if self.agree(possible, mailboxes.rename_folder, name, new_name):
            self.make(new_name)
            for old in self.below(name):
                self.model[new_name + old[len(name) :]] = self.model.pop(old)

    @rule(name=names)
    def delete_folder(self, name: str) -> None:
        if self.agree(name in self.model and name not in mailboxes.RESERVED_FOLDERS, mailboxes.delete_folder, name):
            for gone in self.below(name):
                del self.model[gone]

    def make(self, name: str) -> None:
        levels = name.split(".")
        for depth in range(2, len(levels) + 1):
            self.model.setdefault(".".join(levels[:depth]), ModelFolder())

    def below(self, name: str) -> list[str]:
        return [other for other in self.model if f"{other}.".startswith(f"{name}.")]

    @invariant()
    def both_say_the_same(self) -> None:
        if not hasattr(self, "account"):
            return
        listed = mailboxes.list_subfolders(self.db, self.account, "INBOX", subscribed_only=False)
        assert ["INBOX", *listed] == sorted(self.model)
        for name, model in self.model.items():
            folder = self.folder(name)
            assert folder is not None
            uids = mailboxes.list_uids(self.db, folder)
            assert uids == sorted(model.messages)
            found = mailboxes.list_messages(self.db, folder, mailboxes.Selection(uids=uids), "raw")
            assert [message["octets"] for message in found] == [model.messages[uid][0] for uid in uids]
            unread = mailboxes.list_messages(self.db, folder, mailboxes.Selection(unread=True), "metadata")
            assert [message["uid"] for message in unread] == [u for u in uids if not model.messages[u][1]]
            assert [mailboxes.count_messages(self.db, folder, unread=only) for only in (False, True)] == [
                len(uids),
                len(unread),
            ]
        kept = {bytes(row[0]) for row in self.db.execute("SELECT raw FROM content")}
        assert kept == {raw for model in self.model.values() for raw, _ in model.messages.values()}

    def teardown(self) -> None:
        self.db.close()


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=scale_examples(40), stateful_step_count=30)
