"""The habits of real servers that a tolerant client reads: a row for each."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime
from typing import Any

import directsuite as ds
from tests.known_facts.looks import (
    Row,
    attachment_content,
    attachment_types,
    document,
    faxes,
    its,
    log,
    message,
    patient,
    payment,
    product_days,
    provisioned,
    statuses,
)

MOMENT = datetime(2016, 7, 5, 17, 47, 15, tzinfo=UTC)
OK: dict[str, Any] = {"success": True, "code": 0, "message": None}
YES: dict[str, Any] = {"success": True, "code": "000"}


def detail(**members: object) -> dict[str, Any]:
    return OK | {"messages": [{"uid": 1} | members]}


FILE = {"content": "AAE=", "contentType": 'text/xml; name="a b.xml"', "filename": "a b.xml"}
ATTACHMENT = ds.Attachment(content=b"\x00\x01", content_type='text/xml; name="a b.xml"', filename="a b.xml")
PDF = b"%PDF-1.7 " + bytes(range(256))
LINES = b"\r\n".join(base64.b64encode(PDF)[start : start + 76] for start in range(0, 400, 76)) + b"\r\n"
CSV = b"a@x,b@y,<1@x>,2048,Delivered,2016-07-05T17:47:15.000Z,m,s,u,p\r\n"

HABITS: list[Row] = [
    ("attachments", detail(attachments=[FILE]), its(message, "attachments"), [ATTACHMENT]),
    ("attachmentList", detail(attachmentList=[FILE]), its(message, "attachments"), [ATTACHMENT]),
    (
        "attachments null, attachmentList given",
        detail(attachments=None, attachmentList=[FILE]),
        its(message, "attachments"),
        [ATTACHMENT],
    ),
    ("attachments absent", detail(uid=1), its(message, "attachments", "recipients", "headers"), ([], [], [])),
    ("attachments null", detail(attachments=None, attachmentList=None), its(message, "attachments"), []),
    ("messages absent", OK, lambda s: s.box.get_messages(), []),
    ("messages null", OK | {"messages": None}, lambda s: s.box.get_messages(), []),
    ("raw messages null", OK | {"messages": None}, lambda s: s.box.get_raw_messages_by_uids("INBOX", [1]), []),
    ("uids absent", OK, lambda s: s.box.get_uids(), []),
    ("uids null", OK | {"uids": None}, lambda s: s.box.get_uids(), []),
    ("messageLogs null", OK | {"messageLogs": None}, its(statuses, "message_logs", "records"), ([], [])),
    ("messageLogs absent", OK, its(statuses, "message_logs", "records"), ([], [])),
    ("folders null", OK | {"folders": None}, lambda s: s.box.get_folders(), []),
    ("one message, bare", OK | {"messages": {"uid": 7}}, lambda s: s.box.get_messages(), [ds.MessageDetail(uid=7)]),
    ("one uid, bare", OK | {"uids": 7}, lambda s: s.box.get_uids(), [7]),
    ("one folder, bare", OK | {"folders": "INBOX"}, lambda s: s.box.get_folders(), ["INBOX"]),
    ("one attachment, bare", detail(attachments=FILE), its(message, "attachments"), [ATTACHMENT]),
    ("one log, bare", OK | {"messageLogs": {"to": "b@y"}}, its(log, "to"), "b@y"),
    ("one patient, bare", YES | {"patient": {"username": "bob"}}, its(patient, "username"), "bob"),
    ("one fax, bare", {"MessageDetail": {"description": "x"}}, faxes, [ds.FaxMessage(description="x")]),
    ("contentType with parameters", detail(attachments=[FILE]), attachment_types, ("text/xml", FILE["contentType"])),
    ("receivedDate in milliseconds", detail(receivedDate=1467740835000), its(message, "received_date"), MOMENT),
    (
        "receivedDate in Java's ISO 8601",
        detail(receivedDate="2016-07-05T17:47:15.000+0000"),
        its(message, "received_date"),
        MOMENT,
    ),
    (
        "receivedDate with an offset",
        detail(receivedDate="2016-07-05T13:47:15-04:00"),
        its(message, "received_date"),
        MOMENT,
    ),
    ("sentDate with Z", detail(sentDate="2016-07-05T17:47:15Z"), its(message, "sent_date"), MOMENT),
    ("sentDate with fraction and Z", detail(sentDate="2016-07-05T17:47:15.000Z"), its(message, "sent_date"), MOMENT),
    ("ts in milliseconds", OK | {"messageLogs": [{"ts": 1467740835000}]}, its(log, "ts"), MOMENT),
    (
        "createdTime in milliseconds",
        {"identifier": "d1", "createdTime": 1467740835000},
        its(document, "created_time"),
        MOMENT,
    ),
    ("createdTime in ISO 8601", {"createdTime": "2016-07-05T17:47:15.000+0000"}, its(document, "created_time"), MOMENT),
    (
        "uid and size as digits",
        detail(uid="7", size="-1", msgnum="2"),
        its(message, "uid", "size", "msgnum"),
        (7, -1, 2),
    ),
    ("uids as digits", OK | {"uids": ["9", 7]}, lambda s: s.box.get_uids(), [7, 9]),
    ("count as digits", OK | {"count": "12"}, lambda s: s.box.get_message_count(), 12),
    ("code as digits", OK | {"code": "0", "count": 1}, lambda s: s.box.get_message_count(), 1),
    ("message null or any text", OK | {"count": 3, "message": "failed?"}, lambda s: s.box.get_message_count(), 3),
    ("success decides, not the code", {"success": True, "code": 3, "count": 3}, lambda s: s.box.get_message_count(), 3),
    ("code absent", {"success": True, "count": 3}, lambda s: s.box.get_message_count(), 3),
    ("base64 on one line", base64.b64encode(PDF), lambda s: s.suite.signing.get_doc("d1"), PDF),
    ("base64 in lines of 76", LINES, lambda s: s.suite.signing.get_doc("d1"), PDF),
    ("base64 in lines inside JSON", detail(attachments=[FILE | {"content": LINES.decode()}]), attachment_content, PDF),
    (
        "csvData in base64",
        OK | {"hasCvData": True, "csvData": base64.b64encode(CSV).decode()},
        its(log, "from_", "to", "message_size", "ts", "patient_id"),
        ("a@x", "b@y", 2048, MOMENT, "p"),
    ),
    ("csvData empty", OK | {"hasCvData": True, "csvData": ""}, its(statuses, "records"), []),
    ("UserStateType", YES | {"patient": [{"UserStateType": "activated"}]}, its(patient, "user_state"), "activated"),
    ("userState", YES | {"patient": [{"userState": "activated"}]}, its(patient, "user_state"), "activated"),
    ('"null" in a text', YES | {"patient": [{"phone": "null"}]}, its(patient, "phone"), "null"),
    (
        '"null" in an enum',
        YES | {"patient": [{"userType": "null", "userState": "null"}]},
        its(patient, "user_type", "user_state"),
        (None, None),
    ),
    ('"null" in a list', YES | {"users": "null"}, its(provisioned, "users"), []),
    ('"null" in an object', YES | {"paymentConfirmation": "null"}, its(provisioned, "payment_confirmation"), None),
    (
        '"null" in dates and numbers',
        YES | {"paymentConfirmation": {"orderId": "null", "amount": "null", "orderTime": "null"}},
        lambda s: payment(s, "order_id", "amount", "order_time"),
        (None, None, None),
    ),
    (
        "startDate and expireDate as days",
        YES | {"paymentConfirmation": {"products": [{"startDate": "2016-07-05", "expireDate": "07/05/2017"}]}},
        product_days,
        (date(2016, 7, 5), "07/05/2017"),
    ),
    ("message for errorMessage", YES | {"message": "well done"}, its(provisioned, "error_message"), "well done"),
    ("errorMessage", YES | {"errorMessage": "well done"}, its(provisioned, "error_message"), "well done"),
    (
        "uids that do not exist are skipped",
        OK | {"messages": [{"uid": 2}]},
        lambda s: s.box.get_messages_by_uids("INBOX", [1, 2, 3]),
        [ds.MessageDetail(uid=2)],
    ),
]
