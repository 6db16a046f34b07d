"""Validate the arguments of the messaging facades before a request, and format them for paths and bodies."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Iterable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar, cast

import attrs
import pybase64

from directsuite.core.content import Content, MemoryContent, inspect_source
from directsuite.core.events import Progress, ProgressReporter
from directsuite.core.upload import MAX_UNINTERRUPTED_BYTES, RequestBody, do_nothing
from directsuite.errors import InvalidArgumentError
from directsuite.messaging.models import (
    Attachment,
    Message,
    MessageHeader,
    MessageWithHeader,
    Recipient,
    RecipientType,
    SendRequest,
    to_recipients,
)
from directsuite.wire.codec import Codec
from directsuite.wire.models import MAX_UID, require_instance, require_instances, require_text
from directsuite.wire.values import to_milliseconds

M = TypeVar("M", bound=Message)

INBOX = "INBOX"
RESERVED_FOLDERS = ("INBOX", "INBOX.Sent", "INBOX.Templates", "INBOX.Drafts", "INBOX.Spam")
"""Folders that cannot be created, renamed or deleted (specification 4.C, notes)."""

_RESERVED_FOLDERS_LOWER = frozenset(name.lower() for name in RESERVED_FOLDERS)
_LINE_BREAK_CHARS = re.compile(r"[\r\n\x00]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MIN_DATETIME = datetime(1, 1, 1, tzinfo=UTC)
_MAX_DATETIME = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def validate_address(value: object, parameter: str) -> str:
    """Return an address. Raises InvalidArgumentError if it is not valid.

    It must have exactly one `@`, with text on both sides, and no line break or NUL.
    """
    text = value if isinstance(value, str) else ""
    local, at, domain = text.partition("@")
    if not (local and at and domain) or "@" in domain or _LINE_BREAK_CHARS.search(text):
        raise InvalidArgumentError("must be an address such as name@direct.example.org", parameter=parameter)
    return text


def validate_texts(values: Iterable[str], parameter: str) -> list[str]:
    """Return texts as a list. Raises InvalidArgumentError if one is empty or not a str, or `values` is a str."""
    listed = [] if isinstance(values, str) else require_instances(values, str, parameter)
    if isinstance(values, str) or not all(listed):
        raise InvalidArgumentError("must be a list of texts that are not empty", parameter=parameter)
    return listed


def validate_uids(uids: Iterable[int]) -> list[int]:
    """Return uids as a list. Raises InvalidArgumentError if one is not an int from 0 to MAX_UID."""
    listed = require_instances(uids, object, "uids")
    if not all(type(uid) is int and 0 <= uid <= MAX_UID for uid in listed):
        raise InvalidArgumentError(
            "must be uids as get_uids returns them: whole numbers, not negative", parameter="uids"
        )
    return cast("list[int]", listed)


def validate_recipients(values: Iterable[Recipient | str]) -> list[Recipient]:
    """Return Recipients, made from addresses where necessary.

    Raises InvalidArgumentError if one is invalid, or `values` is itself a str.
    """
    listed = require_instances(to_recipients(values), Recipient, "recipients")
    for number, entry in enumerate(listed):
        validate_address(entry.email, f"recipients[{number}]")
        if not RecipientType(str(entry.type).upper()).is_known:
            raise InvalidArgumentError("the type must be TO, CC or BCC", parameter=f"recipients[{number}]")
    return listed


def validate_message(message: M | None, sender: str, *, attachments_parameter: str = "attachment_list") -> M:
    """Return a copy of the message, with `sender` as the sender if it has none.

    attachments_parameter: the name of the caller's parameter for the attachments, for errors.

    Raises InvalidArgumentError if the message has a different sender (case is ignored), no recipient, an invalid
    address, a subject or body that is not a str, a line break in the subject or a header, a header without a name, or
    an attachment without a content type or file name.
    """
    message = cast("M", require_instance(message, Message, "message"))
    for name, text in (("subject", message.subject), ("body", message.body)):
        require_instance("" if text is None else text, str, name)
    if _LINE_BREAK_CHARS.search(message.subject or ""):
        raise InvalidArgumentError("give one line of text, without line breaks and NUL", parameter="subject")
    if message.sender is not None:
        validate_address(message.sender, "sender")
    if message.sender is not None and message.sender.lower() != sender.lower():
        raise InvalidArgumentError("must be the mailbox's address, or be omitted", parameter="sender")
    if not message.recipients:
        raise InvalidArgumentError("at least one Recipient is required", parameter="recipients")
    validate_recipients(message.recipients)
    attachments = require_instances(message.attachment_list, Attachment, attachments_parameter)
    if not all(attachment.content_type and attachment.filename for attachment in attachments):
        raise InvalidArgumentError(
            "each Attachment must have a content_type and a filename", parameter=attachments_parameter
        )
    for header in require_instances(getattr(message, "headers", ()), MessageHeader, "headers"):
        if _LINE_BREAK_CHARS.search(f"{header.name}{header.value}") or not header.name:
            raise InvalidArgumentError("each header must have a name, and no line breaks", parameter="headers")
    return attrs.evolve(message, sender=message.sender or sender)


def validate_changeable_folder(value: object, parameter: str) -> str:
    """Return a folder that may be changed. Raises InvalidArgumentError if its name is reserved or empty."""
    folder = require_text(value, parameter)
    if folder.lower() in _RESERVED_FOLDERS_LOWER:
        raise InvalidArgumentError(
            "this folder is reserved and cannot be created, renamed or deleted: give another one", parameter=parameter
        )
    return folder


def validate_new_folder(value: object, parameter: str) -> str:
    """Return a folder that may be created.

    Raises InvalidArgumentError if its name is reserved or does not start with `INBOX.`.
    """
    folder = value if isinstance(value, str) else ""
    if not folder.lower().startswith("inbox.") or len(folder) == len("inbox."):
        raise InvalidArgumentError("the name of a new folder must start with 'INBOX.'", parameter=parameter)
    return validate_changeable_folder(folder, parameter)


def format_span_in_milliseconds(begin: datetime | None, end: datetime | None) -> tuple[str, str]:
    """Return two inclusive limits as Unix timestamps in milliseconds. None: 1970, or the end of 9999.

    `begin` is rounded down, `end` is rounded up. Raises InvalidArgumentError if a datetime is naive, or `end` is before
    `begin`.
    """
    first, last = _clamp_span(begin, end)
    return str(to_milliseconds(first)), str(-((_EPOCH - last) // timedelta(milliseconds=1)))


def format_span_in_utc(begin: datetime | None, end: datetime | None) -> tuple[str, str]:
    """Return two inclusive limits as yyyyMMddHHmmss in UTC.

    Rounding, None and errors: see `format_span_in_milliseconds`.
    """
    first, last = _clamp_span(begin, end)
    if last.microsecond:
        last = last.replace(microsecond=0) + timedelta(seconds=1)
    return _format_compact(first), _format_compact(last)


def clamp_datetime(moment: datetime) -> datetime:
    """Return an aware datetime in UTC, limited to MIN_DATETIME and _MAX_DATETIME."""
    return min(max(moment, MIN_DATETIME), _MAX_DATETIME).astimezone(UTC)


def _format_compact(moment: datetime) -> str:
    return f"{moment.year:04}{moment:%m%d%H%M%S}"  # %Y is not padded on every platform


def validate_aware(moment: datetime, parameter: str) -> datetime:
    """Return the datetime. Raises InvalidArgumentError if it is naive."""
    if require_instance(moment, datetime, parameter).utcoffset() is None:  # possible even if tzinfo is set
        raise InvalidArgumentError("must be an aware datetime, with a time zone", parameter=parameter)
    return moment


def _clamp_span(begin: datetime | None, end: datetime | None) -> tuple[datetime, datetime]:
    for parameter, moment in (("begin", begin), ("end", end)):
        if moment is not None:
            validate_aware(moment, parameter)
    first, last = clamp_datetime(begin or _EPOCH), clamp_datetime(end or _MAX_DATETIME)
    if begin is not None and first > last:
        raise InvalidArgumentError("must not be before begin", parameter="end")
    return first, last


async def make_send_body(
    codec: Codec,
    request: SendRequest,
    progress: Progress | None = None,
    *,
    attachments_parameter: str = "attachment_list",
) -> RequestBody:
    """Return the body of a request to send a message.

    Attachments from paths, files and streams are read and encoded while they are sent. Attachments in memory are also
    encoded then if they are large. Raises InvalidArgumentError if an attachment cannot be read, a stream was already
    sent, or a custom converter does not encode such attachments as base64.

    progress: called with the number of bytes sent of all attachments from paths, files and streams.
    attachments_parameter: as for `validate_message`.
    """
    meter = ProgressReporter(progress)
    attachments = _defer_large_contents(request.message.attachment_list)
    sources = [attachment.source for attachment in attachments if attachment.source is not None]
    if not sources:
        return RequestBody.from_bytes(codec.encode(request))
    placeholder = secrets.token_bytes(24)  # random, so that it occurs nowhere else
    with_placeholders = [
        each if each.source is None else attrs.evolve(each, content=placeholder) for each in attachments
    ]
    request = attrs.evolve(request, message=attrs.evolve(request.message, attachment_list=with_placeholders))
    texts = codec.encode(request).split(pybase64.b64encode(placeholder))
    if len(texts) != len(sources) + 1:
        reason = "the converter does not encode contents as base64, so streamed contents are not supported"
        raise InvalidArgumentError(reason, parameter=attachments_parameter)
    parts = [RequestBody.from_bytes(texts[0])]
    contents = [
        await _open_content(each.source, f"{attachments_parameter}[{number}]")
        for number, each in enumerate(attachments)
        if each.source is not None
    ]
    callbacks = [
        None if progress is None or isinstance(content, MemoryContent) else meter.advance for content in contents
    ]
    for content, accepted, text in zip(contents, callbacks, texts[1:], strict=True):
        content.validate_unconsumed(attachments_parameter)
        parts += [RequestBody.from_content(content, accepted), RequestBody.from_bytes(text)]
    sizes = [content.size for content in contents if not isinstance(content, MemoryContent)]
    meter.total = None if None in sizes else sum(size for size in sizes if size is not None)
    return RequestBody.join(parts, meter.begin if sizes else do_nothing)


async def compute_message_digest(message: Message) -> str:
    """Return a digest of a message's texts, headers, recipients and attachments.

    Of an attachment that can be read only once, it covers only the file name and content type. Raises
    InvalidArgumentError if the file of an attachment cannot be read.
    """
    digest = hashlib.sha256()
    for text in _iter_texts(message):
        coded = (text or "").encode("utf-8", "surrogatepass")
        digest.update(len(coded).to_bytes(8) + coded)
    for number, attachment in enumerate(message.attachment_list):
        source = MemoryContent(attachment.content) if attachment.source is None else attachment.source
        content = await _open_content(source, f"attachment_list[{number}]")
        if content.replayable:
            part = hashlib.sha256()
            async with aclosing(content.pieces()) as pieces:
                async for piece in pieces:
                    part.update(piece)
                    await asyncio.sleep(0)  # a large attachment in memory would block the event loop
            digest.update(part.digest())
    return digest.hexdigest()


def _iter_texts(message: Message) -> Iterable[str | None]:
    yield from (message.subject, message.body, str(message.html_body))
    for recipient in sorted((str(each.type), (each.email or "").lower()) for each in message.recipients):
        yield from recipient
    for header in message.headers if isinstance(message, MessageWithHeader) else ():
        yield from (f"{header.name}:", header.value)  # otherwise a header named CC would be the same as a recipient
    for attachment in message.attachment_list:
        yield from (attachment.filename, attachment.content_type)


async def _open_content(source: Path | Content, parameter: str) -> Content:
    if isinstance(source, Content):
        return source
    return (await inspect_source(source, head=0, parameter=parameter, size=None))[0]


def _defer_large_contents(attachments: list[Attachment]) -> list[Attachment]:
    if (
        sum(len(attachment.content) for attachment in attachments if attachment.source is None)
        <= MAX_UNINTERRUPTED_BYTES
    ):
        return attachments
    return [
        attrs.evolve(attachment, content=b"", source=MemoryContent(attachment.content))
        if attachment.source is None and attachment.content
        else attachment
        for attachment in attachments
    ]
