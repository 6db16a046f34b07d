"""Operations that create messages: Send and its variants, Forward, SaveRawMessages, and delivery from outside.

A thread composes and parses messages. Then all rows of an operation are written in one transaction.

A message (RFC 5322) is composed from bytes, part by part, so that a large attachment is encoded and copied once.
Values that would change its structure, such as line breaks in a header, are rejected. A message of more than 1 MiB is
written to a file.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

import pybase64

from directsuite.sandbox.database import record_effect
from directsuite.sandbox.files import FileRange
from directsuite.sandbox.messaging import delivery, mailboxes
from directsuite.sandbox.messaging.headers import MAX_PLAIN_VALUE_CHARS, fold, format_header
from directsuite.sandbox.messaging.parsing import (
    MAX_PARTS,
    MAX_RECIPIENTS,
    MessageAttachment,
    ParsedMessage,
    StoredContent,
    build_content,
    read_message,
)
from directsuite.sandbox.messaging.requests import (
    MessageWithHeader,
    RawMessagesRequest,
    Recipient,
    SendRequest,
    SendRequestWithHeader,
    UidsRequest,
)
from directsuite.sandbox.patients import STATES_WITHOUT_CERTIFICATE, find_user_state
from directsuite.sandbox.rejections import MessagingCode, MessagingError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from directsuite.sandbox.database import SandboxDatabase
    from directsuite.sandbox.files import StoredFiles
    from directsuite.sandbox.messaging.requests import MessagingCall, ResponseMembers

T = TypeVar("T")
U = TypeVar("U")
NewFileFn = Callable[[], Path]
"""Creates a file to write, in any thread."""
_Piece = bytes | Callable[[], Iterator[bytes]]
"""A part of a message: its bytes, or a function that reads them from a file."""

_MAX_IN_MEMORY_BYTES = 2**20  # of a message in a row of the database
_BASE64_LINE_BYTES = 57

_ATOM = r"[\w!#$%&'*+/=?^`{|}~-]+"  # RFC 5322 section 3.2.3
_ADDRESS = re.compile(rf"{_ATOM}(?:\.{_ATOM})*@[a-z0-9-]+(?:\.[a-z0-9-]+)*", re.ASCII | re.IGNORECASE)
_MAX_ADDRESS_CHARS = 254
_HEADER_NAME = re.compile(r"[!-9;-~]{1,76}")
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+ *(?:;[\t -~]*)?", re.ASCII)
_PLAIN_FILENAME = re.compile(r"[\w(),+.=@-]+(?: +[\w(),+.=@-]+)*", re.ASCII)
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_HEADER_BREAK = re.compile(r"[\r\n\0]")

_SERVICE_HEADERS = frozenset(
    ("from", "sender", "to", "cc", "bcc", "subject", "date", "message-id", "mime-version", "received", "return-path")
)
_MAX_TEXT_LINE_CHARS = 998
_MAX_FILENAME_CHARS = 255
_MAX_PLAIN_FILENAME_CHARS = 60
_MAX_FILENAME_SEGMENT_CHARS = 60


async def send(
    call: MessagingCall[SendRequest] | MessagingCall[SendRequestWithHeader], database: SandboxDatabase
) -> ResponseMembers:
    """Run Send, SendWithHeader or their T-User forms. Return the smtpId."""
    message = call.request.message
    if fold(message.sender) != fold(call.address):
        raise MessagingError(
            "The sender is not the address of the mailbox that the credentials open", MessagingCode.ADDRESS
        )

    return await prepare_and_store(
        call.files,
        database,
        lambda new_file: compose_message(_make_draft(call), call.at_ms, new_file),
        partial(_store_outgoing, call),
    )


async def forward(call: MessagingCall[UidsRequest], database: SandboxDatabase) -> ResponseMembers:
    """Run Forward: one message is forwarded inline with its attachments, several as attachments. Return the smtpId.

    A message with a part that cannot be copied unchanged is also forwarded as an attachment.
    """
    recipients = _remove_duplicates(call.request.list_recipients())
    _validate_recipients(recipients)
    selection = mailboxes.Selection(uids=call.request.uids)
    stored = await database.read(
        lambda connection: mailboxes.list_messages(connection, call.get_folder(connection).id, selection, "raw")
    )
    if not stored:
        raise MessagingError("The folder has no message with any of these uids")
    originals = [each["octets"] if each["name"] is None else call.files[each["name"]] for each in stored]
    compose = partial(_compose_forward, call, recipients, originals)
    with call.files.hold_files([original.name for original in originals if isinstance(original, Path)]):
        return await prepare_and_store(call.files, database, compose, partial(_store_outgoing, call))


async def save_raw_messages(call: MessagingCall[RawMessagesRequest], database: SandboxDatabase) -> ResponseMembers:
    """Run SaveRawMessages: append all messages to the folder, or none. Return no members."""

    def read_contents(new_file: NewFileFn) -> list[StoredContent]:
        contents = (_read_content(call, message.data, "data") for message in call.request.messages)
        return [
            _build_content([content if isinstance(content, bytes) else content.iter_octets], new_file)
            for content in contents
        ]

    def append(connection: sqlite3.Connection, contents: Iterable[StoredContent]) -> ResponseMembers:
        folder, received = call.get_folder(connection), call.at_ms
        uids = [mailboxes.append_message(connection, folder.id, each, received_ms=received) for each in contents]
        call.record(connection, folder.name, uids=uids)
        return {}

    return await prepare_and_store(call.files, database, read_contents, append)


async def prepare_and_store(
    files: StoredFiles,
    database: SandboxDatabase,
    prepare: Callable[[NewFileFn], T],
    store: Callable[[sqlite3.Connection, T], U],
) -> U:
    """Call `prepare` in a thread, then `store` in a transaction. Return the result of `store`.

    prepare: its argument creates files. Those that no row names after `store`, and all after an error, are deleted.
    """
    created = list[str]()
    with ExitStack() as making:

        def create_file() -> Path:
            file = making.enter_context(files.create_file())
            created.append(file.name)
            return file

        prepared = await asyncio.to_thread(prepare, create_file)
        return await files.write(database, lambda connection: store(connection, prepared), created)


async def deliver(
    files: StoredFiles, database: SandboxDatabase, address: str, folder: str, raw: bytes, *, now: int
) -> int:
    """Store a message in a folder of a mailbox, as if it came from outside. Return its uid."""

    def store(connection: sqlite3.Connection, content: StoredContent) -> int:
        account = mailboxes.get_account_id(connection, address)
        if find_user_state(connection, address, now) in STATES_WITHOUT_CERTIFICATE:
            raise MessagingError(
                "Messages to this address are rejected: its certificate has expired or is revoked",
                MessagingCode.ADDRESS,
            )
        folder_id = mailboxes.get_folder(connection, account, folder).id
        uid = mailboxes.append_message(connection, folder_id, content, received_ms=now)
        record_effect(connection, operation="Inbound", subject=address, at=now, folder=folder, uid=uid)
        return uid

    return await prepare_and_store(files, database, lambda new_file: _build_content([raw], new_file), store)


def _make_draft(call: MessagingCall[SendRequest] | MessagingCall[SendRequestWithHeader]) -> Draft:
    message = call.request.message
    headers = message.headers or [] if isinstance(message, MessageWithHeader) else []
    return Draft(
        sender=message.sender,
        recipients=_remove_duplicates(message.recipients),
        subject=message.subject,
        body=message.body or "",
        html_body=message.html_body,
        attachments=[
            MessageAttachment(part.filename, part.content_type, _read_content(call, part.content, "content"))
            for part in (message.attachment_list or message.attachments or [])
        ],
        headers=[(header.name, header.value) for header in headers],
    )


def _compose_forward(
    call: MessagingCall[UidsRequest],
    recipients: Sequence[Recipient],
    originals: Sequence[bytes | Path],
    new_file: NewFileFn,
) -> _ComposedMessage:
    subject, body = f"Fwd: {len(originals)} messages", "The forwarded messages are attached."
    attachments = [
        MessageAttachment(
            f"message-{number}.eml", "message/rfc822", raw if isinstance(raw, bytes) else FileRange.from_file(raw)
        )
        for number, raw in enumerate(originals, start=1)
    ]
    draft = Draft(call.address, recipients, subject, body, attachments=attachments)
    if len(originals) == 1:
        original = read_message(originals[0])
        subject = (original.find_header_text("subject") or "").replace("\0", "")
        draft = draft._replace(subject=f"Fwd: {subject}")
        with suppress(MessagingError):  # a part cannot be copied unchanged
            return compose_message(_inline_original(draft, original), call.at_ms, new_file)
    return compose_message(draft, call.at_ms, new_file)


def _inline_original(draft: Draft, original: ParsedMessage) -> Draft:
    headers = [f"{name}: {original.find_header_text(name.lower()) or ''}" for name in ("From", "Date", "Subject", "To")]
    lines = ["---------- Forwarded message ----------", *headers]
    if original.html_body:
        introduction = f"<p>{'<br>'.join(html.escape(line) for line in lines)}</p>\r\n"
    else:
        introduction = "\r\n".join(lines) + "\r\n\r\n"
    return draft._replace(
        body=introduction + original.body, html_body=original.html_body, attachments=original.attachments
    )


def _store_outgoing(
    call: MessagingCall[Any], connection: sqlite3.Connection, outgoing: _ComposedMessage
) -> ResponseMembers:
    if find_user_state(connection, call.address, call.at_ms) in STATES_WITHOUT_CERTIFICATE:
        raise MessagingError(
            "Messages from this address are rejected: its certificate has expired or is revoked", MessagingCode.ADDRESS
        )
    sent_folder = mailboxes.get_folder(connection, call.account, mailboxes.SENT).id
    mailboxes.append_message(connection, sent_folder, outgoing.sender_copy, received_ms=call.at_ms)
    outcomes = [(recipient.email, _deliver(connection, call, outgoing, recipient)) for recipient in outgoing.recipients]
    delivery.record_sent_message(connection, call, outgoing.smtp_id, outgoing.recipient_copy.size, outcomes)
    call.record(connection, outgoing.smtp_id, sender=call.address, recipients=len(outcomes))
    return {"smtpId": outgoing.smtp_id}


def _deliver(
    connection: sqlite3.Connection, call: MessagingCall[Any], outgoing: _ComposedMessage, recipient: Recipient
) -> delivery.DeliveryOutcome:
    account = mailboxes.find_account_id(connection, recipient.email)
    if account is None:
        return delivery.choose_outcome(recipient.email, mailboxes.list_domains(connection))
    if find_user_state(connection, recipient.email, call.at_ms) in STATES_WITHOUT_CERTIFICATE:
        return delivery.REJECTED_LOCALLY
    inbox = mailboxes.get_folder(connection, account, mailboxes.INBOX).id
    mailboxes.append_message(connection, inbox, outgoing.recipient_copy, received_ms=call.at_ms)
    return delivery.DELIVERED_LOCALLY


def _remove_duplicates(recipients: Iterable[Recipient]) -> list[Recipient]:
    first: dict[str, Recipient] = {}
    for recipient in recipients:
        first.setdefault(fold(recipient.email), recipient)
    return list(first.values())


def _read_content(call: MessagingCall[Any], text: str, member: str) -> bytes | FileRange:
    content: bytes | FileRange | None = None
    if text in call.contents:
        content = call.contents[text]
    else:
        with suppress(ValueError):
            content = pybase64.b64decode("".join(text.split()).encode("ascii"), validate=True)
    if content is None:
        raise MessagingError(f"The member {member} is not base64")
    return content


class Draft(NamedTuple):
    """A message to compose."""

    sender: str
    recipients: Sequence[Recipient]
    subject: str | None
    body: str
    html_body: bool = False
    attachments: Sequence[MessageAttachment] = ()
    headers: Sequence[tuple[str, str]] = ()


class _ComposedMessage(NamedTuple):
    smtp_id: str
    recipients: Sequence[Recipient]
    sender_copy: StoredContent
    recipient_copy: StoredContent


def _validate_address(address: str) -> None:
    if len(address) > _MAX_ADDRESS_CHARS or _ADDRESS.fullmatch(address) is None:
        raise MessagingError("An address does not have the form local-part@domain", MessagingCode.ADDRESS)


def _validate_recipients(recipients: Sequence[Recipient]) -> None:
    if not recipients:
        raise MessagingError("The message has no recipients", MessagingCode.ADDRESS)
    if len(recipients) > MAX_RECIPIENTS:
        raise MessagingError(f"A message may have at most {MAX_RECIPIENTS:,} recipients", MessagingCode.ADDRESS)
    for recipient in recipients:
        _validate_address(recipient.email)


def compose_message(draft: Draft, at_ms: int, new_file: NewFileFn | None = None) -> _ComposedMessage:
    """Compose a message with a new smtpId.

    at_ms: the date, in milliseconds since 1970.
    new_file: creates the file of a large message. None: compose it in memory.
    """
    _validate_recipients(draft.recipients)
    _validate_address(draft.sender)
    if len(draft.attachments) >= MAX_PARTS:  # the text is also a part
        raise MessagingError(f"A message may have at most {MAX_PARTS - 1:,} attachments")
    named = {kind: [r.email for r in draft.recipients if r.type == kind] for kind in ("TO", "CC", "BCC")}
    lines = [_format_address_header("From", [draft.sender])]
    lines += [_format_address_header(name, named[name.upper()]) for name in ("To", "Cc") if named[name.upper()]]
    if draft.subject is not None:
        lines.append(_format_header("Subject", draft.subject))
    smtp_id = f"<{uuid.uuid4()}@{draft.sender.rpartition('@')[2]}>"
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    lines += [f"Date: {format_datetime(at)}", f"Message-ID: {smtp_id}"]
    lines += [_format_custom_header(name, value) for name, value in draft.headers]
    lines.append("MIME-Version: 1.0")
    entity_lines, pieces = _build_entity(draft, _LINE_BREAK.sub("\r\n", draft.body))

    def finish_content(head_lines: Sequence[str]) -> StoredContent:
        head = "\r\n".join((*head_lines, *entity_lines, "", "")).encode("ascii")
        return _build_content((head, *pieces), new_file)

    delivered = finish_content(lines)
    blind = named["BCC"]
    sender_copy = finish_content([*lines, _format_address_header("Bcc", blind)]) if blind else delivered
    return _ComposedMessage(smtp_id, draft.recipients, sender_copy, delivered)


def _build_content(pieces: Iterable[_Piece], new_file: NewFileFn | None) -> StoredContent:
    """Join the pieces, in a file if they exceed 1 MiB. new_file: creates the file. None: in memory."""
    octets = chain.from_iterable((piece,) if isinstance(piece, bytes) else piece() for piece in pieces)
    beginning, size = list[bytes](), 0
    for piece in octets:
        beginning.append(piece)
        size += len(piece)
        if size > _MAX_IN_MEMORY_BYTES and new_file is not None:
            file = new_file()
            with file.open("wb") as opened:
                opened.writelines(chain(beginning, octets))
            return build_content(file)
    return build_content(b"".join(beginning))


def _build_entity(draft: Draft, body: str) -> tuple[list[str], list[_Piece]]:
    text_lines, text = _build_text_part(body, "html" if draft.html_body else "plain")
    if not draft.attachments:
        return text_lines, [text]
    boundary = f"=_{os.urandom(16).hex()}"  # base64 cannot hold "=_"
    delimiter = f"--{boundary}\r\n".encode("ascii")
    pieces: list[_Piece] = [delimiter, "\r\n".join((*text_lines, "", "")).encode("ascii"), text]
    for attachment in draft.attachments:
        pieces += [b"\r\n", delimiter, *_build_attachment_part(attachment)]
    pieces.append(f"\r\n--{boundary}--\r\n".encode("ascii"))
    return [f'Content-Type: multipart/mixed; boundary="{boundary}"'], pieces


def _build_text_part(body: str, subtype: str) -> tuple[list[str], bytes]:
    plain = (
        body.isascii() and "\0" not in body and all(len(line) <= _MAX_TEXT_LINE_CHARS for line in body.split("\r\n"))
    )
    encoding, content = (
        ("7bit", body.encode("ascii")) if plain else ("base64", _encode_base64_lines(body.encode("utf-8")))
    )
    return [f"Content-Type: text/{subtype}; charset=utf-8", f"Content-Transfer-Encoding: {encoding}"], content


def _build_attachment_part(attachment: MessageAttachment) -> Iterable[_Piece]:
    content_type, content = attachment.content_type, attachment.content
    media_type = content_type.partition(";")[0].strip().lower()
    if _MEDIA_TYPE.fullmatch(content_type) is None or len(content_type) > MAX_PLAIN_VALUE_CHARS:
        raise MessagingError("The contentType of an attachment is not a media type")
    if media_type.startswith("multipart/"):
        raise MessagingError("An attachment cannot be of a multipart type")
    # RFC 2046 section 5.2.1: a message in a message is not encoded.
    verbatim = media_type == "message/rfc822"
    yield (
        f"Content-Type: {content_type}\r\n"
        f"Content-Disposition: attachment{_format_filename_parameter(attachment.filename)}\r\n"
        f"Content-Transfer-Encoding: {'8bit' if verbatim else 'base64'}\r\n\r\n"
    ).encode("ascii")
    if isinstance(content, bytes):
        yield content if verbatim else _encode_base64_lines(content)
    else:
        yield content.iter_octets if verbatim else partial(_iter_base64_lines, content)


def _iter_base64_lines(content: FileRange) -> Iterator[bytes]:
    octets, line_break = b"", b""
    for piece in content.iter_octets():
        octets += piece
        end = len(octets) // _BASE64_LINE_BYTES * _BASE64_LINE_BYTES
        if end:
            yield line_break + _encode_base64_lines(octets[:end])
            octets, line_break = octets[end:], b"\r\n"
    if octets:
        yield line_break + _encode_base64_lines(octets)


def _encode_base64_lines(octets: bytes) -> bytes:
    # Mail uses CRLF, but not after the last line.
    return pybase64.encodebytes(octets).rstrip(b"\n").replace(b"\n", b"\r\n")


def _format_filename_parameter(filename: str) -> str:
    if len(filename) > _MAX_FILENAME_CHARS or _HEADER_BREAK.search(filename):
        raise MessagingError(f"A filename must have at most {_MAX_FILENAME_CHARS} characters and no line breaks")
    if _PLAIN_FILENAME.fullmatch(filename) and len(filename) <= _MAX_PLAIN_FILENAME_CHARS:
        return f'; filename="{filename}"'
    segments = ["utf-8''"]
    for character in filename:  # some readers decode each segment separately
        octets = quote(character, safe="")
        if len(segments[-1]) + len(octets) > _MAX_FILENAME_SEGMENT_CHARS:
            segments.append("")
        segments[-1] += octets
    return "".join(f";\r\n filename*{i}*={segment}" for i, segment in enumerate(segments))  # RFC 2231 section 3


def _format_custom_header(name: str, value: str) -> str:
    lowered = name.lower()
    if _HEADER_NAME.fullmatch(name) is None:
        raise MessagingError(
            "The name of a header must have 1 to 76 printable ASCII characters without spaces or colons"
        )
    if lowered in _SERVICE_HEADERS or lowered.startswith("content-"):
        raise MessagingError(f"The header {name} is set by the service")
    return _format_header(name, value)


def _format_header(name: str, value: str) -> str:
    if _HEADER_BREAK.search(value):
        raise MessagingError(f"The header {name} has a line break in its value")
    return format_header(name, value)


def _format_address_header(name: str, addresses: Sequence[str]) -> str:
    return f"{name}: " + ",\r\n ".join(addresses)
