"""Request bodies (specification section 2.C), and a call with a validated body and credentials.

Sections 4 and 5 of the specification differ about the place of the credentials. All operations accept them in `auth`
and `authentication`, and, if the body has no other members, in the body itself.

While a body is received, its large contents are written to a file, and the rest is JSON in memory:

    {"content": "JVBERi0xLjcK…", …}  ──►  {"content": "6f1c…-0", …}     and 6f1c…-0: a range of the file, decoded

A content is a string of more than 4 KiB in a member `content` or `data`. The name that replaces it is random, so that
no client can forge it. Contents are decoded from base64 while they are received. Invalid base64 is rejected when the
content is used. The JSON is not parsed: strings are found by their quotation marks, and everything else is copied.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from directsuite.sandbox.database import record_effect
from directsuite.sandbox.files import Base64Decoder, FileRange, has_small_body, receive_body
from directsuite.sandbox.messaging import mailboxes
from directsuite.sandbox.messaging.parsing import MAX_INLINE_BYTES
from directsuite.sandbox.rejections import BodyTooLargeError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator
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


class MailboxRequest(Authentication):
    """A body that is an Authentication, or contains one."""

    auth: Authentication | None = None
    authentication: Authentication | None = None


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


Request: TypeAlias = AuthenticatedRequest | MailboxRequest
RequestT = TypeVar("RequestT", bound=Request)


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


_MEMBER = re.compile(rb'"(?:content|data)"[ \t\r\n]*:[ \t\r\n]*"\Z')
_MAX_MEMBER_BYTES = 200
_STRING_CONTENT = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)  # matches everywhere
# It may match the second of two backslashes, but a backslash is not base64.
_PARTIAL_ESCAPE = re.compile(rb"\\(?:u[0-9A-Fa-f]{0,3})?\Z")


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
    with files.create_file() as file:
        try:
            with file.open("wb") as written:
                divided = BodyDivider(written, file, request.client_max_size)
                await receive_body(request, limit, divided.feed)
            yield bytes(divided.rest), divided.contents
        finally:
            files.abandon([file.name])


class BodyDivider:
    """Divides JSON text, piece by piece, into large contents and the rest.

    written, file: the file for the contents.
    """

    def __init__(self, written: BinaryIO, file: Path, max_rest_bytes: int) -> None:
        self.rest = bytearray()
        """The JSON text with names in place of the large contents."""
        self.contents: dict[str, FileRange | None] = {}
        self._written, self._file, self._max_rest_bytes = written, file, max_rest_bytes
        self._token = secrets.token_hex(16)
        self._in_string = False
        self._string_start = 0  # its index in the rest
        self._is_content: bool | None = None  # None until the current string is large
        self._carried: bytes = b""
        self._content = _LargeContent(written)

    def feed(self, text: bytes) -> None:
        """Process the next piece of the JSON text. Raises BodyTooLargeError if `rest` has more than max_rest_bytes."""
        text = self._carried + text
        backslashes = len(text) - len(text.rstrip(b"\\"))
        end = len(text) - backslashes % 2  # an escape continues in the next piece
        text, self._carried = text[:end], text[end:]
        position = 0
        while position < len(text):
            if self._in_string:
                content = _STRING_CONTENT.match(text, position)
                end = content.end() if content else position
                self._add(text[position:end])
                if end < len(text):
                    self._close_string()
                position = end + 1
            else:
                quote = text.find(b'"', position)
                end = len(text) if quote < 0 else quote + 1
                self.rest += text[position:end]
                if quote >= 0:
                    self._in_string, self._is_content, self._string_start = True, None, len(self.rest)
                position = end
            if len(self.rest) > self._max_rest_bytes:
                raise BodyTooLargeError(self._max_rest_bytes)

    def _add(self, text: bytes) -> None:
        if self._is_content:
            self._content.add(text)
            return
        self.rest += text
        if self._is_content is None and len(self.rest) - self._string_start > MAX_INLINE_BYTES:
            before = self.rest[max(0, self._string_start - _MAX_MEMBER_BYTES) : self._string_start]
            self._is_content = _MEMBER.search(before) is not None
            if self._is_content:
                self._content = _LargeContent(self._written)
                self._content.add(bytes(self.rest[self._string_start :]))
                del self.rest[self._string_start :]

    def _close_string(self) -> None:
        if self._is_content:
            name = f"{self._token}-{len(self.contents)}"
            self.contents[name] = self._content.finish(self._file)
            self.rest += name.encode("ascii")
        self.rest += b'"'
        self._in_string = False


class _LargeContent:
    def __init__(self, written: BinaryIO) -> None:
        self._written = written
        self._start = written.tell()
        self._decoder = Base64Decoder()
        self._rest = b""
        self._is_base64 = True

    def add(self, text: bytes, *, last: bool = False) -> None:
        if not self._is_base64:
            return
        text = self._rest + text
        part = None if last else _PARTIAL_ESCAPE.search(text, max(0, len(text) - 5))
        end = len(text) if part is None else part.start()
        text, self._rest = text[:end], text[end:]
        try:
            self._written.write(self._decoder.decode(_unescape(text), last=last))
        except (ValueError, msgspec.DecodeError):
            self._is_base64 = False

    def finish(self, file: Path) -> FileRange | None:
        self.add(b"", last=True)
        return FileRange(file, self._start, self._written.tell()) if self._is_base64 else None


def _unescape(text: bytes) -> bytes:
    """Decode the escapes of a JSON string, and remove white space.

    Text with escapes raises msgspec.DecodeError if it is invalid, and ValueError if it is not ASCII.
    """
    if b"\\" not in text:
        return text.replace(b" ", b"")
    return "".join(msgspec.json.decode(b'"%b"' % text, type=str).split()).encode("ascii")
