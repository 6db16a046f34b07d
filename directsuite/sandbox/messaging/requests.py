"""Request bodies (specification section 2.C), and a call with a validated body and credentials.

Sections 4 and 5 of the specification differ about the place of the credentials. All operations accept them in `auth`
and `authentication`, and, if the body has no other members, in the body itself.

The large contents of a body are written to a file, and the rest is JSON in memory:

    {"content": "JVBERi0xLjcK…", …}  ──►  {"content": "6f1c…-0", …}     and 6f1c…-0: a range of the file, decoded

A content is a string of more than 4 KiB in a member `content` or `data`. The name that replaces it is random, so that
no client can forge it. Contents are decoded from base64 while they are received. Invalid base64 is rejected when the
content is used. The JSON is not parsed: strings are found by their quotation marks, and everything else is copied.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from directsuite.sandbox.database import record_effect
from directsuite.sandbox.files import Base64Decoder, FileRange, has_small_body, receive_body
from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.messaging.parsing import MAX_INLINE_BYTES, map_file
from directsuite.sandbox.rejections import BodyTooLargeError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator, Iterable, Iterator
    from mmap import mmap
    from pathlib import Path

    from aiohttp import web

    from directsuite.sandbox.files import StoredFiles

Contents: TypeAlias = Mapping[str, FileRange | None]
"""Large contents by the names that replace them. None if the content is not base64."""

Uid = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Authentication(msgspec.Struct, kw_only=True, rename="camel"):
    """Authentication and AuthenticationWithTuser. Missing members are empty, and rejected with code 1."""

    username: str = ""
    password: str = ""
    direct_addr: str = ""


class AuthenticatedRequest(msgspec.Struct, kw_only=True, rename="camel"):
    """A body with the credentials in a member."""

    auth: Authentication | None = None
    authentication: Authentication | None = None

    def get_credentials(self) -> Authentication:
        """Return `auth`, or else `authentication`, or else empty credentials."""
        return self.auth or self.authentication or Authentication()


class MailboxRequest(AuthenticatedRequest):
    """A body that is an Authentication, or contains one."""

    username: str = ""
    password: str = ""
    direct_addr: str = ""

    def get_credentials(self) -> Authentication:
        """Return `auth`, or else `authentication`, or else the credentials in the body itself."""
        bare = Authentication(username=self.username, password=self.password, direct_addr=self.direct_addr)
        return self.auth or self.authentication or bare


class Recipient(msgspec.Struct):
    """A recipient."""

    email: str
    type: Literal["TO", "CC", "BCC"]


class RecipientCollection(msgspec.Struct, kw_only=True):
    """An object with the recipients, as sent by some clients."""

    recipients: list[Recipient]


class AttachmentContent(msgspec.Struct, kw_only=True, rename="camel"):
    """Attachment. `content` is base64, with or without line breaks."""

    content: str
    content_type: str
    filename: str


class MessageHeader(msgspec.Struct, kw_only=True):
    """A header line."""

    name: str
    value: str


class Message(msgspec.Struct, kw_only=True, rename="camel"):
    """Message. `attachmentList` takes precedence over its alternative name `attachments`."""

    sender: str
    html_body: bool
    recipients: list[Recipient]
    subject: str | None = None
    body: str | None = None
    attachment_list: list[AttachmentContent] | None = None
    attachments: list[AttachmentContent] | None = None


class MessageWithHeader(Message):
    """MessageWithHeader."""

    headers: list[MessageHeader] | None = None


class SendRequest(AuthenticatedRequest):
    """SendRequest and SendWithTuserRequest."""

    message: Message


class SendRequestWithHeader(AuthenticatedRequest):
    """SendRequestWithHeader and SendWithHeaderWithTuserRequest."""

    message: MessageWithHeader


class UidsRequest(AuthenticatedRequest):
    """UidsRequestType."""

    uids: Annotated[list[Uid], msgspec.Meta(min_length=1)]
    recipients: list[Recipient] | RecipientCollection | None = None

    def list_recipients(self) -> list[Recipient]:
        """Return the recipients, whether they are a list or an object. Empty if they are missing."""
        recipients = self.recipients or []
        return recipients.recipients if isinstance(recipients, RecipientCollection) else recipients


class SmtpIdsRequest(AuthenticatedRequest):
    """SmtpIdsRequestType."""

    smtp_ids: list[str]


class SetFoldersSubscribedRequest(AuthenticatedRequest):
    """SetFoldersSubscribedRequestType."""

    folders: Annotated[list[str], msgspec.Meta(min_length=1)]
    subscribed: bool


class RawMessageData(msgspec.Struct, kw_only=True):
    """RawMessage. Other members are ignored."""

    data: str


class RawMessagesRequest(AuthenticatedRequest):
    """RawMessagesRequestType."""

    messages: Annotated[list[RawMessageData], msgspec.Meta(min_length=1)]


RequestT = TypeVar("RequestT", bound=AuthenticatedRequest)


ResponseMembers = dict[str, Any]
"""The members other than success, code and message."""


class MessagingCall(NamedTuple, Generic[RequestT]):
    """A call by the owner of a mailbox, or by a T-User who acts for the owner."""

    operation: str
    path: Mapping[str, str]
    """The decoded path parameters by name."""
    request: RequestT
    account: int
    """The id of the mailbox."""
    address: str
    """The Direct address of the mailbox."""
    at_ms: int
    csv_above: int
    """See ResponseOptions.csv_above."""
    files: StoredFiles
    contents: Contents
    """The large contents of the body, by the names that replace them."""

    def get_folder(self, connection: sqlite3.Connection) -> mailboxes.MailboxFolder:
        """Return the folder named in the path. Raises MessagingError with code 3 if it does not exist."""
        return mailboxes.get_folder(connection, self.account, self.path["folderName"])

    def record(self, connection: sqlite3.Connection, subject: str, **detail: Any) -> None:
        """Record an effect of this call in the ledger."""
        detail["account"] = self.address
        record_effect(connection, operation=self.operation, subject=subject, at=self.at_ms, **detail)


_MEMBER = re.compile(rb'"(?:content|data)"[ \t\r\n]*:[ \t\r\n]*"')
_PIECE = re.compile(rb'(?:[^"\\]{1,65536}+|\\u[0-9A-Fa-f]{4}|\\.){1,64}+', re.DOTALL)
"""A piece of a JSON string without incomplete escapes, of limited size because each search holds the GIL."""


@asynccontextmanager
async def receive_contents(
    request: web.Request, files: StoredFiles, limit: int
) -> AsyncGenerator[tuple[bytes, Contents]]:
    """Yield a body with names in place of its large contents, and the contents. Delete their file at the end.

    A small body is yielded unchanged, without contents.
    """
    if has_small_body(request):
        yield await request.read(), {}
        return
    with files.create_file() as received, files.create_file() as decoded:
        try:
            with received.open("wb") as written:
                await receive_body(request, limit, written.write)
            divided = await asyncio.to_thread(divide_body, received, decoded, request.client_max_size)
            files.abandon([received.name])  # frees the space on the disk
            yield divided
        finally:
            files.abandon([received.name, decoded.name])


def divide_body(body: Path, decoded: Path, max_rest_bytes: int) -> tuple[bytes, Contents]:
    """Write the large contents of JSON text to `decoded`. Return the text with names in their place, and the contents.

    Raises BodyTooLargeError if the text without the contents has more than `max_rest_bytes`.
    """
    text = map_file(body)
    large = [(start, end) for start, end in _iter_contents(text) if end - start > MAX_INLINE_BYTES]
    if len(text) - sum(end - start for start, end in large) > max_rest_bytes:
        raise BodyTooLargeError(max_rest_bytes)
    rest, contents, token, position = bytearray(), dict[str, FileRange | None](), secrets.token_hex(16), 0
    with decoded.open("wb") as written:
        for start, end in large:
            name = f"{token}-{len(contents)}"
            pieces = (piece[0] for piece in _PIECE.finditer(text, start, end))
            contents[name] = _decode_content(pieces, written, decoded)
            rest += text[position:start] + name.encode("ascii")
            position = end
    return bytes(rest + text[position:]), contents


def _iter_contents(text: bytes | mmap) -> Iterator[tuple[int, int]]:
    position = 0
    while found := _MEMBER.search(text, position):
        start = position = found.end()
        while piece := _PIECE.match(text, position):
            position = piece.end()
        yield start, position


def _decode_content(pieces: Iterable[bytes], written: BinaryIO, file: Path) -> FileRange | None:
    """Write the octets of base64 in a JSON string. Return their range of the file, or None if it is not base64."""
    decoder, start = Base64Decoder(), written.tell()
    try:
        written.writelines(decoder.decode(_unescape(piece)) for piece in pieces)
        written.write(decoder.decode(b"", last=True))
    except (ValueError, msgspec.DecodeError):
        return None
    return FileRange(file, start, written.tell())


def _unescape(text: bytes) -> bytes:
    """Decode the escapes of a JSON string, and remove white space.

    Text with escapes raises msgspec.DecodeError if it is invalid, and ValueError if it is not ASCII.
    """
    if b"\\" not in text:
        return text.replace(b" ", b"")
    return "".join(msgspec.json.decode(b'"%b"' % text, type=str).split()).encode("ascii")
