"""Types of the messaging service, in the order of the specification (2.C), what a type is made of before it."""

from __future__ import annotations

from collections.abc import AsyncIterable
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import attrs

from directsuite.core.files import to_path
from directsuite.core.privacy import scrub_class
from directsuite.core.upload import BinaryReader, Content, content_of
from directsuite.secret import Secret, as_secret
from directsuite.wire.models import Model, OpenEnum, Uid, Wire, needs_bytes, needs_text

if TYPE_CHECKING:
    from email.message import EmailMessage
    from email.message import Message as LegacyMessage


class RecipientType(OpenEnum):
    """Where a recipient stands in the header."""

    TO = "TO"
    CC = "CC"
    BCC = "BCC"


class MessageStatus(OpenEnum):
    """How far a message has come on its way to one recipient (specification section 3)."""

    DELIVERED = "Delivered"
    """Delivered to the receiver."""
    WAITING = "Waiting"
    """Awaiting confirmation from the receiver's HISP."""
    LOCALLY_FAILED = "Locally Failed"
    """Rejected or failed when sending out."""
    REMOTELY_FAILED = "Remotely Failed"
    """Rejected or failed by the receiver's HISP."""
    NO_MDN_RECEIVED = "NO MDN Received"
    """No confirmation from the receiver's HISP within one hour."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Authentication(Model):
    """A Direct address and its password."""

    username: str = attrs.field(validator=needs_text)
    password: Secret = attrs.field(converter=as_secret, validator=needs_text)


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class AuthenticationWithTuser(Authentication):
    """A T-User's name and password, and the Direct address it acts for."""

    direct_addr: str


@scrub_class
@attrs.frozen(repr=False, eq=False)
class Recipient(Model):
    """One address that a message goes to."""

    _shown: ClassVar[tuple[str, ...]] = ("type",)

    email: str
    """The address."""
    type: Annotated[RecipientType, Wire(always=True)] = RecipientType.TO
    """TO, CC or BCC."""


RecipientCollection = list[Recipient]


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Attachment(Model):
    """A file in a message."""

    _shown: ClassVar[tuple[str, ...]] = ("media_type",)

    content: Annotated[bytes, Wire(always=True)] = attrs.field(default=b"", validator=needs_bytes)
    """The file's bytes; of an attachment to send, empty where `source` has them."""
    content_type: Annotated[str | None, Wire(always=True)] = None
    """As it came, perhaps with parameters; `media_type` is bare."""
    filename: Annotated[str | None, Wire(always=True)] = None
    """The sender's name for the file. Of a message received, it is no path to write to."""
    source: Annotated[Path | Content | None, Wire(local=True)] = None
    """What is sent in place of `content`, read while it is sent: a path, or what `from_file` and `from_stream` make."""

    @classmethod
    def from_path(
        cls, path: str | PathLike[str], *, content_type: str | None = None, filename: str | None = None
    ) -> Self:
        """An attachment whose content is read from a file and sent as a stream, never whole in memory."""
        source = to_path(path, "path")
        return cls._streamed(source, content_type, filename or source.name, named=source.name)

    @classmethod
    def from_file(
        cls,
        file: BinaryReader,
        *,
        content_type: str | None = None,
        filename: str | None = None,
        size: int | None = None,
    ) -> Self:
        """An attachment that is read from a file object, from where it stands now, while it is sent.

        One that can seek may be sent any number of times; of one that can't, such as a pipe, `size` may be told. It is
        not closed. filename: its own name, where it has one and none is given.
        """
        named = getattr(file, "name", None)
        own = Path(named).name if isinstance(named, str) else None
        return cls._streamed(content_of(file, parameter="file", size=size), content_type, filename or own)

    @classmethod
    def from_stream(
        cls,
        stream: AsyncIterable[bytes],
        *,
        filename: str,
        content_type: str | None = None,
        size: int | None = None,
    ) -> Self:
        """An attachment whose content passes once, while it is sent: a message with it can't be sent a second time.

        size: its bytes, so that the service is told how many come; a stream that gives another number is not sent.
        """
        return cls._streamed(content_of(stream, parameter="stream", size=size), content_type, filename)

    @classmethod
    def _streamed(
        cls, source: Path | Content, content_type: str | None, filename: str | None, named: str | None = None
    ) -> Self:
        """named: the name that tells the type, where it isn't the file's name in the message."""
        import mimetypes

        guessed = mimetypes.guess_type(named or filename or "")[0]
        return cls(content_type=content_type or guessed or "application/octet-stream", filename=filename, source=source)

    @property
    def media_type(self) -> str:
        """The bare media type, in lower case: `text/xml` for `text/xml; name="a b.xml"`."""
        return (self.content_type or "application/octet-stream").partition(";")[0].strip().lower()


@scrub_class
@attrs.frozen(repr=False, eq=False)
class MessageHeader(Model):
    """One line of a message's header."""

    name: str | None = None
    """The name of the line, such as `X-Request-ID`."""
    value: str | None = None
    """The rest of the line."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class MessageContent(Model):
    """What messages to send and messages received have in common."""

    sender: str | None = None
    """The address of the sender: of a message to send, the mailbox's own, which is filled in where it is left out."""
    subject: str | None = None
    """The subject."""
    body: str | None = None
    """The text, or HTML where `html_body` is True."""
    html_body: Annotated[bool, Wire(always=True)] = False
    """True if `body` is HTML, False if it is plain text."""
    recipients: list[Recipient] = attrs.field(factory=list[Recipient])
    """To whom the message goes; a message to send needs at least one."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Message(MessageContent):
    """A message to send; `sender` is filled in where it is left out."""

    attachment_list: list[Attachment] = attrs.field(factory=list[Attachment])
    """The files to send with it."""

    @classmethod
    def from_email(cls, message: EmailMessage | LegacyMessage[Any, Any]) -> Message:
        """Return a message to send with the sender, recipients, subject, body and attachments of an email.

        message: an EmailMessage, or a Message that was parsed with the policy compat32. Every part that is not the body
        becomes an attachment, enclosed emails and delivery reports also. The content of a signed email is also attached
        unchanged, so that its signature can still be verified.
        """
        from directsuite.messaging.email import parse

        parts = parse(message)
        return Message(
            sender=parts.sender,
            subject=parts.subject,
            body=parts.body,
            html_body=parts.html,
            recipients=[Recipient(address, RecipientType(kind)) for kind, address in parts.recipients],
            attachment_list=[
                Attachment(content=content, content_type=content_type, filename=filename)
                for content, content_type, filename in parts.attachments
            ],
        )


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class MessageWithHeader(Message):
    """A message to send, with header lines of the sender's own."""

    headers: list[MessageHeader] = attrs.field(factory=list[MessageHeader])
    """Header lines beside those that the service writes. Recipients see them."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SendRequest(Model):
    """The body of Send, and of the other sends with their kinds of authentication and message."""

    authentication: Authentication
    message: Message


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SendRequestWithHeader(SendRequest):
    """The body of SendWithHeader."""

    message: MessageWithHeader


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SendWithTuserRequest(SendRequest):
    """The body of SendWithTuser."""

    authentication: AuthenticationWithTuser


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SendWithHeaderWithTuserRequest(SendRequest):
    """The body of SendWithHeaderWithTuser."""

    authentication: AuthenticationWithTuser
    message: MessageWithHeader


@attrs.frozen(kw_only=True, repr=False, eq=False)
class UidsRequest(Model):
    """The body of every operation on messages given by uid (UidsRequestType)."""

    auth: Authentication
    uids: list[int]
    recipients: RecipientCollection = attrs.field(factory=list[Recipient])


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SmtpIdsRequest(Model):
    """The body of GetMessageStatus for many (SmtpIdsRequestType)."""

    auth: Authentication
    smtp_ids: list[str]


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SetFoldersSubscribedRequest(Model):
    """The body of SetFoldersSubscribed (SetFoldersSubscribedRequestType)."""

    auth: Authentication
    folders: list[str]
    subscribed: bool


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class RawMessage(Model):
    """A message as it stands on the server."""

    _shown: ClassVar[tuple[str, ...]] = ("uid",)

    uid: int | None = None
    """The order it was received in, unique and unchanging within its folder."""
    msg_id: Annotated[str | None, Wire("msgID")] = None
    """The header Message-ID; None where the message has none."""
    folder: Annotated[str | None, Wire(exact=True)] = None
    """The folder that the message is in; None for a message that is new or part of another."""
    data: bytes | None = attrs.field(default=None, validator=needs_bytes)
    """The message, RFC 5322."""

    def to_email(self) -> EmailMessage:
        """The standard library's view of the message. Raises ValueError where the answer had no data."""
        if self.data is None:
            raise ValueError("this RawMessage has no data")
        from directsuite.messaging import email

        return email.from_bytes(self.data)


@attrs.frozen(kw_only=True, repr=False, eq=False)
class RawMessagesRequest(Model):
    """The body of SaveRawMessages (RawMessagesRequestType)."""

    auth: Authentication
    messages: list[RawMessage]


@attrs.frozen(kw_only=True, repr=False, eq=False)
class APIResponse(Model):
    """The base of the service's answers."""

    _shown: ClassVar[tuple[str, ...]] = ("success", "code")

    success: bool | None = None
    """True if the service did what it was asked for."""
    code: int | None = None
    """0, or 1: authentication failed, 2: address error, 3 and 4: other error."""
    message: str | None = None
    """The service's own text, which may name patients."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SendMessageResponse(APIResponse):
    """A message was sent or forwarded."""

    smtp_id: Annotated[str, Wire(strict=True)] = ""
    """Its Message-ID, to ask for its status with; empty where the service, which did send it, gave none."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class MessageStatusLog(Model):
    """The delivery of one message to one recipient."""

    _shown: ClassVar[tuple[str, ...]] = ("status", "ts")

    from_: Annotated[str | None, Wire("from")] = None
    """The sender's address."""
    to: str | None = None
    """The recipient's address."""
    message_id: str | None = None
    """The message's Message-ID: the `smtp_id` of its send."""
    message_size: int | None = None
    """Bytes."""
    status: MessageStatus | None = None
    """How far the message has come."""
    ts: datetime | None = None
    """When the message was sent."""
    xdr_id: str | None = None
    """The message's identifier in XDR."""
    unique_id: str | None = None
    """The unique identifier in XDR."""
    source_id: str | None = None
    """The identifier of the source in XDR."""
    patient_id: str | None = None
    """The patient's identifier in XDR: patient data."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DirectMessageLog(MessageStatusLog):
    """The delivery of one message to one recipient, with its details."""

    status_details: str | None = None
    """The service's words about the status, such as the reason of a failure."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DirectMessageStatusReportResponse(APIResponse):
    """Delivery status: in `message_logs`, or as CSV in `csv_data`; `records` reads whichever was sent."""

    has_cv_data: bool | None = None
    """True if the report is in `csv_data`, False if it is in `message_logs`."""
    csv_data: bytes | None = None
    """The report as CSV."""
    message_logs: list[DirectMessageLog] = attrs.field(factory=list[DirectMessageLog])
    """The report, one record for each recipient."""

    @property
    def records(self) -> list[DirectMessageLog]:
        """One record per recipient, whichever form the answer took."""
        if self.message_logs or not self.csv_data:
            return self.message_logs
        from directsuite.messaging import report

        return [DirectMessageLog(**row) for row in report.rows(self.csv_data, MessageStatus)]


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetFoldersResponse(APIResponse):
    """Names of folders."""

    folders: Annotated[list[str], Wire(strict=True)] = attrs.field(factory=list[str])
    """The names, in the order of the response. A name that could not be read is empty."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetCountResponse(APIResponse):
    """A number of messages."""

    _shown: ClassVar[tuple[str, ...]] = ("success", "code", "count")

    count: Annotated[int | None, Wire(strict=True)] = None


@attrs.frozen(kw_only=True, repr=False, eq=False)
class MessageDetail(MessageContent):
    """A received message. In metadata answers the body and the attachments' contents are absent."""

    _shown: ClassVar[tuple[str, ...]] = ("uid", "size", "received_date")

    uid: int | None = None
    """The order it was received in, unique and unchanging within its folder."""
    msgnum: int | None = None
    """The number of the message in its folder; `uid` is the one that doesn't change."""
    msg_id: Annotated[str | None, Wire("msgID")] = None
    """The header Message-ID; None where the message has none."""
    folder: Annotated[str | None, Wire(exact=True)] = None
    """The folder that the message is in; None for a message that is new or part of another."""
    expunged: bool | None = None
    """True if the message was removed from its folder."""
    size: int | None = None
    """Bytes of content; -1 where the service can't tell."""
    sent_date: datetime | None = None
    """When it was sent, by its header."""
    received_date: datetime | None = None
    """When the server received it."""
    reply_to: str | None = None
    """The address that replies go to; None where the header has none."""
    headers: list[MessageHeader] = attrs.field(factory=list[MessageHeader])
    """The lines of the header."""
    attachments: Annotated[list[Attachment], Wire(also=("attachmentList",))] = attrs.field(factory=list[Attachment])
    """The files in the message."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetMessageResponse(APIResponse):
    """Messages, or their metadata."""

    messages: list[MessageDetail] = attrs.field(factory=list[MessageDetail])


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetUIDResponse(APIResponse):
    """Uids of a folder."""

    uids: Annotated[list[Uid], Wire(strict=True)] = attrs.field(factory=list[int])


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetRawMessageResponse(APIResponse):
    """Messages as they stand on the server."""

    messages: list[RawMessage] = attrs.field(factory=list[RawMessage])
