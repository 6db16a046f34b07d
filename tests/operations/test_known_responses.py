"""Responses as real servers are known to send them, and the shapes that the specification leaves open."""

from __future__ import annotations

import base64
import dataclasses
from datetime import UTC, date, datetime
from typing import Any

import pytest

import directsuite as ds

from . import OPERATIONS
from .test_requests import open_suite

EMPTY: list[object] = []
TIME = datetime(2016, 7, 5, 17, 47, 15, tzinfo=UTC)
MILLISECONDS = 1467740835000
FILE = {"content": "AAE=", "contentType": 'text/xml; name="a b.xml"', "filename": "a b.xml"}
FILES = [ds.Attachment(content=b"\x00\x01", content_type='text/xml; name="a b.xml"', filename="a b.xml")]
PDF = b"%PDF-1.7 " + bytes(range(256))
LINES = b"\r\n".join(base64.b64encode(PDF)[start : start + 76] for start in range(0, 400, 76)) + b"\r\n"
CSV = base64.b64encode(b"a@x,b@y,<1@x>,2048,Delivered,2016-07-05T17:47:15.000Z,m,s,u,p\r\n").decode()
SUCCESS: dict[str, dict[str, Any]] = {
    "mailbox": {"success": True, "code": 0, "message": None},
    "registration": {"success": True, "code": "000"},
}

Row = tuple[str, dict[str, Any] | bytes, str, object]
"""Operation, members of the response, the attributes of the result that are compared, and their values."""


def message(attributes: str, expected: object, **members: object) -> Row:
    """Return a row of a mailbox with one message."""
    return ("GetMessages", {"messages": [{"uid": 1} | members]}, attributes, expected)


def payment(attributes: str, expected: object, **members: object) -> Row:
    """Return a row of the confirmation of a payment."""
    return ("ProvisionIDProofedPatient", {"paymentConfirmation": members}, attributes, expected)


ROWS: dict[str, Row] = {
    "attachments": message("0.attachments", FILES, attachments=[FILE]),
    "attachmentList": message("0.attachments", FILES, attachmentList=[FILE]),
    "attachments null, attachmentList given": message("0.attachments", FILES, attachments=None, attachmentList=[FILE]),
    "attachments absent": message("0.attachments 0.recipients 0.headers", (EMPTY, EMPTY, EMPTY)),
    "attachments null": message("0.attachments", [], attachments=None, attachmentList=None),
    "messages absent": ("GetMessages", {}, "", []),
    "messages null": ("GetMessages", {"messages": None}, "", []),
    "raw messages null": ("GetRawMessagesByUIDs", {"messages": None}, "", []),
    "raw messages absent": ("GetRawMessagesByUIDs", {}, "", []),
    "folders absent": ("GetFolders", {}, "", []),
    "folders null": ("GetFolders", {"folders": None}, "", []),
    "messageLogs null": ("GetMessageStatus", {"messageLogs": None}, "message_logs records", ([], [])),
    "messageLogs absent": ("GetMessageStatus", {}, "message_logs records", ([], [])),
    "one message": ("GetMessages", {"messages": {"uid": 7}}, "", [ds.MessageDetail(uid=7)]),
    "one uid": ("GetUIDs", {"uids": 7}, "", [7]),
    "one folder": ("GetFolders", {"folders": "INBOX"}, "", ["INBOX"]),
    "one attachment": message("0.attachments", FILES, attachments=FILE),
    "one log": ("GetMessageStatus", {"messageLogs": {"to": "b@y"}}, "records.0.to", "b@y"),
    "one patient": ("GetPatientAddressByUsername", {"patient": {"username": "bob"}}, "0.username", "bob"),
    "one fax": (
        "getMultipleMessageInfo",
        {"MessageDetail": {"description": "x"}},
        "message_detail",
        [ds.FaxMessage(description="x")],
    ),
    "contentType with parameters": message(
        "0.attachments.0.media_type 0.attachments.0.content_type",
        ("text/xml", 'text/xml; name="a b.xml"'),
        attachments=[FILE],
    ),
    "receivedDate in milliseconds": message("0.received_date", TIME, receivedDate=MILLISECONDS),
    "receivedDate of Java": message("0.received_date", TIME, receivedDate="2016-07-05T17:47:15.000+0000"),
    "receivedDate with an offset": message("0.received_date", TIME, receivedDate="2016-07-05T13:47:15-04:00"),
    "ts in milliseconds": ("GetMessageStatus", {"messageLogs": [{"ts": MILLISECONDS}]}, "records.0.ts", TIME),
    "createdTime in milliseconds": ("GetDocInfo", {"createdTime": MILLISECONDS}, "created_time", TIME),
    "createdTime of Java": ("GetDocInfo", {"createdTime": "2016-07-05T17:47:15.000+0000"}, "created_time", TIME),
    "uid, size and msgnum as digits": message("0.uid 0.size 0.msgnum", (7, -1, 2), uid="7", size="-1", msgnum="2"),
    "uids as digits": ("GetUIDs", {"uids": ["9", 7]}, "", [7, 9]),
    "count as digits": ("GetMessageCount", {"count": "12"}, "", 12),
    "code as digits": ("GetMessageCount", {"code": "0", "count": 1}, "", 1),
    "any message": ("GetMessageCount", {"count": 3, "message": "failed?"}, "", 3),
    "code of a successful response": ("GetMessageCount", {"code": 3, "count": 3}, "", 3),
    "base64 in lines of 76": ("GetDoc", LINES, "", PDF),
    "base64 in lines inside JSON": message(
        "0.attachments.0.content", PDF, attachments=[FILE | {"content": LINES.decode()}]
    ),
    "csvData": (
        "GetMessageStatus",
        {"hasCvData": True, "csvData": CSV},
        "records.0.from_ records.0.to records.0.message_size records.0.ts records.0.patient_id",
        ("a@x", "b@y", 2048, TIME, "p"),
    ),
    "csvData empty": ("GetMessageStatus", {"hasCvData": True, "csvData": ""}, "records", []),
    "startDate and expireDate": payment(
        "payment_confirmation.products.0.start_date payment_confirmation.products.0.expire_date",
        (date(2016, 7, 5), "07/05/2017"),
        products=[{"startDate": "2016-07-05", "expireDate": "07/05/2017"}],
    ),
    "message for errorMessage": ("ProvisionIDProofedPatient", {"message": "well done"}, "error_message", "well done"),
    "errorMessage": ("ProvisionIDProofedPatient", {"errorMessage": "well done"}, "error_message", "well done"),
    "fewer messages than uids": ("GetMessagesByUIDs", {"messages": [{"uid": 2}]}, "", [ds.MessageDetail(uid=2)]),
    "MetaDataObject as pairs": (
        "GetDocInfo",
        {"metaData": [{"key": "Title", "value": "t"}]},
        "meta_data",
        {"Title": "t"},
    ),
    "MetaDataObject as an object": ("GetDocInfo", {"metaData": {"Title": "t"}}, "meta_data", {"Title": "t"}),
    "other members": (
        "GetDocInfo",
        {"pages": [{"index": 1, "label": "i"}]},
        "pages",
        [ds.Page(index=1, extra={"label": "i"})],
    ),
}


def read(result: Any, path: str) -> Any:
    """Return the attribute or element of the result at a path such as `records.0.to`."""
    for step in path.split("."):
        result = result[int(step)] if step.isdigit() else getattr(result, step)
    return result


@pytest.mark.parametrize(("operation", "response", "attributes", "expected"), ROWS.values(), ids=ROWS)
async def test_known_response_is_read(
    operation: str, response: dict[str, Any] | bytes, attributes: str, expected: object
) -> None:
    if not isinstance(response, bytes):
        facade = OPERATIONS[operation].facade
        required: dict[str, Any] = {"identifier": "d1"} if facade == "signing" else {}
        response = {**SUCCESS.get(facade, required), **response}
    case = dataclasses.replace(OPERATIONS[operation], response=response)
    async with open_suite(case) as (suite, _):
        result = await case.call(suite)
    if attributes:
        values: list[Any] = [read(result, path) for path in attributes.split()]
        result = tuple(values) if len(values) > 1 else values[0]
    assert result == expected
