"""Sending, forwarding, and T-Users: what is filled in, how attachments travel, what comes back."""

from __future__ import annotations

import base64
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any

import pytest

import directsuite as ds
from tests.fake_services import ALICE, BOB, MESSAGE, SUCCESS, FakeServices

if TYPE_CHECKING:
    from pathlib import Path

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
    assert [sent.members["message"]["headers"] for sent in services.requests_by_url] == [
        [{"name": "X-Case", "value": "7"}]
    ] * 2


@pytest.mark.parametrize("sender", [None, ALICE, ALICE.upper()])
async def test_sender_is_filled_in_and_compared_case_blind(
    sender: str | None, services: FakeServices, box: ds.Mailbox
) -> None:
    services.add_response("PUT", f"{MESSAGE}/Send", _SENT_BODY)
    await box.send(ds.Message(sender=sender, recipients=[ds.Recipient(BOB)]))
    assert services.requests_by_url[0].members["message"]["sender"] == (sender or ALICE)


@pytest.mark.parametrize("sender", [None, ALICE, ALICE.upper()])
async def test_tuser_keeps_the_callers_spelling_of_the_sender(
    sender: str | None, services: FakeServices, suite: ds.DirectSuite
) -> None:
    services.add_response("PUT", f"{MESSAGE}/SendWithTuser", _SENT_BODY)
    await suite.tuser("front-desk", "secret", ALICE).send(ds.Message(sender=sender, recipients=[ds.Recipient(BOB)]))
    assert services.requests_by_url[0].members["message"]["sender"] == (sender or ALICE)


async def test_tuser_sends_as_the_direct_address(services: FakeServices, suite: ds.DirectSuite) -> None:
    services.add_response("PUT", f"{MESSAGE}/SendWithTuser", _SENT_BODY)
    await suite.tuser("front-desk", "secret", ALICE).send(_MESSAGE)
    assert services.requests_by_url[0].members["message"]["sender"] == ALICE
    assert services.requests_by_url[0].members["authentication"] == {
        "username": "front-desk",
        "password": "secret",
        "directAddr": ALICE,
    }


async def test_message_of_the_caller_is_not_changed(services: FakeServices, box: ds.Mailbox) -> None:
    services.add_response("PUT", f"{MESSAGE}/Send", _SENT_BODY)
    message = ds.Message(recipients=[ds.Recipient(BOB)])
    await box.send(message)
    assert message.sender is None


async def test_forward_takes_addresses_and_recipients(services: FakeServices, box: ds.Mailbox) -> None:
    services.add_response("PUT", f"{MESSAGE}/Forward/INBOX", _SENT_BODY)
    await box.forward("INBOX", [7, 8], [BOB, ds.Recipient(ALICE, ds.RecipientType.CC)])
    assert services.requests_by_url[0].members["recipients"] == [
        {"email": BOB, "type": "TO"},
        {"email": ALICE, "type": "CC"},
    ]
    assert services.requests_by_url[0].members["uids"] == [7, 8]


@pytest.mark.exhaustive
@pytest.mark.parametrize("tuser", [False, True], ids=["mailbox", "tuser"])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 192 * 1024 - 1, 192 * 1024 + 1])
async def test_attachment_from_a_path_is_the_same_as_one_in_memory(
    size: int, tuser: bool, services: FakeServices, suite: ds.DirectSuite, tmp_path: Path
) -> None:
    content = bytes(index % 251 for index in range(size))
    path = tmp_path / "report.pdf"
    path.write_bytes(content)
    in_memory = ds.Attachment(content=b"<a/>", content_type="text/xml", filename='a "b".xml')
    message = ds.Message(
        body="the body",
        recipients=[ds.Recipient(BOB)],
        attachment_list=[in_memory, ds.Attachment.from_path(path), ds.Attachment.from_path(path, filename="again")],
    )
    services.add_response("PUT", f"{MESSAGE}/{'SendWithTuser' if tuser else 'Send'}", _SENT_BODY)
    await (suite.tuser("t", "s", ALICE) if tuser else suite.mailbox(ALICE, "s")).send(message)
    members: dict[str, Any] = services.requests_by_url[0].members["message"]
    coded = base64.b64encode(content).decode()
    assert members["attachmentList"] == [
        {"content": "PGEvPg==", "contentType": "text/xml", "filename": 'a "b".xml'},
        {"content": coded, "contentType": "application/pdf", "filename": "report.pdf"},
        {"content": coded, "contentType": "application/pdf", "filename": "again"},
    ]
    assert members["body"] == "the body"


def test_attachment_from_a_path_reads_nothing_yet(tmp_path: Path) -> None:
    path = tmp_path / "unknown.zzz"
    path.write_bytes(b"content")
    attachment = ds.Attachment.from_path(path)
    assert (attachment.content, attachment.media_type) == (b"", "application/octet-stream")
    assert ds.Attachment.from_path(path, content_type="text/csv; header=present").media_type == "text/csv"


async def test_email_message_becomes_a_message(services: FakeServices, box: ds.Mailbox) -> None:
    email = EmailMessage()
    email["From"], email["To"], email["Cc"] = f"Alice <{ALICE}>", BOB, "carol@x.test, Dan <dan@x.test>"
    email["Subject"] = "Grüße"
    email.set_content("Plain.\n")
    email.add_alternative("<p>Rich</p>", subtype="html")
    email.add_attachment(b"%PDF-", maintype="application", subtype="pdf", filename="a.pdf")
    services.add_response("PUT", f"{MESSAGE}/Send", _SENT_BODY)
    await box.send(ds.Message.from_email(email))
    members = services.requests_by_url[0].members["message"]
    assert members["recipients"] == [
        {"email": BOB, "type": "TO"},
        {"email": "carol@x.test", "type": "CC"},
        {"email": "dan@x.test", "type": "CC"},
    ]
    assert (members["sender"], members["subject"], members["body"]) == (ALICE, "Grüße", "Plain.\n")
    assert members["htmlBody"] is False
    assert members["attachmentList"] == [{"content": "JVBERi0=", "contentType": "application/pdf", "filename": "a.pdf"}]


async def test_send_answered_without_a_message_id_is_still_sent(services: FakeServices, box: ds.Mailbox) -> None:
    for members in ({}, {"smtpId": None}):
        services.add_response("PUT", f"{MESSAGE}/Send", SUCCESS | members)
        assert (await box.send(_MESSAGE)).smtp_id == ""


@pytest.mark.parametrize(
    "spoilt",
    [{"body": b'{"success": tr'}, {"body": b"<html>"}, {"body": b""}, {"status": 502}, {"status": 500, "body": b"{}"}],
    ids=str,
)
async def test_spoilt_answer_to_a_send_leaves_the_outcome_open(
    spoilt: dict[str, Any], services: FakeServices, box: ds.Mailbox
) -> None:
    services.add_response("PUT", f"{MESSAGE}/Send", **spoilt)
    with pytest.raises(ds.OutcomeUnknownError) as caught:
        await box.with_options(retry=ds.RetryPolicy(attempts=4)).send(_MESSAGE)
    assert "INBOX.Sent" in caught.value.how_to_find_out
    assert len(services.requests_by_url) == 1
