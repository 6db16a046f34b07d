"""The operations that bring new messages in: Send and its variants, Forward, SaveRawMessages.

Composing and parsing happen in a thread of their own; only rows are written in the writer's transaction, all of an
operation's at once: the copy in INBOX.Sent, the mailboxes of recipients here, the fates of the others, the ledger.
"""

from __future__ import annotations

import asyncio
import binascii
import html
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pybase64

from directsuite.sandbox.messaging import Code, Refusal, accounts, delivery, folders, store
from directsuite.sandbox.messaging.composition import Composed, Draft, compose, require_recipients
from directsuite.sandbox.messaging.parsing import Attachment, Content, Reading, content_of, read_message
from directsuite.sandbox.messaging.requests import (
    MessageWithHeader,
    RawMessagesRequest,
    Recipient,
    SendRequest,
    SendRequestWithHeader,
    UidsRequest,
)
from directsuite.sandbox.registration.patients import WITHOUT_CERTIFICATE, state_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from directsuite.sandbox.database import Database
    from directsuite.sandbox.messaging.requests import Answer, Call


class _Outgoing(NamedTuple):
    smtp_id: str
    recipients: Sequence[Recipient]
    message: Composed


async def send(call: Call[SendRequest] | Call[SendRequestWithHeader], database: Database) -> Answer:
    """Send, SendWithHeader and their T-User forms."""
    message = call.request.message
    if message.sender.casefold() != call.address.casefold():
        raise Refusal(Code.ADDRESS, "The sender is not the mailbox that the credentials open")
    outgoing = await asyncio.to_thread(lambda: _outgoing(call, _draft(call.request)))
    return await database.write(lambda connection: _store(connection, call, outgoing))


async def forward(call: Call[UidsRequest], database: Database) -> Answer:
    """Forward: one message inline with its attachments, several as attachments."""
    recipients = _distinct(call.request.addressees())
    require_recipients(recipients)
    originals = await database.read(
        lambda connection: store.raw_messages(connection, call.folder(connection).id, call.request.uids)
    )
    if not originals:
        raise Refusal(Code.OTHER, "There is no message with these uids")
    outgoing = await asyncio.to_thread(_forwarded, call, recipients, [original.raw for original in originals])
    return await database.write(lambda connection: _store(connection, call, outgoing))


async def save_raw_messages(call: Call[RawMessagesRequest], database: Database) -> Answer:
    """SaveRawMessages: append to the folder, all or nothing."""
    contents = await asyncio.to_thread(
        lambda: [content_of(_decoded(message.data, "data")) for message in call.request.messages]
    )

    return await database.write(lambda connection: _append(connection, call, contents))


def _append(connection: sqlite3.Connection, call: Call[RawMessagesRequest], contents: Iterable[Content]) -> Answer:
    folder = call.folder(connection)
    uids = [store.append(connection, folder.id, content, received_ms=call.at_ms) for content in contents]
    call.record(connection, folder.name, uids=uids)
    return {}


def _draft(request: SendRequest | SendRequestWithHeader) -> Draft:
    message = request.message
    headers = message.headers or [] if isinstance(message, MessageWithHeader) else []
    return Draft(
        sender=message.sender,
        recipients=_distinct(message.recipients),
        subject=message.subject,
        body=message.body or "",
        html_body=message.html_body,
        attachments=[
            Attachment(part.filename, part.content_type, _decoded(part.content, "content"))
            for part in (message.attachment_list or message.attachments or [])
        ],
        headers=[(header.name, header.value) for header in headers],
    )


def _forwarded(call: Call[UidsRequest], recipients: Sequence[Recipient], originals: Sequence[bytes]) -> _Outgoing:
    readings = [read_message(raw) for raw in originals]
    subject = _subject(readings[0]) if len(originals) == 1 else f"{len(originals)} messages"
    draft = Draft(sender=call.address, recipients=recipients, subject=f"Fwd: {subject}", body="")
    attached = draft._replace(
        body="The forwarded messages are attached.",
        attachments=[
            Attachment(f"message-{number}.eml", "message/rfc822", raw) for number, raw in enumerate(originals, start=1)
        ],
    )
    if len(originals) > 1:
        return _outgoing(call, attached)
    try:
        return _outgoing(call, _inline(draft, readings[0]))
    except Refusal as refusal:
        if refusal.code is Code.ADDRESS:
            raise
        return _outgoing(call, attached)  # a part of the original cannot be carried over as it is


def _inline(draft: Draft, original: Reading) -> Draft:
    headers = [f"{name}: {original.text(name.lower()) or ''}" for name in ("From", "Date", "Subject", "To")]
    lines = ["---------- Forwarded message ----------", *headers]
    if original.html_body:
        introduction = f"<p>{'<br>'.join(html.escape(line) for line in lines)}</p>\r\n"
    else:
        introduction = "\r\n".join(lines) + "\r\n\r\n"
    return draft._replace(
        body=introduction + original.body, html_body=original.html_body, attachments=original.attachments
    )


def _subject(original: Reading) -> str:
    return (original.text("subject") or "").replace("\0", "")


def _outgoing(call: Call[Any], draft: Draft) -> _Outgoing:
    smtp_id = f"<{uuid.uuid4()}@{draft.sender.rpartition('@')[2]}>"
    at = datetime.fromtimestamp(call.at_ms / 1000, UTC)
    return _Outgoing(smtp_id, draft.recipients, compose(draft, message_id=smtp_id, at=at))


def _store(connection: sqlite3.Connection, call: Call[Any], outgoing: _Outgoing) -> Answer:
    if state_of(connection, call.address, call.at_ms) in WITHOUT_CERTIFICATE:
        raise Refusal(Code.ADDRESS, "Outbound messages are rejected: the certificate has expired or is revoked")
    sent_folder = folders.folder_id(connection, call.account, folders.SENT)
    store.append(connection, sent_folder, outgoing.message.own_copy, received_ms=call.at_ms)
    fates = [(recipient.email, _deliver(connection, call, outgoing, recipient)) for recipient in outgoing.recipients]
    size = len(outgoing.message.delivered.raw)
    sent = delivery.Sent(outgoing.smtp_id, call.account, call.address, size, call.at_ms)
    delivery.record_sent(connection, sent, fates)
    call.record(connection, outgoing.smtp_id, sender=call.address, recipients=len(fates))
    return {"smtpId": outgoing.smtp_id}


def _deliver(
    connection: sqlite3.Connection, call: Call[Any], outgoing: _Outgoing, recipient: Recipient
) -> delivery.Fate:
    account = accounts.account_id(connection, recipient.email)
    if account is None:
        return delivery.fate_of(recipient.email, accounts.domains(connection))
    if state_of(connection, recipient.email, call.at_ms) in WITHOUT_CERTIFICATE:
        return delivery.REJECTED_HERE
    inbox = folders.folder_id(connection, account, folders.INBOX)
    store.append(connection, inbox, outgoing.message.delivered, received_ms=call.at_ms)
    return delivery.MAILBOX_HERE


def _distinct(recipients: Iterable[Recipient]) -> list[Recipient]:
    """The recipients, each address once, where it was first named."""
    first: dict[str, Recipient] = {}
    for recipient in recipients:
        first.setdefault(recipient.email.casefold(), recipient)
    return list(first.values())


def _decoded(text: str, member: str) -> bytes:
    try:
        return pybase64.b64decode("".join(text.split()).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise Refusal(Code.OTHER, f"{member} is not base64") from None
