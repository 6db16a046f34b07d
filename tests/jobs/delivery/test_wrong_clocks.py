"""Clocks that are wrong, or set right: nothing is given up for them, nor left unseen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.delivery import DeliveryChange, DeliveryTracker, Journal
from directsuite.messaging.tracking import GIVE_UP_AFTER
from tests.integration.world import ALICE, PASSWORD
from tests.jobs.delivery.fragile_mailbox import FragileMailbox, fragile_mailbox
from tests.jobs.delivery.scene import SharedTime
from tests.jobs.delivery.trackers import NEVER, SLOW, Scene, course, told

HOUR, DAY, YEAR = 3_600.0, 86_400.0, 365 * 86_400.0
SMTP_ID = "<1@direct.example.test>"


@attrs.define
class Machine:
    """What a machine takes for Unix time: `off` by so many seconds, which the clock of waits doesn't count."""

    time: SharedTime
    off: float = 0.0

    def now(self) -> float:
        """That."""
        return self.time.monotonic() + self.off


@pytest.fixture
def machine(scene: Scene) -> Machine:
    return Machine(scene.clinic.time)


def waiting(scene: Scene) -> FragileMailbox:
    """A mailbox whose messages all wait."""

    def answer(smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """For ever."""
        return {smtp_id: {NEVER: "Waiting"} for smtp_id in smtp_ids}

    return fragile_mailbox(scene.clinic, answer)


def tracker(journal: Journal, box: ds.Mailbox, machine: Machine) -> DeliveryTracker:
    """One that goes by the machine's time."""
    return DeliveryTracker(box, journal=journal, now=machine.now)


async def test_one_that_was_added_by_a_clock_that_was_ahead_is_followed_as_any(scene: Scene, machine: Machine) -> None:
    box = waiting(scene)
    async with scene.journal() as journal:
        machine.off = YEAR
        await tracker(journal, box, machine).add(SMTP_ID)
        machine.off = 0.0
    async with scene.journal() as journal:
        changes = await told(tracker(journal, box, machine))
    assert [change.given_up for change in changes] == [False, True]
    assert len(box.asked) == 18
    assert sum(scene.clinic.time.slept) == pytest.approx(GIVE_UP_AFTER, abs=1)


@pytest.mark.parametrize("ahead", [HOUR, 2 * YEAR])
async def test_one_that_was_added_by_a_clock_that_was_ahead_ages_from_the_next_start(
    scene: Scene, machine: Machine, ahead: float
) -> None:
    box = waiting(scene)
    async with scene.journal() as journal:
        machine.off = ahead
        await tracker(journal, box, machine).add(SMTP_ID)
        machine.off = 0.0
    for _ in range(3):  # runs of a program that each end before the message is given up
        async with scene.journal() as journal, tracker(journal, box, machine).changes() as changes:
            await anext(changes)
        scene.clinic.sandbox.clock.advance(timedelta(seconds=3_000))
    async with scene.journal() as journal:
        assert [change.given_up for change in await told(tracker(journal, box, machine))] == [False, True]
    assert sum(scene.clinic.time.slept) == pytest.approx(300, abs=1)


@pytest.mark.parametrize("ahead", [HOUR, 2 * YEAR])
async def test_one_that_was_added_by_a_clock_that_was_ahead_is_forgotten_in_time(
    scene: Scene, machine: Machine, ahead: float
) -> None:
    machine.off = ahead
    async with scene.journal() as journal:
        followed = tracker(journal, scene.clinic.box, machine)
        await followed.add(await scene.clinic.send(SLOW))
        await told(followed)
    machine.off = 0.0
    async with scene.journal() as journal:
        await told(tracker(journal, scene.clinic.box, machine))
        assert await journal.forget(datetime.fromtimestamp(machine.now() + 1, UTC)) == 1


async def test_a_clock_that_is_set_back_delays_no_look(scene: Scene, machine: Machine) -> None:
    async with scene.journal() as journal:
        followed = tracker(journal, scene.clinic.box, machine)
        await followed.add(await scene.clinic.send(SLOW))
        async for change in followed.changes():
            machine.off = -DAY
            if change.is_end:
                assert change.delivered
    assert sum(scene.clinic.time.slept) < 3_600
    assert scene.asked == 10


async def test_one_that_is_past_its_time_at_the_beginning_is_looked_at_for_minutes_first(
    scene: Scene, machine: Machine
) -> None:
    box = waiting(scene)
    async with scene.journal() as journal:
        await tracker(journal, box, machine).add(SMTP_ID)
    machine.off = 3 * YEAR
    async with scene.journal() as journal:
        changes = await told(tracker(journal, box, machine))
    assert [change.given_up for change in changes] == [False, True]
    assert sum(scene.clinic.time.slept) == pytest.approx(300, abs=1)
    assert len(box.asked) == 8


async def test_a_clock_that_is_set_forward_costs_a_look_and_gives_nothing_up(scene: Scene, machine: Machine) -> None:
    async with scene.journal() as journal:
        followed = tracker(journal, scene.clinic.box, machine)
        await followed.add(await scene.clinic.send(SLOW))
        changes = list[DeliveryChange]()
        async for change in followed.changes():
            machine.off = 3 * YEAR
            changes.append(change)
    assert course(changes, SLOW) == ["Waiting", "Delivered"]
    assert scene.asked == 11


async def test_a_machine_that_slept_looks_within_a_minute_of_waking(scene: Scene, machine: Machine) -> None:
    time = scene.clinic.time
    sleep, box = time.sleep, waiting(scene)

    async def fall_asleep(seconds: float) -> None:
        """For an hour, in the first wait of some length."""
        await sleep(seconds)
        if seconds >= 60:
            time.sleep = sleep  # type: ignore[method-assign]
            machine.off = 3_600
            box.answer = lambda smtp_ids: {smtp_id: {NEVER: "NO MDN Received"} for smtp_id in smtp_ids}

    time.sleep = fall_asleep  # type: ignore[method-assign]
    async with scene.journal() as journal:
        followed = tracker(journal, box, machine)
        await followed.add(SMTP_ID)
        assert course(await told(followed), NEVER) == ["Waiting", "NO MDN Received"]
    assert time.slept == [5, 5, 10, 20, 40, 60]


class Unanswered(ds.Mailbox):
    """A mailbox whose sends never become known. since: what each was called with."""

    since: list[datetime | None]

    async def send_once(self, message: ds.Message, **options: Any) -> ds.SendMessageResponse:
        self.since.append(options["since"])
        raise ds.OutcomeUnknownError("it may have been sent", how_to_find_out="look")


LETTER = ds.Message(subject="Referral", recipients=[ds.Recipient(SLOW)])


async def first_attempts(scene: Scene, machine: Machine, off: float) -> Sequence[datetime | None]:
    """The `since` of three attempts to send a message, of which the first was made while the clock was wrong."""
    box = Unanswered(scene.clinic.box._transport, ALICE, PASSWORD)
    box.since = []
    machine.off = off
    for _ in range(3):
        async with scene.journal() as journal:
            with pytest.raises(ds.OutcomeUnknownError):
                await tracker(journal, box, machine).send(LETTER, key="letter")
        machine.off = 0.0
    return box.since


@pytest.mark.parametrize("ahead", [HOUR, 2 * YEAR])
async def test_a_send_begun_by_a_clock_that_was_ahead_is_looked_for_everywhere(
    scene: Scene, machine: Machine, ahead: float
) -> None:
    first, second, third = await first_attempts(scene, machine, ahead)
    assert first is None
    assert second == datetime.max.replace(tzinfo=UTC)  # nothing is sent
    assert third == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("behind", [HOUR, 2 * YEAR])
async def test_a_send_begun_by_a_clock_that_was_behind_is_looked_for_from_then_on(
    scene: Scene, machine: Machine, behind: float
) -> None:
    began = datetime.fromtimestamp(machine.now() - behind, UTC)
    assert await first_attempts(scene, machine, -behind) == [None, began, began]


async def test_a_send_is_looked_for_by_its_age_if_the_tracker_has_another_clock(scene: Scene) -> None:
    machine = Machine(scene.clinic.time, off=datetime.now(UTC).timestamp() + YEAR - scene.clinic.time.monotonic())
    box = Unanswered(scene.clinic.box._transport, ALICE, PASSWORD)
    box.since = []
    for _ in range(2):
        async with scene.journal() as journal:
            with pytest.raises(ds.OutcomeUnknownError):
                await tracker(journal, box, machine).send(LETTER, key="letter")
        machine.off += 3 * DAY
    since = box.since[1]
    assert since is not None
    assert abs((since - datetime.now(UTC)).total_seconds() + 3 * DAY) < HOUR
