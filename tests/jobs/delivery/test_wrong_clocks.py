"""Wrong and corrected clocks: no message is given up too early, or never polled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.delivery import DeliveryChange, DeliveryJournal, DeliveryTracker
from directsuite.messaging.tracking import DEFAULT_GIVE_UP_AFTER
from tests.integration.scenario import ALICE, PASSWORD
from tests.jobs.delivery.clinic import SandboxTimeClock
from tests.jobs.delivery.fragile_mailbox import FragileMailbox, make_fragile_mailbox
from tests.jobs.delivery.trackers import (
    SLOW_RECIPIENT,
    UNCONFIRMED_RECIPIENT,
    TrackerFactory,
    collect_changes,
    list_statuses,
)

HOUR, DAY, YEAR = 3_600.0, 86_400.0, 365 * 86_400.0
SMTP_ID = "<1@direct.example.test>"


@attrs.define
class Machine:
    """Unix time as the machine sees it, wrong by `off` seconds. The monotonic clock is correct."""

    time: SandboxTimeClock
    off: float = 0.0

    def now(self) -> float:
        return self.time.monotonic() + self.off


@pytest.fixture
def machine(trackers: TrackerFactory) -> Machine:
    return Machine(trackers.clinic.time)


def waiting(scene: TrackerFactory) -> FragileMailbox:
    def answer(smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return {smtp_id: {UNCONFIRMED_RECIPIENT: "Waiting"} for smtp_id in smtp_ids}

    return make_fragile_mailbox(scene.clinic, answer)


def tracker(journal: DeliveryJournal, box: ds.Mailbox, machine: Machine) -> DeliveryTracker:
    return DeliveryTracker(box, journal=journal, now=machine.now)


async def test_message_added_by_fast_clock_is_followed(trackers: TrackerFactory, machine: Machine) -> None:
    box = waiting(trackers)
    async with trackers.make_journal() as journal:
        machine.off = YEAR
        await tracker(journal, box, machine).add(SMTP_ID)
        machine.off = 0.0
    async with trackers.make_journal() as journal:
        changes = await collect_changes(tracker(journal, box, machine))
    assert [change.given_up for change in changes] == [False, True]
    assert len(box.requested_ids) == 18
    assert sum(trackers.clinic.time.sleeps) == pytest.approx(DEFAULT_GIVE_UP_AFTER, abs=1)


@pytest.mark.parametrize("ahead", [HOUR, 2 * YEAR])
async def test_message_added_by_fast_clock_ages_from_next_start(
    trackers: TrackerFactory, machine: Machine, ahead: float
) -> None:
    box = waiting(trackers)
    async with trackers.make_journal() as journal:
        machine.off = ahead
        await tracker(journal, box, machine).add(SMTP_ID)
        machine.off = 0.0
    for _ in range(3):  # each run ends before the message is given up
        async with trackers.make_journal() as journal, tracker(journal, box, machine).changes() as changes:
            await anext(changes)
        trackers.clinic.sandbox.clock.advance(timedelta(seconds=3_000))
    async with trackers.make_journal() as journal:
        assert [change.given_up for change in await collect_changes(tracker(journal, box, machine))] == [False, True]
    assert sum(trackers.clinic.time.sleeps) == pytest.approx(300, abs=1)


@pytest.mark.parametrize("ahead", [HOUR, 2 * YEAR])
async def test_message_added_by_fast_clock_is_forgotten_in_time(
    trackers: TrackerFactory, machine: Machine, ahead: float
) -> None:
    machine.off = ahead
    async with trackers.make_journal() as journal:
        followed = tracker(journal, trackers.clinic.box, machine)
        await followed.add(await trackers.clinic.send(SLOW_RECIPIENT))
        await collect_changes(followed)
    machine.off = 0.0
    async with trackers.make_journal() as journal:
        await collect_changes(tracker(journal, trackers.clinic.box, machine))
        assert await journal.forget(datetime.fromtimestamp(machine.now() + 1, UTC)) == 1


async def test_clock_set_back_delays_no_poll(trackers: TrackerFactory, machine: Machine) -> None:
    async with trackers.make_journal() as journal:
        followed = tracker(journal, trackers.clinic.box, machine)
        await followed.add(await trackers.clinic.send(SLOW_RECIPIENT))
        async for change in followed.changes():
            machine.off = -DAY
            if change.is_end:
                assert change.delivered
    assert sum(trackers.clinic.time.sleeps) < 3_600
    assert trackers.status_requests == 10


async def test_overdue_message_is_polled_for_minutes_at_start(trackers: TrackerFactory, machine: Machine) -> None:
    box = waiting(trackers)
    async with trackers.make_journal() as journal:
        await tracker(journal, box, machine).add(SMTP_ID)
    machine.off = 3 * YEAR
    async with trackers.make_journal() as journal:
        changes = await collect_changes(tracker(journal, box, machine))
    assert [change.given_up for change in changes] == [False, True]
    assert sum(trackers.clinic.time.sleeps) == pytest.approx(300, abs=1)
    assert len(box.requested_ids) == 8


async def test_clock_set_forward_gives_up_no_message(trackers: TrackerFactory, machine: Machine) -> None:
    async with trackers.make_journal() as journal:
        followed = tracker(journal, trackers.clinic.box, machine)
        await followed.add(await trackers.clinic.send(SLOW_RECIPIENT))
        changes = list[DeliveryChange]()
        async for change in followed.changes():
            machine.off = 3 * YEAR
            changes.append(change)
    assert list_statuses(changes, SLOW_RECIPIENT) == ["Waiting", "Delivered"]
    assert trackers.status_requests == 11


async def test_suspended_machine_polls_within_a_minute(trackers: TrackerFactory, machine: Machine) -> None:
    time = trackers.clinic.time
    sleep, box = time.sleep, waiting(trackers)

    async def fall_asleep(seconds: float) -> None:
        """Advance by an hour in the first longer wait."""
        await sleep(seconds)
        if seconds >= 60:
            time.sleep = sleep  # type: ignore[method-assign]
            machine.off = 3_600
            box.responder = lambda smtp_ids: {
                smtp_id: {UNCONFIRMED_RECIPIENT: "NO MDN Received"} for smtp_id in smtp_ids
            }

    time.sleep = fall_asleep  # type: ignore[method-assign]
    async with trackers.make_journal() as journal:
        followed = tracker(journal, box, machine)
        await followed.add(SMTP_ID)
        assert list_statuses(await collect_changes(followed), UNCONFIRMED_RECIPIENT) == ["Waiting", "NO MDN Received"]
    assert time.sleeps == [5, 5, 10, 20, 40, 60]


class Unanswered(ds.Mailbox):
    """A mailbox in which the outcome of each send is unknown. since: the argument of each call."""

    since: list[datetime | None]

    async def send_once(self, message: ds.Message, **options: Any) -> ds.SendMessageResponse:
        self.since.append(options["since"])
        raise ds.OutcomeUnknownError("it may have been sent", how_to_find_out="look")


LETTER = ds.Message(subject="Referral", recipients=[ds.Recipient(SLOW_RECIPIENT)])


async def first_attempts(scene: TrackerFactory, machine: Machine, off: float) -> Sequence[datetime | None]:
    """Return the `since` of three attempts to send a message, the first with a wrong clock."""
    box = Unanswered(scene.clinic.box._transport, ALICE, PASSWORD)
    box.since = []
    machine.off = off
    for _ in range(3):
        async with scene.make_journal() as journal:
            with pytest.raises(ds.OutcomeUnknownError):
                await tracker(journal, box, machine).send(LETTER, key="letter")
        machine.off = 0.0
    return box.since


@pytest.mark.parametrize("ahead", [HOUR, 2 * YEAR])
async def test_send_started_by_fast_clock_is_searched_everywhere(
    trackers: TrackerFactory, machine: Machine, ahead: float
) -> None:
    first, second, third = await first_attempts(trackers, machine, ahead)
    assert first is None
    assert second == datetime.max.replace(tzinfo=UTC)
    assert third == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("behind", [HOUR, 2 * YEAR])
async def test_send_started_by_slow_clock_is_searched_from_its_start(
    trackers: TrackerFactory, machine: Machine, behind: float
) -> None:
    began = datetime.fromtimestamp(machine.now() - behind, UTC)
    assert await first_attempts(trackers, machine, -behind) == [None, began, began]


async def test_send_is_searched_by_age_with_another_clock(
    trackers: TrackerFactory,
) -> None:
    machine = Machine(trackers.clinic.time, off=datetime.now(UTC).timestamp() + YEAR - trackers.clinic.time.monotonic())
    box = Unanswered(trackers.clinic.box._transport, ALICE, PASSWORD)
    box.since = []
    for _ in range(2):
        async with trackers.make_journal() as journal:
            with pytest.raises(ds.OutcomeUnknownError):
                await tracker(journal, box, machine).send(LETTER, key="letter")
        machine.off += 3 * DAY
    since = box.since[1]
    assert since is not None
    assert abs((since - datetime.now(UTC)).total_seconds() + 3 * DAY) < HOUR
