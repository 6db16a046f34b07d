"""A Message-ID that the service rejects affects only its own message, not the others of the request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

import directsuite as ds
from directsuite.jobs.delivery import DeliveryJournal, DeliveryTracker
from directsuite.messaging.tracking import DEFAULT_GIVE_UP_AFTER
from tests.jobs.delivery.clinic import Clinic, open_clinic
from tests.jobs.delivery.fragile_mailbox import FragileMailbox, RejectingResponder, make_fragile_mailbox

pytestmark = pytest.mark.wide

IDS = [f"<{number}@direct.example.test>" for number in range(1_000)]


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


@pytest.fixture
async def clinic() -> AsyncIterator[Clinic]:
    async with open_clinic() as opened:
        yield opened


async def follow_messages(stage: Clinic, box: FragileMailbox, folder: Path, smtp_ids: Sequence[str]) -> dict[str, bool]:
    """Return for each message whether it was delivered, in the order of the results."""
    async with DeliveryJournal(folder / "delivery.db") as journal:
        tracker = DeliveryTracker(box, journal=journal, now=stage.time.monotonic)
        for smtp_id in smtp_ids:
            await tracker.add(smtp_id)
        return {change.smtp_id: change.delivered async for change in tracker.changes() if change.ends_message}


@pytest.mark.parametrize("error", [make_rejection, make_decode_error, make_server_error, make_permission_error])
async def test_rejected_message_is_given_up_and_others_are_delivered(
    error: Callable[[], ds.DirectSuiteError], clinic: Clinic, tmp_path: Path
) -> None:
    box = make_fragile_mailbox(clinic, RejectingResponder(frozenset({IDS[7], IDS[40]}), error))
    delivered = await follow_messages(clinic, box, tmp_path, IDS[:50])
    assert [smtp_id for smtp_id, good in delivered.items() if not good] == [IDS[7], IDS[40]]
    assert len(delivered) == 50
    found = next(count for count, asked in enumerate(box.requested_ids) if asked == [IDS[40]])
    assert found < 50
    assert all(len(asked) == 1 for asked in box.requested_ids[found:])
    assert len(box.requested_ids) < 100


@pytest.mark.parametrize("error", [make_server_error, make_permission_error])
async def test_last_rejected_message_is_given_up_after_a_restart(
    error: Callable[[], ds.DirectSuiteError], clinic: Clinic, tmp_path: Path
) -> None:
    box = make_fragile_mailbox(clinic, RejectingResponder(frozenset({IDS[3]}), error))
    async with DeliveryJournal(tmp_path / "delivery.db") as journal:
        tracker = DeliveryTracker(box, journal=journal, now=clinic.time.monotonic)
        for smtp_id in IDS[:5]:
            await tracker.add(smtp_id)
        async with tracker.changes() as changes:
            ended = [(await anext(changes)).smtp_id for _ in range(4)]
    assert {*ended} == {*IDS[:5]} - {IDS[3]}
    assert await follow_messages(clinic, box, tmp_path, ()) == {ended[-1]: True, IDS[3]: False}
    assert len(box.requested_ids) < 60


async def test_denial_of_everything_ends_loop_and_loses_nothing(clinic: Clinic, tmp_path: Path) -> None:
    box = make_fragile_mailbox(clinic, RejectingResponder(frozenset(IDS), make_permission_error))
    for _ in range(2):
        with pytest.raises(ds.PermissionDeniedError):
            await follow_messages(clinic, box, tmp_path, IDS[:50])
    box.responder = RejectingResponder(frozenset(), make_permission_error)
    assert len(await follow_messages(clinic, box, tmp_path, ())) == 50


async def test_denied_only_message_does_not_block_later_ones(clinic: Clinic, tmp_path: Path) -> None:
    box = make_fragile_mailbox(clinic, RejectingResponder(frozenset({IDS[0]}), make_permission_error))
    with pytest.raises(ds.PermissionDeniedError):
        await follow_messages(clinic, box, tmp_path, IDS[:1])
    assert await follow_messages(clinic, box, tmp_path, IDS[1:3]) == {IDS[1]: True, IDS[2]: True, IDS[0]: False}


async def test_failing_service_gives_up_no_message(clinic: Clinic, tmp_path: Path) -> None:
    box = make_fragile_mailbox(clinic, RejectingResponder(frozenset(IDS), make_server_error))
    box.responder = RecoveringResponder(box)
    assert [*(await follow_messages(clinic, box, tmp_path, IDS[:50])).values()] == [True] * 50
    assert sum(clinic.time.sleeps) > DEFAULT_GIVE_UP_AFTER


class RecoveringResponder:
    """Rejects 250 requests, then responds normally."""

    def __init__(self, box: FragileMailbox) -> None:
        self._box = box
        self._refusing = box.responder

    def __call__(self, smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        if len(self._box.requested_ids) > 250:
            return RejectingResponder(frozenset(), make_server_error)(smtp_ids)
        return self._refusing(smtp_ids)


@pytest.mark.wide
async def test_pauses_grow_if_everything_is_rejected(clinic: Clinic, tmp_path: Path) -> None:
    box = make_fragile_mailbox(clinic, RejectingResponder(frozenset(IDS), make_rejection))
    ends = await follow_messages(clinic, box, tmp_path, IDS)
    assert set(ends.values()) == {False}
    assert len(ends) == 1_000
    assert len(box.requested_ids) < 250


async def test_rejected_message_is_isolated_after_an_outage(clinic: Clinic, tmp_path: Path) -> None:
    box = make_fragile_mailbox(clinic, RejectingResponder(frozenset(IDS), make_rejection))
    bad, all_refused = RejectingResponder(frozenset({IDS[7]}), make_rejection), box.responder
    box.responder = lambda smtp_ids: (all_refused if len(box.requested_ids) < 100 else bad)(smtp_ids)
    ends = await follow_messages(clinic, box, tmp_path, IDS[:500])
    assert [smtp_id for smtp_id, good in ends.items() if not good][-1] == IDS[7]
    assert sum(ends.values()) == 499


async def test_old_messages_survive_a_transient_rejection(clinic: Clinic, tmp_path: Path) -> None:
    box = make_fragile_mailbox(clinic, RejectingResponder(frozenset(), make_rejection))
    async with DeliveryJournal(tmp_path / "delivery.db") as journal:
        for smtp_id in IDS[:50]:
            await DeliveryTracker(box, journal=journal, now=clinic.time.monotonic).add(smtp_id)
    clinic.sandbox.clock.advance(timedelta(days=3))
    good, bad, begins = (
        box.responder,
        RejectingResponder(frozenset(IDS), make_rejection),
        clinic.time.monotonic(),
    )
    box.responder = lambda smtp_ids: (bad if clinic.time.monotonic() < begins + 240 else good)(smtp_ids)
    ends = await follow_messages(clinic, box, tmp_path, ())
    assert list(ends.values()) == [True] * 50


async def test_requests_are_not_split_in_an_outage(clinic: Clinic, tmp_path: Path) -> None:
    box = make_fragile_mailbox(clinic, RejectingResponder(frozenset(IDS[:50]), make_unavailable_error))
    async with DeliveryJournal(tmp_path / "delivery.db") as journal:
        tracker = DeliveryTracker(box, journal=journal, now=clinic.time.monotonic)
        for smtp_id in IDS[:50]:
            await tracker.add(smtp_id)
        changes = tracker.changes()
        box.responder = RecoveringResponder(box)
        await anext(changes)
    assert all(len(asked) == 50 for asked in box.requested_ids)
