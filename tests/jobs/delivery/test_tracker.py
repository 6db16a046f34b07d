"""Many messages, followed together: what is told, what is told again, and what doesn't end it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from directsuite.jobs.delivery import DeliveryTracker, Journal, JournalError
from directsuite.jobs.delivery.changes import TrackedMessage
from directsuite.messaging.tracking import GIVE_UP_AFTER
from tests.integration.world import ALICE, BOB, PASSWORD
from tests.jobs.delivery.fragile_mailbox import fragile_mailbox
from tests.jobs.delivery.scene import clinic
from tests.jobs.delivery.trackers import NEVER, PROMPT, REFUSED, SLOW, Scene, course, first_of, told
from tests.waiting import until

NO_IDS = [None, "", "<>", " ", "<\ud800@x.test>", "<1\0@x.test>", "<1@x.test>\n", f"<{'1' * 2_000_000}@x.test>"]


async def test_each_recipient_s_changes_are_told_and_the_last_of_them_ends_the_message(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        smtp_id = await scene.clinic.send(PROMPT, SLOW, NEVER, REFUSED)
        await tracker.add(smtp_id, recipients=4)
        assert await tracker.followed() == [smtp_id]
        changes = await told(tracker)
        assert course(changes, PROMPT) == ["Delivered"]
        assert course(changes, SLOW) == ["Waiting", "Delivered"]
        assert course(changes, NEVER) == ["Waiting", "NO MDN Received"]
        assert course(changes, REFUSED) == ["Locally Failed"]
        assert [change.ends_message for change in changes] == [False] * 5 + [True]
        assert {change.recipient for change in changes if change.is_end} == {PROMPT, SLOW, NEVER, REFUSED}
        assert {change.recipient for change in changes if change.delivered} == {PROMPT, SLOW}
        assert len({change.id for change in changes}) == 6
        assert {change.smtp_id for change in changes} == {smtp_id}
        assert not any(change.given_up for change in changes)
        assert scene.asked == 11
        assert await tracker.followed() == []


async def test_with_no_message_the_loop_ends_and_nothing_is_asked(scene: Scene) -> None:
    async with scene.journal() as journal:
        assert await told(scene.tracker(journal)) == []
    assert scene.asked == 0


async def test_a_change_in_the_hands_of_a_loop_that_is_left_is_told_again(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add(await scene.clinic.send(PROMPT, REFUSED))
        first = [change async for change in first_of(tracker)]
        changes = await told(tracker)
        assert [change.id for change in changes[:1]] == [change.id for change in first]
        assert len(changes) == 2


async def test_one_that_is_acknowledged_is_not_told_again(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add(await scene.clinic.send(PROMPT))
        async for change in first_of(tracker):
            await tracker.acknowledge(change)
        assert await told(tracker) == []


async def test_one_that_is_added_wakes_a_loop_that_waits(scene: Scene) -> None:
    time = scene.clinic.time
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        time.hold()
        loop = asyncio.create_task(anext(tracker.changes(endless=True)))
        await until(lambda: len(time.slept) == 1)
        await tracker.add(await scene.clinic.send(PROMPT))
        await until(lambda: time.slept[1:] == [5])
        loop.cancel()
        await asyncio.wait([loop])


async def test_one_that_is_due_later_than_others_wakes_nothing(scene: Scene) -> None:
    time = scene.clinic.time
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add(await scene.clinic.send(SLOW))
        time.hold()
        loop = asyncio.create_task(anext(tracker.changes(endless=True)))
        await until(lambda: time.slept == [5])
        scene.clinic.sandbox.clock.advance(timedelta(seconds=4))
        for _ in range(3):
            await tracker.add(await scene.clinic.send(PROMPT))
        for _ in range(20):
            await asyncio.to_thread(lambda: None)
        assert time.slept == [5]
        loop.cancel()
        await asyncio.wait([loop])


async def test_a_suite_that_closes_wakes_a_loop_that_waits(tmp_path: Path) -> None:
    async with clinic() as opened, Journal(tmp_path / "delivery.db") as journal:
        tracker = DeliveryTracker(opened.box, journal=journal, now=opened.time.monotonic)
        opened.time.hold()
        loop = asyncio.create_task(anext(tracker.changes(endless=True)))
        await until(lambda: len(opened.time.slept) == 1)
        await opened.suite.aclose()
        with pytest.raises(ds.ClosedError):
            await loop


async def test_requests_that_fail_are_made_again_and_nothing_is_given_up_meanwhile(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add(await scene.clinic.send(SLOW))
        scene.clinic.sandbox.inject_fault("GetMessageStatusMany", "status", status=503, times=40)
        changes = await told(tracker)
        assert course(changes, SLOW) == ["Delivered"]
        assert sum(scene.clinic.time.slept) > GIVE_UP_AFTER


async def test_a_pause_that_the_service_asks_for_is_kept(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add(await scene.clinic.send(PROMPT))
        scene.clinic.sandbox.inject_fault("GetMessageStatusMany", "status", status=429, retry_after=77)
        await told(tracker)
        assert sum(scene.clinic.time.slept) == pytest.approx(82, abs=0.1)


async def test_of_a_longer_pause_than_an_hour_an_hour_is_kept(scene: Scene) -> None:
    answers = [ds.RateLimitedError("it is too much", status=429, retry_after=86_400), None]

    def answer(smtp_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Delivered, at the second time."""
        if error := answers.pop(0):
            raise error
        return {smtp_id: {PROMPT: "Delivered"} for smtp_id in smtp_ids}

    async with scene.journal() as journal:
        tracker = scene.tracker(journal, fragile_mailbox(scene.clinic, answer))
        await tracker.add("<1@direct.example.test>")
        assert course(await told(tracker), PROMPT) == ["Delivered"]
    assert sum(scene.clinic.time.slept) == pytest.approx(3_605, abs=0.1)


async def test_a_journal_that_can_t_be_written_ends_the_loop_and_loses_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def note(_: object) -> None:
        """The disk is full."""
        raise JournalError("The disk is full")

    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add(await scene.clinic.send(PROMPT))
        with monkeypatch.context() as full:
            full.setattr(journal.records, "record", note)
            with pytest.raises(JournalError):
                await told(tracker)
        assert scene.asked == 1
        assert course(await told(tracker), PROMPT) == ["Delivered"]


async def test_a_password_that_is_refused_ends_the_loop_and_loses_nothing(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal, scene.clinic.suite.mailbox(ALICE, "wrong"))
        await tracker.add(await scene.clinic.send(PROMPT))
        with pytest.raises(ds.AuthenticationError):
            await told(tracker)
        assert scene.asked == 1
        assert len(await told(scene.tracker(journal))) == 1


async def test_a_suite_that_closes_ends_the_loop(tmp_path: Path) -> None:
    async with clinic() as opened, Journal(tmp_path / "delivery.db") as journal:
        tracker = DeliveryTracker(opened.box, journal=journal, now=opened.time.monotonic)
        await tracker.add(await opened.send(NEVER))
        await opened.suite.aclose()
        with pytest.raises(ds.ClosedError):
            await told(tracker)
        assert len(await tracker.followed()) == 1


async def test_what_the_service_never_knows_is_given_up_and_told_so(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal)
        await tracker.add("<nothing@direct.example.test>")
        await tracker.add(await scene.clinic.send(PROMPT), recipients=2)
        changes = await told(tracker)
        assert [(change.recipient, change.status, change.given_up) for change in changes] == [
            (PROMPT, ds.MessageStatus.DELIVERED, False),
            (None, None, True),
            (None, None, True),
        ]
        assert [change.ends_message for change in changes] == [False, True, True]
        assert sum(scene.clinic.time.slept) == pytest.approx(GIVE_UP_AFTER, abs=1)


async def test_one_that_waits_on_is_given_up_with_its_last_status(scene: Scene) -> None:
    async with scene.journal() as journal:
        tracker = scene.tracker(journal, give_up_after=600)
        await tracker.add(await scene.clinic.send(NEVER))
        first, last = await told(tracker)
        assert (first.status, first.is_end, first.step) == (ds.MessageStatus.WAITING, False, 1)
        assert (last.status, last.is_end, last.step) == (ds.MessageStatus.WAITING, True, 2)
        assert last.given_up
        assert last.ends_message
        assert last.id != first.id


@pytest.mark.parametrize("smtp_id", NO_IDS, ids=lambda smtp_id: ascii(smtp_id)[:20])
async def test_what_is_no_smtp_id_is_refused(smtp_id: Any, scene: Scene) -> None:
    async with scene.journal() as journal:
        with pytest.raises(ds.InvalidArgumentError):
            await scene.tracker(journal).add(smtp_id)
    with pytest.raises(ds.InvalidArgumentError):
        await scene.clinic.box.track(smtp_id)
    assert scene.clinic.time.slept == []


async def test_a_tuser_is_told_to_track_by_itself(scene: Scene) -> None:
    tuser: Any = scene.clinic.suite.tuser("front-desk", PASSWORD, ALICE)
    async with scene.journal() as journal:
        with pytest.raises(ds.InvalidArgumentError, match=r"tuser\.track") as refused:
            scene.tracker(journal, tuser)
    assert refused.value.parameter == "mailbox"


async def test_what_another_tracker_of_the_mailbox_adds_is_told(scene: Scene) -> None:
    time = scene.clinic.time
    async with scene.journal() as journal:
        time.hold()
        loop = asyncio.create_task(anext(scene.tracker(journal).changes(endless=True)))
        await until(lambda: len(time.slept) == 1)
        await scene.tracker(journal).add(await scene.clinic.send(PROMPT))
        await until(lambda: time.slept[1:] == [5])
        loop.cancel()
        await asyncio.wait([loop])
        assert await scene.tracker(journal, scene.clinic.suite.mailbox(BOB, PASSWORD)).followed() == []


async def test_adding_what_is_followed_reads_nothing_again_beside_a_loop_that_waits(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene.journal() as journal:
        tracker, followed, reads = scene.tracker(journal), journal.records.load, list[str]()
        smtp_ids = [await scene.clinic.send(SLOW) for _ in range(5)]
        for smtp_id in smtp_ids:
            await tracker.add(smtp_id)

        async def read(mailbox: str) -> list[TrackedMessage]:
            """Count it."""
            reads.append(mailbox)
            return await followed(mailbox)

        monkeypatch.setattr(journal.records, "load", read)
        scene.clinic.time.hold()
        loop = asyncio.create_task(anext(tracker.changes(endless=True)))
        await until(lambda: scene.clinic.time.slept == [5])
        for smtp_id in smtp_ids:
            await tracker.add(smtp_id)
            for _ in range(20):
                await asyncio.to_thread(lambda: None)
        assert len(reads) == 1
        assert scene.clinic.time.slept == [5]
        loop.cancel()
        await asyncio.wait([loop])
