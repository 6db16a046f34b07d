"""Request bodies (specification section 2.C), and a call with a validated body and credentials.

Sections 4 and 5 of the specification differ about the place of the credentials. All operations accept them in `auth`
and `authentication`, and, if the body has no other members, in the body itself.
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

_MAX_IDS = 1_000_000
_MAX_ITEMS = 10_000  # of other lists, because each item takes longer to process

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

    headers: Annotated[list[MessageHeader], msgspec.Meta(max_length=_MAX_ITEMS)] | None = None


class SendRequest(AuthenticatedRequest):
    """SendRequest and SendWithTuserRequest."""

    message: Message


class SendRequestWithHeader(AuthenticatedRequest):
    """SendRequestWithHeader and SendWithHeaderWithTuserRequest."""

    message: MessageWithHeader


class UidsRequest(AuthenticatedRequest):
    """UidsRequestType."""

    uids: Annotated[list[Uid], msgspec.Meta(min_length=1, max_length=_MAX_IDS)]
    recipients: list[Recipient] | RecipientCollection | None = None

    def list_recipients(self) -> list[Recipient]:
        """Return the recipients, whether they are a list or an object. Empty if they are missing."""
        recipients = self.recipients or []
        return recipients.recipients if isinstance(recipients, RecipientCollection) else recipients


class SmtpIdsRequest(AuthenticatedRequest):
    """SmtpIdsRequestType."""

    smtp_ids: Annotated[list[str], msgspec.Meta(max_length=_MAX_IDS)]


class SetFoldersSubscribedRequest(AuthenticatedRequest):
    """SetFoldersSubscribedRequestType."""

    folders: Annotated[list[str], msgspec.Meta(min_length=1, max_length=_MAX_ITEMS)]
    subscribed: bool


class RawMessageData(msgspec.Struct, kw_only=True):
    """RawMessage. Other members are ignored."""

    data: str


class RawMessagesRequest(AuthenticatedRequest):
    """RawMessagesRequestType."""

    messages: Annotated[list[RawMessageData], msgspec.Meta(min_length=1, max_length=_MAX_ITEMS)]


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
    """See MessagingService.csv_above."""
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
