"""Sending and forwarding over HTTP: the stored copies, and rejected messages."""

from __future__ import annotations

import base64
import sqlite3
from email import message_from_bytes, policy
from typing import Any

from tests.sandbox.messaging.mailbox_server import (
    ALICE,
    BOB,
    PASSWORD,
    RAW_MESSAGE,
    TUSER,
    MessagingServer,
    encode_base64,
    make_credentials,
    make_message,
)

OUTSIDER = "dave@elsewhere.test"
AS_TUSER = {"username": TUSER, "password": PASSWORD, "directAddr": ALICE}


def recipients(*, to: str = "", cc: str = "", bcc: str = "") -> list[dict[str, str]]:
    return [{"email": email, "type": kind} for email, kind in ((to, "TO"), (cc, "CC"), (bcc, "BCC")) if email]


async def nothing_happened(mail: MessagingServer) -> bool:
    tables = "SELECT (SELECT count(*) FROM message) + (SELECT count(*) FROM delivery) + (SELECT count(*) FROM effect)"
    return await mail.database.read(lambda c: bool(c.execute(tables).fetchone()[0] == 0))


async def test_a_sent_message_is_unread_in_sent_and_in_the_recipients_inbox(mail: MessagingServer) -> None:
    smtp_id = await mail.send()
    assert smtp_id.startswith("<")
    assert smtp_id.endswith("@direct.clinic.test>")
    assert (await mail.call_ok("GetUnreadMessageCount", "INBOX.Sent"))["count"] == 1
    for folder, owner in (("INBOX.Sent", ALICE), ("INBOX", BOB)):
        (found,) = await mail.get_messages(folder, owner)
        assert (found["msgID"], found["subject"], found["sender"]) == (smtp_id, "Referral", ALICE)
        assert (found["body"], found["sentDate"]) == ("Please see her.", "2026-05-01T12:00:00.000+0000")
    (effect,) = await mail.list_effects("Send")
    assert effect["subject"] == smtp_id
    assert effect["detail"] == {"account": ALICE, "sender": ALICE, "recipients": 1}


async def test_only_the_senders_copy_names_blind_recipients(mail: MessagingServer) -> None:
    await mail.send(recipients=recipients(to=OUTSIDER, cc="eve@elsewhere.test", bcc=BOB))
    (own,) = await mail.get_messages("INBOX.Sent")
    (delivered,) = await mail.get_messages("INBOX", BOB)
    assert own["recipients"] == recipients(to=OUTSIDER, cc="eve@elsewhere.test", bcc=BOB)
    assert delivered["recipients"] == recipients(to=OUTSIDER, cc="eve@elsewhere.test")
    raw = await mail.call_ok("GetRawMessagesByUIDs", "INBOX", body={"auth": make_credentials(BOB), "uids": [1]})
    assert encode_base64(BOB.encode()) not in raw["messages"][0]["data"]
    assert "Bcc" not in {header["name"] for header in delivered["headers"]}


async def test_an_address_named_twice_gets_one_message(mail: MessagingServer) -> None:
    smtp_id = await mail.send(recipients=recipients(to=BOB, bcc=BOB.upper()))
    assert await mail.get_uids(username=BOB) == [1]
    assert len((await mail.call_ok("GetMessageStatus", smtp_id))["messageLogs"]) == 1


async def test_custom_headers_are_sent_and_show_in_metadata(mail: MessagingServer) -> None:
    headers = [{"name": "X-Request-ID", "value": "a:b c"}, {"name": "X-Note", "value": "Ü=?x?="}]
    await mail.call_ok("SendWithHeader", message=make_message(headers=headers))
    (found,) = (await mail.call_ok("GetMessageMetaData", "INBOX.Sent"))["messages"]
    assert [header for header in found["headers"] if header["name"].startswith("X-")] == headers
    assert (await mail.list_effects("SendWithHeader"))[0]["operation"] == "SendWithHeader"


async def test_headers_that_would_change_the_message_are_rejected(mail: MessagingServer) -> None:
    cases: list[dict[str, str]] = [
        *(
            {"name": "X-A", "value": value}
            for value in ("1\r\nBcc: eve@elsewhere.test", "1\nX-B: 2", "1\rX-B: 2", "1\0")
        ),
        *(
            {"name": name, "value": "1"}
            for name in ("X-A: 1\r\nBcc", "X A", "", "Bcc", "from", "Message-ID", "Content-Type")
        ),
    ]
    for header in cases:
        assert await mail.call_rejected("SendWithHeader", message=make_message(headers=[header])) == 4, header
        assert await nothing_happened(mail), header


async def test_a_rejected_message_has_no_effect(mail: MessagingServer) -> None:
    cases: list[tuple[dict[str, Any], int]] = [
        ({"sender": BOB}, 2),
        ({"sender": f"Alice <{ALICE}>"}, 2),
        ({"recipients": []}, 2),
        *(
            ({"recipients": recipients(to=address)}, 2)
            for address in ("no-at-sign", f"Bob <{BOB}>", f"{BOB}\r\nBcc: eve@elsewhere.test", "ü@direct.clinic.test")
        ),
        ({"recipients": recipients(to=BOB, cc="a@b@c.test")}, 2),
        ({"recipients": [{"email": BOB, "type": "to"}]}, 4),
        ({"recipients": [{"email": BOB}]}, 4),
        ({"recipients": None}, 4),
        ({"htmlBody": None}, 4),
        ({"htmlBody": "true"}, 4),
        ({"subject": "x\r\nBcc: eve@elsewhere.test"}, 4),
        ({"body": 5}, 4),
        *(
            ({"attachmentList": [{"filename": filename, "contentType": kind, "content": content}]}, 4)
            for filename, kind, content in (
                *(("a", "text/plain", "%%%"), ("a", "text/plain", "ü"), ("a", "plain", ""), ("a\nb", "text/plain", "")),
                *(("a", "text/plain\r\nX: y", ""), ("a", "multipart/mixed; boundary=x", "")),
            )
        ),
        ({"attachmentList": [{"filename": "a", "contentType": "text/plain"}]}, 4),
    ]
    for members, code in cases:
        assert await mail.call_rejected("Send", message=make_message(**members)) == code, (members, code)
        assert await nothing_happened(mail), (members, code)


async def test_the_sender_is_compared_without_regard_to_case(mail: MessagingServer) -> None:
    body = {
        "authentication": make_credentials(ALICE.upper()),
        "message": make_message(sender="Alice@Direct.Clinic.Test"),
    }
    await mail.call_ok("Send", body=body)


async def test_optional_members_may_be_null_or_absent(mail: MessagingServer) -> None:
    smallest = {"sender": ALICE, "htmlBody": False, "recipients": recipients(to=BOB)}
    nulls = make_message(subject=None, body=None, attachmentList=None, headers=None)
    for sent in (smallest, nulls):
        await mail.call_ok("SendWithHeader", message=sent)
    assert [(found["subject"], found["body"]) for found in await mail.get_messages(username=BOB)] == [(None, "")] * 2


async def test_attachments_may_have_either_name_and_line_breaks(mail: MessagingServer) -> None:
    content = bytes(range(256)) * 4
    wrapped = "\r\n".join(encode_base64(content)[i : i + 76] for i in range(0, len(encode_base64(content)), 76))
    await mail.send(attachments=[{"filename": "b.bin", "contentType": "application/x-b", "content": wrapped}])
    (found,) = await mail.get_messages("INBOX.Sent")
    assert found["attachments"] == [
        {"filename": "b.bin", "contentType": "application/x-b", "content": encode_base64(content)}
    ]


async def test_a_tuser_sends_as_the_direct_address(mail: MessagingServer) -> None:
    for operation in ("SendWithTuser", "SendWithHeaderWithTuser"):
        smtp_id = (await mail.call_ok(operation, body={"authentication": AS_TUSER, "message": make_message()}))[
            "smtpId"
        ]
        (log,) = (await mail.call_ok("GetMessageStatusWithTuser", smtp_id, body=AS_TUSER))["messageLogs"]
        assert (log["from"], log["to"], log["status"]) == (ALICE, BOB, "Delivered")
    assert await mail.get_uids("INBOX.Sent") == [1, 2]


async def test_a_tuser_can_only_act_for_assigned_addresses(mail: MessagingServer) -> None:
    cases: list[tuple[dict[str, str], int]] = [
        ({"password": "wrong"}, 1),
        ({"username": "nobody"}, 1),
        ({"username": ALICE}, 1),
        ({"directAddr": BOB}, 2),
        ({"directAddr": "nobody@direct.clinic.test"}, 2),
        ({"directAddr": ""}, 2),
    ]
    for change, code in cases:
        body = {"authentication": AS_TUSER | change, "message": make_message(sender=change.get("directAddr", ALICE))}
        assert await mail.call_rejected("SendWithTuser", body=body) == code, (change, code)
        assert await mail.call_rejected("GetMessageStatusWithTuser", "<x@y>", body=AS_TUSER | change) == code, change
        assert await nothing_happened(mail), (change, code)


async def test_the_sender_of_a_tuser_must_be_the_direct_address(mail: MessagingServer) -> None:
    body = {"authentication": AS_TUSER, "message": make_message(sender=TUSER)}
    assert await mail.call_rejected("SendWithTuser", body=body) == 2


async def forwarded(mail: MessagingServer, uids: list[int], **members: Any) -> dict[str, Any]:
    body = {"auth": make_credentials(), "uids": uids, "recipients": recipients(to=BOB)} | members
    smtp_id = (await mail.call_ok("Forward", "INBOX", body=body))["smtpId"]
    (found,) = await mail.get_messages("INBOX", BOB)
    assert (found["msgID"], await mail.get_uids("INBOX.Sent")) == (smtp_id, [1])
    return found


async def test_one_message_is_forwarded_inline_with_its_attachments(mail: MessagingServer) -> None:
    raw = (
        b'From: carol@elsewhere.test\r\nSubject: Scan\r\nContent-Type: multipart/mixed; boundary="b"\r\n\r\n'
        b"--b\r\nContent-Type: text/html\r\n\r\n<b>See</b>\r\n"
        b"--b\r\nContent-Type: image/png; name=x.png\r\nContent-Transfer-Encoding: base64\r\n\r\nAAEC\r\n--b--\r\n"
    )
    await mail.sandbox.deliver(ALICE, raw)
    found = await forwarded(mail, [1])
    assert (found["subject"], found["sender"], found["htmlBody"]) == ("Fwd: Scan", ALICE, True)
    assert found["body"].endswith("<b>See</b>")
    assert "From: carol@elsewhere.test" in found["body"]
    assert found["attachments"] == [
        {"filename": "x.png", "contentType": "image/png; name=x.png", "content": encode_base64(b"\0\1\2")}
    ]


async def test_several_messages_are_forwarded_as_attachments_byte_for_byte(mail: MessagingServer) -> None:
    raws = [RAW_MESSAGE, b"Subject: bare line feeds\n\nno \xe9 CRLF\n--x\n", b"\r", b""]
    for raw in raws:
        await mail.sandbox.deliver(ALICE, raw)
    found = await forwarded(mail, [4, 3, 2, 1, 99], recipients={"recipients": recipients(cc=BOB)})
    assert found["subject"] == "Fwd: 4 messages"
    assert [part["content"] for part in found["attachments"]] == [encode_base64(raw) for raw in raws]
    assert {part["contentType"] for part in found["attachments"]} == {"message/rfc822"}


async def test_an_original_that_cannot_be_inline_is_attached(mail: MessagingServer) -> None:
    raw = b"Subject: Odd\r\nContent-Type: application\\odd\r\nContent-Disposition: attachment\r\n\r\nx"
    odd = raw.replace(b"application\\odd", b"multipart/mixed")
    await mail.sandbox.deliver(ALICE, odd)
    found = await forwarded(mail, [1])
    assert [part["content"] for part in found["attachments"]] == [encode_base64(odd)]


async def test_forwards_that_are_rejected(mail: MessagingServer) -> None:
    await mail.sandbox.deliver(ALICE, RAW_MESSAGE)
    cases: list[tuple[dict[str, Any], int]] = [
        ({"recipients": []}, 2),
        ({"recipients": None}, 2),
        ({"recipients": recipients(to="nobody")}, 2),
        ({"recipients": [], "uids": [99]}, 2),
        ({"recipients": recipients(to="nobody"), "uids": [99]}, 2),
        ({"uids": [99]}, 4),
        ({"uids": []}, 4),
    ]
    for change, code in cases:
        body = {"auth": make_credentials(), "uids": [1], "recipients": recipients(to=BOB)} | change
        assert await mail.call_rejected("Forward", "INBOX", body=body) == code, (change, code)
        assert await mail.get_uids("INBOX.Sent") == [], (change, code)


async def test_sent_mail_is_well_formed_for_other_software(mail: MessagingServer) -> None:
    attachment = {"filename": "Befund ü.txt", "contentType": "text/plain", "content": encode_base64(b"x" * 999)}
    await mail.send(subject="Über " * 40, body="Grüße\n" * 99, htmlBody=True, attachmentList=[attachment])
    (found,) = (await mail.call_ok("GetRawMessagesByUIDs", "INBOX.Sent", uids=[1]))["messages"]
    raw = base64.b64decode(found["data"])
    assert max(len(line) for line in raw.split(b"\r\n")) <= 998
    assert b"\n" not in raw.replace(b"\r\n", b"")
    parsed = message_from_bytes(raw, policy=policy.default)
    assert parsed["Subject"] == ("Über " * 40)
    body, attached = parsed.iter_parts()
    assert (body.get_content_type(), body.get_content()) == ("text/html", "Grüße\r\n" * 99)
    assert (attached.get_filename(), attached.get_content()) == ("Befund ü.txt", "x" * 999)


async def test_a_message_too_large_for_the_database_is_rejected(mail: MessagingServer) -> None:
    await mail.database.write(lambda connection: connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_500_000))
    large = [
        {"filename": "scan.bin", "contentType": "application/octet-stream", "content": encode_base64(bytes(600_000))}
    ]
    assert (
        "larger than the sandbox can store"
        in (await mail.call("Send", message=make_message(attachmentList=large)))["message"]
    )
    assert await nothing_happened(mail)
    await mail.send()
