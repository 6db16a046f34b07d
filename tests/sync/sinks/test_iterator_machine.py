"""The loop over changes in any order of events: deliveries, asking, leaving, cancellations, closing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import directsuite as ds
from directsuite.sync.model import Change
from directsuite.sync.sinks import Changes, UnacknowledgedError
from directsuite.sync.sinks.iterator import ChangeLoop
from tests.examples import scale_examples
from tests.sync.sinks.sample_changes import make_gone, make_key

pytestmark = pytest.mark.wide

MAILBOXES = st.integers(0, 2)


class LoopMachine(RuleBasedStateMachine):
    """One consumer and three mailboxes. `log` holds what happened, in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.events = asyncio.new_event_loop()
        self.changes = Changes()
        self.loop: ChangeLoop | None = None
        self.asked: asyncio.Task[None] | None = None
        self.deliveries: dict[int, asyncio.Task[None]] = {}
        self.batches: list[list[Change]] = []
        self.log: list[tuple[str, Any]] = []
        self.closed = False

    def tick(self) -> None:
        """One turn of the event loop."""
        self.events.call_soon(self.events.stop)
        self.events.run_forever()

    @rule(turns=st.integers(1, 4))
    def turn(self, turns: int) -> None:
        """Time passes."""
        for _ in range(turns):
            self.tick()

    @rule(mailbox=MAILBOXES, size=st.integers(1, 3))
    def deliver(self, mailbox: int, size: int) -> None:
        """A mailbox has changes, where its last ones are not waiting."""
        if mailbox in self.deliveries and not self.deliveries[mailbox].done():
            return
        number = len(self.batches)
        batch = [make_gone(make_key(uid, uid_validity=number + 1, mailbox=str(mailbox))) for uid in range(size)]
        self.batches.append(batch)

        async def work() -> None:
            try:
                await self.changes.deliver(batch)
            except UnacknowledgedError:
                self.log.append(("undone", number))
            except ds.ClosedError:
                assert self.closed
                self.log.append(("closed", number))
            else:
                self.log.append(("done", number))

        self.deliveries[mailbox] = self.events.create_task(work())

    @rule(mailbox=MAILBOXES)
    def cancel_delivery(self, mailbox: int) -> None:
        """A round is cancelled."""
        if mailbox in self.deliveries:
            self.deliveries[mailbox].cancel()

    @precondition(lambda self: self.loop is None)
    @rule()
    def begin(self) -> None:
        """A loop begins."""

        async def work() -> None:
            self.loop = aiter(self.changes)  # not the task's result, which a traceback of the event loop may keep alive

        self.events.run_until_complete(work())

    @precondition(lambda self: self.loop is not None and self.asked is None)
    @rule()
    def ask(self) -> None:
        """The body ends, and the loop asks for the next change."""
        loop = self.loop
        assert loop is not None

        async def work() -> None:
            self.log.append(("ask", None))
            try:
                change = await anext(loop)
            except StopAsyncIteration:
                assert self.closed
                self.log.append(("end", None))
            else:
                self.log.append(("got", change))

        self.asked = self.events.create_task(work())

    @precondition(lambda self: self.asked is not None)
    @rule()
    def cancel_asking(self) -> None:
        """The consumer's wait for a change times out."""
        assert self.asked is not None
        self.asked.cancel()

    @precondition(lambda self: self.loop is not None and self.asked is None)
    @rule()
    def leave(self) -> None:
        """The body breaks."""
        self.loop = None
        self.log.append(("left", None))

    @precondition(lambda self: self.asked is None)
    @rule()
    def acknowledge(self) -> None:
        """The body says that it is done."""
        self.changes.acknowledge()
        self.log.append(("ask", None))

    @precondition(lambda self: not self.closed)
    @rule()
    def close(self) -> None:
        """All is closed."""
        self.closed = True
        self.events.run_until_complete(self.changes.aclose())

    @invariant()
    def forget_the_answered(self) -> None:
        """An answer has come."""
        if self.asked is not None and self.asked.done():
            if not self.asked.cancelled():
                self.asked.result()
            self.asked = None

    @invariant()
    def a_delivery_is_done_where_all_of_it_was_asked_past(self) -> None:
        """No sooner, and each change told once, in its order."""
        for number, batch in enumerate(self.batches):
            told = [(at, what) for at, (kind, what) in enumerate(self.log) if kind == "got" and what in batch]
            assert [what for _, what in told] == batch[: len(told)]
            ends = [(at, kind) for at, (kind, what) in enumerate(self.log) if what == number and kind != "got"]
            assert len(ends) <= 1
            if ends and ends[0][1] == "done":
                assert len(told) == len(batch)
                after = [kind for kind, _ in self.log[told[-1][0] + 1 : ends[0][0]] if kind in ("ask", "left")]
                assert after[:1] == ["ask"]
            if ends and ends[0][1] == "undone":
                assert told
                assert "left" in [kind for kind, _ in self.log[told[-1][0] : ends[0][0]]]

    def teardown(self) -> None:
        """Whoever asks on gets all that is still waiting, and whoever closes wakes all."""
        self.turn(4)
        self.forget_the_answered()
        if self.loop is None:
            self.begin()
        for _ in range(12):
            if self.asked is None:
                self.ask()
            self.turn(3)
            self.forget_the_answered()
        assert all(delivery.done() for delivery in self.deliveries.values())
        if not self.closed:
            self.close()
        self.turn(3)
        assert self.asked is None or self.asked.done()
        self.forget_the_answered()
        self.a_delivery_is_done_where_all_of_it_was_asked_past()
        for delivery in self.deliveries.values():
            if not delivery.cancelled():
                delivery.result()
        self.loop = None
        self.events.close()


TestLoopMachine = LoopMachine.TestCase
TestLoopMachine.settings = settings(max_examples=scale_examples(150), stateful_step_count=40)
