"""A Message-ID that the service rejects affects only its own message, not the others of the request.

A message is given up only if a rejected request named this message alone, or if all requests fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta

import pytest

import directsuite as ds
from directsuite.messaging.sending import DEFAULT_GIVE_UP_AFTER
from tests.integration.scenario import ALICE, PASSWORD
from tests.jobs.delivery.fragile_mailbox import (
    FragileMailbox,
    RejectingResponder,
    StatusResponder,
    make_fragile_mailbox,
)
from tests.jobs.delivery.trackers import DELIVERED_RECIPIENT, TrackerFactory

pytestmark = pytest.mark.wide

IDS = [f"<{number}@direct.example.test>" for number in range(1_000)]
DAY = 86_400.0

MakeError = Callable[[], ds.DirectSuiteError]


def make_rejection() -> ds.DirectSuiteError:
    return ds.ServiceError("it is refused", status=200, code=4)


def make_server_error() -> ds.DirectSuiteError:
    return ds.ServerError("it is broken", status=500)


def make_permission_error() -> ds.DirectSuiteError:
    """Return the error of services that check which mailbox sent a message."""
    return ds.PermissionDeniedError("it is not yours", status=403)


def make_decode_error() -> ds.DirectSuiteError:
    """Return the error for a response with one record that cannot be read."""
    return ds.ResponseDecodeError("it can't be read")


def make_unavailable_error() -> ds.DirectSuiteError:
    return ds.ServerError("it is down", status=503)


def make_box(trackers: TrackerFactory, rejected_ids: Sequence[str], error: MakeError) -> FragileMailbox:
    return make_fragile_mailbox(trackers.clinic, RejectingResponder(frozenset(rejected_ids), error))


def recover_after(box: FragileMailbox, requests: int, responder: StatusResponder) -> None:
    """Use another responder after this number of requests."""
    before = box.responder
    box.responder = lambda smtp_ids: (before if len(box.requested_ids) <= requests else responder)(smtp_ids)


async def follow_messages(trackers: TrackerFactory, box: FragileMailbox, smtp_ids: Sequence[str]) -> dict[str, bool]:
    """Return for each message whether it was delivered, in the order of the results."""
    async with trackers.open_tracker(box) as tracker:
        for smtp_id in smtp_ids:
            await tracker.add(smtp_id)
        return {change.smtp_id: change.delivered async for change in tracker.changes() if change.ends_message}


def list_undelivered(ends: Mapping[str, bool]) -> list[str]:
    return [smtp_id for smtp_id, delivered in ends.items() if not delivered]


@pytest.mark.parametrize("error", [make_rejection, make_decode_error, make_server_error, make_permission_error])
async def test_rejected_message_is_given_up_and_others_are_delivered(
    error: MakeError, trackers: TrackerFactory
) -> None:
    box = make_box(trackers, [IDS[7], IDS[40]], error)
    ends = await follow_messages(trackers, box, IDS[:50])
    assert list_undelivered(ends) == [IDS[7], IDS[40]]
    assert len(ends) == 50
    found = next(count for count, asked in enumerate(box.requested_ids) if asked == [IDS[40]])
    assert found < 50
    assert all(len(asked) == 1 for asked in box.requested_ids[found:])
    assert len(box.requested_ids) < 100


class UnreadableReportMailbox(FragileMailbox):
    """Returns a report that is not CSV if the request contains IDS[7]."""

    async def get_message_statuses(
        self, smtp_ids: Iterable[str], *, timeout: float | None = None
    ) -> ds.DirectMessageStatusReportResponse:
        report = await super().get_message_statuses(smtp_ids)
        too_long = ds.DirectMessageStatusReportResponse(success=True, csv_data=b"x" * 200_000)
        return too_long if IDS[7] in self.requested_ids[-1] else report


async def test_report_that_is_not_csv_affects_only_its_message(trackers: TrackerFactory) -> None:
    box = UnreadableReportMailbox(trackers.clinic.box._transport, ALICE, PASSWORD)
    box.requested_ids, box.responder = [], RejectingResponder(frozenset(), make_rejection)
    ends = await follow_messages(trackers, box, IDS[:50])
    assert list_undelivered(ends) == [IDS[7]]
    assert len(ends) == 50


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("error", [make_rejection, make_server_error, make_permission_error])
async def test_rejected_messages_at_start_do_not_affect_later_ones(error: MakeError, trackers: TrackerFactory) -> None:
    box = make_box(trackers, IDS[:50], error)
    ends = await follow_messages(trackers, box, IDS)
    assert {*list_undelivered(ends)} == {*IDS[:50]}
    assert len(ends) == 1_000
    assert len(box.requested_ids) < 1_000


async def test_messages_after_rejected_ones_are_delivered_after_restart(trackers: TrackerFactory) -> None:
    box = make_box(trackers, IDS[:50], make_rejection)
    async with trackers.open_tracker(box) as tracker:
        for smtp_id in IDS[:500]:
            await tracker.add(smtp_id)
    trackers.clinic.sandbox.clock.advance(timedelta(days=3))
    assert {*list_undelivered(await follow_messages(trackers, box, ()))} == {*IDS[:50]}


@pytest.mark.parametrize("error", [make_server_error, make_permission_error])
async def test_last_rejected_message_is_given_up_after_a_restart(error: MakeError, trackers: TrackerFactory) -> None:
    box = make_box(trackers, [IDS[3]], error)
    async with trackers.open_tracker(box) as tracker:
        for smtp_id in IDS[:5]:
            await tracker.add(smtp_id)
        async with tracker.changes() as changes:
            ended = [(await anext(changes)).smtp_id for _ in range(4)]
    assert {*ended} == {*IDS[:5]} - {IDS[3]}
    assert await follow_messages(trackers, box, ()) == {ended[-1]: True, IDS[3]: False}
    assert len(box.requested_ids) < 60


async def test_denial_of_all_messages_ends_the_loop_and_loses_none(trackers: TrackerFactory) -> None:
    box = make_box(trackers, IDS, make_permission_error)
    added: Sequence[str] = IDS
    for _ in range(5):
        with pytest.raises(ds.PermissionDeniedError):
            await follow_messages(trackers, box, added)
        added = ()
    box.responder = RejectingResponder(frozenset({IDS[25]}), make_permission_error)
    ends = await follow_messages(trackers, box, ())
    assert list_undelivered(ends) == [IDS[25]]
    assert len(ends) == 1_000


async def test_denied_only_message_does_not_block_later_ones(trackers: TrackerFactory) -> None:
    box = make_box(trackers, IDS[:1], make_permission_error)
    with pytest.raises(ds.PermissionDeniedError):
        await follow_messages(trackers, box, IDS[:1])
    assert await follow_messages(trackers, box, IDS[1:3]) == {IDS[1]: True, IDS[2]: True, IDS[0]: False}


async def test_denied_request_ends_no_loop_if_another_succeeds(trackers: TrackerFactory) -> None:
    more = [f"<{number}@other.example.test>" for number in range(3)]
    ends = await follow_messages(trackers, make_box(trackers, more, make_permission_error), [*IDS, *more])
    assert {*list_undelivered(ends)} == {*more}
    assert len(ends) == 1_003


async def test_pauses_grow_if_everything_is_rejected(trackers: TrackerFactory) -> None:
    box = make_box(trackers, IDS, make_rejection)
    ends = await follow_messages(trackers, box, IDS)
    assert len(list_undelivered(ends)) == 1_000
    assert len(box.requested_ids) < 250


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("error", [make_rejection, make_server_error])
@pytest.mark.parametrize("bad", [{25}, {0, 60, 125, 250, 500, 999}])
async def test_rejected_messages_are_isolated_after_an_outage(
    bad: set[int], error: MakeError, trackers: TrackerFactory
) -> None:
    some = frozenset(IDS[number] for number in bad)
    box = make_box(trackers, IDS, error)
    recover_after(box, 60, RejectingResponder(some, error))
    ends = await follow_messages(trackers, box, IDS)
    assert {*list_undelivered(ends)} == some
    assert len(ends) == 1_000


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("last", range(200, 204))
async def test_outage_that_ends_during_a_poll_gives_up_no_message(last: int, trackers: TrackerFactory) -> None:
    box = make_box(trackers, IDS, make_server_error)
    recover_after(box, last, RejectingResponder(frozenset(), make_server_error))
    assert list_undelivered(await follow_messages(trackers, box, IDS[:10])) == []
    assert sum(trackers.clinic.time.sleeps) > DEFAULT_GIVE_UP_AFTER


async def test_requests_are_not_split_in_an_outage(trackers: TrackerFactory) -> None:
    box = make_box(trackers, IDS[:50], make_unavailable_error)
    recover_after(box, 250, RejectingResponder(frozenset(), make_server_error))
    assert list_undelivered(await follow_messages(trackers, box, IDS[:50])) == []
    assert all(len(asked) == 50 for asked in box.requested_ids)


async def test_old_messages_survive_a_transient_rejection(trackers: TrackerFactory) -> None:
    box = make_box(trackers, IDS, make_rejection)
    async with trackers.open_tracker(box) as tracker:
        for smtp_id in IDS[:50]:
            await tracker.add(smtp_id)
    trackers.clinic.sandbox.clock.advance(timedelta(days=3))
    good, bad = RejectingResponder(frozenset(), make_rejection), box.responder
    ends_at = trackers.clinic.time.monotonic() + 240
    box.responder = lambda smtp_ids: (bad if trackers.clinic.time.monotonic() < ends_at else good)(smtp_ids)
    assert list((await follow_messages(trackers, box, ())).values()) == [True] * 50


async def test_message_known_late_rejoins_the_batch(trackers: TrackerFactory) -> None:
    begins = trackers.clinic.time.monotonic()

    def answer(smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Rejects some messages for twelve seconds, and reports all as delivered after half an hour."""
        age = trackers.clinic.time.monotonic() - begins
        if age < 12 and {*IDS[5:12]} & {*smtp_ids}:
            raise make_rejection()
        return {smtp_id: {DELIVERED_RECIPIENT: "Delivered" if age > 1_800 else "Waiting"} for smtp_id in smtp_ids}

    box = make_fragile_mailbox(trackers.clinic, answer)
    assert list_undelivered(await follow_messages(trackers, box, IDS[:50])) == []
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

    box = make_fragile_mailbox(trackers.clinic, answer)
    assert list_undelivered(await follow_messages(trackers, box, IDS[:2])) == []


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize("count", [1, 2])
async def test_messages_are_given_up_after_a_day_of_failures(count: int, trackers: TrackerFactory) -> None:
    box = make_box(trackers, IDS, make_server_error)
    assert {*list_undelivered(await follow_messages(trackers, box, IDS[:count]))} == {*IDS[:count]}
    assert sum(trackers.clinic.time.sleeps) == pytest.approx(DEFAULT_GIVE_UP_AFTER + DAY, abs=600)
