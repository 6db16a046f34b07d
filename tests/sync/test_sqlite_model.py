"""The SQLite store beside a model of its protocol: whatever is committed, together or not, both give the same."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from directsuite.durable.database import Transaction, sql
from directsuite.sync.model import (
    STATE_AFTER_LEAVING,
    UNFINISHED_STATES,
    Change,
    ChangeSet,
    Key,
    Kind,
    Lease,
    MessageRow,
    MessageState,
    StaleLeaseError,
    StoredFolder,
)
from directsuite.sync.store import MEMORY, SqliteStore
from tests.examples import scale_examples

pytestmark = pytest.mark.wide

MAILBOXES = ["ann", "bob"]
NAMES = ["INBOX", "Sent"]
DIGESTS = [None, b"1", b"2"]
POISONED = 4
AFTER = STATE_AFTER_LEAVING | dict.fromkeys((MessageState.LIVE, MessageState.MISSING), MessageState.UNRESOLVED)
"""States of rows of a uid_validity that is over."""


def renumbered(row: MessageRow) -> MessageRow:
    """A row of a uid_validity that is over."""
    return attrs.evolve(row, state=AFTER[row.state], attempts=0, retry_ms=None) if row.state in AFTER else row


"""The uid whose change the sink refuses."""


class RefusedError(Exception):
    """The sink's."""


class Sink:
    """Refuses one uid after it has written it."""

    async def prepare(self, transaction: Transaction) -> None:
        transaction.connection.execute("CREATE TABLE told (uid INTEGER)")

    async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        transaction.connection.executemany("INSERT INTO told VALUES (?)", [(change.key.uid,) for change in changes])
        if any(change.key.uid == POISONED for change in changes):
            raise RefusedError


@attrs.define
class Model:
    """What the docstrings of the protocol say, in dicts."""

    fences: dict[str, int] = attrs.field(factory=dict[str, int])
    folders: dict[int, tuple[str, StoredFolder]] = attrs.field(factory=dict[int, tuple[str, StoredFolder]])
    rows: dict[tuple[int, int, int], MessageRow] = attrs.field(factory=dict[tuple[int, int, int], MessageRow])
    told: list[int] = attrs.field(factory=list[int])

    def commit(self, lease: Lease, change_set: ChangeSet, uids: Sequence[int]) -> type[Exception] | None:
        if self.fences[lease.name] != lease.lease_number:
            return StaleLeaseError
        if POISONED in uids:
            return RefusedError
        for place, row in self.rows.items():
            if row.folder in change_set.renumbered:
                self.rows[place] = renumbered(row)
        for row in change_set.rows:
            self.put(row)
        for folder in change_set.folders:
            self.folders[folder.id] = (lease.name, folder)
        self.told += uids
        return None

    def put(self, row: MessageRow) -> None:
        self.rows[row.folder, row.uid_validity, row.uid] = row

    def of(self, mailbox: str) -> list[tuple[str, MessageRow]]:
        named = [(self.folders[row.folder], row) for _, row in sorted(self.rows.items())]
        return [(folder.name, row) for (owner, folder), row in named if owner == mailbox]


@st.composite
def rows(draw: st.DrawFn, folder: int) -> MessageRow:
    state = draw(st.sampled_from(MessageState))
    return MessageRow(
        folder=folder,
        uid_validity=draw(st.integers(1, 2)),
        uid=draw(st.integers(1, 5)),
        state=state,
        identity=draw(st.sampled_from([None, b"i"])),
        digest=None if state is MessageState.POISON else draw(st.sampled_from(DIGESTS)),
        received_ms=draw(st.sampled_from([None, 0, 1])),
        size=draw(st.integers(-1, 2)),
    )


class Beside(RuleBasedStateMachine):
    """Each rule does the same to both."""

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.store = SqliteStore(MEMORY, Sink())
        self.runner.run(self.store.open())
        self.model = Model()
        self.leases = list[Lease]()
        for mailbox in MAILBOXES:
            self.claim(mailbox)
            for name in NAMES:
                folder = self.runner.run(self.store.folder(self.leases[-1], name))
                self.model.folders[folder.id] = (mailbox, folder)

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self.store.aclose())
            self.runner.close()

    @rule(mailbox=st.sampled_from(MAILBOXES))
    def claim(self, mailbox: str) -> None:
        self.model.fences[mailbox] = self.model.fences.get(mailbox, 0) + 1
        self.leases.append(self.runner.run(self.store.claim(mailbox)))
        assert (self.leases[-1].name, self.leases[-1].lease_number) == (mailbox, self.model.fences[mailbox])

    @rule(data=st.data())
    def commits_at_once(self, data: st.DataObject) -> None:
        commits = [self.commit(data) for _ in range(data.draw(st.integers(1, 4)))]
        before = copy.deepcopy(commits)

        async def together() -> list[BaseException | None]:
            all_of_them = (self.store.commit(*each) for each in commits)
            return await asyncio.gather(*all_of_them, return_exceptions=True)

        results = self.runner.run(together())
        expected = [self.model.commit(lease, d, [each.key.uid for each in changes]) for lease, d, changes in commits]
        assert [None if error is None else type(error) for error in results] == expected
        assert commits == before

    def commit(self, data: st.DataObject) -> tuple[Lease, ChangeSet, list[Change]]:
        lease = data.draw(st.sampled_from(self.leases[-4:]))
        own = [identifier for identifier, (owner, _) in self.model.folders.items() if owner == lease.name]
        some = st.sampled_from(own).flatmap(rows)
        change_set = ChangeSet(
            renumbered=data.draw(st.lists(st.sampled_from(own), max_size=1)),
            rows=data.draw(st.lists(some, max_size=4)),
            folders=[
                attrs.evolve(self.model.folders[each][1], uid_validity=data.draw(st.integers(1, 2)), fingerprint=b"f")
                for each in data.draw(st.lists(st.sampled_from(own), max_size=1))
            ],
        )
        uids = data.draw(st.lists(st.integers(1, POISONED), max_size=2))
        return lease, change_set, [Change(kind=Kind.NEW, key=Key(lease.name, "INBOX", 1, uid)) for uid in uids]

    @invariant()
    def is_the_same(self) -> None:
        self.runner.run(self.compare())

    async def compare(self) -> None:
        model = self.model
        for owner, folder in model.folders.values():
            lease = next(lease for lease in self.leases if lease.name == owner)
            assert await self.store.folder(lease, folder.name) == folder
            known = sorted(
                (
                    row
                    for row in model.rows.values()
                    if (row.folder, row.uid_validity) == (folder.id, folder.uid_validity)
                ),
                key=lambda row: row.uid,
            )
            assert await self.store.rows(folder) == known
            assert await self.store.states(folder) == {row.uid: row.state for row in known}
            dated = [r for r in known if r.state is MessageState.LIVE and r.identity and r.received_ms is not None]
            ends = {row.uid: row for row in (*dated[-1:], *dated[:1])}
            assert await self.store.sentinels(folder) == list(ends.values())
            of_it = model.of(owner)
            assert await self.store.unfinished(lease) == [each for each in of_it if each[1].state in UNFINISHED_STATES]
            assert await self.store.with_digests(lease, [b"1", b"2", b"1"]) == [
                each for each in of_it if each[1].digest
            ]
        told = await self.store._database.fetch(sql("SELECT uid FROM told"))
        assert [uid for (uid,) in told] == model.told


TestBeside = Beside.TestCase
TestBeside.settings = settings(max_examples=scale_examples(30), stateful_step_count=12, derandomize=True)
