"""`DeliveryTracker.send`: a message is sent once, even if the program ends at any time, and is then followed."""

from __future__ import annotations

import asyncio
import io
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import pytest

import directsuite as ds
from directsuite.jobs.delivery import DeliveryJournal, DeliveryJournalError, DeliveryTracker
from directsuite.messaging.arguments import compute_message_digest
from tests.jobs.delivery.trackers import DELIVERED_RECIPIENT, SLOW_RECIPIENT, TrackerFactory, collect_changes

LETTER = ds.Message(subject="Referral", recipients=[ds.Recipient(DELIVERED_RECIPIENT), ds.Recipient(SLOW_RECIPIENT)])
KEY = "Jane Doe's referral"
FULL = DeliveryJournalError("the disk is full")


async def sends(scene: TrackerFactory) -> int:
    return await scene.clinic.box.get_message_count("INBOX.Sent")


def lose_the_answer(scene: TrackerFactory) -> None:
    """Lose the response to the next message, and let the searches of INBOX.Sent fail."""
    scene.clinic.sandbox.inject_fault("SendWithHeader", "reset_after")
    scene.clinic.sandbox.inject_fault("SearchMessagesMetadataByReceivedDate", "status", status=500, times=100)


async def test_second_run_returns_same_id_without_request(trackers: TrackerFactory) -> None:
    async with trackers.open_tracker() as tracker:
        first = await tracker.send(LETTER, key=KEY)
    requests = trackers.clinic.request_counts.total()
    async with trackers.open_tracker() as tracker:
        second = await tracker.send(LETTER, key=KEY)
        assert (second.success, second.smtp_id) == (True, first.smtp_id)
        assert trackers.clinic.request_counts.total() == requests
        assert await tracker.followed() == [first.smtp_id]
        ends = [change.recipient for change in await collect_changes(tracker) if change.is_end]
    assert sorted(map(str, ends)) == sorted([DELIVERED_RECIPIENT, SLOW_RECIPIENT])
    assert await sends(trackers) == 1


async def test_progress_of_attachments_is_reported_once(tracker: DeliveryTracker, tmp_path: Path) -> None:
    reported = list[tuple[int, int | None]]()
    (tmp_path / "scan.pdf").write_bytes(bytes(500_000))
    message = attrs.evolve(LETTER, attachment_list=[ds.Attachment.from_path(tmp_path / "scan.pdf")])

    def report(done: int, total: int | None) -> None:
        reported.append((done, total))

    await tracker.send(message, key=KEY, progress=report)
    assert (reported[0], reported[-1]) == ((0, 500_000), (500_000, 500_000))
    calls = len(reported)
    await tracker.send(message, key=KEY, progress=report)
    assert len(reported) == calls


async def test_first_attempt_does_not_search_even_after_invalid_arguments(
    tracker: DeliveryTracker, trackers: TrackerFactory
) -> None:
    async def report(*_: object) -> None: ...

    rejected: Any = report
    with pytest.raises(ds.InvalidArgumentError, match="progress"):
        await tracker.send(LETTER, key=KEY, progress=rejected)
    with pytest.raises(ds.InvalidArgumentError, match="key"):
        await tracker.send(LETTER, key="")
    await tracker.send(LETTER, key=KEY)
    assert [*trackers.clinic.request_counts] == ["SendWithHeader"]


async def test_message_sent_before_crash_is_found(trackers: TrackerFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("add", "end_send"):
        with monkeypatch.context() as patched:
            patched.setattr(DeliveryJournal, method, mock.AsyncMock(side_effect=asyncio.CancelledError))
            async with trackers.open_tracker() as tracker:
                with pytest.raises(asyncio.CancelledError):
                    await tracker.send(LETTER, key=KEY)
        assert await sends(trackers) == 1
    async with trackers.open_tracker() as tracker:
        sent = await tracker.send(LETTER, key=KEY)
        assert await tracker.followed() == [sent.smtp_id]
    assert await sends(trackers) == 1
    assert trackers.clinic.request_counts["SendWithHeader"] == 1


async def test_message_not_sent_before_crash_is_sent(trackers: TrackerFactory) -> None:
    async with trackers.open_tracker() as tracker:
        trackers.clinic.sandbox.inject_fault("SendWithHeader", "reset_before")
        with suppress(ds.OutcomeUnknownError):
            await tracker.send(LETTER, key=KEY, settle=0.0)
    async with trackers.open_tracker() as tracker:
        assert (await tracker.send(LETTER, key=KEY)).smtp_id
    assert await sends(trackers) == 1


async def test_lost_response_is_searched_by_next_run(trackers: TrackerFactory) -> None:
    lose_the_answer(trackers)
    async with trackers.open_tracker() as tracker:
        with pytest.raises(ds.OutcomeUnknownError, match="call send again later, with the same key"):
            await tracker.send(LETTER, key=KEY)
    trackers.clinic.sandbox.clear_faults()
    async with trackers.open_tracker() as tracker:
        sent = await tracker.send(LETTER, key=KEY)
        assert await tracker.followed() == [sent.smtp_id]
    assert await sends(trackers) == 1


async def test_unsent_message_is_sent_without_a_search(tracker: DeliveryTracker, trackers: TrackerFactory) -> None:
    trackers.clinic.sandbox.inject_fault("SendWithHeader", "status", status=429)
    with pytest.raises(ds.RateLimitedError):
        await tracker.send(LETTER, key=KEY)
    with pytest.raises(ds.InvalidArgumentError):
        await tracker.send(ds.Message(recipients=[ds.Recipient("nobody")]), key=KEY)
    assert (await tracker.send(LETTER, key=KEY)).smtp_id
    assert {*trackers.clinic.request_counts} == {"SendWithHeader"}
    assert await sends(trackers) == 1


async def test_concurrent_sends_send_once(tracker: DeliveryTracker, trackers: TrackerFactory) -> None:
    answers = await asyncio.gather(*(tracker.send(LETTER, key=KEY) for _ in range(5)))
    assert len({answer.smtp_id for answer in answers}) == 1
    assert await sends(trackers) == 1


async def test_nothing_is_sent_if_journal_is_unwritable(
    tracker: DeliveryTracker, trackers: TrackerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeliveryJournal, "begin_send", mock.AsyncMock(side_effect=FULL))
    with pytest.raises(DeliveryJournalError, match="full"):
        await tracker.send(LETTER, key=KEY)
    assert trackers.clinic.request_counts.total() == 0


async def test_message_without_an_id_that_can_be_requested_is_sent_once_and_not_followed(
    tracker: DeliveryTracker, trackers: TrackerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, smtp_id in enumerate(["", "<>", "<a\nb@x>", f"<{'a' * 1_000}@x>", "\ud800", "\x00"]):
        odd = ds.SendMessageResponse(success=True, code=0, smtp_id=smtp_id)
        with monkeypatch.context() as patched:
            patched.setattr(ds.Mailbox, "send_once", mock.AsyncMock(return_value=odd))
            assert (await tracker.send(LETTER, key=f"{KEY} {number}")).smtp_id == smtp_id
        again = await tracker.send(LETTER, key=f"{KEY} {number}")
        assert again.success
        assert bool(again.smtp_id) == bool(smtp_id)
    assert await tracker.followed() == []
    assert trackers.clinic.request_counts.total() == 0


@pytest.mark.parametrize("method", ["add", "end_send"])
async def test_full_disk_after_send_still_reports_message_as_sent(
    tracker: DeliveryTracker, trackers: TrackerFactory, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(DeliveryJournal, method, mock.AsyncMock(side_effect=FULL))
        with pytest.raises(ds.OutcomeUnknownError) as caught:
            await tracker.send(LETTER, key=KEY)
    assert caught.value.happened
    assert isinstance(caught.value.__cause__, DeliveryJournalError)
    assert "same key" in caught.value.how_to_find_out
    sent = await tracker.send(LETTER, key=KEY)
    assert await tracker.followed() == [sent.smtp_id]
    assert await sends(trackers) == 1


class SilentFile(io.BytesIO):
    """A file that returns nothing until it is released."""

    def __init__(self) -> None:
        super().__init__(bytes(20))
        self.is_released = threading.Event()

    def read(self, size: int | None = -1, /) -> bytes:
        self.is_released.wait()
        return super().read(size)


async def test_timeout_covers_reading_attachments(tracker: DeliveryTracker) -> None:
    file = SilentFile()
    attached = [ds.Attachment.from_file(file, filename="dose.xml", content_type="text/xml")]
    with pytest.raises(ds.DeadlineExceededError) as caught:
        await tracker.send(attrs.evolve(LETTER, attachment_list=attached), key=KEY, timeout=0.01)
    file.is_released.set()
    assert caught.value.outcome is ds.Outcome.NOT_SENT
    assert (await tracker.send(LETTER, key=KEY)).smtp_id


async def test_timeout_covers_waiting_for_a_concurrent_send(
    tracker: DeliveryTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, hold = asyncio.Event(), asyncio.Event()

    async def hang(*_: Any, **__: Any) -> ds.SendMessageResponse:
        started.set()
        await hold.wait()
        return ds.SendMessageResponse(success=True, code=0)

    monkeypatch.setattr(tracker.mailbox, "send_once", hang)
    first = asyncio.create_task(tracker.send(LETTER, key=KEY))
    await started.wait()
    with pytest.raises(ds.DeadlineExceededError):
        await tracker.send(LETTER, key=KEY, timeout=0.01)
    hold.set()
    await first


async def test_keys_are_separate_for_each_mailbox(trackers: TrackerFactory) -> None:
    await trackers.clinic.sandbox.add_account("bob@clinic.example.test", "bob's own password")
    bob = trackers.clinic.suite.mailbox("bob@clinic.example.test", "bob's own password")
    async with trackers.make_journal() as journal:
        first = await trackers.make_tracker(journal).send(LETTER, key=KEY)
        second = await trackers.make_tracker(journal, bob).send(LETTER, key=KEY)
    assert first.smtp_id != second.smtp_id


async def test_journal_file_contains_no_key(tracker: DeliveryTracker, trackers: TrackerFactory) -> None:
    await tracker.send(LETTER, key=KEY)
    assert KEY.encode() not in trackers.file.read_bytes()


async def test_forgetting_a_message_forgets_its_key(trackers: TrackerFactory) -> None:
    async with trackers.open_tracker() as tracker:
        await tracker.send(LETTER, key=KEY)
        await collect_changes(tracker)
    trackers.clinic.sandbox.clock.advance(timedelta(days=30))
    async with trackers.make_journal() as journal:
        assert await journal.forget(datetime.fromtimestamp(trackers.clinic.time.monotonic(), UTC)) == 1
        await trackers.make_tracker(journal).send(LETTER, key=KEY)
    assert await sends(trackers) == 2


async def test_header_does_not_count_as_a_recipient_of_the_same_message() -> None:
    headers = [ds.MessageHeader("TO", SLOW_RECIPIENT)]
    fewer = ds.MessageWithHeader(subject="Referral", recipients=[ds.Recipient(DELIVERED_RECIPIENT)], headers=headers)
    assert await compute_message_digest(fewer) != await compute_message_digest(LETTER)


async def test_different_message_with_same_key_is_rejected(trackers: TrackerFactory, tmp_path: Path) -> None:
    document = tmp_path / "dose.xml"
    document.write_bytes(b"<dose>10 mg</dose>")

    def letter(**changes: Any) -> ds.Message:
        attached = [ds.Attachment.from_path(document)]
        return attrs.evolve(LETTER, attachment_list=attached, **changes)

    async with trackers.open_tracker() as tracker:
        first = await tracker.send(letter(), key=KEY)
    async with trackers.open_tracker() as tracker:
        assert (await tracker.send(letter(), key=KEY)).smtp_id == first.smtp_id
        for another in (letter(subject="Another"), letter(recipients=[ds.Recipient(SLOW_RECIPIENT)]), LETTER):
            with pytest.raises(ds.InvalidArgumentError, match="key: another message was sent with this key"):
                await tracker.send(another, key=KEY)
        document.write_bytes(b"<dose>50 mg</dose>")
        with pytest.raises(ds.InvalidArgumentError, match="key: another message was sent with this key"):
            await tracker.send(letter(), key=KEY)
        assert (await tracker.send(letter(), key=f"{KEY}, corrected")).smtp_id != first.smtp_id
    assert await sends(trackers) == 2


async def test_another_message_is_rejected_if_first_may_be_sent(
    tracker: DeliveryTracker, trackers: TrackerFactory
) -> None:
    lose_the_answer(trackers)
    with pytest.raises(ds.OutcomeUnknownError):
        await tracker.send(LETTER, key=KEY)
    with pytest.raises(ds.InvalidArgumentError, match="or may have been"):
        await tracker.send(attrs.evolve(LETTER, body="Another"), key=KEY)
    assert await sends(trackers) == 1
