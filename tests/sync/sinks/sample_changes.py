"""Messages and changes for tests of sinks."""

from __future__ import annotations

from datetime import UTC, datetime

import directsuite as ds
from directsuite.messaging.models import MessageDetail, MessageHeader
from directsuite.sync.model import Change, Key, Kind

RECEIVED_AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


def make_key(uid: int = 1, folder: str = "INBOX", *, uid_validity: int = 1, mailbox: str = "nurse@direct.test") -> Key:
    return Key(mailbox, folder, uid_validity, uid)


def make_message(number: int = 1, **fields: object) -> MessageDetail:
    told: dict[str, object] = {
        "sender": "Dr. Änne Müller <anne@direct.test>",
        "subject": f"Befund {number} – Grüße",
        "body": f"Line one of {number}\nüber = alles\n",
        "recipients": [ds.Recipient("nurse@direct.test"), ds.Recipient("bob@direct.test", ds.RecipientType.CC)],
        "msg_id": f"<{number}@direct.test>",
        "received_date": RECEIVED_AT,
        "headers": [MessageHeader("X-Priority", "1"), MessageHeader("Content-Type", "text/evil")],
        "attachments": [
            ds.Attachment(content=bytes(range(256)) * 3, content_type="application/pdf", filename="a b.pdf"),
            ds.Attachment(content=b"<x/>\r\n", content_type='text/xml; charset="utf-8"', filename="Ö.xml"),
        ],
    }
    return MessageDetail(**{**told, **fields})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def make_new(where: Key, number: int = 1) -> Change:
    return Change(kind=Kind.NEW, key=where, message=make_message(number), digest=f"{number:032x}")


def make_gone(where: Key, number: int = 1) -> Change:
    return Change(kind=Kind.GONE, key=where, digest=f"{number:032x}")


def make_moved(previous: Key, where: Key, number: int = 1, *, with_message: bool = False) -> Change:
    message = make_message(number) if with_message else None
    return Change(kind=Kind.MOVED, key=where, previous=previous, message=message, digest=f"{number:032x}")


def make_restored(previous: Key, where: Key, number: int = 1) -> Change:
    return Change(
        kind=Kind.RESTORED, key=where, previous=previous, message=make_message(number), digest=f"{number:032x}"
    )
