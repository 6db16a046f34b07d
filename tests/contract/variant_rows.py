"""Further requests of operations that leave something open: absent members, open bounds, defaults."""

from __future__ import annotations

import dataclasses

import directsuite as ds

from .mailbox_rows import MAILBOX_ROWS
from .row import PASSWORD, USERNAME, Call, RequestRow
from .sending_rows import AUTHENTICATION, BASE, SENDING_ROWS
from .signing_rows import FAX_ROWS, SIGNING_ROWS

_ROWS = {row.operation: row for row in (*SIGNING_ROWS, *FAX_ROWS, *SENDING_ROWS, *MAILBOX_ROWS)}
_UNBOUNDED_MS_PATH = "0/253402300799000"
_UNBOUNDED_UTC_PATH = "19700101000000/99991231235959"


def _make_variant(operation: str, call: Call, target: str, body: object = None) -> RequestRow:
    """The operation's row with another call, another target and, if given, another body."""
    row = dataclasses.replace(_ROWS[operation], call=call, target=target)
    return row if body is None else dataclasses.replace(row, body=body)


def _get_mailbox(suite: ds.DirectSuite) -> ds.Mailbox:
    return suite.mailbox(USERNAME, PASSWORD)


VARIANT_ROWS = [
    _make_variant(
        "Sign",
        lambda suite: suite.signing.sign("d1", ds.Signature()),
        "/base/signing/pdf/d1/sign",
        {},
    ),
    _make_variant(
        "getMultipleMessageInfo",
        lambda suite: suite.fax.get_multiple_message_info("15550100199"),
        "/base/fax/api/fax/getMessageList/15550100199/0",
    ),
    _make_variant(
        "Send",
        lambda suite: _get_mailbox(suite).send(
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
    _make_variant(
        "Forward",
        lambda suite: _get_mailbox(suite).forward("INBOX", [1]),
        f"{BASE}/Forward/INBOX",
        {"auth": AUTHENTICATION, "uids": [1]},
    ),
    _make_variant(
        "GetMessagesByReceivedDate",
        lambda suite: _get_mailbox(suite).get_messages_by_received_date("INBOX", None, None),
        f"{BASE}/GetMessagesByReceivedDate/INBOX/{_UNBOUNDED_MS_PATH}",
    ),
    _make_variant(
        "GetMessagesByReceivedDateUTC",
        lambda suite: _get_mailbox(suite).get_messages_by_received_date_utc("INBOX", None, None),
        f"{BASE}/GetMessagesByReceivedDateUTC/INBOX/{_UNBOUNDED_UTC_PATH}",
    ),
    _make_variant(
        "SearchMessagesMetadataByReceivedDate",
        lambda suite: _get_mailbox(suite).search_messages_metadata_by_received_date("INBOX", None, None),
        f"{BASE}/SearchMessagesMetadataByReceivedDate/INBOX/{_UNBOUNDED_MS_PATH}",
    ),
    _make_variant(
        "SearchMessagesMetadataByReceivedDateUTC",
        lambda suite: _get_mailbox(suite).search_messages_metadata_by_received_date_utc("INBOX", None, None),
        f"{BASE}/SearchMessagesMetadataByReceivedDateUTC/INBOX/{_UNBOUNDED_UTC_PATH}",
    ),
    _make_variant("GetFolders", lambda suite: _get_mailbox(suite).get_folders(), f"{BASE}/GetFolders/INBOX/false"),
    _make_variant(
        "DeleteMessagesByUIDs",
        lambda suite: _get_mailbox(suite).delete_messages_by_uids("INBOX", [1]),
        f"{BASE}/DeleteMessagesByUIDs/INBOX/false",
    ),
]
