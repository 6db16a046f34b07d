"""The requests of the messaging service that send messages and ask for their status (specification 4.C)."""

from __future__ import annotations

import directsuite as ds

from .row import JSON, PASSWORD, USERNAME, RequestRow, make_json_response

BASE = "/message-rest/api/message"
AUTHENTICATION = {"username": USERNAME, "password": PASSWORD}
NO_CREDENTIALS_IN_HEADERS = ("authorization", "cookie")

_TUSER = ("t-user/1", 't"ü')
_TUSER_AUTHENTICATION = {"username": "t-user/1", "password": 't"ü', "directAddr": USERNAME}

_SEND_RESPONSE = make_json_response(success=True, code=0, message=None, smtpId="<1@direct.example.test>")
_STATUS = make_json_response(success=True, code=0, message=None, hasCvData=False, csvData=None, messageLogs=[])

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
    "attachmentList": [
        {"content": "AP9kYXRh", "contentType": 'text/xml; name="a b.xml"', "filename": "a b/é.xml"},
    ],
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


def _get_mailbox(suite: ds.DirectSuite) -> ds.Mailbox:
    return suite.mailbox(USERNAME, PASSWORD)


def _get_tuser(suite: ds.DirectSuite) -> ds.TUser:
    return suite.tuser(*_TUSER, USERNAME)


SENDING_ROWS = [
    RequestRow(
        operation="Send",
        call=lambda suite: _get_mailbox(suite).send(_MESSAGE),
        method="PUT",
        target=f"{BASE}/Send",
        headers=JSON,
        absent_headers=NO_CREDENTIALS_IN_HEADERS,
        body={"authentication": AUTHENTICATION, "message": _MESSAGE_JSON},
        response=_SEND_RESPONSE,
    ),
    RequestRow(
        operation="SendWithHeader",
        call=lambda suite: _get_mailbox(suite).send_with_header(_MESSAGE_WITH_HEADERS),
        method="PUT",
        target=f"{BASE}/SendWithHeader",
        headers=JSON,
        absent_headers=NO_CREDENTIALS_IN_HEADERS,
        body={"authentication": AUTHENTICATION, "message": _MESSAGE_WITH_HEADERS_JSON},
        response=_SEND_RESPONSE,
    ),
    RequestRow(
        operation="Forward",
        call=lambda suite: _get_mailbox(suite).forward(
            "INBOX.a/b é",
            [3, 1],
            ["bob@direct.example.test", ds.Recipient("carol@direct.example.test", type=ds.RecipientType.CC)],
        ),
        method="PUT",
        target=f"{BASE}/Forward/INBOX.a%2Fb%20%C3%A9",
        headers=JSON,
        absent_headers=NO_CREDENTIALS_IN_HEADERS,
        body={
            "auth": AUTHENTICATION,
            "uids": [3, 1],
            "recipients": [
                {"email": "bob@direct.example.test", "type": "TO"},
                {"email": "carol@direct.example.test", "type": "CC"},
            ],
        },
        response=_SEND_RESPONSE,
    ),
    RequestRow(
        operation="SendWithTuser",
        call=lambda suite: _get_tuser(suite).send(_MESSAGE),
        method="PUT",
        target=f"{BASE}/SendWithTuser",
        headers=JSON,
        absent_headers=NO_CREDENTIALS_IN_HEADERS,
        body={"authentication": _TUSER_AUTHENTICATION, "message": _MESSAGE_JSON},
        response=_SEND_RESPONSE,
    ),
    RequestRow(
        operation="SendWithHeaderWithTuser",
        call=lambda suite: _get_tuser(suite).send_with_header(_MESSAGE_WITH_HEADERS),
        method="PUT",
        target=f"{BASE}/SendWithHeaderWithTuser",
        headers=JSON,
        absent_headers=NO_CREDENTIALS_IN_HEADERS,
        body={"authentication": _TUSER_AUTHENTICATION, "message": _MESSAGE_WITH_HEADERS_JSON},
        response=_SEND_RESPONSE,
    ),
    RequestRow(
        operation="GetMessageStatus",
        call=lambda suite: _get_mailbox(suite).get_message_status('<a/b?c#d"e%2F@direct.example.test>'),
        method="POST",
        target=f"{BASE}/GetMessageStatus/%3Ca%2Fb%3Fc%23d%22e%252F%40direct.example.test%3E",
        headers=JSON,
        absent_headers=NO_CREDENTIALS_IN_HEADERS,
        body=AUTHENTICATION,
        response=_STATUS,
    ),
    RequestRow(
        operation="GetMessageStatusMany",
        call=lambda suite: _get_mailbox(suite).get_message_statuses(["<a/b@direct.example.test>", "c"]),
        method="POST",
        target=f"{BASE}/GetMessageStatus/",
        headers=JSON,
        absent_headers=NO_CREDENTIALS_IN_HEADERS,
        body={"auth": AUTHENTICATION, "smtpIds": ["<a/b@direct.example.test>", "c"]},
        response=_STATUS,
    ),
    RequestRow(
        operation="GetMessageStatusWithTuser",
        call=lambda suite: _get_tuser(suite).get_message_status("a+b c"),
        method="POST",
        target=f"{BASE}/GetMessageStatusWithTuser/a%2Bb%20c",
        headers=JSON,
        absent_headers=NO_CREDENTIALS_IN_HEADERS,
        body=_TUSER_AUTHENTICATION,
        response=_STATUS,
    ),
]
