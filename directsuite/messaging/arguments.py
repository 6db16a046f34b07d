"""Validate the arguments of the messaging facades before a request, and format them for paths and bodies."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar, cast

import attrs

from directsuite.core.events import Meter, Progress
from directsuite.core.upload import AT_ONCE, Content, InMemory, RequestBody, examine, nothing
from directsuite.errors import InvalidArgumentError
from directsuite.messaging.models import (
    Attachment,
    Message,
    MessageHeader,
    MessageWithHeader,
    Recipient,
    SendRequest,
)
from directsuite.wire import base64
from directsuite.wire.codec import Codec
from directsuite.wire.dates import milliseconds
from directsuite.wire.models import MAX_UID, require_instance, require_instances, require_text

M = TypeVar("M", bound=Message)

INBOX = "INBOX"
RESERVED = ("INBOX", "INBOX.Sent", "INBOX.Templates", "INBOX.Drafts", "INBOX.Spam")
"""Folders that cannot be created, renamed or deleted (specification 4.C, notes)."""

_RESERVED = frozenset(name.lower() for name in RESERVED)
_BREAKS = re.compile(r"[\r\n\x00]")
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)
_END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def address(value: object, parameter: str) -> str:
    """Return an address. Raises InvalidArgumentError if it is not valid.

    It must have exactly one `@`, with text on both sides, and no line break or NUL.
    """
    text = value if isinstance(value, str) else ""
    local, at, domain = text.partition("@")
    if not (local and at and domain) or "@" in domain or _BREAKS.search(text):
        raise InvalidArgumentError("give an address such as name@direct.example.org", parameter=parameter)
    return text


def texts(several: Iterable[str], parameter: str) -> list[str]:
    """Return texts as a list. Raises InvalidArgumentError if one is empty, or `several` is itself a str."""
    listed = [] if isinstance(several, str) else require_instances(several, str, parameter)
    if isinstance(several, str) or not all(listed):
        raise InvalidArgumentError("give a list of texts that are not empty", parameter=parameter)
    return listed


def checked_uids(uids: Iterable[int]) -> list[int]:
    """Return uids as a list. Raises InvalidArgumentError if one is not an int from 0 to MAX_UID."""
    listed = require_instances(uids, object, "uids")
    if not all(type(uid) is int and 0 <= uid <= MAX_UID for uid in listed):
        raise InvalidArgumentError("give uids as get_uids returns them: whole numbers, not negative", parameter="uids")
    return cast("list[int]", listed)


def recipients(several: Iterable[Recipient | str]) -> list[Recipient]:
    """Return Recipients for a mixture of Recipients and addresses. Raises InvalidArgumentError if one is invalid."""
    if isinstance(several, str):
        raise InvalidArgumentError("give a list of recipients", parameter="recipients")
    entries = require_instances(several, object, "recipients")
    listed = [Recipient(entry) if isinstance(entry, str) else entry for entry in entries]
    return _checked_recipients(listed)


def _checked_recipients(several: Sequence[object]) -> list[Recipient]:
    listed = require_instances(several, Recipient, "recipients")
    for number, entry in enumerate(listed):
        address(entry.email, f"recipients[{number}]")
    return listed


def checked_message(message: M, sender: str) -> M:
    """Return a copy of the message, with `sender` as the sender if it has none.

    Raises InvalidArgumentError if the message has a different sender (case is ignored), no recipient, an invalid
    address, an attachment without a content type or file name, or a header with no name or a line break.
    """
    require_instance(message, Message, "message")
    if message.sender is not None:
        address(message.sender, "sender")
    if message.sender is not None and message.sender.lower() != sender.lower():
        raise InvalidArgumentError("the sender has to be the mailbox's own address; leave it out", parameter="sender")
    if not message.recipients:
        raise InvalidArgumentError("name at least one Recipient", parameter="recipients")
    _checked_recipients(message.recipients)
    attachments = require_instances(message.attachment_list, Attachment, "attachment_list")
    if not all(attachment.content_type and attachment.filename for attachment in attachments):
        raise InvalidArgumentError("each Attachment needs content_type and filename", parameter="attachment_list")
    for header in require_instances(getattr(message, "headers", ()), MessageHeader, "headers"):
        if _BREAKS.search(f"{header.name}{header.value}") or not header.name:
            raise InvalidArgumentError("a header has a name, and no line breaks", parameter="headers")
    return attrs.evolve(message, sender=message.sender or sender)


def changeable_folder(value: object, parameter: str) -> str:
    """Return a folder that may be created, renamed or deleted. Raises InvalidArgumentError if it is reserved."""
    folder = require_text(value, parameter)
    if folder.lower() in _RESERVED:
        raise InvalidArgumentError(
            "this folder is reserved: it can't be created, renamed or deleted", parameter=parameter
        )
    return folder


def new_folder(value: object, parameter: str) -> str:
    """Return a folder that may be created. Raises InvalidArgumentError if it is outside INBOX or reserved."""
    folder = value if isinstance(value, str) else ""
    if not folder.lower().startswith("inbox.") or len(folder) == len("inbox."):
        raise InvalidArgumentError("the name of a new folder starts with 'INBOX.'", parameter=parameter)
    return changeable_folder(folder, parameter)


def span_in_milliseconds(begin: datetime | None, end: datetime | None) -> tuple[str, str]:
    """Return two inclusive limits as Unix timestamps in milliseconds. None: no limit.

    Raises InvalidArgumentError if a datetime is naive, or `end` is before `begin`.
    """
    _check_span(begin, end)
    return (
        "0" if begin is None else str(milliseconds(within_years(begin))),
        str(-((_BEGINNING - within_years(end or _END)) // timedelta(milliseconds=1))),
    )


def span_in_utc(begin: datetime | None, end: datetime | None) -> tuple[str, str]:
    """Return two inclusive limits in the format yyyyMMddHHmmss, in UTC. None: no limit.

    `begin` is rounded down, and `end` is rounded up to a second. Raises InvalidArgumentError if a datetime is naive, or
    `end` is before `begin`.
    """
    _check_span(begin, end)
    first = within_years(begin or _BEGINNING)
    last = within_years(end or _END)
    if last.microsecond:
        last = last.replace(microsecond=0) + timedelta(seconds=1)
    return _compact(first), _compact(last)


def within_years(moment: datetime) -> datetime:
    """Return the time in UTC, limited to the range from FIRST to the last complete second of the year 9999."""
    return min(max(moment, FIRST), _END).astimezone(UTC)


def _compact(moment: datetime) -> str:
    return f"{moment.year:04}{moment:%m%d%H%M%S}"  # %Y is not padded on every platform


def aware(moment: datetime, parameter: str) -> datetime:
    """Return an aware datetime. Raises InvalidArgumentError if it is naive."""
    if require_instance(moment, datetime, parameter).utcoffset() is None:  # possible even if tzinfo is set
        raise InvalidArgumentError("give an aware datetime, with a time zone", parameter=parameter)
    return moment


def _check_span(begin: datetime | None, end: datetime | None) -> None:
    for parameter, moment in (("begin", begin), ("end", end)):
        if moment is not None:
            aware(moment, parameter)
    if begin is not None and end is not None and within_years(begin) > within_years(end):
        raise InvalidArgumentError("it lies before begin", parameter="end")


def flag(value: bool) -> str:
    """Return a bool as a path segment: true or false."""
    return "true" if value else "false"


async def send_body(codec: Codec, request: SendRequest, progress: Progress | None = None) -> RequestBody:
    """Return the body of a request to send a message.

    Attachments from paths, files and streams are read and encoded while they are sent. Attachments in memory are also
    encoded then if they are large. Raises InvalidArgumentError if an attachment can't be read, or was already used and
    can't be read again, or if a custom converter does not encode contents as base64.

    progress: called with the total number of bytes sent of the attachments from paths, files and streams.
    """
    meter = Meter(progress)
    attachments = _with_sources(request.message.attachment_list)
    sources = [attachment.source for attachment in attachments if attachment.source is not None]
    if not sources:
        return RequestBody.of(codec.encode(request))
    mark = secrets.token_bytes(24)  # placeholder for a streamed content; random, so that it occurs nowhere else
    marked = [each if each.source is None else attrs.evolve(each, content=mark) for each in attachments]
    request = attrs.evolve(request, message=attrs.evolve(request.message, attachment_list=marked))
    texts = codec.encode(request).split(base64.encode(mark))
    if len(texts) != len(sources) + 1:
        reason = "the converter writes contents otherwise than as base64, and so not those that are streamed"
        raise InvalidArgumentError(reason, parameter="attachment_list")
    parts = [RequestBody.of(texts[0])]
    contents = [await _content(each.source, n) for n, each in enumerate(attachments) if each.source is not None]
    callbacks = [None if progress is None or isinstance(content, InMemory) else meter.advance for content in contents]
    for content, accepted, text in zip(contents, callbacks, texts[1:], strict=True):
        content.refuse_taken("attachment_list")
        parts += [RequestBody.base64(content, accepted), RequestBody.of(text)]
    sizes = [content.size for content in contents if not isinstance(content, InMemory)]
    meter.total = None if None in sizes else sum(size for size in sizes if size is not None)
    return RequestBody.joined(parts, meter.begin if sizes else nothing)


async def digest_of(message: Message) -> str:
    """Return a digest of a message's content, headers and recipients.

    If an attachment's stream can be read only once, the digest covers only its file name and content type. Raises
    InvalidArgumentError if the file of an attachment does not exist.
    """
    digest = hashlib.sha256()
    for text in _texts_of(message):
        coded = (text or "").encode("utf-8", "surrogatepass")
        digest.update(len(coded).to_bytes(8) + coded)
    for number, attachment in enumerate(message.attachment_list):
        source = InMemory(attachment.content) if attachment.source is None else attachment.source
        content = await _content(source, number)
        if content.replayable:
            part = hashlib.sha256()
            async with aclosing(content.pieces()) as pieces:
                async for piece in pieces:
                    part.update(piece)
                    await asyncio.sleep(0)  # a large attachment in memory would block the event loop
            digest.update(part.digest())
    return digest.hexdigest()


def _texts_of(message: Message) -> Iterable[str | None]:
    yield from (message.subject, message.body, str(message.html_body))
    for recipient in sorted((str(each.type), (each.email or "").lower()) for each in message.recipients):
        yield from recipient
    for header in message.headers if isinstance(message, MessageWithHeader) else ():
        yield from (header.name, header.value)
    for attachment in message.attachment_list:
        yield from (attachment.filename, attachment.content_type)


async def _content(source: Path | Content, number: int) -> Content:
    """Return the content of an attachment's source. Paths are opened in a thread, because file systems may be slow."""
    if isinstance(source, Content):
        return source
    return (await examine(source, head=0, parameter=f"attachment_list[{number}]", size=None))[0]


def _with_sources(attachments: list[Attachment]) -> list[Attachment]:
    """Return the attachments. If their contents in memory exceed AT_ONCE bytes, make them sources, encoded later."""
    if sum(len(attachment.content) for attachment in attachments if attachment.source is None) <= AT_ONCE:
        return attachments
    return [
        attrs.evolve(attachment, content=b"", source=InMemory(attachment.content))
        if attachment.source is None and attachment.content
        else attachment
        for attachment in attachments
    ]
