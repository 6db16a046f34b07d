"""Model test: despite faults and restarts, the correct final status of each recipient is reported once per key."""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import directsuite as ds
from directsuite.jobs.delivery import DeliveryChange, DeliveryJournal, DeliveryTracker
from directsuite.messaging.sending import FINAL_STATUSES
from tests.examples import scale_examples
from tests.jobs.delivery.clinic import Clinic, open_clinic
from tests.jobs.delivery.fragile_mailbox import make_fragile_mailbox

pytestmark = pytest.mark.wide

_RUNS = 60
"""Maximum number of runs. Each may be ended once by the plan of the test, which is shorter."""

Course = Sequence[tuple[float, str]]
"""The statuses of a recipient, each with the age of the message from which it is returned."""

statuses = st.sampled_from(["Waiting", "Queued somewhere", "Waiting"])
ends = st.sampled_from([str(end) for end in sorted(FINAL_STATUSES)])
ages = st.floats(0, 5_000)


@st.composite
def courses(draw: st.DrawFn) -> Course:
    """Generate a course that ends with a final status."""
    times = sorted(draw(st.lists(ages, min_size=2, max_size=4)))
    words = [draw(statuses) for _ in times[:-1]] + [draw(ends)]
    return list(zip(times, words, strict=True))


@attrs.define
class Service:
    """Returns each recipient's status by its course. Its faults apply to one request each."""

    stage: Clinic
    messages: Mapping[str, Sequence[Course]]
    began: float
    failures: list[bool]

    def __call__(self, smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        if self.failures and self.failures.pop():
            raise ds.ConnectionLostError("it is lost")
        return {smtp_id: self._shown(smtp_id) for smtp_id in smtp_ids}

    def _shown(self, smtp_id: str) -> Mapping[str, str]:
        age = self.stage.time.monotonic() - self.began
        found = dict[str, str]()
        for number, course in enumerate(self.messages[smtp_id]):
            for moment, status in course:
                if moment <= age:
                    found[f"{number}@hospital.example.test"] = status
        return found


async def _followed(
    folder: Path, messages: Mapping[str, Sequence[Course]], failures: list[bool], leaves: list[int]
) -> list[DeliveryChange]:
    """Return all reported changes of each run. leaves: after how many changes a run is left, inside the loop body."""
    told = list[DeliveryChange]()
    async with open_clinic() as stage:
        service = Service(stage, messages, stage.time.monotonic(), failures)
        box = make_fragile_mailbox(stage, service)
        for _ in range(_RUNS):
            most = leaves.pop() if leaves else 1_000
            async with DeliveryJournal(folder / "delivery.db") as journal:
                tracker = DeliveryTracker(box, journal=journal, now=stage.time.monotonic)
                for smtp_id, recipients in messages.items():
                    await tracker.add(smtp_id, recipients=len(recipients))
                async with tracker.changes() as changes:
                    async for change in changes:
                        told.append(change)
                        most -= 1
                        if most == 0:
                            break
                if not await tracker.followed() and most:
                    return told
    raise AssertionError("it never ended")


def _holds(number: int) -> None:
    @settings(max_examples=number)
    @given(
        plans=st.lists(st.lists(courses(), min_size=1, max_size=3), min_size=1, max_size=4),
        failures=st.lists(st.booleans(), max_size=12),
        leaves=st.lists(st.integers(1, 4), max_size=12),
    )
    def check(plans: list[list[Course]], failures: list[bool], leaves: list[int]) -> None:
        messages = {f"<{number}@direct.example.test>": plan for number, plan in enumerate(plans)}
        with tempfile.TemporaryDirectory() as name:
            told = asyncio.run(_followed(Path(name), messages, failures, leaves))
        by_key = {change.id: change for change in told}
        assert all(change == by_key[change.id] for change in told)
        found = defaultdict[tuple[str, str | None], list[DeliveryChange]](list)
        for change in by_key.values():
            found[change.smtp_id, change.recipient].append(change)
        for smtp_id, plan in messages.items():
            for number, course in enumerate(plan):
                changes = found.pop((smtp_id, f"{number}@hospital.example.test"))
                assert [change.is_end for change in changes] == [False] * (len(changes) - 1) + [True]
                assert [change.step for change in changes] == [*range(1, len(changes) + 1)]
                assert changes[-1].status == course[-1][1]
                assert not changes[-1].given_up
            assert sum(change.ends_message for change in by_key.values() if change.smtp_id == smtp_id) == 1
        assert not found

    check()


def test_each_final_status_is_reported() -> None:
    _holds(scale_examples(40))


@pytest.mark.slow
def test_each_final_status_is_reported_slow() -> None:
    _holds(1_000)
