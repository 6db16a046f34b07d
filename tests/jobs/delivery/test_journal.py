"""The journal of followed messages: what it records, what it deletes, and what it must not contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from directsuite.jobs.delivery import DeliveryJournal, DeliveryJournalError, DeliveryTracker
from tests.integration.scenario import ALICE, BOB, PASSWORD
from tests.jobs.delivery.fragile_mailbox import make_fragile_mailbox
from tests.jobs.delivery.trackers import (
    DELIVERED_RECIPIENT,
    SLOW_RECIPIENT,
    UNCONFIRMED_RECIPIENT,
    TrackerFactory,
    collect_changes,
    list_statuses,
    read_first_change,
)
from tests.statements import query_file, sql


async def test_restart_repeats_unacknowledged_changes(trackers: TrackerFactory) -> None:
    smtp_id = await trackers.clinic.send(DELIVERED_RECIPIENT, SLOW_RECIPIENT)
    async with trackers.make_journal() as journal:
        tracker = trackers.make_tracker(journal)
        await tracker.add(smtp_id, recipients=2)
        [first] = [change async for change in read_first_change(tracker)]
    trackers.clinic.sandbox.clock.advance(timedelta(days=3))
    async with trackers.make_journal() as journal:
        changes = await collect_changes(trackers.make_tracker(journal))
    assert changes[0].id == first.id
    assert list_statuses(changes, DELIVERED_RECIPIENT) == ["Delivered"]
    assert list_statuses(changes, SLOW_RECIPIENT) == ["Waiting", "Delivered"]
    assert not any(change.given_up for change in changes)
    assert trackers.status_requests == 2
    async with trackers.make_journal() as journal:
        tracker = trackers.make_tracker(journal)
        await tracker.add(smtp_id)  # a new run of the program starts the same batch
        assert await collect_changes(tracker) == []


async def test_id_is_the_same_with_and_without_angle_brackets(
    tracker: DeliveryTracker, trackers: TrackerFactory
) -> None:
    smtp_id = await trackers.clinic.send(DELIVERED_RECIPIENT)
    await tracker.add(smtp_id.strip("<>"))
    await tracker.add(smtp_id)
    other = await trackers.clinic.send(DELIVERED_RECIPIENT)
    await tracker.add(other)
    assert await tracker.followed() == [smtp_id.strip("<>"), other]
    assert len(await collect_changes(tracker)) == 2


async def test_two_mailboxes_share_a_journal(trackers: TrackerFactory) -> None:
    await trackers.clinic.sandbox.add_account(BOB, PASSWORD)
    bob = trackers.clinic.suite.mailbox(BOB, PASSWORD)
    sent = await bob.send(ds.Message(subject="Reply", recipients=[ds.Recipient(DELIVERED_RECIPIENT)]))
    async with trackers.make_journal() as journal:
        alice_s, bob_s = trackers.make_tracker(journal), trackers.make_tracker(journal, bob)
        await alice_s.add(await trackers.clinic.send(DELIVERED_RECIPIENT))
        await bob_s.add(sent.smtp_id)
        assert [change.smtp_id for change in await collect_changes(bob_s)] == [sent.smtp_id]
        assert len(await collect_changes(alice_s)) == 1


async def test_message_of_two_mailboxes_is_reported_to_both(trackers: TrackerFactory) -> None:
    def answer(smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return {smtp_id: {DELIVERED_RECIPIENT: "Delivered"} for smtp_id in smtp_ids}

    async with trackers.make_journal() as journal:
        alice_s = trackers.make_tracker(journal, make_fragile_mailbox(trackers.clinic, answer))
        bob_s = trackers.make_tracker(journal, make_fragile_mailbox(trackers.clinic, answer, address=BOB))
        for tracker in (alice_s, bob_s):
            await tracker.add("<1@direct.example.test>")
        [in_hand] = [change async for change in read_first_change(alice_s)]
        [of_bob] = await collect_changes(bob_s)
        assert in_hand.id != of_bob.id
        assert [change.id for change in await collect_changes(alice_s)] == [in_hand.id]


async def test_finished_message_can_be_forgotten_and_added_again(trackers: TrackerFactory) -> None:
    async with trackers.make_journal() as journal:
        tracker = trackers.make_tracker(journal)
        over, open_ = (
            await trackers.clinic.send(DELIVERED_RECIPIENT),
            await trackers.clinic.send(UNCONFIRMED_RECIPIENT),
        )
        await tracker.add(over)
        before = await collect_changes(tracker)
        await tracker.add(open_)
        now = trackers.clinic.sandbox.clock.now() + timedelta(seconds=1)
        assert await journal.forget(now - timedelta(days=1)) == 0
        assert await journal.forget(now) == 1
        assert await tracker.followed() == [open_]
        await tracker.add(over)
        again = [change for change in await collect_changes(tracker) if change.smtp_id == over]
        assert [change.id for change in again] == [change.id for change in before]


async def test_journal_has_no_password_or_mailbox_and_drops_recipients(trackers: TrackerFactory) -> None:
    async with trackers.make_journal() as journal:
        tracker = trackers.make_tracker(journal)
        await tracker.add(await trackers.clinic.send(DELIVERED_RECIPIENT))
        async for change in read_first_change(tracker):
            assert DELIVERED_RECIPIENT not in repr(change)
            assert change.smtp_id not in repr(change)
        written = b"".join(file.read_bytes() for file in trackers.file.parent.iterdir())
        assert DELIVERED_RECIPIENT.encode() in written
        assert PASSWORD.encode() not in written
        assert ALICE.encode() not in written
        await collect_changes(tracker)
        # overwritten pages remain in the file until it is vacuumed, so only the tables are checked
        assert await journal._database.fetch(sql("SELECT * FROM recipient")) == []


async def test_tracker_requires_a_journal_object(trackers: TrackerFactory) -> None:
    with pytest.raises(ds.InvalidArgumentError) as refused:
        DeliveryTracker(trackers.clinic.box, journal="delivery.db")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert refused.value.parameter == "journal"


async def test_message_can_be_added_only_to_open_journal(trackers: TrackerFactory) -> None:
    tracker = trackers.make_tracker(trackers.make_journal())
    with pytest.raises(ds.ClosedError):
        await tracker.add("<1@direct.example.test>")


@pytest.mark.parametrize("before", [datetime(2026, 1, 1), "2026-01-01"], ids=["naive", "text"])  # noqa: DTZ001
async def test_forget_requires_an_aware_datetime(trackers: TrackerFactory, before: Any) -> None:
    async with trackers.make_journal() as journal:
        with pytest.raises(ds.InvalidArgumentError):
            await journal.forget(before)


@pytest.mark.parametrize("problem", ["earlier", "damaged"])
async def test_error_that_suggests_a_new_journal_warns_of_sending_twice(problem: str, tmp_path: Path) -> None:
    path = tmp_path / "delivery.db"
    async with DeliveryJournal(path):
        pass
    if problem == "earlier":
        query_file(path, "PRAGMA user_version = 1")
    else:
        content = path.read_bytes()
        path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with pytest.raises(DeliveryJournalError, match=f"{problem}.*With a new file, messages .* would be sent again"):
        async with DeliveryJournal(path) as journal:
            await journal.find_send("mailbox", "request id")
