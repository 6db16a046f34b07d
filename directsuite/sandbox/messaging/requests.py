"""Request bodies (specification section 2.C), and a call whose body and credentials were checked.

A body is checked while it is read: what does not fit is refused.

Where credentials are looked for is wider than section 4 says, since sections 4 and 5 differ: beside the place that
section 4 names, `auth` and `authentication` are taken everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from directsuite.sandbox.database import record_effect
from directsuite.sandbox.messaging import mailboxes

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from directsuite.sandbox.files import StoredFiles
    from directsuite.sandbox.messaging.receiving import Contents

Uid = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Authentication(msgspec.Struct, kw_only=True, rename="camel"):
    """Authentication and AuthenticationWithTuser: what is missing cannot be right, and is refused with code 1."""

    username: str = ""
    password: str = ""
    direct_addr: str = ""


class AuthenticatedRequest(msgspec.Struct, kw_only=True, rename="camel"):
    """A body that carries credentials in a member of its own."""

    auth: Authentication | None = None
    authentication: Authentication | None = None

    def get_credentials(self) -> Authentication:
        """The credentials, empty if there are none."""
        return self.auth or self.authentication or Authentication()


class MailboxRequest(AuthenticatedRequest):
    """A body that is a bare Authentication, or carries one."""

    username: str = ""
    password: str = ""
    direct_addr: str = ""

    def get_credentials(self) -> Authentication:
        """The credentials, wherever they stand."""
        bare = Authentication(username=self.username, password=self.password, direct_addr=self.direct_addr)
        return self.auth or self.authentication or bare


class Recipient(msgspec.Struct):
    """An address and how it is addressed."""

    email: str
    type: Literal["TO", "CC", "BCC"]


class RecipientCollection(msgspec.Struct, kw_only=True):
    """The form of a list of recipients that some clients send."""

    recipients: list[Recipient]


class AttachmentContent(msgspec.Struct, kw_only=True, rename="camel"):
    """Attachment: content is base64, with or without line breaks."""

    content: str
    content_type: str
    filename: str


class MessageHeader(msgspec.Struct, kw_only=True):
    """A header line."""

    name: str
    value: str


class Message(msgspec.Struct, kw_only=True, rename="camel"):
    """Message; `attachments` is taken for `attachmentList` too."""

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
        """The recipients, in whichever form they came."""
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
    """RawMessage, of which only the data counts."""

    data: str


class RawMessagesRequest(AuthenticatedRequest):
    """RawMessagesRequestType."""

    messages: Annotated[list[RawMessageData], msgspec.Meta(min_length=1)]


RequestT = TypeVar("RequestT", bound=AuthenticatedRequest)


ResponseMembers = dict[str, Any]
"""The members that an answer has beyond success, code and message."""


class MessagingCall(NamedTuple, Generic[RequestT]):
    """A call by the owner of a mailbox, or by a T-User who acts for him."""

    operation: str
    path: Mapping[str, str]
    """The path's segments, decoded."""
    request: RequestT
    account: int
    """The id of the mailbox."""
    address: str
    """The mailbox's Direct address."""
    at_ms: int
    csv_above: int
    """A status report about more ids than this comes as CSV."""
    files: StoredFiles
    """The files of large messages."""
    contents: Contents
    """The large contents of the request, by what stands in their places."""

    def get_folder(self, connection: sqlite3.Connection) -> mailboxes.MailboxFolder:
        """The folder that the path names. Refuses with code 3 if there is none."""
        return mailboxes.get_folder(connection, self.account, self.path["folderName"])

    def record(self, connection: sqlite3.Connection, subject: str, **detail: Any) -> None:
        """Write this call's effect into the ledger."""
        detail["account"] = self.address
        record_effect(connection, operation=self.operation, subject=subject, at=self.at_ms, **detail)
