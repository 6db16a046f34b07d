"""The schedule of mailboxes compared with sorting all of them each time."""

from __future__ import annotations

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from directsuite.sync.synchronizer import Schedule
from tests.examples import scale_examples

NAMES = [f"mailbox {number}" for number in range(6)]


@attrs.define
class Sorted:
    name: str
    place: int
    due: float = 0.0
    busy: bool = False
    hastened: bool = False


class BesideSorted(RuleBasedStateMachine):
    @initialize(places=st.integers(1, 4))
    def begin(self, places: int) -> None:
        self.now = 0.0
        self.places = places
        self.schedule = Schedule([*NAMES, NAMES[0]], concurrency=places, now=0.0)
        self.all = [Sorted(name, number) for number, name in enumerate(NAMES)]
        self.places_taken = len(NAMES)

    @rule(seconds=st.integers(0, 3))
    def start(self, seconds: int) -> None:
        self.now += seconds
        busy = [each for each in self.all if each.busy]
        free = self.places - len(busy)
        due = sorted((e for e in self.all if not e.busy and e.due <= self.now), key=lambda e: (e.due, e.place))[:free]
        for each in due:
            each.busy = True
        assert self.schedule.start(self.now) == [each.name for each in due]
        later = [each.due for each in self.all if not each.busy and free > len(due)]
        assert self.schedule.find_next_due() == min(later, default=None)

    @precondition(lambda self: any(each.busy for each in self.all))
    @rule(data=st.data(), rest=st.integers(0, 4))
    def end(self, data: st.DataObject, rest: int) -> None:
        each = data.draw(st.sampled_from([each for each in self.all if each.busy]))
        self.schedule.finish(each.name, self.now + rest)
        each.busy = False
        self.put(each, float("-inf") if each.hastened else self.now + rest)
        each.hastened = False

    @rule(each=st.integers(0, len(NAMES) - 1))
    def hasten(self, each: int) -> None:
        self.schedule.reschedule_now(NAMES[each])
        if self.all[each].busy:
            self.all[each].hastened = True
        else:
            self.put(self.all[each], float("-inf"))

    def put(self, each: Sorted, due: float) -> None:
        self.places_taken += 1
        each.due, each.place = due, self.places_taken

    @rule()
    def hasten_somebody_else(self) -> None:
        self.schedule.reschedule_now("of another worker")


TestBesideSorted = BesideSorted.TestCase
TestBesideSorted.settings = settings(max_examples=scale_examples(60), stateful_step_count=20, derandomize=True)


def test_the_cost_of_a_round_hardly_depends_on_waiting_mailboxes() -> None:
    compared = 0

    class Counted(float):
        def __lt__(self, other: float) -> bool:
            nonlocal compared
            compared += 1
            return float(self) < float(other)

        __hash__ = float.__hash__

    schedule = Schedule((str(number) for number in range(10_000)), concurrency=8, now=Counted(0.0))
    started = schedule.start(0.0)
    compared = 0
    for _ in range(100):
        for name in started:
            schedule.finish(name, Counted(1.0))
        started = schedule.start(0.0)
    assert len(started) == 8
    assert compared < 100 * 8 * 60
