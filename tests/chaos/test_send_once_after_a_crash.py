"""Sending once with `since`: an earlier attempt's request may still arrive, or be there and not be recognized."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

import directsuite as ds
from directsuite.messaging import send_once

from .verification_scenario import ALICE, VerificationScenario

MESSAGE = ds.Message(sender=ALICE, subject="Result", body="See attachment.", recipients=[ds.Recipient(ALICE)])
KEY = "result-17"


@pytest.fixture
def began() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def _hidden_request_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    search = ds.Mailbox.search_messages_metadata_by_received_date

    async def hiding(self: ds.Mailbox, *args: Any, **options: Any) -> list[ds.MessageDetail]:
        found = await search(self, *args, **options)
        return [attrs.evolve(each, headers=[ds.MessageHeader("Subject", each.subject)]) for each in found]

    monkeypatch.setattr(ds.Mailbox, "search_messages_metadata_by_received_date", hiding)


async def _lands(world: VerificationScenario) -> None:
    await world.box.send_with_header(send_once.add_request_id(MESSAGE, send_once.make_request_id(ALICE, KEY)))


@pytest.mark.usefixtures("_hidden_request_ids")
async def test_server_that_shows_no_request_ids_gets_no_second_message(
    scenario: VerificationScenario, began: datetime
) -> None:
    scenario.sandbox.inject_fault("SendWithHeader", "reset_after")
    with pytest.raises(ds.OutcomeUnknownError):
        await scenario.box.send_once(MESSAGE, key=KEY)
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await scenario.box.send_once(MESSAGE, key=KEY, since=began)
    assert await scenario.count_effects("SendWithHeader") == 1
    assert caught.value.looked
    assert "without since" in caught.value.how_to_find_out


async def test_messages_without_request_id_prove_nothing_about_server(
    scenario: VerificationScenario, began: datetime
) -> None:
    await scenario.box.send(MESSAGE)
    with pytest.raises(ds.OutcomeUnknownError):
        await scenario.box.send_once(MESSAGE, key=KEY, since=began)
    assert await scenario.count_effects("SendWithHeader") == 0


@pytest.mark.parametrize("waits", [1, 3])
async def test_first_request_that_lands_late_is_the_only_one(
    scenario: VerificationScenario, began: datetime, waits: int
) -> None:
    async def nothing() -> None:
        pass

    scenario.clock.actions_during_waits = [*[nothing] * (waits - 1), lambda: _lands(scenario)]
    answer = await scenario.box.send_once(MESSAGE, key=KEY, since=began)
    assert not scenario.clock.actions_during_waits
    assert await scenario.count_effects("SendWithHeader") == 1
    [sent] = await scenario.box.get_message_metadata("INBOX.Sent")
    assert answer.smtp_id == sent.msg_id


@pytest.mark.usefixtures("_hidden_request_ids")
async def test_late_request_that_is_not_recognized_leaves_it_open(
    scenario: VerificationScenario, began: datetime
) -> None:
    scenario.clock.actions_during_waits = [lambda: _lands(scenario)]
    with pytest.raises(ds.OutcomeUnknownError):
        await scenario.box.send_once(MESSAGE, key=KEY, since=began)
    assert await scenario.count_effects("SendWithHeader") == 1


@pytest.mark.parametrize("others", [[], ["another"]], ids=["empty folder", "another's mark"])
async def test_absent_message_is_sent_after_settle_time(
    scenario: VerificationScenario, began: datetime, others: list[str]
) -> None:
    for key in others:
        await scenario.box.send_once(MESSAGE, key=key)
    answer = await scenario.box.send_once(MESSAGE, key=KEY, since=began, settle=20)
    assert answer.smtp_id
    assert await scenario.count_effects("SendWithHeader") == len(others) + 1
    assert scenario.clock.time == pytest.approx(20)


@pytest.mark.parametrize("filed", ["INBOX.Referrals", "INBOX.Trash"])
async def test_message_that_somebody_has_moved_is_not_sent_again(
    scenario: VerificationScenario, began: datetime, filed: str
) -> None:
    await scenario.box.create_folder("INBOX.Referrals")
    await scenario.box.send_once(MESSAGE, key="another")  # so that this server is seen to show marks
    await _lands(scenario)
    _, uid = await scenario.box.get_uids("INBOX.Sent")
    await scenario.box.move_messages_by_uids("INBOX.Sent", filed, [uid])
    answer = await scenario.box.send_once(MESSAGE, key=KEY, since=began)
    [moved] = await scenario.box.get_message_metadata(filed)
    assert answer.smtp_id == moved.msg_id
    assert await scenario.count_effects("SendWithHeader") == 2


async def test_resend_finds_what_somebody_has_moved(scenario: VerificationScenario) -> None:
    await scenario.box.send_once(MESSAGE, key="another")
    scenario.sandbox.inject_fault("SendWithHeader", "reset_after")

    async def moves() -> None:
        _, uid = await scenario.box.get_uids("INBOX.Sent")
        await scenario.box.move_messages_by_uids("INBOX.Sent", "INBOX.Trash", [uid])

    scenario.sandbox.inject_fault("SearchMessagesMetadataByReceivedDate", "status", status=500, times=1)
    scenario.clock.actions_during_waits = [moves]
    answer = await scenario.box.send_once(MESSAGE, key=KEY, resend=True, settle=3.0)
    [moved] = await scenario.box.get_message_metadata("INBOX.Trash")
    assert answer.smtp_id == moved.msg_id
    assert await scenario.count_effects("SendWithHeader") == 2


async def test_folders_that_cannot_be_searched_leave_it_open(scenario: VerificationScenario, began: datetime) -> None:
    scenario.sandbox.inject_fault("GetFolders", "status", status=400, times=None)
    with pytest.raises(ds.OutcomeUnknownError, match="a folder that cannot be searched") as caught:
        await scenario.box.send_once(MESSAGE, key=KEY, since=began)
    assert isinstance(caught.value.__cause__, ds.BadRequestError)
    assert await scenario.count_effects("SendWithHeader") == 0


async def test_resend_that_can_not_search_leaves_the_first_send_open(scenario: VerificationScenario) -> None:
    await scenario.box.send_once(MESSAGE, key="another")
    scenario.sandbox.inject_fault("SendWithHeader", "reset_before", times=None)
    scenario.sandbox.inject_fault("GetFolders", "status", status=400, times=None)
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await scenario.box.send_once(MESSAGE, key=KEY, resend=True, settle=3.0)
    assert isinstance(caught.value.__cause__, ds.BadRequestError)
    assert await scenario.count_effects("SendWithHeader") == 1


async def test_settle_time_beyond_timeout_leaves_outcome_unknown(
    scenario: VerificationScenario, began: datetime
) -> None:
    async def time_is_up() -> None:
        scenario.loop_time.advance(100)

    scenario.clock.actions_during_waits = [time_is_up]
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await scenario.box.send_once(MESSAGE, key=KEY, since=began)
    assert not caught.value.looked
    assert await scenario.count_effects("SendWithHeader") == 0


async def test_rejected_search_is_reported_and_nothing_is_sent(scenario: VerificationScenario, began: datetime) -> None:
    scenario.sandbox.inject_fault("SearchMessagesMetadataByReceivedDate", "status", status=403)
    with pytest.raises(ds.PermissionDeniedError):
        await scenario.box.send_once(MESSAGE, key=KEY, since=began)
    assert await scenario.count_effects("SendWithHeader") == 0


async def test_suite_that_closes_while_it_searches_sends_nothing(
    scenario: VerificationScenario, began: datetime
) -> None:
    scenario.clock.actions_during_waits = [scenario.suite.aclose]
    with pytest.raises(ds.ClosedError):
        await scenario.box.send_once(MESSAGE, key=KEY, since=began)
    assert await scenario.count_effects("SendWithHeader") == 0
