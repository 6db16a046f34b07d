"""Wrong and corrected clocks: no message is given up too early, or never polled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import directsuite as ds
from directsuite.jobs.delivery import DeliveryChange
from directsuite.messaging.sending import DEFAULT_GIVE_UP_AFTER
from tests.integration.scenario import ALICE, PASSWORD
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


def waiting(scene: TrackerFactory) -> FragileMailbox:
    def answer(smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return {smtp_id: {UNCONFIRMED_RECIPIENT: "Waiting"} for smtp_id in smtp_ids}

    return make_fragile_mailbox(scene.clinic, answer)


@pytest.mark.parametrize(
    ("when_added", "at_start", "requests", "seconds"),
    [
        pytest.param(YEAR, 0.0, 18, DEFAULT_GIVE_UP_AFTER, id="added by a fast clock"),
        pytest.param(0.0, 3 * YEAR, 8, 300, id="overdue: polled for minutes"),
    ],
)
async def test_message_is_polled_until_it_is_given_up(
    when_added: float, at_start: float, requests: int, seconds: float, trackers: TrackerFactory
) -> None:
    box = waiting(trackers)
    trackers.clock_error = when_added
    async with trackers.open_tracker(box) as tracker:
        await tracker.add(SMTP_ID)
    trackers.clock_error = at_start
    async with trackers.open_tracker(box) as tracker:
        changes = await collect_changes(tracker)
    assert [change.given_up for change in changes] == [False, True]
    assert len(box.requested_ids) == requests
    assert sum(trackers.clinic.time.sleeps) == pytest.approx(seconds, abs=1)


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("ahead", [2 * YEAR, HOUR])
async def test_message_added_by_fast_clock_ages_from_next_start(trackers: TrackerFactory, ahead: float) -> None:
    box = waiting(trackers)
    trackers.clock_error = ahead
    async with trackers.open_tracker(box) as tracker:
        await tracker.add(SMTP_ID)
    trackers.clock_error = 0.0
    for _ in range(3):  # each run ends before the message is given up
        async with trackers.open_tracker(box) as tracker, tracker.changes() as changes:
            await anext(changes)
        trackers.clinic.sandbox.clock.advance(timedelta(seconds=3_000))
    async with trackers.open_tracker(box) as tracker:
        assert [change.given_up for change in await collect_changes(tracker)] == [False, True]
    assert sum(trackers.clinic.time.sleeps) == pytest.approx(300, abs=1)


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("ahead", [2 * YEAR, HOUR])
async def test_message_added_by_fast_clock_is_forgotten_in_time(trackers: TrackerFactory, ahead: float) -> None:
    trackers.clock_error = ahead
    async with trackers.open_tracker() as tracker:
        await tracker.add(await trackers.clinic.send(SLOW_RECIPIENT))
        await collect_changes(tracker)
    trackers.clock_error = 0.0
    async with trackers.make_journal() as journal:
        await collect_changes(trackers.make_tracker(journal))
        assert await journal.forget(datetime.fromtimestamp(trackers.now() + 1, UTC)) == 1


@pytest.mark.parametrize(("error", "requests"), [(-DAY, 10), (3 * YEAR, 11)], ids=["set back", "set forward"])
async def test_clock_set_while_following_delays_no_poll_and_gives_up_no_message(
    error: float, requests: int, trackers: TrackerFactory
) -> None:
    changes = list[DeliveryChange]()
    async with trackers.open_tracker() as tracker:
        await tracker.add(await trackers.clinic.send(SLOW_RECIPIENT))
        async for change in tracker.changes():
            trackers.clock_error = error
            changes.append(change)
    assert list_statuses(changes, SLOW_RECIPIENT) == ["Waiting", "Delivered"]
    assert trackers.status_requests == requests
    assert sum(trackers.clinic.time.sleeps) < 3_600


async def test_suspended_machine_polls_within_a_minute(trackers: TrackerFactory) -> None:
    time = trackers.clinic.time
    sleep, box = time.sleep, waiting(trackers)

    async def fall_asleep(seconds: float) -> None:
        """Advance by an hour in the first longer wait."""
        await sleep(seconds)
        if seconds >= 60:
            time.sleep = sleep  # type: ignore[method-assign]
            trackers.clock_error = 3_600
            box.responder = lambda smtp_ids: {
                smtp_id: {UNCONFIRMED_RECIPIENT: "NO MDN Received"} for smtp_id in smtp_ids
            }

    time.sleep = fall_asleep  # type: ignore[method-assign]
    async with trackers.open_tracker(box) as tracker:
        await tracker.add(SMTP_ID)
        assert list_statuses(await collect_changes(tracker), UNCONFIRMED_RECIPIENT) == ["Waiting", "NO MDN Received"]
    assert time.sleeps == [5, 5, 10, 20, 40, 60]


class Unanswered(ds.Mailbox):
    """A mailbox in which the outcome of each send is unknown. since: the argument of each call."""

    since: list[datetime | None]

    async def send_once(self, message: ds.Message, **options: Any) -> ds.SendMessageResponse:
        self.since.append(options["since"])
        raise ds.OutcomeUnknownError("it may have been sent", how_to_find_out="look")


async def send_repeatedly(trackers: TrackerFactory, *clock_errors: float) -> Sequence[datetime | None]:
    """Return the `since` of attempts to send a message with these errors of the clock."""
    letter = ds.Message(subject="Referral", recipients=[ds.Recipient(SLOW_RECIPIENT)])
    box = Unanswered(trackers.clinic.box._transport, ALICE, PASSWORD)
    box.since = []
    for trackers.clock_error in clock_errors:
        async with trackers.open_tracker(box) as tracker:
            with pytest.raises(ds.OutcomeUnknownError):
                await tracker.send(letter, key="letter")
    return box.since


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("ahead", [2 * YEAR, HOUR])
async def test_send_started_by_fast_clock_is_searched_everywhere(trackers: TrackerFactory, ahead: float) -> None:
    first, second, third = await send_repeatedly(trackers, ahead, 0.0, 0.0)
    assert first is None
    assert second == datetime.max.replace(tzinfo=UTC)
    assert third == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("behind", [2 * YEAR, HOUR])
async def test_send_started_by_slow_clock_is_searched_from_its_start(trackers: TrackerFactory, behind: float) -> None:
    began = datetime.fromtimestamp(trackers.now() - behind, UTC)
    assert await send_repeatedly(trackers, -behind, 0.0, 0.0) == [None, began, began]


async def test_send_is_searched_by_age_with_another_clock(trackers: TrackerFactory) -> None:
    error = datetime.now(UTC).timestamp() + YEAR - trackers.clinic.time.monotonic()
    _, since = await send_repeatedly(trackers, error, error + 3 * DAY)
    assert since is not None
    assert abs((since - datetime.now(UTC)).total_seconds() + 3 * DAY) < HOUR
