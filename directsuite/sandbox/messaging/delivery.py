"""Delivery of a sent message to each recipient, and the report about it (specification sections 3 and 2.C).

    Waiting ──► Delivered | Remotely Failed         when the receiver's confirmation is due
       └──────► NO MDN Received                     after an hour without one;  a later one still changes it ("late")
    Locally Failed                                  from the start, or when it is due

The sandbox delivers nothing to other systems. When a message is sent, an outcome with its time is stored for each
recipient, from which and from the clock the status is computed. The outcome depends on the recipient:

    has a mailbox here, its certificate expired or revoked    Remotely Failed immediately; no message arrives
    has a mailbox here                                        in its INBOX before the response to Send; Delivered
                                                              immediately
    `deliver@`, `slow+30m@` of a test domain                  Delivered immediately, or after a time (s, m, h); `slow@`:
                                                              1 minute
    `nomdn@` of a test domain                                 never confirmed
    `bounce@` of a test domain                                Remotely Failed, immediately or after a time:
                                                              `bounce+10s@`
    `nocert@`, `untrusted@` of a test domain                  Locally Failed, immediately or after a time
    any other address of a domain that has mailboxes here     Remotely Failed: no such mailbox
    any other address of a test domain                        Delivered immediately
    any other domain                                          Locally Failed: no certificate found

Test domains are those reserved by RFC 2606: below `.test`, `.example`, `.invalid`, and example.com, .net, .org.
"""

from __future__ import annotations

import csv
import io
import json
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import pybase64

from directsuite.sandbox.clock import format_timestamp
from directsuite.sandbox.messaging.headers import fold

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from directsuite.sandbox.messaging.requests import MessagingCall

SCHEMA = """
CREATE TABLE IF NOT EXISTS sent_message(
  id INTEGER PRIMARY KEY, smtp_id TEXT NOT NULL UNIQUE,
  account INTEGER NOT NULL REFERENCES mailbox_account(id) ON DELETE CASCADE,
  sender TEXT NOT NULL, size INTEGER NOT NULL, at INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS sent_message_account ON sent_message(account);
CREATE TABLE IF NOT EXISTS delivery(
  message INTEGER NOT NULL REFERENCES sent_message(id) ON DELETE CASCADE, position INTEGER NOT NULL,
  recipient TEXT NOT NULL, outcome TEXT, due INTEGER, details TEXT NOT NULL, forced TEXT,
  PRIMARY KEY(message, position)) WITHOUT ROWID;
"""

CONFIRMATION_TIMEOUT_MS = 3_600_000  # specification section 8

CSV_COLUMNS = {
    "From": "from",
    "To": "to",
    "Message ID": "messageId",
    "Message Size": "messageSize",
    "Status": "status",
    "Sent Time": "ts",
    "XDR Message ID": "xdrId",
    "XDR Source ID": "sourceId",
    "XDR Unique ID": "uniqueId",
    "XDR Patient ID": "patientId",
}
"""The columns of csvData, with the members of DirectMessageLog."""

_TEST_DOMAIN = re.compile(r"(?:.*\.)?(?:test|example|invalid|example\.(?:com|net|org))", re.DOTALL)
_DELAY = re.compile(r"(\d{1,6})([smh])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000}


class DeliveryStatus(StrEnum):
    """The status values of the specification."""

    DELIVERED = "Delivered"
    WAITING = "Waiting"
    LOCALLY_FAILED = "Locally Failed"
    REMOTELY_FAILED = "Remotely Failed"
    NO_MDN_RECEIVED = "NO MDN Received"


class DeliveryOutcome(NamedTuple):
    """The predetermined result of a delivery."""

    status: DeliveryStatus | None
    """The final status, or None if no confirmation ever arrives."""
    details: str
    delay_ms: int = 0
    """The milliseconds from sending to the outcome."""


DELIVERED_LOCALLY = DeliveryOutcome(DeliveryStatus.DELIVERED, "Dispatched to the mailbox")
REJECTED_LOCALLY = DeliveryOutcome(
    DeliveryStatus.REMOTELY_FAILED, "Rejected: the recipient's certificate has expired or is revoked"
)
_NO_MAILBOX = DeliveryOutcome(DeliveryStatus.REMOTELY_FAILED, "The recipient's domain has no such mailbox")
_NO_CERTIFICATE = DeliveryOutcome(DeliveryStatus.LOCALLY_FAILED, "No certificate was found for the recipient")
_TEST_OUTCOMES = {
    "deliver": DeliveryOutcome(DeliveryStatus.DELIVERED, "Dispatched by the receiver's HISP"),
    "slow": DeliveryOutcome(DeliveryStatus.DELIVERED, "Dispatched by the receiver's HISP", 60_000),
    "nomdn": DeliveryOutcome(None, ""),
    "bounce": DeliveryOutcome(DeliveryStatus.REMOTELY_FAILED, "Rejected by the receiver's HISP"),
    "nocert": _NO_CERTIFICATE,
    "untrusted": DeliveryOutcome(DeliveryStatus.LOCALLY_FAILED, "The recipient's certificate is not trusted"),
}


def choose_outcome(address: str, served_domains: set[str]) -> DeliveryOutcome:
    """Return the outcome for a recipient without a mailbox here.

    served_domains: the domains that have mailboxes here, as `fold` returns them.
    """
    local_part, _, domain = fold(address).rpartition("@")
    name, _, suffix = local_part.partition("+")
    if _TEST_DOMAIN.fullmatch(domain) is None:
        return _NO_MAILBOX if domain in served_domains else _NO_CERTIFICATE
    outcome = _TEST_OUTCOMES.get(name)
    if outcome is None:
        return _NO_MAILBOX if domain in served_domains else _TEST_OUTCOMES["deliver"]
    delay = _DELAY.fullmatch(suffix)
    return outcome if delay is None else outcome._replace(delay_ms=int(delay[1]) * _UNIT_MS[delay[2]])


def record_sent_message(
    connection: sqlite3.Connection,
    call: MessagingCall[Any],
    smtp_id: str,
    size: int,
    outcomes: Iterable[tuple[str, DeliveryOutcome]],
) -> None:
    """Store a message that a call has sent, with the outcome for each recipient."""
    row = connection.execute(
        "INSERT INTO sent_message(smtp_id, account, sender, size, at) VALUES(?, ?, ?, ?, ?) RETURNING id",
        (smtp_id, call.account, call.address, size, call.at_ms),
    ).fetchone()
    connection.executemany(
        "INSERT INTO delivery(message, position, recipient, outcome, due, details) VALUES(?, ?, ?, ?, ?, ?)",
        [
            (row["id"], position, recipient, outcome.status, call.at_ms + outcome.delay_ms, outcome.details)
            for position, (recipient, outcome) in enumerate(outcomes)
        ],
    )


def list_deliveries(
    connection: sqlite3.Connection, smtp_ids: Iterable[str], *, account: int | None = None, now_ms: int
) -> list[dict[str, Any]]:
    """Return the deliveries of messages to their recipients, in the order of sending. Unknown ids are ignored.

    account: ignore the messages of other accounts. None: include all.

    A delivery has sender, recipient, smtp_id, size, at, status, details, and due_ms: the time of the outcome, or None
    if nothing is ever confirmed or the status was set.
    """
    rows = connection.execute(  # ifnull: SQLite would scan all messages of an account that it finds by an index
        "SELECT sender, recipient, smtp_id, size, at, outcome, due, details, forced"
        " FROM sent_message JOIN delivery ON message = id"
        " WHERE account = ifnull(?, account) AND smtp_id IN (SELECT value FROM json_each(?)) ORDER BY id, position",
        (account, json.dumps([add_brackets(smtp_id) for smtp_id in smtp_ids])),
    )
    deliveries = list[dict[str, Any]]()
    for row in rows:
        status, details = _compute_status(row, now_ms)
        due_ms = None if row["forced"] or not row["outcome"] else row["due"]
        deliveries.append({**dict(row), "status": status, "details": details, "due_ms": due_ms})
    return deliveries


def build_report_members(deliveries: Iterable[dict[str, Any]], *, as_csv: bool) -> dict[str, Any]:
    """Return the members of a status report: hasCvData (as the specification spells it), csvData and messageLogs.

    If `as_csv` is True and there are deliveries, they are in csvData (RFC 4180 in UTF-8, with a header line and empty
    XDR columns), otherwise in messageLogs.
    """
    logs = [
        {
            "from": each["sender"],
            "to": each["recipient"],
            "messageId": each["smtp_id"],
            "messageSize": each["size"],
            "status": each["status"],
            "statusDetails": each["details"],
            "ts": format_timestamp(each["at"]),
            **dict.fromkeys(("xdrId", "uniqueId", "sourceId", "patientId")),
        }
        for each in deliveries
    ]
    if not (as_csv and logs):
        return {"hasCvData": False, "csvData": "", "messageLogs": logs}
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(CSV_COLUMNS)
    writer.writerows([log[member] for member in CSV_COLUMNS.values()] for log in logs)
    encoded = pybase64.b64encode(text.getvalue().encode("utf-8")).decode("ascii")
    return {"hasCvData": True, "csvData": encoded, "messageLogs": []}


def force_status(connection: sqlite3.Connection, smtp_id: str, recipient: str, status: str) -> None:
    """Set the status that is reported for a recipient from now on, instead of the computed one."""
    if status not in set(DeliveryStatus):
        raise ValueError(f"there is no status {status!r}: use one of {', '.join(DeliveryStatus)}")
    changed = connection.execute(
        "UPDATE delivery SET forced = ? WHERE lower(recipient) = lower(?)"
        " AND message = (SELECT id FROM sent_message WHERE smtp_id = ?)",
        (status, recipient, add_brackets(smtp_id)),
    )
    if changed.rowcount == 0:
        raise LookupError(f"no message with the id {add_brackets(smtp_id)} was sent to {recipient}")


def add_brackets(smtp_id: str) -> str:
    """Return an smtpId in angle brackets, whether or not it already had them."""
    return f"<{smtp_id.strip().removeprefix('<').removesuffix('>')}>"


def _compute_status(row: sqlite3.Row, now_ms: int) -> tuple[DeliveryStatus, str]:
    if row["forced"] is not None:
        return DeliveryStatus(row["forced"]), "Set by the control API"
    timeout = row["at"] + CONFIRMATION_TIMEOUT_MS
    if row["outcome"] is not None and now_ms >= row["due"]:
        return DeliveryStatus(row["outcome"]), row["details"] + (" (late)" if row["due"] > timeout else "")
    if now_ms >= timeout:
        return DeliveryStatus.NO_MDN_RECEIVED, "No confirmation from the receiver's HISP within one hour"
    return DeliveryStatus.WAITING, "Awaiting confirmation from the receiver's HISP"
