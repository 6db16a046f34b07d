"""Sending once with `since`: an earlier attempt's request may still arrive, or be there and not be recognized."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.messaging import send_once

from .settling_scene import ALICE, Scene, let_pass, scene

MESSAGE = ds.Message(sender=ALICE, subject="Result", body="See attachment.", recipients=[ds.Recipient(ALICE)])
KEY = "result-17"


@pytest.fixture
async def world() -> AsyncIterator[Scene]:
    async with scene() as running:
        yield running


@pytest.fixture
def began() -> datetime:
    """When the first attempt was made."""
    return datetime.now(UTC)


@pytest.fixture
def _no_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose metadata leaves out header lines of the sender's own."""
    search = ds.Mailbox.search_messages_metadata_by_received_date

    async def hiding(self: ds.Mailbox, *args: Any, **options: Any) -> list[ds.MessageDetail]:
        found = await search(self, *args, **options)
        return [attrs.evolve(each, headers=[ds.MessageHeader("Subject", each.subject)]) for each in found]

    monkeypatch.setattr(ds.Mailbox, "search_messages_metadata_by_received_date", hiding)


async def _lands(world: Scene) -> None:
    """The request of an earlier attempt arrives."""
    await world.box.send_with_header(send_once.marked(MESSAGE, send_once.request_id(ALICE, KEY)))


@pytest.mark.usefixtures("_no_marks")
async def test_a_server_that_shows_no_marks_gets_no_second_message(world: Scene, began: datetime) -> None:
    world.sandbox.inject_fault("SendWithHeader", "reset_after")
    with pytest.raises(ds.OutcomeUnknownError):
        await world.box.send_once(MESSAGE, key=KEY)
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await world.box.send_once(MESSAGE, key=KEY, since=began)
    assert await world.effects("SendWithHeader") == 1
    assert caught.value.looked
    assert "without since" in caught.value.how_to_find_out


async def test_messages_without_marks_tell_nothing_of_a_server(world: Scene, began: datetime) -> None:
    await world.box.send(MESSAGE)
    with pytest.raises(ds.OutcomeUnknownError):
        await world.box.send_once(MESSAGE, key=KEY, since=began)
    assert await world.effects("SendWithHeader") == 0


@pytest.mark.parametrize("waits", [1, 3])
async def test_a_first_request_that_lands_late_is_the_only_one(world: Scene, began: datetime, waits: int) -> None:
    async def nothing() -> None:
        pass

    world.clock.meanwhile = [*[nothing] * (waits - 1), lambda: _lands(world)]
    answer = await world.box.send_once(MESSAGE, key=KEY, since=began)
    assert not world.clock.meanwhile
    assert await world.effects("SendWithHeader") == 1
    [sent] = await world.box.get_message_metadata("INBOX.Sent")
    assert answer.smtp_id == sent.msg_id


@pytest.mark.usefixtures("_no_marks")
async def test_a_late_request_that_is_not_recognized_leaves_it_open(world: Scene, began: datetime) -> None:
    world.clock.meanwhile = [lambda: _lands(world)]
    with pytest.raises(ds.OutcomeUnknownError):
        await world.box.send_once(MESSAGE, key=KEY, since=began)
    assert await world.effects("SendWithHeader") == 1


@pytest.mark.parametrize("others", [[], ["another"]], ids=["empty folder", "another's mark"])
async def test_what_is_surely_not_there_is_sent_after_the_settle_time(
    world: Scene, began: datetime, others: list[str]
) -> None:
    for key in others:
        await world.box.send_once(MESSAGE, key=key)
    answer = await world.box.send_once(MESSAGE, key=KEY, since=began, settle=20)
    assert answer.smtp_id
    assert await world.effects("SendWithHeader") == len(others) + 1
    assert world.clock.time == pytest.approx(20)


@pytest.mark.parametrize("filed", ["INBOX.Referrals", "INBOX.Trash"])
async def test_a_message_that_somebody_has_moved_is_not_sent_again(world: Scene, began: datetime, filed: str) -> None:
    await world.box.create_folder("INBOX.Referrals")
    await world.box.send_once(MESSAGE, key="another")  # so that this server is seen to show marks
    await _lands(world)
    _, uid = await world.box.get_uids("INBOX.Sent")
    await world.box.move_messages_by_uids("INBOX.Sent", filed, [uid])
    answer = await world.box.send_once(MESSAGE, key=KEY, since=began)
    [moved] = await world.box.get_message_metadata(filed)
    assert answer.smtp_id == moved.msg_id
    assert await world.effects("SendWithHeader") == 2


async def test_a_resend_finds_what_somebody_has_moved(world: Scene) -> None:
    await world.box.send_once(MESSAGE, key="another")
    world.sandbox.inject_fault("SendWithHeader", "reset_after")

    async def moves() -> None:
        """A rule of the mailbox, say."""
        _, uid = await world.box.get_uids("INBOX.Sent")
        await world.box.move_messages_by_uids("INBOX.Sent", "INBOX.Trash", [uid])

    world.sandbox.inject_fault("SearchMessagesMetadataByReceivedDate", "status", status=500, times=1)
    world.clock.meanwhile = [moves]
    answer = await world.box.send_once(MESSAGE, key=KEY, resend=True, settle=3.0)
    [moved] = await world.box.get_message_metadata("INBOX.Trash")
    assert answer.smtp_id == moved.msg_id
    assert await world.effects("SendWithHeader") == 2


async def test_folders_that_can_not_be_searched_leave_it_open(world: Scene, began: datetime) -> None:
    world.sandbox.inject_fault("GetFolders", "status", status=400, times=None)
    with pytest.raises(ds.OutcomeUnknownError, match="a folder that can't be searched") as caught:
        await world.box.send_once(MESSAGE, key=KEY, since=began)
    assert isinstance(caught.value.__cause__, ds.BadRequestError)
    assert await world.effects("SendWithHeader") == 0


async def test_a_resend_that_can_not_search_leaves_the_first_send_open(world: Scene) -> None:
    await world.box.send_once(MESSAGE, key="another")
    world.sandbox.inject_fault("SendWithHeader", "reset_before", times=None)
    world.sandbox.inject_fault("GetFolders", "status", status=400, times=None)
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await world.box.send_once(MESSAGE, key=KEY, resend=True, settle=3.0)
    assert isinstance(caught.value.__cause__, ds.BadRequestError)
    assert await world.effects("SendWithHeader") == 1


async def test_a_settle_time_that_the_call_has_not_got_leaves_it_open(world: Scene, began: datetime) -> None:
    async def time_is_up() -> None:
        let_pass(100)

    world.clock.meanwhile = [time_is_up]
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await world.box.send_once(MESSAGE, key=KEY, since=began)
    assert not caught.value.looked
    assert await world.effects("SendWithHeader") == 0


async def test_a_look_that_is_refused_is_told_and_nothing_sent(world: Scene, began: datetime) -> None:
    world.sandbox.inject_fault("SearchMessagesMetadataByReceivedDate", "status", status=403)
    with pytest.raises(ds.PermissionDeniedError):
        await world.box.send_once(MESSAGE, key=KEY, since=began)
    assert await world.effects("SendWithHeader") == 0


async def test_a_suite_that_closes_while_it_looks_sends_nothing(world: Scene, began: datetime) -> None:
    world.clock.meanwhile = [world.suite.aclose]
    with pytest.raises(ds.ClosedError):
        await world.box.send_once(MESSAGE, key=KEY, since=began)
    assert await world.effects("SendWithHeader") == 0
