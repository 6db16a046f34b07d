"""The status report in its two forms: DirectMessageLog records and CSV (specification section 2.C)."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import pybase64

from directsuite.sandbox.clock import timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from directsuite.sandbox.messaging.delivery import DeliveryRecord

CSV_COLUMNS = (
    "From",
    "To",
    "Message ID",
    "Message Size",
    "Status",
    "Sent Time",
    "XDR Message ID",
    "XDR Source ID",
    "XDR Unique ID",
    "XDR Patient ID",
)


def report_members(records: Sequence[DeliveryRecord], *, as_csv: bool) -> dict[str, Any]:
    """hasCvData, csvData and messageLogs. With no record both are empty, whichever form was asked for."""
    if as_csv and records:
        return {"hasCvData": True, "csvData": pybase64.b64encode(csv_of(records)).decode("ascii"), "messageLogs": []}
    return {"hasCvData": False, "csvData": "", "messageLogs": [_log(record) for record in records]}


def csv_of(records: Sequence[DeliveryRecord]) -> bytes:
    """The report as CSV (RFC 4180, UTF-8) with a line of column titles. The XDR columns are empty: nothing is XDR."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(CSV_COLUMNS)
    writer.writerows(
        (r.sender, r.recipient, r.smtp_id, r.size, r.status.value, timestamp(r.at_ms), "", "", "", "") for r in records
    )
    return text.getvalue().encode("utf-8")


def _log(record: DeliveryRecord) -> dict[str, Any]:
    return {
        "from": record.sender,
        "to": record.recipient,
        "messageId": record.smtp_id,
        "messageSize": record.size,
        "status": record.status.value,
        "statusDetails": record.details,
        "ts": timestamp(record.at_ms),
        "xdrId": None,
        "uniqueId": None,
        "sourceId": None,
        "patientId": None,
    }
