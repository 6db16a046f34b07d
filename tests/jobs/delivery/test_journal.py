"""The journal of messages that are followed: what it keeps, what it forgets, and what never stands in it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

import directsuite as ds
from directsuite.durable.database import sql
from directsuite.jobs.delivery import DeliveryTracker, JournalError
from tests.integration.world import ALICE, BOB, PASSWORD
from tests.jobs.delivery.fragile_mailbox import fragile_mailbox
from tests.jobs.delivery.trackers import NEVER, PROMPT, SLOW, Scene, course, first_of, told


async def test_a_restart_goes_on_and_tells_what_was_not_done(scene: Scene) -> None:
    smtp_id = await scene.clinic.send(PROMPT, SLOW)
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add(smtp_id, recipients=2)
        [first] = [change async for change in first_of(tracker)]
    scene.clinic.sandbox.clock.advance(timedelta(days=3))
    async with scene.journal() as journal:
        changes = await told(scene.tracker(journal))
    assert changes[0].id == first.id
    assert course(changes, PROMPT) == ["Delivered"]
    assert course(changes, SLOW) == ["Waiting", "Delivered"]
    assert not any(change.given_up for change in changes)
    assert scene.asked == 2
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add(smtp_id)  # the program begins its batch anew
        assert await told(tracker) == []


async def test_a_file_of_an_earlier_form_is_refused_and_left_as_it_is(scene: Scene) -> None:
    async with scene.journal():
        pass
    with contextlib.closing(sqlite3.connect(scene.file)) as connection:
        connection.execute("PRAGMA user_version = 1")
    before = scene.file.read_bytes()
    with pytest.raises(JournalError, match="give the journal another path"):
        async with scene.journal():
            pass
    assert scene.file.read_bytes() == before


async def test_one_with_and_without_angle_brackets_is_the_same(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        smtp_id = await scene.clinic.send(PROMPT)
        await tracker.add(smtp_id.strip("<>"))
        await tracker.add(smtp_id)
        other = await scene.clinic.send(PROMPT)
        await tracker.add(other)
        assert await tracker.followed() == [smtp_id.strip("<>"), other]
        assert len(await told(tracker)) == 2


async def test_two_mailboxes_share_a_journal(scene: Scene) -> None:
    await scene.clinic.sandbox.add_account(BOB, PASSWORD)
    bob = scene.clinic.suite.mailbox(BOB, PASSWORD)
    sent = await bob.send(ds.Message(subject="Reply", recipients=[ds.Recipient(PROMPT)]))
    async with scene.journal() as journal:
        alice_s, bob_s = scene.tracker(journal), scene.tracker(journal, bob)
        await alice_s.add(await scene.clinic.send(PROMPT))
        await bob_s.add(sent.smtp_id)
        assert [change.smtp_id for change in await told(bob_s)] == [sent.smtp_id]
        assert len(await told(alice_s)) == 1


async def test_the_same_message_of_two_mailboxes_is_told_to_each(scene: Scene) -> None:
    def answer(smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """They have it."""
        return {smtp_id: {PROMPT: "Delivered"} for smtp_id in smtp_ids}

    async with scene.journal() as journal:
        alice_s = scene.tracker(journal, fragile_mailbox(scene.clinic, answer))
        bob_s = scene.tracker(journal, fragile_mailbox(scene.clinic, answer, address=BOB))
        for tracker in (alice_s, bob_s):
            await tracker.add("<1@direct.example.test>")
        [in_hand] = [change async for change in first_of(alice_s)]
        [of_bob] = await told(bob_s)
        assert in_hand.id != of_bob.id
        assert [change.id for change in await told(alice_s)] == [in_hand.id]


async def test_what_is_over_can_be_forgotten_and_then_followed_anew(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        over, open_ = await scene.clinic.send(PROMPT), await scene.clinic.send(NEVER)
        await tracker.add(over)
        before = await told(tracker)
        await tracker.add(open_)
        now = scene.clinic.sandbox.clock.now() + timedelta(seconds=1)
        assert await journal.forget(now - timedelta(days=1)) == 0
        assert await journal.forget(now) == 1
        assert await tracker.followed() == [open_]
        await tracker.add(over)
        again = [change for change in await told(tracker) if change.smtp_id == over]
        assert [change.id for change in again] == [change.id for change in before]


async def test_the_journal_has_neither_password_nor_mailbox_and_forgets_recipients(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add(await scene.clinic.send(PROMPT))
        async for change in first_of(tracker):
            assert PROMPT not in repr(change)
            assert change.smtp_id not in repr(change)
        written = b"".join(file.read_bytes() for file in scene.file.parent.iterdir())
        assert PROMPT.encode() in written
        assert PASSWORD.encode() not in written
        assert ALICE.encode() not in written
        await told(tracker)
        # pages that were written over remain in the file until it is vacuumed; the tables are what is asked for
        assert await journal._database.fetch(sql("SELECT * FROM recipient")) == []


async def test_a_tracker_takes_a_journal_and_not_its_path(scene: Scene) -> None:
    with pytest.raises(ds.InvalidArgumentError) as refused:
        DeliveryTracker(scene.clinic.box, journal="delivery.db")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert refused.value.parameter == "journal"


async def test_one_is_added_to_an_open_journal_alone(scene: Scene) -> None:
    tracker = scene.tracker(scene.journal())
    with pytest.raises(ds.ClosedError):
        await tracker.add("<1@direct.example.test>")


@pytest.mark.parametrize("before", [datetime(2026, 1, 1), "2026-01-01"], ids=["naive", "text"])  # noqa: DTZ001
async def test_only_an_aware_moment_says_what_to_forget(scene: Scene, before: Any) -> None:
    async with scene.journal() as journal:
        with pytest.raises(ds.InvalidArgumentError):
            await journal.forget(before)
