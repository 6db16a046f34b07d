"""The state machine: random events in the mailbox, the server, the store and the process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from directsuite.errors import ConnectionLostError
from directsuite.sync import decide
from directsuite.sync.model import (
    Change,
    Kind,
    Lease,
    MessageRow,
    MessageState,
    RoundReport,
    SinkError,
    StaleLeaseError,
)
from directsuite.sync.store import SqliteStore
from tests.core.virtual_time import ManualClock
from tests.sync.rounds import Rounds

from .fake_remote import METADATA_FORMS, CrashPoint, DiedError, FakeRemote
from .mirror import Mirror
from .simulated_mailbox import FOLDERS, MAILBOX, Act, SimulatedMailbox
from .stores import DiskFullError, FailingStore, MirrorSink

_FOLDER = st.sampled_from(FOLDERS)
_KIND = st.sampled_from(["strong", "strong", "weak", "dateless"])
_INDEX = st.integers(0, 8)
_FAULT = st.sampled_from(["lost", "partial", "short", "vague"])
_GLITCH = st.sampled_from(["empty", "unlisted", "impossible"])
_METADATA_FORM = st.sampled_from(sorted(METADATA_FORMS))
_JUMP_HOURS = st.sampled_from([-2 * 365 * 24, -1, 1, 2 * 365 * 24])  # hours
_DAY_SECONDS = 86_400


def _make_act(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Act]:
    return st.tuples(st.just(name), st.tuples(*arguments))


_DELIVERY_ACTS = _make_act("deliver", _FOLDER, st.integers(1, 7), _KIND) | _make_act("twins", _FOLDER)
_DELETION_ACTS = _make_act("delete", _FOLDER, _INDEX) | _make_act("wipe", _FOLDER) | _make_act("undelete")
_MOVE_ACTS = _make_act("move", _FOLDER, _FOLDER, _INDEX) | _make_act("copy", _FOLDER, _FOLDER, _INDEX)
_RENUMBERING_ACTS = (
    _make_act("recreate", _FOLDER, st.integers(1, 4), _KIND)
    | _make_act("replace", _FOLDER)
    | _make_act("renumber", _FOLDER, st.integers(1, 50), st.booleans())
    | _make_act("permute", _FOLDER, st.none() | _INDEX)
)
_FETCH_FAULT_ACTS = (
    _make_act("spoil", _FOLDER, _INDEX) | _make_act("mend") | _make_act("hide", _FOLDER) | _make_act("show")
)
_CHANGE_ACTS = _DELIVERY_ACTS | _DELETION_ACTS | _MOVE_ACTS
_ALL_ACTS = _DELIVERY_ACTS | _DELETION_ACTS | _MOVE_ACTS | _RENUMBERING_ACTS | _FETCH_FAULT_ACTS


class SyncMachine(RuleBasedStateMachine):
    """A mailbox, a store, and one process after another.

    may_repeat: True if the sink is a callable outside the store, which may receive changes twice.
    """

    may_repeat = False

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.fuse = CrashPoint()

    @initialize(folders=st.integers(1, 3), named=st.booleans(), metadata_form=_METADATA_FORM)
    def begin(self, folders: int, named: bool, metadata_form: str = "same") -> None:
        self.named = named
        self.skew = 0
        self.world = SimulatedMailbox(FOLDERS[:folders])
        self.remote = FakeRemote(self.world, self.fuse)
        self.remote.metadata_form = metadata_form
        if metadata_form != "same":
            self.world.ambiguous_kinds = frozenset(
                {"weak", "strong", "dateless"} if metadata_form == "no Message-ID" else {"weak"}
            )
        self.aside = set[tuple[str, int, int]]()
        self.mirror = Mirror(self.world, self.remote, self.fuse, self.aside, again=self.may_repeat)
        self.sqlite = SqliteStore(":memory:", sink=None if self.may_repeat else MirrorSink(self.mirror.write))
        self.runner.run(self.sqlite.open())
        self.store: Any = FailingStore(self.sqlite, self.fuse, self.aside)
        self.rounds = self.process()

    def process(self) -> Rounds:
        return Rounds(
            self.remote,
            self.store,
            MAILBOX,
            list(self.world.boxes) if self.named else None,
            deliver=self.deliver if self.may_repeat else None,
            clock=self.clock,
            now_ms=lambda: 1_800_000_000_000 + int(self.clock.now * 1000) + self.skew,
        )

    async def deliver(self, changes: Sequence[Change]) -> None:
        self.mirror.write(changes)

    def run_round(self, *, audit: bool = False) -> RoundReport:
        self.remote.troubled.clear()
        try:
            with mock.patch.object(decide, "is_audit_due", return_value=True) if audit else contextlib.nullcontext():
                return self.runner.run(self.rounds.run_round())
        except (ConnectionLostError, DiskFullError) as error:
            return RoundReport(failed_folders={"": error})
        finally:
            self.remote.disturbance = None
            self.store.refuse = None
            if self.mirror.failure is not None:
                raise self.mirror.failure

    @rule(act=_DELIVERY_ACTS)
    def mail(self, act: Act) -> None:
        self.world.act(act)

    @rule(act=_DELETION_ACTS)
    def loss(self, act: Act) -> None:
        self.world.act(act)

    @rule(act=_MOVE_ACTS)
    def journey(self, act: Act) -> None:
        self.world.act(act)

    @rule(act=_RENUMBERING_ACTS)
    def upheaval(self, act: Act) -> None:
        self.world.act(act)

    @rule(act=_FETCH_FAULT_ACTS)
    def illness(self, act: Act) -> None:
        self.world.act(act)

    @rule(act=_ALL_ACTS, after=st.integers(0, 8), fault=_FAULT, last=st.booleans())
    def faulty_round(self, act: Act, after: int, fault: str, last: bool) -> None:
        self.world.act(act)
        self.remote.fault = (after, fault)
        self.run_round()
        if last:
            self.converge(600)

    @rule(limit=st.none() | st.integers(102, 450))
    def limit(self, limit: int | None) -> None:
        self.remote.limit = limit

    @rule(seconds=st.sampled_from([1, 599, 600, 900, 3600, _DAY_SECONDS]))
    def time_passes(self, seconds: int) -> None:
        self.clock.now += seconds

    @rule(audit=st.booleans())
    def round(self, audit: bool) -> None:
        self.run_round(audit=audit)

    @rule(act=_ALL_ACTS, kind=_GLITCH, folder=_FOLDER, rounds=st.integers(1, 3))
    def rounds_with_a_glitch(self, act: Act, kind: str, folder: str, rounds: int) -> None:
        self.world.act(act)
        there = list(self.world.boxes)
        self.remote.glitch = (kind, there[FOLDERS.index(folder) % len(there)])
        for _ in range(rounds):
            self.run_round()
        self.remote.glitch = None

    @rule(hours=_JUMP_HOURS, act=_ALL_ACTS, rounds=st.integers(0, 2), is_set_right=st.booleans())
    def clock_that_jumps(self, hours: int, act: Act, rounds: int, is_set_right: bool) -> None:
        self.skew = hours * 3_600_000
        self.world.act(act)
        for _ in range(rounds):
            self.run_round()
        if is_set_right:
            self.skew = 0

    @rule(before=st.integers(0, 12), first=_CHANGE_ACTS, act=_MOVE_ACTS | _ALL_ACTS, last=st.booleans())
    def disturbed_round(self, before: int, first: Act, act: Act, last: bool) -> None:
        self.world.act(first)
        self.remote.disturbance = (before, act)
        self.run_round()
        if last:
            self.converge(600)

    @rule(act=_ALL_ACTS, steps=st.integers(0, 30), survives=st.booleans())
    def round_that_ends(self, act: Act, steps: int, survives: bool) -> None:
        self.world.act(act)
        self.fuse.steps = steps
        try:
            self.run_round()
        except DiedError:
            if not survives:
                self.rounds = self.process()
        finally:
            self.fuse.steps = None

    @rule(act=_ALL_ACTS, refuse=st.integers(0, 4))
    def round_with_a_full_disk(self, act: Act, refuse: int) -> None:
        self.world.act(act)
        self.store.refuse = refuse
        self.run_round()

    @rule(act=_DELIVERY_ACTS | _DELETION_ACTS | _RENUMBERING_ACTS, ahead=st.integers(0, 1))
    def zombie(self, act: Act, ahead: int) -> None:
        if "" in self.run_round().failed_folders:
            return  # the lease has ended, so the next round would claim the mailbox
        zombie, self.rounds = self.rounds, self.process()
        self.run_round()
        self.world.act(act)
        for _ in range(ahead):
            self.run_round()
        told, commits = len(self.mirror.log), self.store.commits
        with contextlib.suppress(StaleLeaseError, ConnectionLostError):
            self.runner.run(zombie.run_round())
        assert self.store.commits == commits, "a stale lease wrote"
        assert len(self.mirror.log) == told, "a stale lease told"

    @rule(seconds=st.sampled_from([600, 900, 1800]))
    def converge(self, seconds: int) -> None:
        self.recover()
        self.clock.now += seconds
        if self.world.audit_only_folders:
            for _ in range(4):
                self.run_round()
            self.run_round(audit=True)
            self.world.audit_only_folders.clear()
        self.run_until_quiet()
        aside, in_doubt = (
            {(name, row.uid) for name, row in self.list_rows(state)}
            for state in (MessageState.POISON, MessageState.QUARANTINED_UNCONFIRMED)
        )
        self.compare(aside | in_doubt | self.list_unverifiable())  # recovered messages are not due yet
        self.idle()

    @precondition(lambda self: self.clock.now < 50 * _DAY_SECONDS)
    @rule()
    def converge_for_days(self) -> None:
        self.recover()
        for _ in range(3):
            self.clock.now += _DAY_SECONDS
            self.run_until_quiet()
        self.world.audit_only_folders.clear()
        self.compare(self.list_unfetchable())
        self.idle()

    def recover(self) -> None:
        self.remote.fault = None
        self.remote.limit = None
        self.world.show()

    def run_until_quiet(self) -> None:
        quiet = 0
        for _ in range(16):
            report = self.run_round()
            assert not report.failed_folders, report.failed_folders
            idle = report.idle_folders == len(self.world.boxes) and not report.changes.total()
            quiet = quiet + 1 if idle else 0
            if quiet == 2:
                return
        raise AssertionError("no end of it")

    def idle(self) -> None:
        before, commits = self.remote.calls.copy(), self.store.commits
        self.run_round()
        calls = self.remote.calls - before
        assert calls.pop("folders", 0) <= 1
        assert calls == {"uids": len(self.world.boxes)}, calls
        assert self.store.commits == commits, "an idle round wrote"

    def compare(self, excused: set[tuple[str, int]]) -> None:
        told = [(key.folder, key.uid, content) for key, content in self.mirror.messages.items()]
        assert len(told) == len(set(told)), "a message with two keys"
        missing = {place for place in self.list_messages() - set(told) if place[:2] not in excused}
        assert not missing, f"never told: {missing}"
        false = {place for place in set(told) - self.list_messages() if place[:2] not in self.list_unverifiable()}
        assert not false, f"told, and not there: {false}"

    def list_unverifiable(self) -> set[tuple[str, int]]:
        return self.list_unfetchable() & {
            (name, uid) for name, uid in self.world.messages_by_uid if name in self.world.reused_folders
        }

    def list_unfetchable(self) -> set[tuple[str, int]]:
        boxes = self.world.boxes.items()
        return {(name, uid) for name, box in boxes for uid, each in box.messages.items() if each.is_poison}

    def list_messages(self) -> set[tuple[str, int, str]]:
        boxes = self.world.boxes.items()
        return {(name, uid, message.content) for name, box in boxes for uid, message in box.messages.items()}

    def list_rows(self, state: MessageState) -> list[tuple[str, MessageRow]]:
        rows: list[tuple[str, MessageRow]] = self.runner.run(self.store.unfinished(Lease(1, MAILBOX, 0)))
        return [each for each in rows if each[1].state is state]

    def teardown(self) -> None:
        if hasattr(self, "sqlite"):
            self.runner.run(self.sqlite.aclose())
        self.runner.close()


class DeliveringMachine(SyncMachine):
    may_repeat = True


class RejectingMachine(DeliveringMachine):
    """A machine with a sink that rejects some changes, or all for a while.

    rejections: by folder and uid, the kind of change (None for all), and True if the sink applies it before it fails.
    failing_calls: the number of next calls that fail.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rejections = dict[tuple[str, int], tuple[Kind | None, bool]]()
        self.failing_calls = 0

    async def deliver(self, changes: Sequence[Change]) -> None:
        for change in changes:
            kind, nevertheless = self.rejections.get((change.key.folder, change.key.uid), (change.kind, None))
            refuses = nevertheless is not None and kind in (None, change.kind)
            self.failing_calls = max(0, self.failing_calls - 1)
            if self.failing_calls or (refuses and not nevertheless):
                raise ValueError("no")
            self.mirror.write([change])
            if refuses:
                raise ValueError("yes, perhaps")

    def run_round(self, *, audit: bool = False) -> RoundReport:
        try:
            return super().run_round(audit=audit)
        except SinkError as error:
            return RoundReport(failed_folders={"": error})

    @rule(folder=_FOLDER, uid=st.integers(1, 12), kind=st.none() | st.sampled_from(Kind), nevertheless=st.booleans())
    def reject_message(self, folder: str, uid: int, kind: Kind | None, nevertheless: bool) -> None:
        self.rejections[folder, uid] = (kind, nevertheless)

    @rule(act=_ALL_ACTS, calls=st.integers(1, 30))
    def round_with_a_sink_that_is_away(self, act: Act, calls: int) -> None:
        self.world.act(act)
        self.failing_calls = calls
        self.run_round()

    def recover(self) -> None:
        super().recover()
        self.rejections.clear()
        self.failing_calls = 0
        self.clock.now += _DAY_SECONDS
