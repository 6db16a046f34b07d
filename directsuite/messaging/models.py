"""Types of the messaging service, in the order of specification section 2.C, with each type after the types it uses."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, cast

import attrs

from directsuite.core.content import BinaryReader, Content, make_content
from directsuite.core.files import to_path
from directsuite.core.privacy import scrub_class
from directsuite.errors import InvalidArgumentError
from directsuite.wire.models import (
    Model,
    OpenEnum,
    Secret,
    Uid,
    Wire,
    as_secret,
    require_instances,
    validate_bytes,
    validate_text,
)

if TYPE_CHECKING:
    from email.message import EmailMessage
    from email.message import Message as LegacyMessage


class RecipientType(OpenEnum):
    """The header that contains a recipient: To, Cc or Bcc."""

    TO = "TO"
    CC = "CC"
    BCC = "BCC"


class MessageStatus(OpenEnum):
    """The delivery status of a message for one recipient (specification section 3). A HISP provides Direct mail."""

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

    username: str = attrs.field(validator=validate_text)
    """The Direct address of the mailbox, such as `nurse@direct.example.org`. For a T-User: its name, such as
    `front-desk`.
    """
    password: Secret = attrs.field(converter=as_secret, validator=validate_text)
    """The password of the mailbox or the T-User. A str becomes a Secret."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class AuthenticationWithTuser(Authentication):
    """A T-User's name and password, and the Direct address that it acts for."""

    direct_addr: str
    """The Direct address of the user, such as `nurse@direct.example.org`."""


def _to_recipient_type(value: RecipientType | str) -> RecipientType:
    """Return the member for a text, in upper or lower case. A received member is unchanged, even if it is unknown."""
    kind = RecipientType(str(value).upper())
    if kind.is_known:
        return kind
    if isinstance(value, RecipientType):
        return value
    raise InvalidArgumentError("must be TO, CC or BCC", parameter="type")


@scrub_class
@attrs.frozen(repr=False, eq=False)
class Recipient(Model):
    """A recipient of a message."""

    _shown: ClassVar[tuple[str, ...]] = ("type",)

    email: str
    """The Direct address without a display name, such as `nurse@direct.example.org`."""
    type: Annotated[RecipientType, Wire(always_written=True)] = attrs.field(
        default=RecipientType.TO, converter=_to_recipient_type
    )
    """TO, CC or BCC, such as `RecipientType.CC` or "cc"."""


RecipientCollection = list[Recipient]


def to_recipients(values: Iterable[Recipient | str]) -> list[Recipient]:
    """Return Recipients, made from addresses where necessary. Raises InvalidArgumentError for a single str."""
    if isinstance(values, str):
        raise InvalidArgumentError("must be a list of Recipient objects or addresses", parameter="recipients")
    entries = require_instances(values, object, "recipients")
    return [Recipient(entry) if isinstance(entry, str) else cast("Recipient", entry) for entry in entries]


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Attachment(Model):
    """A file in a message."""

    _shown: ClassVar[tuple[str, ...]] = ("media_type",)

    content: Annotated[bytes, Wire(always_written=True)] = attrs.field(default=b"", validator=validate_bytes)
    """The bytes of the file, such as `Path("report.pdf").read_bytes()`. They are sent as base64. Empty if there
    is a `source`.
    """
    content_type: Annotated[str | None, Wire(always_written=True)] = None
    """The MIME type, possibly with parameters, such as `application/pdf` or `text/xml; name=ccd.xml`. Required for
    sending.
    """
    filename: Annotated[str | None, Wire(always_written=True)] = None
    """The name of the file, such as `report.pdf`. Required for sending. The sender of a received message has chosen it:
    do not write to a path with this name.
    """
    source: Annotated[Path | Content | None, Wire(local=True)] = None
    """The source to read while sending, instead of `content`: a path such as `Path("report.pdf")`, or an object that
    `from_file` or `from_stream` has made.
    """

    @classmethod
    def from_path(
        cls, path: str | PathLike[str], *, content_type: str | None = None, filename: str | None = None
    ) -> Self:
        """Return an attachment whose content is read from a file while it is sent. Memory use is constant.

        content_type: None: guess it from `path`.
        filename: name of the file in the message. None: the name in `path`.
        """
        source = to_path(path, "path")
        return cls._from_source(source, content_type, filename or source.name, guess_from=source.name)

    @classmethod
    def from_file(
        cls,
        file: BinaryReader,
        *,
        content_type: str | None = None,
        filename: str | None = None,
        size: int | None = None,
    ) -> Self:
        """Return an attachment that is read from a file object while it is sent, from its current position.

        Sending moves the position, so create each attachment from a separate file object. The file is not closed. It
        can be sent several times only if it is seekable.

        content_type: None: guess it from the file name.
        filename: name of the file in the message. None: that of the file object, if it has one.
        size: number of bytes, for a file that is not seekable, such as a pipe. None: unknown.
        """
        named = getattr(file, "name", None)
        own = Path(named).name if isinstance(named, str) else None
        return cls._from_source(make_content(file, parameter="file", size=size), content_type, filename or own)

    @classmethod
    def from_stream(
        cls,
        stream: AsyncIterable[bytes],
        *,
        filename: str,
        content_type: str | None = None,
        size: int | None = None,
    ) -> Self:
        """Return an attachment that is read from a stream while it is sent. A message with it can be sent only once.

        content_type: None: guess it from `filename`.
        size: number of bytes, for the request's Content-Length. Sending fails if the stream has a different number.
            None: unknown.
        """
        return cls._from_source(make_content(stream, parameter="stream", size=size), content_type, filename)

    @classmethod
    def _from_source(
        cls, source: Path | Content, content_type: str | None, filename: str | None, guess_from: str | None = None
    ) -> Self:
        import mimetypes

        guessed = mimetypes.guess_type(guess_from or filename or "")[0]
        return cls(content_type=content_type or guessed or "application/octet-stream", filename=filename, source=source)

    @property
    def media_type(self) -> str:
        """The content type without parameters, in lower case: `text/xml` for `text/xml; name="a b.xml"`.

        `application/octet-stream` if `content_type` is None or empty.
        """
        return (self.content_type or "application/octet-stream").partition(";")[0].strip().lower()


def to_attachments(
    values: Iterable[Attachment | str | PathLike[str]], parameter: str = "attachment_list"
) -> list[Attachment]:
    """Return Attachments, made from paths where necessary. Raises InvalidArgumentError for a single str."""
    if isinstance(values, str):
        raise InvalidArgumentError("must be a list of paths and Attachments", parameter=parameter)
    entries = require_instances(values, object, parameter)
    return [
        Attachment.from_path(cast("str | PathLike[str]", entry))
        if isinstance(entry, str | PathLike)
        else cast("Attachment", entry)
        for entry in entries
    ]


@scrub_class
@attrs.frozen(repr=False, eq=False)
class MessageHeader(Model):
    """One header of a message."""

    name: str | None = None
    """The name without a colon, such as `X-Request-ID`. Required for sending."""
    value: str | None = None
    """The value in one line, such as `7f3a`."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class MessageContent(Model):
    """The fields of both messages to send and received messages."""

    sender: str | None = None
    """The Direct address of the sender, such as `nurse@direct.example.org`. In a message to send: None, or that of the
    mailbox, which means the same.
    """
    subject: str | None = None
    """The subject in one line, such as `Laboratory report`."""
    body: str | None = None
    """The text, such as `The report is attached.`, or HTML such as `<p>The report is attached.</p>` if `html_body` is
    True.
    """
    html_body: Annotated[bool, Wire(always_written=True)] = False
    """True if `body` is HTML, not plain text."""
    recipients: list[Recipient] = attrs.field(factory=list[Recipient], converter=to_recipients)
    """The recipients, such as `["nurse@direct.example.org", Recipient("lab@direct.example.org", "cc")]`. An address as
    text becomes a TO Recipient. A message to send needs at least one.
    """


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class Message(MessageContent):
    """A message to send."""

    attachment_list: list[Attachment] = attrs.field(factory=list[Attachment], converter=to_attachments)
    """The attachments to send, such as `["report.pdf", Attachment.from_file(file)]`. A path becomes
    `Attachment.from_path(path)`.
    """

    @classmethod
    def from_email(cls, message: EmailMessage | LegacyMessage[Any, Any]) -> Message:
        """Return a message to send with the sender, recipients, subject, body and attachments of an email.

        Every part except the body and alternatives to it becomes an attachment, such as enclosed emails, delivery
        reports and signatures.

        message: an EmailMessage, or a Message that was parsed with the policy compat32.
        Raises InvalidArgumentError if it is not an email, or the standard library cannot read it.
        """
        from directsuite.messaging.email import parse

        parts = parse(message)
        recipients = [Recipient(*each) for each in parts.pop("recipients")]
        attachments = [Attachment(**each) for each in parts.pop("attachment_list")]
        return Message(recipients=recipients, attachment_list=attachments, **parts)


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class MessageWithHeader(Message):
    """A message to send, with additional headers."""

    headers: list[MessageHeader] = attrs.field(factory=list[MessageHeader])
    """Additional headers, such as `[MessageHeader("X-Case", "7")]`. The service writes the usual ones. Recipients can
    see all of them.
    """


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SendRequest(Model):
    """The body of Send. Subclasses are for the other operations that send messages."""

    authentication: Authentication
    """The mailbox that sends the message."""
    message: Message
    """The message, with its sender."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SendRequestWithHeader(SendRequest):
    """The body of SendWithHeader."""

    message: MessageWithHeader
    """The message, with its sender and additional headers."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SendWithTuserRequest(SendRequest):
    """The body of SendWithTuser."""

    authentication: AuthenticationWithTuser
    """The T-User and the address for which it sends the message."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SendWithHeaderWithTuserRequest(SendRequest):
    """The body of SendWithHeaderWithTuser."""

    authentication: AuthenticationWithTuser
    """The T-User and the address for which it sends the message."""
    message: MessageWithHeader
    """The message, with its sender and additional headers."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class UidsRequest(Model):
    """The body of the operations on messages that are given by uid (UidsRequestType)."""

    auth: Authentication
    """The mailbox of the messages."""
    uids: list[int]
    """The numbers of the messages in the folder of the request, such as `[17, 18]`. See `MessageDetail.uid`."""
    recipients: RecipientCollection = attrs.field(factory=list[Recipient])
    """The recipients of Forward, such as `[Recipient("nurse@direct.example.org")]`. Empty for other operations."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SmtpIdsRequest(Model):
    """The body of GetMessageStatus for many (SmtpIdsRequestType)."""

    auth: Authentication
    """The mailbox that sent the messages."""
    smtp_ids: list[str]
    """The Message-IDs of the messages, such as `["<1@direct.example.org>"]`. See `SendMessageResponse.smtp_id`."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SetFoldersSubscribedRequest(Model):
    """The body of SetFoldersSubscribed (SetFoldersSubscribedRequestType)."""

    auth: Authentication
    """The mailbox of the folders."""
    folders: list[str]
    """The complete names of the folders, such as `["INBOX.Referrals"]`."""
    subscribed: bool
    """True subscribes to the folders, False unsubscribes."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class RawMessage(Model):
    """A message in its original form (RFC 5322)."""

    _shown: ClassVar[tuple[str, ...]] = ("uid",)

    uid: int | None = None
    """The number of the message in order of receipt, unique within its folder. It never changes."""
    msg_id: Annotated[str | None, Wire("msgID")] = None
    """The Message-ID, or None if the message has none."""
    folder: Annotated[str | None, Wire(exact=True)] = None
    """The folder of the message. None for a message that is new or part of another message."""
    data: bytes | None = attrs.field(default=None, validator=validate_bytes)
    """The bytes of the complete message (RFC 5322), such as `message.as_bytes()` of an EmailMessage. They are sent as
    base64. `save_raw_messages` needs only this field.
    """

    def to_email(self) -> EmailMessage:
        """Return the message as an EmailMessage of the standard library. Raises ValueError if `data` is None."""
        if self.data is None:
            raise ValueError("This RawMessage has no data to parse.")
        from directsuite.messaging import email

        return email.from_bytes(self.data)


@attrs.frozen(kw_only=True, repr=False, eq=False)
class RawMessagesRequest(Model):
    """The body of SaveRawMessages (RawMessagesRequestType)."""

    auth: Authentication
    """The mailbox of the folder."""
    messages: list[RawMessage]
    """The messages to append to the folder, such as `[RawMessage(data=data)]`."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class APIResponse(Model):
    """The base of the service's responses."""

    _shown: ClassVar[tuple[str, ...]] = ("success", "code")

    success: bool | None = None
    """True if the operation succeeded."""
    code: int | None = None
    """The result code. 0: no error, 1: authentication failed, 2: address error, 3 and 4: unspecified error."""
    message: str | None = None
    """The service's own text, which may contain patient names."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class SendMessageResponse(APIResponse):
    """The response to sending or forwarding a message."""

    smtp_id: Annotated[str, Wire(strict=True)] = ""
    """The Message-ID, for status requests. Empty if the service sent the message but returned no ID."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class MessageStatusLog(Model):
    """The delivery of one message to one recipient."""

    _shown: ClassVar[tuple[str, ...]] = ("status", "ts")

    from_: Annotated[str | None, Wire("from")] = None
    """The sender's address."""
    to: str | None = None
    """The recipient's address."""
    message_id: str | None = None
    """The Message-ID: the `smtp_id` of the response to sending."""
    message_size: int | None = None
    """The size of the message in bytes."""
    status: MessageStatus | None = None
    """The delivery status."""
    ts: datetime | None = None
    """The time of sending."""
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
    """The service's explanation, such as the reason for a failure."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class DirectMessageStatusReportResponse(APIResponse):
    """A report of delivery statuses, in `message_logs`, or as CSV in `csv_data`."""

    has_cv_data: bool | None = None
    """True if the report is in `csv_data`."""
    csv_data: bytes | None = None
    """The report as CSV."""
    message_logs: list[DirectMessageLog] = attrs.field(factory=list[DirectMessageLog])
    """The report, one record for each recipient."""

    @property
    def records(self) -> list[DirectMessageLog]:
        """The records of the report, in either form. Raises ResponseDecodeError if `csv_data` is not CSV."""
        if self.message_logs or not self.csv_data:
            return self.message_logs
        from directsuite.messaging import report

        return [DirectMessageLog(**row) for row in report.read_rows(self.csv_data, MessageStatus)]


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetFoldersResponse(APIResponse):
    """A response with names of folders."""

    folders: Annotated[list[str], Wire(strict=True)] = attrs.field(factory=list[str])
    """The names, in the order of the response. A name that could not be read is empty."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetCountResponse(APIResponse):
    """A response with a number of messages."""

    _shown: ClassVar[tuple[str, ...]] = ("success", "code", "count")

    count: Annotated[int | None, Wire(strict=True)] = None
    """The number of messages."""


@scrub_class
@attrs.frozen(kw_only=True, repr=False, eq=False)
class MessageDetail(MessageContent):
    """A received message, or its metadata, without the body and the contents of attachments."""

    _shown: ClassVar[tuple[str, ...]] = ("uid", "size", "received_date")

    uid: int | None = None
    """The number of the message in order of receipt, unique within its folder. It never changes."""
    msgnum: int | None = None
    """The position in the folder. Unlike `uid`, it can change."""
    msg_id: Annotated[str | None, Wire("msgID")] = None
    """The Message-ID, or None if the message has none."""
    folder: Annotated[str | None, Wire(exact=True)] = None
    """The folder of the message. None for a message that is new or part of another message."""
    expunged: bool | None = None
    """True if the message was removed from its folder."""
    size: int | None = None
    """The size of the content in bytes, -1 if unknown."""
    sent_date: datetime | None = None
    """The time of sending, from the header."""
    received_date: datetime | None = None
    """The time of receipt."""
    reply_to: str | None = None
    """The address for replies, or None."""
    headers: list[MessageHeader] = attrs.field(factory=list[MessageHeader])
    """The headers."""
    attachments: Annotated[list[Attachment], Wire(aliases=("attachmentList",))] = attrs.field(factory=list[Attachment])
    """The attachments."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetMessageResponse(APIResponse):
    """A response with messages, or their metadata."""

    messages: list[MessageDetail] = attrs.field(factory=list[MessageDetail])
    """The messages, in the order of the response."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetUIDResponse(APIResponse):
    """A response with the uids of a folder."""

    uids: Annotated[list[Uid], Wire(strict=True)] = attrs.field(factory=list[int])
    """The uids of all messages, in the order of the response."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetRawMessageResponse(APIResponse):
    """Messages in their original form (RFC 5322)."""

    messages: list[RawMessage] = attrs.field(factory=list[RawMessage])
    """The messages, in the order of the response."""
