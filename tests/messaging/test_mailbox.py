"""The facades of mailboxes and T-Users: empty arguments, default values, and results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import directsuite as ds
from tests.fake_services import ALICE, BOB, MESSAGE, SUCCESS, FakeServices

NOTHING_TO_DO: dict[str, tuple[Callable[[ds.Mailbox], Awaitable[Any]], Any]] = {
    "get_messages_by_uids": (lambda box: box.get_messages_by_uids("INBOX", []), []),
    "get_raw_messages_by_uids": (lambda box: box.get_raw_messages_by_uids("INBOX", iter(())), []),
    "copy_messages_by_uids": (lambda box: box.copy_messages_by_uids("INBOX", "INBOX.a", ()), None),
    "move_messages_by_uids": (lambda box: box.move_messages_by_uids("INBOX", "INBOX.a", ()), None),
    "delete_messages_by_uids": (lambda box: box.delete_messages_by_uids("INBOX", (), forever=True), None),
    "mark_messages_as_read_by_uids": (lambda box: box.mark_messages_as_read_by_uids("INBOX", ()), None),
    "mark_messages_as_unread_by_uids": (lambda box: box.mark_messages_as_unread_by_uids("INBOX", ()), None),
    "save_raw_messages": (lambda box: box.save_raw_messages("INBOX", ()), None),
    "set_folders_subscribed": (lambda box: box.set_folders_subscribed((), False), []),
    "get_message_statuses": (
        lambda box: box.get_message_statuses(()),
        ds.DirectMessageStatusReportResponse(success=True),
    ),
}


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("uid", [-5, "-1", 2**63, 1e30, "9" * 30, None, "1\xff"])
async def test_listing_with_a_uid_that_cannot_be_names_its_place(
    uid: object, services: FakeServices, box: ds.Mailbox
) -> None:
    services.add_response("POST", f"{MESSAGE}/GetUIDs/INBOX", SUCCESS | {"uids": [1, 2, uid]})
    with pytest.raises(ds.ResponseDecodeError, match="uid") as caught:
        await anext(box.iter_messages())
    assert caught.value.path == "$.uids[2]"


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize(("call", "gives"), NOTHING_TO_DO.values(), ids=NOTHING_TO_DO)
async def test_nothing_to_do_sends_nothing(
    call: Callable[[ds.Mailbox], Awaitable[Any]], gives: Any, services: FakeServices, box: ds.Mailbox
) -> None:
    assert await call(box) == gives
    assert services.requests_by_url == []


_SENT_BODY = SUCCESS | {"smtpId": "<m@direct.example.test>"}
_RESPONSE = ds.SendMessageResponse(success=True, code=0, smtp_id="<m@direct.example.test>")
_MESSAGE = ds.Message(recipients=[ds.Recipient(BOB)])
_MESSAGE_WITH_HEADER = ds.MessageWithHeader(recipients=[ds.Recipient(BOB)], headers=[ds.MessageHeader("X-Case", "7")])


async def test_send_sends_a_message_that_has_headers_with_them(
    services: FakeServices, box: ds.Mailbox, suite: ds.DirectSuite
) -> None:
    services.add_response("PUT", f"{MESSAGE}/SendWithHeader", _SENT_BODY)
    services.add_response("PUT", f"{MESSAGE}/SendWithHeaderWithTuser", _SENT_BODY)
    assert await box.send(_MESSAGE_WITH_HEADER) == _RESPONSE
    assert await suite.tuser("front-desk", "s", ALICE).send(_MESSAGE_WITH_HEADER) == _RESPONSE
    for sent in services.requests_by_url:
        assert sent.members["message"]["headers"] == [{"name": "X-Case", "value": "7"}]


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("sender", [None, ALICE, ALICE.upper()])
@pytest.mark.parametrize("tuser", [False, True], ids=["mailbox", "tuser"])
async def test_sender_is_filled_in_and_compared_case_insensitively(
    sender: str | None, tuser: bool, services: FakeServices, suite: ds.DirectSuite
) -> None:
    services.add_response("PUT", f"{MESSAGE}/{'SendWithTuser' if tuser else 'Send'}", _SENT_BODY)
    account = suite.tuser("front-desk", "secret", ALICE) if tuser else suite.mailbox(ALICE, "secret")
    message = ds.Message(sender=sender, recipients=[ds.Recipient(BOB)])
    await account.send(message)
    assert services.requests_by_url[0].members["message"]["sender"] == (sender or ALICE)
    assert message.sender == sender


async def test_response_to_a_send_without_a_message_id_is_a_success(services: FakeServices, box: ds.Mailbox) -> None:
    for members in ({}, {"smtpId": None}):
        services.add_response("PUT", f"{MESSAGE}/Send", SUCCESS | members)
        assert (await box.send(_MESSAGE)).smtp_id == ""


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(
    "spoilt",
    [{"body": b'{"success": tr'}, {"body": b"<html>"}, {"body": b""}, {"status": 502}, {"status": 500, "body": b"{}"}],
    ids=str,
)
async def test_malformed_response_to_a_send_leaves_the_outcome_open(
    spoilt: dict[str, Any], services: FakeServices, box: ds.Mailbox
) -> None:
    services.add_response("PUT", f"{MESSAGE}/Send", **spoilt)
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await box.with_options(retry=ds.RetryPolicy(attempts=4)).send(_MESSAGE)
    assert "INBOX.Sent" in caught.value.how_to_find_out
    assert len(services.requests_by_url) == 1


FAILURES: list[tuple[str, str, Callable[[ds.Mailbox], Awaitable[object]]]] = [
    ("GetUIDs/INBOX", "check that the folder exists: ", lambda box: box.get_uids("INBOX")),
    (
        "MarkMessagesAsReadByUIDs/INBOX",
        "check the folder and the uids: ",
        lambda box: box.mark_messages_as_read_by_uids("INBOX", [1]),
    ),
    ("CreateFolder/INBOX.A", "check the name of the folder: ", lambda box: box.create_folder("INBOX.A")),
    ("MoveFolder/INBOX.A/INBOX.B", "check the name of the folder: ", lambda box: box.move_folder("INBOX.A", "INBOX.B")),
    ("GetMessageStatus/m", "", lambda box: box.get_message_status("m")),
]


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(("path", "advice", "call"), FAILURES, ids=[path for path, _, _ in FAILURES])
async def test_rejection_says_what_to_check_about_the_folder(
    path: str, advice: str, call: Callable[[ds.Mailbox], Awaitable[object]], services: FakeServices, box: ds.Mailbox
) -> None:
    services.add_response("POST", f"{MESSAGE}/{path}", {"success": False, "code": 4, "message": "no"})
    with pytest.raises(ds.ServiceError) as caught:
        await call(box)
    assert caught.value.advice.startswith(advice)
    assert bool(caught.value.advice) is bool(advice)
