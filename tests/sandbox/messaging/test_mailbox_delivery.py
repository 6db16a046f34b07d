"""The delivery status of recipients over time, and the two forms of the status report."""

from __future__ import annotations

import base64
import csv
import io
from datetime import timedelta
from typing import Any

import pytest

from directsuite.sandbox.messaging.delivery import DeliveryStatus, choose_outcome
from tests.sandbox.messaging.mailbox_server import ALICE, BOB, MessagingServer, make_credentials, make_message

SERVED = {"direct.clinic.test", "direct.real.org"}


async def status(mail: MessagingServer, smtp_id: str) -> tuple[str, str]:
    (log,) = (await mail.call_ok("GetMessageStatus", smtp_id))["messageLogs"]
    return log["status"], log["statusDetails"]


async def test_the_status_follows_the_clock(mail: MessagingServer) -> None:
    cases: list[tuple[str, dict[int, str]]] = [
        (BOB, {0: "Delivered", 61: "Delivered"}),
        ("deliver@hisp.test", {0: "Delivered"}),
        ("anyone@hisp.example", {0: "Delivered"}),
        ("slow+30m@hisp.test", {0: "Waiting", 29: "Waiting", 30: "Delivered", 90: "Delivered"}),
        ("SLOW+1h@hisp.test", {59: "Waiting", 60: "Delivered"}),
        ("slow+90m@hisp.test", {59: "Waiting", 60: "NO MDN Received", 89: "NO MDN Received", 90: "Delivered"}),
        ("nomdn@hisp.test", {0: "Waiting", 59: "Waiting", 60: "NO MDN Received", 6000: "NO MDN Received"}),
        ("bounce@hisp.test", {0: "Remotely Failed", 61: "Remotely Failed"}),
        ("bounce+600s@hisp.test", {9: "Waiting", 10: "Remotely Failed"}),
        ("nocert@hisp.test", {0: "Locally Failed", 61: "Locally Failed"}),
        ("untrusted@example.com", {0: "Locally Failed"}),
        ("missing@direct.clinic.test", {0: "Remotely Failed"}),
        ("nomdn@direct.clinic.test", {0: "Waiting"}),
        ("doctor@hospital.org", {0: "Locally Failed"}),
    ]
    for recipient, timeline in cases:
        smtp_id = await mail.send(recipient)
        passed = 0
        for minute, expected in timeline.items():
            mail.clock.advance(timedelta(minutes=minute - passed))
            passed = minute
            assert (await status(mail, smtp_id))[0] == expected, minute


async def test_a_confirmation_after_the_hour_is_called_late(mail: MessagingServer) -> None:
    smtp_id = await mail.send("slow+61m@hisp.test")
    mail.clock.advance(timedelta(minutes=61))
    assert (await status(mail, smtp_id))[1].endswith("(late)")


def test_special_local_parts_apply_only_to_test_domains() -> None:
    assert choose_outcome("nomdn@direct.real.org", SERVED).status is DeliveryStatus.REMOTELY_FAILED
    assert choose_outcome("nomdn@contest", SERVED).status is DeliveryStatus.LOCALLY_FAILED


async def test_a_report_has_a_record_for_each_recipient(mail: MessagingServer) -> None:
    smtp_id = await mail.send(BOB, "nocert@hisp.test")
    report = await mail.call_ok("GetMessageStatus", smtp_id)
    assert (report["hasCvData"], report["csvData"]) == (False, "")
    first, second = report["messageLogs"]
    size = first.pop("messageSize")
    assert first == {
        "from": ALICE,
        "to": BOB,
        "messageId": smtp_id,
        "status": "Delivered",
        "statusDetails": "Dispatched to the mailbox",
        "ts": "2026-05-01T12:00:00.000+0000",
        "xdrId": None,
        "uniqueId": None,
        "sourceId": None,
        "patientId": None,
    }
    assert (second["to"], second["status"]) == ("nocert@hisp.test", "Locally Failed")
    assert size == (await mail.get_messages("INBOX.Sent"))[0]["size"]


async def test_ids_may_lack_brackets_and_unknown_ids_have_no_record(mail: MessagingServer) -> None:
    smtp_id = await mail.send()
    assert len((await mail.call_ok("GetMessageStatus", smtp_id.strip("<>")))["messageLogs"]) == 1
    report = await mail.call_ok("GetMessageStatus", "<a/b%2F+?#@x>")
    assert (report["hasCvData"], report["csvData"], report["messageLogs"]) == (False, "", [])


async def test_only_the_sender_sees_the_status(mail: MessagingServer) -> None:
    smtp_id = await mail.send()
    assert (await mail.call_ok("GetMessageStatus", smtp_id, body=make_credentials(BOB)))["messageLogs"] == []


async def many(mail: MessagingServer, smtp_ids: list[str]) -> dict[str, Any]:
    return await mail.call_ok("GetMessageStatus", "", smtpIds=smtp_ids)


async def test_several_messages_are_reported_in_the_order_of_sending(mail: MessagingServer) -> None:
    first, second = await mail.send(), await mail.send()
    logs = (await many(mail, [second, first, second, "<unknown@x>"]))["messageLogs"]
    assert [log["messageId"] for log in logs] == [first, second]
    assert (await many(mail, []))["messageLogs"] == []


async def test_many_ids_are_reported_as_csv(mail: MessagingServer) -> None:
    mail.sandbox.csv_above = 1
    odd = "o'hara\"x".replace('"', "+")
    smtp_ids = [await mail.send(f"{odd}@hisp.test", "nomdn@hisp.test"), "<unknown@x>"]
    report = await many(mail, smtp_ids)
    assert (report["hasCvData"], report["messageLogs"]) == (True, [])
    titles, *rows = csv.reader(io.StringIO(base64.b64decode(report["csvData"]).decode("utf-8"), newline=""))
    assert titles[:6] == ["From", "To", "Message ID", "Message Size", "Status", "Sent Time"]
    assert titles[6:] == ["XDR Message ID", "XDR Source ID", "XDR Unique ID", "XDR Patient ID"]
    size = str((await mail.get_messages("INBOX.Sent"))[0]["size"])
    sent = "2026-05-01T12:00:00.000+0000"
    assert rows == [
        [ALICE, f"{odd}@hisp.test", smtp_ids[0], size, "Delivered", sent, "", "", "", ""],
        [ALICE, "nomdn@hisp.test", smtp_ids[0], size, "Waiting", sent, "", "", "", ""],
    ]
    assert (await many(mail, smtp_ids[1:]))["hasCvData"] is False


async def test_csv_can_be_switched_on_for_every_report(mail: MessagingServer) -> None:
    mail.sandbox.csv_above = 0
    assert (await mail.call_ok("GetMessageStatus", await mail.send()))["hasCvData"] is True
    assert (await mail.call_ok("GetMessageStatus", "<unknown@x>"))["hasCvData"] is False


async def test_a_final_status_does_not_depend_on_the_clock(mail: MessagingServer) -> None:
    smtp_id = await mail.send("nomdn@hisp.test")
    await mail.sandbox.set_message_status(smtp_id, "NoMDN@hisp.test", "Remotely Failed")
    mail.clock.advance(timedelta(hours=2))
    assert (await status(mail, smtp_id))[0] == "Remotely Failed"
    with pytest.raises(LookupError):
        await mail.sandbox.set_message_status(smtp_id, BOB, "Delivered")
    with pytest.raises(ValueError, match="there is no status 'Lost': use one of Delivered, Waiting, "):
        await mail.sandbox.set_message_status(smtp_id, "nomdn@hisp.test", "Lost")


async def test_a_message_to_the_sender_is_delivered(mail: MessagingServer) -> None:
    await mail.call_ok("Send", message=make_message(ALICE))
    assert (await mail.get_uids(), await mail.get_uids("INBOX.Sent")) == ([1], [1])
