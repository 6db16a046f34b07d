"""The state machine: anything happens to the mailbox and to the process, and what the sink was told stays true."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from directsuite.errors import ConnectionLostError
from directsuite.sync.commits import SinkError
from directsuite.sync.model import Change, Kind, Lease, RoundReport, Row, StaleLeaseError, State, Store
from directsuite.sync.round import MailboxRounds
from tests.core.virtual_time import ManualClock

from .fake_remote import METADATA_FORMS, DiedError, FakeRemote, Fuse
from .mirror import Mirror
from .stores import DictStore, DiskFullError, FailingStore, Write
from .world import FOLDERS, MAILBOX, Act, World

_FOLDER = st.sampled_from(FOLDERS)
_KIND = st.sampled_from(["strong", "strong", "weak", "dateless"])
_INDEX = st.integers(0, 8)
_FAULT = st.sampled_from(["lost", "partial", "short", "vague"])
_GLITCH = st.sampled_from(["empty", "unlisted", "impossible"])
_METADATA_FORM = st.sampled_from(sorted(METADATA_FORMS))
_JUMP = st.sampled_from([-2 * 365 * 24, -1, 1, 2 * 365 * 24])  # hours
_DAY = 86_400


def _act(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Act]:
    return st.tuples(st.just(name), st.tuples(*arguments))


_MAIL = _act("deliver", _FOLDER, st.integers(1, 7), _KIND) | _act("twins", _FOLDER)
_LOSS = _act("delete", _FOLDER, _INDEX) | _act("wipe", _FOLDER) | _act("undelete")
_JOURNEY = _act("move", _FOLDER, _FOLDER, _INDEX) | _act("copy", _FOLDER, _FOLDER, _INDEX)
_UPHEAVAL = (
    _act("recreate", _FOLDER, st.integers(1, 4), _KIND)
    | _act("replace", _FOLDER)
    | _act("renumber", _FOLDER, st.integers(1, 50), st.booleans())
    | _act("permute", _FOLDER, st.none() | _INDEX)
)
_ILLNESS = _act("spoil", _FOLDER, _INDEX) | _act("mend") | _act("hide", _FOLDER) | _act("show")
_CHANGE = _MAIL | _LOSS | _JOURNEY
_ANY = _MAIL | _LOSS | _JOURNEY | _UPHEAVAL | _ILLNESS


class SyncMachine(RuleBasedStateMachine):
    """A mailbox, a store, one process after the other.

    again: whether the sink is a callable that may be told twice, and no part of the store.
    """

    again = False

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.fuse = Fuse()

    @initialize(folders=st.integers(1, 3), named=st.booleans(), metadata_form=_METADATA_FORM)
    def begin(self, folders: int, named: bool, metadata_form: str = "same") -> None:
        """A mailbox with so many folders, which the process is given by name, or lists."""
        self.named = named
        self.skew = 0
        self.world = World(FOLDERS[:folders])
        self.remote = FakeRemote(self.world, self.fuse)
        self.remote.metadata_form = metadata_form
        if metadata_form != "same":
            self.world.blurs = frozenset(
                {"weak", "strong", "dateless"} if metadata_form == "no Message-ID" else {"weak"}
            )
        self.aside = set[tuple[str, int, int]]()
        self.mirror = Mirror(self.world, self.remote, self.fuse, self.aside, again=self.again)
        self.store = FailingStore(self.made_store(self.mirror.write), self.fuse, self.aside)
        self.rounds = self.process()

    def made_store(self, write: Write) -> Store:
        """An empty store with its sink."""
        return DictStore(write)

    def process(self) -> MailboxRounds:
        """A new process, which knows only what stands in the store."""
        return MailboxRounds(
            self.remote,
            self.store,
            name=MAILBOX,
            folders=list(self.world.boxes) if self.named else None,
            deliver=self.deliver if self.again else None,
            clock=self.clock,
            now_ms=lambda: 1_800_000_000_000 + int(self.clock.now * 1000) + self.skew,
        )

    async def deliver(self, changes: Sequence[Change]) -> None:
        """Have the mirror take changes, outside of a transaction."""
        self.mirror.write(changes)

    def one_round(self, *, audit: bool = False) -> RoundReport:
        """A round, and what it came to."""
        self.remote.troubled.clear()
        try:
            return self.runner.run(self.rounds.round(audit=audit))
        except (ConnectionLostError, DiskFullError) as error:
            return RoundReport(failed={"": error})
        finally:
            self.remote.disturbance = None
            self.store.refuse = None
            if self.mirror.failure is not None:
                raise self.mirror.failure

    @rule(act=_MAIL)
    def mail(self, act: Act) -> None:
        """Something comes."""
        self.world.act(act)

    @rule(act=_LOSS)
    def loss(self, act: Act) -> None:
        """Something goes."""
        self.world.act(act)

    @rule(act=_JOURNEY)
    def journey(self, act: Act) -> None:
        """Something is elsewhere."""
        self.world.act(act)

    @rule(act=_UPHEAVAL)
    def upheaval(self, act: Act) -> None:
        """Uids mean something else."""
        self.world.act(act)

    @rule(act=_ILLNESS)
    def illness(self, act: Act) -> None:
        """Something can't be had."""
        self.world.act(act)

    @rule(act=_ANY, after=st.integers(0, 8), fault=_FAULT, last=st.booleans())
    def faulty_round(self, act: Act, after: int, fault: str, last: bool) -> None:
        """A call goes wrong, in this round or a later one."""
        self.world.act(act)
        self.remote.fault = (after, fault)
        self.one_round()
        if last:
            self.converge(600)

    @rule(limit=st.none() | st.integers(102, 450))
    def limit(self, limit: int | None) -> None:
        """Answers may only be so large: single messages have 100 to 106 bytes."""
        self.remote.limit = limit

    @rule(seconds=st.sampled_from([1, 599, 600, 900, 3600, _DAY]))
    def time_passes(self, seconds: int) -> None:
        """Nothing else happens."""
        self.clock.now += seconds

    @rule(audit=st.booleans())
    def round(self, audit: bool) -> None:
        """One round."""
        self.one_round(audit=audit)

    @rule(act=_ANY, kind=_GLITCH, folder=_FOLDER, rounds=st.integers(1, 3))
    def rounds_with_a_glitch(self, act: Act, kind: str, folder: str, rounds: int) -> None:
        """For a few rounds, the service lists something that contradicts all its other responses."""
        self.world.act(act)
        there = list(self.world.boxes)
        self.remote.glitch = (kind, there[FOLDERS.index(folder) % len(there)])
        for _ in range(rounds):
            self.one_round()
        self.remote.glitch = None

    @rule(hours=_JUMP, act=_ANY, rounds=st.integers(0, 2), is_set_right=st.booleans())
    def clock_that_jumps(self, hours: int, act: Act, rounds: int, is_set_right: bool) -> None:
        """The time of day jumps, and is set right after some rounds or stays wrong."""
        self.skew = hours * 3_600_000
        self.world.act(act)
        for _ in range(rounds):
            self.one_round()
        if is_set_right:
            self.skew = 0

    @rule(before=st.integers(0, 12), first=_CHANGE, act=_JOURNEY | _ANY, last=st.booleans())
    def disturbed_round(self, before: int, first: Act, act: Act, last: bool) -> None:
        """Something happens between two calls of a round that has something to do."""
        self.world.act(first)
        self.remote.disturbance = (before, act)
        self.one_round()
        if last:
            self.converge(600)

    @rule(act=_ANY, steps=st.integers(0, 30), survives=st.booleans())
    def round_that_ends(self, act: Act, steps: int, survives: bool) -> None:
        """A round ends at any call, or before, within or after a commit; the process with it, or just the round."""
        self.world.act(act)
        self.fuse.steps = steps
        try:
            self.one_round()
        except DiedError:
            if not survives:
                self.rounds = self.process()
        finally:
            self.fuse.steps = None

    @rule(act=_ANY, refuse=st.integers(0, 4))
    def round_with_a_full_disk(self, act: Act, refuse: int) -> None:
        """A commit fails, and the process goes on."""
        self.world.act(act)
        self.store.refuse = refuse
        self.one_round()

    @rule(act=_MAIL | _LOSS | _UPHEAVAL, ahead=st.integers(0, 1))
    def zombie(self, act: Act, ahead: int) -> None:
        """A process goes on that another has taken over from: it notices, or has nothing to write."""
        self.one_round()
        zombie, self.rounds = self.rounds, self.process()
        self.one_round()
        self.world.act(act)
        for _ in range(ahead):
            self.one_round()
        told, commits = len(self.mirror.log), self.store.commits
        with contextlib.suppress(StaleLeaseError, ConnectionLostError):
            self.runner.run(zombie.round())
        assert self.store.commits == commits, "a stale lease wrote"
        assert len(self.mirror.log) == told, "a stale lease told"

    @rule(seconds=st.sampled_from([600, 900, 1800]))
    def converge(self, seconds: int) -> None:
        """Nothing happens any more: what was told is what is there."""
        self.recover()
        self.clock.now += seconds
        if self.world.weird:
            for _ in range(4):
                self.one_round()
            self.one_round(audit=True)
            self.world.weird.clear()
        self.until_quiet()
        aside, in_doubt = (
            {(name, row.uid) for name, row in self.rows(state)} for state in (State.POISON, State.POISON_IN_DOUBT)
        )
        self.compare(aside | in_doubt | self.unseen())  # what was mended meanwhile is not due yet
        self.idle()

    @precondition(lambda self: self.clock.now < 50 * _DAY)
    @rule()
    def converge_for_days(self) -> None:
        """Time passes as well: what was quarantined is asked for again, and all is compared."""
        self.recover()
        for _ in range(3):
            self.clock.now += _DAY
            self.until_quiet()
        self.world.weird.clear()
        self.compare(self.spoilt())
        self.idle()

    def recover(self) -> None:
        """Nothing fails any more, but what is spoilt."""
        self.remote.fault = None
        self.remote.limit = None
        self.world.show()

    def until_quiet(self) -> None:
        """Rounds until two in a row find nothing."""
        quiet = 0
        for _ in range(16):
            report = self.one_round()
            assert not report.failed, report.failed
            idle = report.idle == len(self.world.boxes) and not report.changes.total()
            quiet = quiet + 1 if idle else 0
            if quiet == 2:
                return
        raise AssertionError("no end of it")

    def idle(self) -> None:
        """A round that finds nothing lists each folder once, and writes nothing."""
        before, commits = self.remote.calls.copy(), self.store.commits
        self.one_round()
        calls = self.remote.calls - before
        assert calls.pop("folders", 0) <= 1
        assert calls == {"uids": len(self.world.boxes)}, calls
        assert self.store.commits == commits, "an idle round wrote"

    def compare(self, excused: set[tuple[str, int]]) -> None:
        """The mirror against the world. excused: messages that can't be fetched, and may not be known."""
        told = [(key.folder, key.uid, content) for key, content in self.mirror.here.items()]
        assert len(told) == len(set(told)), "a message with two keys"
        missing = {place for place in self.there() - set(told) if place[:2] not in excused}
        assert not missing, f"never told: {missing}"
        false = {place for place in set(told) - self.there() if place[:2] not in self.unseen()}
        assert not false, f"told, and not there: {false}"

    def unseen(self) -> set[tuple[str, int]]:
        """Messages that can't be fetched, under uids that were another's: nobody can tell whether they still are."""
        return self.spoilt() & {(name, uid) for name, uid in self.world.been if name in self.world.odd}

    def spoilt(self) -> set[tuple[str, int]]:
        """Messages that can't be fetched."""
        boxes = self.world.boxes.items()
        return {(name, uid) for name, box in boxes for uid, each in box.messages.items() if each.poison}

    def there(self) -> set[tuple[str, int, str]]:
        """Folder, uid and content of every message."""
        boxes = self.world.boxes.items()
        return {(name, uid, message.content) for name, box in boxes for uid, message in box.messages.items()}

    def rows(self, state: State) -> list[tuple[str, Row]]:
        """What the store has in a state."""
        return list(self.runner.run(self.store.in_state(Lease(1, MAILBOX, 0), state)))

    def teardown(self) -> None:
        """The end of the machine's loop."""
        self.runner.close()


class DeliveringMachine(SyncMachine):
    """With a sink that is a callable, and may be told the same twice."""

    again = True


class RefusingMachine(DeliveringMachine):
    """With one that refuses changes, or all for a while.

    refused: by folder and uid, changes of which kind (None for all), and whether it does what they say nevertheless.
    away: calls that fail from now on, whatever they tell.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused = dict[tuple[str, int], tuple[Kind | None, bool]]()
        self.away = 0

    async def deliver(self, changes: Sequence[Change]) -> None:
        """Take some of them, or all."""
        for change in changes:
            kind, nevertheless = self.refused.get((change.key.folder, change.key.uid), (change.kind, None))
            refuses = nevertheless is not None and kind in (None, change.kind)
            self.away = max(0, self.away - 1)
            if self.away or (refuses and not nevertheless):
                raise ValueError("no")
            self.mirror.write([change])
            if refuses:
                raise ValueError("yes, perhaps")

    def one_round(self, *, audit: bool = False) -> RoundReport:
        """As ever; a sink that takes nothing ends it."""
        try:
            return super().one_round(audit=audit)
        except SinkError as error:
            return RoundReport(failed={"": error})

    @rule(folder=_FOLDER, uid=st.integers(1, 12), kind=st.none() | st.sampled_from(Kind), nevertheless=st.booleans())
    def refuse(self, folder: str, uid: int, kind: Kind | None, nevertheless: bool) -> None:
        """Something can't be taken from now on."""
        self.refused[folder, uid] = (kind, nevertheless)

    @rule(act=_ANY, calls=st.integers(1, 30))
    def round_with_a_sink_that_is_away(self, act: Act, calls: int) -> None:
        """Nothing can, for a while."""
        self.world.act(act)
        self.away = calls
        self.one_round()

    def recover(self) -> None:
        """Everything can, and what was quarantined is due."""
        super().recover()
        self.refused.clear()
        self.away = 0
        self.clock.now += _DAY
