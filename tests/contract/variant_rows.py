"""Further requests of operations that leave something open: absent members, open bounds, defaults."""

from __future__ import annotations

import dataclasses

import directsuite as ds

from .mailbox_rows import MAILBOX_ROWS
from .row import PASSWORD, USERNAME, Call, Row
from .sending_rows import AUTHENTICATION, BASE, SENDING_ROWS
from .signing_rows import FAX_ROWS, SIGNING_ROWS

_ROWS = {row.operation: row for row in (*SIGNING_ROWS, *FAX_ROWS, *SENDING_ROWS, *MAILBOX_ROWS)}
_OPEN_MILLISECONDS = "0/253402300799000"
_OPEN_SECONDS = "19700101000000/99991231235959"


def _variant(operation: str, call: Call, target: str, body: object = None) -> Row:
    """The operation's row with another call, another target and, if given, another body."""
    row = dataclasses.replace(_ROWS[operation], call=call, target=target)
    return row if body is None else dataclasses.replace(row, body=body)


def _box(suite: ds.DirectSuite) -> ds.Mailbox:
    return suite.mailbox(USERNAME, PASSWORD)


VARIANT_ROWS = [
    _variant(
        "Sign",
        lambda suite: suite.signing.sign("d1", ds.Signature()),
        "/base/signing/pdf/d1/sign",
        {},
    ),
    _variant(
        "getMultipleMessageInfo",
        lambda suite: suite.fax.get_multiple_message_info("15550100199"),
        "/base/fax/api/fax/getMessageList/15550100199/0",
    ),
    _variant(
        "Send",
        lambda suite: _box(suite).send(
            ds.Message(recipients=[ds.Recipient("bob@direct.example.test", ds.RecipientType.TO)])
        ),
        f"{BASE}/Send",
        {
            "authentication": AUTHENTICATION,
            "message": {
                "sender": USERNAME,
                "htmlBody": False,
                "recipients": [{"email": "bob@direct.example.test", "type": "TO"}],
            },
        },
    ),
    _variant(
        "Forward",
        lambda suite: _box(suite).forward("INBOX", [1]),
        f"{BASE}/Forward/INBOX",
        {"auth": AUTHENTICATION, "uids": [1]},
    ),
    _variant(
        "GetMessagesByReceivedDate",
        lambda suite: _box(suite).get_messages_by_received_date("INBOX", None, None),
        f"{BASE}/GetMessagesByReceivedDate/INBOX/{_OPEN_MILLISECONDS}",
    ),
    _variant(
        "GetMessagesByReceivedDateUTC",
        lambda suite: _box(suite).get_messages_by_received_date_utc("INBOX", None, None),
        f"{BASE}/GetMessagesByReceivedDateUTC/INBOX/{_OPEN_SECONDS}",
    ),
    _variant(
        "SearchMessagesMetadataByReceivedDate",
        lambda suite: _box(suite).search_messages_metadata_by_received_date("INBOX", None, None),
        f"{BASE}/SearchMessagesMetadataByReceivedDate/INBOX/{_OPEN_MILLISECONDS}",
    ),
    _variant(
        "SearchMessagesMetadataByReceivedDateUTC",
        lambda suite: _box(suite).search_messages_metadata_by_received_date_utc("INBOX", None, None),
        f"{BASE}/SearchMessagesMetadataByReceivedDateUTC/INBOX/{_OPEN_SECONDS}",
    ),
    _variant("GetFolders", lambda suite: _box(suite).get_folders(), f"{BASE}/GetFolders/INBOX/false"),
    _variant(
        "DeleteMessagesByUIDs",
        lambda suite: _box(suite).delete_messages_by_uids("INBOX", [1]),
        f"{BASE}/DeleteMessagesByUIDs/INBOX/false",
    ),
]
