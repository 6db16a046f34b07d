"""The habits of real servers that a tolerant client reads: a row for each."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime
from typing import Any

import directsuite as ds
from tests.known_facts.readers import (
    Row,
    provision_patient,
    read_attachment_content,
    read_attachment_types,
    read_attributes,
    read_document,
    read_faxes,
    read_log,
    read_message,
    read_patient,
    read_payment,
    read_product_days,
    read_statuses,
)

EXPECTED_TIME = datetime(2016, 7, 5, 17, 47, 15, tzinfo=UTC)
SUCCESS: dict[str, Any] = {"success": True, "code": 0, "message": None}
REGISTRATION_SUCCESS: dict[str, Any] = {"success": True, "code": "000"}


def make_detail(**members: object) -> dict[str, Any]:
    return SUCCESS | {"messages": [{"uid": 1} | members]}


FILE = {"content": "AAE=", "contentType": 'text/xml; name="a b.xml"', "filename": "a b.xml"}
ATTACHMENT = ds.Attachment(content=b"\x00\x01", content_type='text/xml; name="a b.xml"', filename="a b.xml")
PDF = b"%PDF-1.7 " + bytes(range(256))
WRAPPED_BASE64 = b"\r\n".join(base64.b64encode(PDF)[start : start + 76] for start in range(0, 400, 76)) + b"\r\n"
CSV = b"a@x,b@y,<1@x>,2048,Delivered,2016-07-05T17:47:15.000Z,m,s,u,p\r\n"

QUIRK_ROWS: list[Row] = [
    ("attachments", make_detail(attachments=[FILE]), read_attributes(read_message, "attachments"), [ATTACHMENT]),
    ("attachmentList", make_detail(attachmentList=[FILE]), read_attributes(read_message, "attachments"), [ATTACHMENT]),
    (
        "attachments null, attachmentList given",
        make_detail(attachments=None, attachmentList=[FILE]),
        read_attributes(read_message, "attachments"),
        [ATTACHMENT],
    ),
    (
        "attachments absent",
        make_detail(uid=1),
        read_attributes(read_message, "attachments", "recipients", "headers"),
        ([], [], []),
    ),
    (
        "attachments null",
        make_detail(attachments=None, attachmentList=None),
        read_attributes(read_message, "attachments"),
        [],
    ),
    ("messages absent", SUCCESS, lambda s: s.box.get_messages(), []),
    ("messages null", SUCCESS | {"messages": None}, lambda s: s.box.get_messages(), []),
    ("raw messages null", SUCCESS | {"messages": None}, lambda s: s.box.get_raw_messages_by_uids("INBOX", [1]), []),
    ("uids absent", SUCCESS, lambda s: s.box.get_uids(), []),
    ("uids null", SUCCESS | {"uids": None}, lambda s: s.box.get_uids(), []),
    (
        "messageLogs null",
        SUCCESS | {"messageLogs": None},
        read_attributes(read_statuses, "message_logs", "records"),
        ([], []),
    ),
    ("messageLogs absent", SUCCESS, read_attributes(read_statuses, "message_logs", "records"), ([], [])),
    ("folders null", SUCCESS | {"folders": None}, lambda s: s.box.get_folders(), []),
    (
        "one message, bare",
        SUCCESS | {"messages": {"uid": 7}},
        lambda s: s.box.get_messages(),
        [ds.MessageDetail(uid=7)],
    ),
    ("one uid, bare", SUCCESS | {"uids": 7}, lambda s: s.box.get_uids(), [7]),
    ("one folder, bare", SUCCESS | {"folders": "INBOX"}, lambda s: s.box.get_folders(), ["INBOX"]),
    ("one attachment, bare", make_detail(attachments=FILE), read_attributes(read_message, "attachments"), [ATTACHMENT]),
    ("one log, bare", SUCCESS | {"messageLogs": {"to": "b@y"}}, read_attributes(read_log, "to"), "b@y"),
    (
        "one patient, bare",
        REGISTRATION_SUCCESS | {"patient": {"username": "bob"}},
        read_attributes(read_patient, "username"),
        "bob",
    ),
    ("one fax, bare", {"MessageDetail": {"description": "x"}}, read_faxes, [ds.FaxMessage(description="x")]),
    (
        "contentType with parameters",
        make_detail(attachments=[FILE]),
        read_attachment_types,
        ("text/xml", FILE["contentType"]),
    ),
    (
        "receivedDate in milliseconds",
        make_detail(receivedDate=1467740835000),
        read_attributes(read_message, "received_date"),
        EXPECTED_TIME,
    ),
    (
        "receivedDate in Java's ISO 8601",
        make_detail(receivedDate="2016-07-05T17:47:15.000+0000"),
        read_attributes(read_message, "received_date"),
        EXPECTED_TIME,
    ),
    (
        "receivedDate with an offset",
        make_detail(receivedDate="2016-07-05T13:47:15-04:00"),
        read_attributes(read_message, "received_date"),
        EXPECTED_TIME,
    ),
    (
        "sentDate with Z",
        make_detail(sentDate="2016-07-05T17:47:15Z"),
        read_attributes(read_message, "sent_date"),
        EXPECTED_TIME,
    ),
    (
        "sentDate with fraction and Z",
        make_detail(sentDate="2016-07-05T17:47:15.000Z"),
        read_attributes(read_message, "sent_date"),
        EXPECTED_TIME,
    ),
    (
        "ts in milliseconds",
        SUCCESS | {"messageLogs": [{"ts": 1467740835000}]},
        read_attributes(read_log, "ts"),
        EXPECTED_TIME,
    ),
    (
        "createdTime in milliseconds",
        {"identifier": "d1", "createdTime": 1467740835000},
        read_attributes(read_document, "created_time"),
        EXPECTED_TIME,
    ),
    (
        "createdTime in ISO 8601",
        {"createdTime": "2016-07-05T17:47:15.000+0000"},
        read_attributes(read_document, "created_time"),
        EXPECTED_TIME,
    ),
    (
        "uid and size as digits",
        make_detail(uid="7", size="-1", msgnum="2"),
        read_attributes(read_message, "uid", "size", "msgnum"),
        (7, -1, 2),
    ),
    ("uids as digits", SUCCESS | {"uids": ["9", 7]}, lambda s: s.box.get_uids(), [7, 9]),
    ("count as digits", SUCCESS | {"count": "12"}, lambda s: s.box.get_message_count(), 12),
    ("code as digits", SUCCESS | {"code": "0", "count": 1}, lambda s: s.box.get_message_count(), 1),
    ("message null or any text", SUCCESS | {"count": 3, "message": "failed?"}, lambda s: s.box.get_message_count(), 3),
    ("success decides, not the code", {"success": True, "code": 3, "count": 3}, lambda s: s.box.get_message_count(), 3),
    ("code absent", {"success": True, "count": 3}, lambda s: s.box.get_message_count(), 3),
    ("base64 on one line", base64.b64encode(PDF), lambda s: s.suite.signing.get_doc("d1"), PDF),
    ("base64 in lines of 76", WRAPPED_BASE64, lambda s: s.suite.signing.get_doc("d1"), PDF),
    (
        "base64 in lines inside JSON",
        make_detail(attachments=[FILE | {"content": WRAPPED_BASE64.decode()}]),
        read_attachment_content,
        PDF,
    ),
    (
        "csvData in base64",
        SUCCESS | {"hasCvData": True, "csvData": base64.b64encode(CSV).decode()},
        read_attributes(read_log, "from_", "to", "message_size", "ts", "patient_id"),
        ("a@x", "b@y", 2048, EXPECTED_TIME, "p"),
    ),
    ("csvData empty", SUCCESS | {"hasCvData": True, "csvData": ""}, read_attributes(read_statuses, "records"), []),
    (
        "UserStateType",
        REGISTRATION_SUCCESS | {"patient": [{"UserStateType": "activated"}]},
        read_attributes(read_patient, "user_state"),
        "activated",
    ),
    (
        "userState",
        REGISTRATION_SUCCESS | {"patient": [{"userState": "activated"}]},
        read_attributes(read_patient, "user_state"),
        "activated",
    ),
    (
        '"null" in a text',
        REGISTRATION_SUCCESS | {"patient": [{"phone": "null"}]},
        read_attributes(read_patient, "phone"),
        "null",
    ),
    (
        '"null" in an enum',
        REGISTRATION_SUCCESS | {"patient": [{"userType": "null", "userState": "null"}]},
        read_attributes(read_patient, "user_type", "user_state"),
        (None, None),
    ),
    ('"null" in a list', REGISTRATION_SUCCESS | {"users": "null"}, read_attributes(provision_patient, "users"), []),
    (
        '"null" in an object',
        REGISTRATION_SUCCESS | {"paymentConfirmation": "null"},
        read_attributes(provision_patient, "payment_confirmation"),
        None,
    ),
    (
        '"null" in dates and numbers',
        REGISTRATION_SUCCESS | {"paymentConfirmation": {"orderId": "null", "amount": "null", "orderTime": "null"}},
        lambda s: read_payment(s, "order_id", "amount", "order_time"),
        (None, None, None),
    ),
    (
        "startDate and expireDate as days",
        REGISTRATION_SUCCESS
        | {"paymentConfirmation": {"products": [{"startDate": "2016-07-05", "expireDate": "07/05/2017"}]}},
        read_product_days,
        (date(2016, 7, 5), "07/05/2017"),
    ),
    (
        "message for errorMessage",
        REGISTRATION_SUCCESS | {"message": "well done"},
        read_attributes(provision_patient, "error_message"),
        "well done",
    ),
    (
        "errorMessage",
        REGISTRATION_SUCCESS | {"errorMessage": "well done"},
        read_attributes(provision_patient, "error_message"),
        "well done",
    ),
    (
        "uids that do not exist are skipped",
        SUCCESS | {"messages": [{"uid": 2}]},
        lambda s: s.box.get_messages_by_uids("INBOX", [1, 2, 3]),
        [ds.MessageDetail(uid=2)],
    ),
]
