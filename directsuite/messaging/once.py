"""Sending once: a mark in the message's header by which it can be found in INBOX.Sent, should its answer get lost."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

import attrs

from directsuite.errors import InvalidArgumentError
from directsuite.messaging.models import Message, MessageHeader, MessageWithHeader, SendMessageResponse
from directsuite.messaging.reading import Reading

SENT = "INBOX.Sent"
REQUEST_ID = "X-Request-ID"
CLOCK_SKEW = timedelta(minutes=15)
"""How far the server's clock may be behind ours."""


def request_id(address: str, key: str) -> str:
    """The mark that stands for a caller's key: a hash, since the recipients see it."""
    return hashlib.sha256(f"directsuite\0{address.lower()}\0{key}".encode()).hexdigest()[:32]


def marked(message: Message, mark: str) -> MessageWithHeader:
    """The message with the mark in its header."""
    headers = list(message.headers) if isinstance(message, MessageWithHeader) else []
    if any((header.name or "").lower() == REQUEST_ID.lower() for header in headers):
        raise InvalidArgumentError(f"leave {REQUEST_ID} out: send_once sets it", parameter="headers")
    return MessageWithHeader(
        sender=message.sender,
        subject=message.subject,
        body=message.body,
        html_body=message.html_body,
        recipients=message.recipients,
        attachment_list=message.attachment_list,
        headers=[*headers, MessageHeader(REQUEST_ID, mark)],
        extra=message.extra,
    )


@attrs.define
class SentMessage:
    """A message that may be in INBOX.Sent. shows_marks: whether this server was seen to show such marks in metadata."""

    mailbox: Reading
    mark: str
    since: datetime
    shows_marks: bool = False

    async def find(self) -> SendMessageResponse | None:
        """The answer that its send would have got, where it is there."""
        begin = self.since - CLOCK_SKEW
        for message in await self.mailbox.search_messages_metadata_by_received_date(SENT, begin, None):
            marks = [header.value for header in message.headers if (header.name or "").lower() == REQUEST_ID.lower()]
            self.shows_marks = self.shows_marks or bool(marks)
            if self.mark in marks:
                return SendMessageResponse(success=True, code=0, smtp_id=message.msg_id)
        return None
