"""A rejected request gives up a message only if it named this message alone or all requests fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import pytest

import directsuite as ds
from directsuite.messaging.tracking import DEFAULT_GIVE_UP_AFTER
from tests.jobs.delivery.fragile_mailbox import FragileMailbox, RejectingResponder, make_fragile_mailbox
from tests.jobs.delivery.test_rejected_requests import IDS, make_permission_error, make_rejection, make_server_error
from tests.jobs.delivery.trackers import DELIVERED_RECIPIENT, TrackerFactory, collect_changes

pytestmark = pytest.mark.wide

DAY = 86_400.0
ERRORS = [make_rejection, make_server_error, make_permission_error]
Raised = Callable[[], ds.DirectSuiteError]


async def ends(scene: TrackerFactory, box: FragileMailbox, smtp_ids: Sequence[str]) -> dict[str, bool]:
    async with scene.make_journal() as journal:
        tracker = scene.make_tracker(journal, box)
        for smtp_id in smtp_ids:
            await tracker.add(smtp_id)
        return {change.smtp_id: change.delivered for change in await collect_changes(tracker) if change.ends_message}


def not_delivered(ended: Mapping[str, bool]) -> set[str]:
    return {smtp_id for smtp_id, good in ended.items() if not good}


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("error", ERRORS)
async def test_rejected_messages_at_start_do_not_affect_later_ones(error: Raised, trackers: TrackerFactory) -> None:
    box = make_fragile_mailbox(trackers.clinic, RejectingResponder(frozenset(IDS[:50]), error))
    ended = await ends(trackers, box, IDS)
    assert not_delivered(ended) == {*IDS[:50]}
    assert len(ended) == 1_000
    assert len(box.requested_ids) < 1_000


async def test_messages_after_rejected_ones_are_delivered_after_restart(trackers: TrackerFactory) -> None:
    box = make_fragile_mailbox(trackers.clinic, RejectingResponder(frozenset(IDS[:50]), make_rejection))
    async with trackers.make_journal() as journal:
        for smtp_id in IDS[:500]:
            await trackers.make_tracker(journal, box).add(smtp_id)
    trackers.clinic.sandbox.clock.advance(timedelta(days=3))
    assert not_delivered(await ends(trackers, box, ())) == {*IDS[:50]}


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("error", [make_rejection, make_server_error])
@pytest.mark.parametrize("bad", [{25}, {0, 60, 125, 250, 500, 999}])
async def test_rejected_messages_are_isolated_after_an_outage(
    bad: set[int], error: Raised, trackers: TrackerFactory
) -> None:
    some = {IDS[number] for number in bad}
    box = make_fragile_mailbox(trackers.clinic, RejectingResponder(frozenset(some), error))
    good, outage = box.responder, RejectingResponder(frozenset(IDS), error)
    box.responder = lambda smtp_ids: (outage if len(box.requested_ids) <= 60 else good)(smtp_ids)
    ended = await ends(trackers, box, IDS)
    assert not_delivered(ended) == some
    assert len(ended) == 1_000


async def test_denied_message_is_isolated_after_all_were_denied(trackers: TrackerFactory) -> None:
    box = make_fragile_mailbox(trackers.clinic, RejectingResponder(frozenset(IDS), make_permission_error))
    added: Sequence[str] = IDS
    for _ in range(5):
        with pytest.raises(ds.PermissionDeniedError):
            await ends(trackers, box, added)
        added = ()
    box.responder = RejectingResponder(frozenset({IDS[25]}), make_permission_error)
    ended = await ends(trackers, box, ())
    assert not_delivered(ended) == {IDS[25]}
    assert len(ended) == 1_000


async def test_denied_request_ends_no_loop_if_another_succeeds(trackers: TrackerFactory) -> None:
    more = [f"<{number}@other.example.test>" for number in range(3)]
    box = make_fragile_mailbox(trackers.clinic, RejectingResponder(frozenset(more), make_permission_error))
    ended = await ends(trackers, box, [*IDS, *more])
    assert not_delivered(ended) == {*more}
    assert len(ended) == 1_003


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("last", range(200, 204))
async def test_outage_that_ends_during_a_poll_gives_up_no_message(last: int, trackers: TrackerFactory) -> None:
    box = make_fragile_mailbox(trackers.clinic, RejectingResponder(frozenset(), make_server_error))
    good, outage = box.responder, RejectingResponder(frozenset(IDS), make_server_error)
    box.responder = lambda smtp_ids: (outage if len(box.requested_ids) <= last else good)(smtp_ids)
    assert not_delivered(await ends(trackers, box, IDS[:10])) == set()
    assert sum(trackers.clinic.time.sleeps) > DEFAULT_GIVE_UP_AFTER


async def test_message_known_late_rejoins_the_batch(trackers: TrackerFactory) -> None:
    begins = trackers.clinic.time.monotonic()

    def answer(smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Rejects some messages for twelve seconds, and reports all as delivered after half an hour."""
        age = trackers.clinic.time.monotonic() - begins
        if age < 12 and {*IDS[5:12]} & {*smtp_ids}:
            raise make_rejection()
        return {smtp_id: {DELIVERED_RECIPIENT: "Delivered" if age > 1_800 else "Waiting"} for smtp_id in smtp_ids}

    box = make_fragile_mailbox(trackers.clinic, answer)
    assert not_delivered(await ends(trackers, box, IDS[:50])) == set()
    assert len(box.requested_ids) < 80
    assert max(map(len, box.requested_ids[-3:])) == 50


async def test_message_rejected_once_is_not_given_up_in_outage(trackers: TrackerFactory) -> None:
    begins = trackers.clinic.time.monotonic()

    def answer(smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Reject the first message for twelve seconds, then fail for longer than `give_up_after`, then deliver."""
        age = trackers.clinic.time.monotonic() - begins
        if age < 12 and IDS[0] in smtp_ids:
            raise make_rejection()
        if 6_000 < age < 12_000:
            raise make_server_error()
        done = {IDS[1]} if age < 12_000 else {*IDS}
        return {smtp_id: {DELIVERED_RECIPIENT: "Delivered" if smtp_id in done else "Waiting"} for smtp_id in smtp_ids}

    assert not_delivered(await ends(trackers, make_fragile_mailbox(trackers.clinic, answer), IDS[:2])) == set()


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("count", [1, 2])
async def test_messages_are_given_up_after_a_day_of_failures(count: int, trackers: TrackerFactory) -> None:
    box = make_fragile_mailbox(trackers.clinic, RejectingResponder(frozenset(IDS), make_server_error))
    assert not_delivered(await ends(trackers, box, IDS[:count])) == {*IDS[:count]}
    assert sum(trackers.clinic.time.sleeps) == pytest.approx(DEFAULT_GIVE_UP_AFTER + DAY, abs=600)
