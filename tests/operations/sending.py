"""The operations of the messaging service that send messages and report their status (specification 4.C)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import directsuite as ds
from tests.integration.scenario import ALICE, BOB, NOON, make_message

from .case import JSON, PASSWORD, USERNAME, OperationCase

if TYPE_CHECKING:
    from tests.integration.scenario import Scenario

AUTHENTICATION = {"username": USERNAME, "password": PASSWORD}
SUCCESS = {"success": True, "code": 0, "message": None}


async def _send(scenario: Scenario) -> None:
    path = scenario.folder / "report.xml"
    path.write_bytes(b"<report/>")
    full = ds.Message(
        subject="Grüße",
        body="<p>Hi</p>",
        html_body=True,
        recipients=[ds.Recipient(BOB), ds.Recipient("deliver@ok.test", ds.RecipientType.CC)],
        attachment_list=[
            ds.Attachment.from_path(path, content_type="text/xml"),
            ds.Attachment(content=bytes(range(256)), content_type="image/png", filename="a b.png"),
        ],
    )
    smtp_id = (await scenario.box.send(full)).smtp_id
    (arrived,) = await scenario.bob.get_messages()
    assert (arrived.msg_id, arrived.sender, arrived.subject) == (smtp_id, ALICE, "Grüße")
    assert (arrived.html_body, (arrived.body or "").strip()) == (True, "<p>Hi</p>")
    assert [(recipient.email, recipient.type) for recipient in arrived.recipients] == [
        (BOB, "TO"),
        ("deliver@ok.test", "CC"),
    ]
    assert [(part.filename, part.media_type, part.content) for part in arrived.attachments] == [
        ("report.xml", "text/xml", b"<report/>"),
        ("a b.png", "image/png", bytes(range(256))),
    ]
    assert await scenario.box.get_unread_message_count("INBOX.Sent") == 1


async def _send_with_header(scenario: Scenario) -> None:
    headers = [ds.MessageHeader("X-Case", "7")]
    response = await scenario.box.send_with_header(
        ds.MessageWithHeader(subject="Case", recipients=[ds.Recipient(BOB)], headers=headers)
    )
    (arrived,) = await scenario.bob.get_messages()
    assert arrived.msg_id == response.smtp_id
    assert ("X-Case", "7") in {(header.name, header.value) for header in arrived.headers}


async def _forward(scenario: Scenario) -> None:
    uids = await scenario.deliver("first", "second")
    response = await scenario.box.forward("INBOX", uids, [BOB])
    (arrived,) = await scenario.bob.get_messages()
    assert arrived.msg_id == response.smtp_id
    assert len(arrived.attachments) == 2
    assert b"Subject: first" in arrived.attachments[0].content
    assert await scenario.box.get_message_count("INBOX.Sent") == 1


async def _send_with_tuser(scenario: Scenario) -> None:
    response = await scenario.tuser.send(make_message("From the desk"))
    (arrived,) = await scenario.bob.get_messages()
    assert (arrived.msg_id, arrived.sender) == (response.smtp_id, ALICE)
    assert await scenario.box.get_message_count("INBOX.Sent") == 1


async def _send_with_header_with_tuser(scenario: Scenario) -> None:
    headers = [ds.MessageHeader("X-Desk", "1")]
    await scenario.tuser.send_with_header(ds.MessageWithHeader(recipients=[ds.Recipient(BOB)], headers=headers))
    (arrived,) = await scenario.bob.get_messages()
    assert ("X-Desk", "1") in {(header.name, header.value) for header in arrived.headers}


async def _get_message_status(scenario: Scenario) -> None:
    smtp_id = (await scenario.box.send(make_message("Slow", BOB, "slow@ok.test", "nomdn@ok.test"))).smtp_id or ""
    before = await scenario.box.get_message_status(smtp_id)
    assert [(record.to, record.status) for record in before.records] == [
        (BOB, ds.MessageStatus.DELIVERED),
        ("slow@ok.test", ds.MessageStatus.WAITING),
        ("nomdn@ok.test", ds.MessageStatus.WAITING),
    ]
    assert {(record.from_, record.message_id, record.ts) for record in before.records} == {(ALICE, smtp_id, NOON)}
    scenario.sandbox.clock.advance(timedelta(hours=1))
    after = await scenario.box.get_message_status(smtp_id)
    assert [record.status for record in after.records] == ["Delivered", "Delivered", "NO MDN Received"]


async def _get_message_statuses(scenario: Scenario) -> None:
    smtp_ids = [(await scenario.box.send(make_message(subject))).smtp_id or "" for subject in ("one", "two")]
    logs = await scenario.box.get_message_statuses(smtp_ids)
    scenario.sandbox.csv_above = 0
    csv = await scenario.box.get_message_statuses(smtp_ids)
    assert (logs.has_cv_data, csv.has_cv_data) == (False, True)
    assert [record.message_id for record in logs.records] == smtp_ids
    columns = ("from_", "to", "message_id", "message_size", "status", "ts")
    for of_csv, of_log in zip(csv.records, logs.records, strict=True):
        assert {name: getattr(of_csv, name) for name in columns} == {name: getattr(of_log, name) for name in columns}


async def _get_message_status_with_tuser(scenario: Scenario) -> None:
    smtp_id = (await scenario.tuser.send(make_message())).smtp_id or ""
    (record,) = (await scenario.tuser.get_message_status(smtp_id)).records
    assert (record.from_, record.to, record.status) == (ALICE, BOB, "Delivered")


_TUSER_AUTHENTICATION = {"username": "t-user/1", "password": 't"ü', "directAddr": USERNAME}
_SMTP_ID = "<1@direct.example.test>"

_MESSAGE = ds.Message(
    sender=USERNAME,
    subject='Grüße "1"',
    body="<p>Hello\nthere</p>",
    html_body=True,
    recipients=[
        ds.Recipient("bob@direct.example.test", type=ds.RecipientType.TO),
        ds.Recipient("carol@direct.example.test", type=ds.RecipientType.CC),
        ds.Recipient("dave@direct.example.test", type=ds.RecipientType.BCC),
    ],
    attachment_list=[
        ds.Attachment(content=b"\x00\xffdata", content_type='text/xml; name="a b.xml"', filename="a b/é.xml")
    ],
)
_MESSAGE_JSON = {
    "sender": USERNAME,
    "subject": 'Grüße "1"',
    "body": "<p>Hello\nthere</p>",
    "htmlBody": True,
    "recipients": [
        {"email": "bob@direct.example.test", "type": "TO"},
        {"email": "carol@direct.example.test", "type": "CC"},
        {"email": "dave@direct.example.test", "type": "BCC"},
    ],
    "attachmentList": [{"content": "AP9kYXRh", "contentType": 'text/xml; name="a b.xml"', "filename": "a b/é.xml"}],
}
_MESSAGE_WITH_HEADERS = ds.MessageWithHeader(
    sender=USERNAME,
    recipients=[ds.Recipient("bob@direct.example.test", type=ds.RecipientType.TO)],
    headers=[ds.MessageHeader("X-Priority", "1 é")],
)
_MESSAGE_WITH_HEADERS_JSON = {
    "sender": USERNAME,
    "htmlBody": False,
    "recipients": [{"email": "bob@direct.example.test", "type": "TO"}],
    "headers": [{"name": "X-Priority", "value": "1 é"}],
}
_REPORT_JSON = {
    "hasCvData": False,
    "csvData": None,
    "messageLogs": [
        {
            "from": USERNAME,
            "to": "bob@direct.example.test",
            "messageId": "<m@x>",
            "messageSize": 99,
            "status": "NO MDN Received",
            "statusDetails": "one hour",
            "ts": "2026-05-01T12:00:00Z",
            "patientId": "p1",
        }
    ],
}
_REPORT = ds.DirectMessageStatusReportResponse(
    success=True,
    code=0,
    has_cv_data=False,
    message_logs=[
        ds.DirectMessageLog(
            from_=USERNAME,
            to="bob@direct.example.test",
            message_id="<m@x>",
            message_size=99,
            status=ds.MessageStatus.NO_MDN_RECEIVED,
            status_details="one hour",
            ts=datetime(2026, 5, 1, 12, tzinfo=UTC),
            patient_id="p1",
        )
    ],
)


_SENT: dict[str, Any] = {
    "method": "PUT",
    "response": SUCCESS | {"smtpId": _SMTP_ID},
    "result": ds.SendMessageResponse(success=True, code=0, smtp_id=_SMTP_ID),
    "required": ("smtpId",),
}
_REPORTED: dict[str, Any] = {"method": "POST", "response": SUCCESS | _REPORT_JSON, "result": _REPORT}


def _make_case(
    name: str, path: str, exercise: Any, outcome: dict[str, Any], body: object, **arguments: object
) -> OperationCase:
    """Return the row of a request whose method is named like the exercise, after an underscore.

    path: what the target has after the name of the operation.
    """
    return OperationCase(
        name=name,
        facade="tuser" if name.endswith("WithTuser") else "mailbox",
        function=exercise.__name__[1:].removesuffix("_with_tuser"),
        arguments=arguments,
        path_texts=tuple(each for each in ("folder", "smtp_id") if each in arguments),
        target=f"/message/{name.removesuffix('Many')}{path}",
        headers=JSON,
        body=body,
        exercise=exercise,
        **outcome,
    )


def _make_send(name: str, exercise: Any, authentication: object, message: object, sent: ds.Message) -> OperationCase:
    body = {"authentication": authentication, "message": message}
    return _make_case(name, "", exercise, _SENT, body, message=sent)


_BOB_JSON = {"email": "bob@direct.example.test", "type": "TO"}

SENDING = [
    _make_send("Send", _send, AUTHENTICATION, _MESSAGE_JSON, _MESSAGE),
    _make_send("SendWithHeader", _send_with_header, AUTHENTICATION, _MESSAGE_WITH_HEADERS_JSON, _MESSAGE_WITH_HEADERS),
    _make_case(
        "Forward",
        "/INBOX.a%2Fb%20%C3%A9",
        _forward,
        _SENT,
        {
            "auth": AUTHENTICATION,
            "uids": [3, 1],
            "recipients": [_BOB_JSON, {"email": "carol@direct.example.test", "type": "CC"}],
        },
        folder="INBOX.a/b é",
        uids=[3, 1],
        recipients=["bob@direct.example.test", ds.Recipient("carol@direct.example.test", type=ds.RecipientType.CC)],
    ),
    _make_send("SendWithTuser", _send_with_tuser, _TUSER_AUTHENTICATION, _MESSAGE_JSON, _MESSAGE),
    _make_send(
        "SendWithHeaderWithTuser",
        _send_with_header_with_tuser,
        _TUSER_AUTHENTICATION,
        _MESSAGE_WITH_HEADERS_JSON,
        _MESSAGE_WITH_HEADERS,
    ),
    _make_case(
        "GetMessageStatus",
        "/%3Ca%2Fb%3Fc%23d%22e%252F%40direct.example.test%3E",
        _get_message_status,
        _REPORTED,
        AUTHENTICATION,
        smtp_id='<a/b?c#d"e%2F@direct.example.test>',
    ),
    _make_case(
        "GetMessageStatusMany",
        "/",
        _get_message_statuses,
        _REPORTED,
        {"auth": AUTHENTICATION, "smtpIds": ["<a/b@direct.example.test>", "c"]},
        smtp_ids=["<a/b@direct.example.test>", "c"],
    ),
    _make_case(
        "GetMessageStatusWithTuser",
        "/a%2Bb%20c",
        _get_message_status_with_tuser,
        _REPORTED,
        _TUSER_AUTHENTICATION,
        smtp_id="a+b c",
    ),
]

SENDING_VARIANTS = [
    _make_send(
        "Send",
        _send,
        AUTHENTICATION,
        {"sender": USERNAME, "htmlBody": False, "recipients": [_BOB_JSON]},
        ds.Message(recipients=[ds.Recipient("bob@direct.example.test")]),
    ),
    _make_case("Forward", "/INBOX", _forward, _SENT, {"auth": AUTHENTICATION, "uids": [1]}, folder="INBOX", uids=[1]),
]
