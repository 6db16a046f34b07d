"""All types of the specification's section 2, and the types of parameters.

The package `directsuite` also has the types that methods use. Those that no operation of version 3.0 uses are defined
here.
"""

from __future__ import annotations

from typing import ClassVar

import attrs

from directsuite.core.clock import Clock
from directsuite.core.content import BinaryReader, Content, Source
from directsuite.core.events import CallGroup
from directsuite.core.facade import RawResponses
from directsuite.core.retry import Stop, Wait
from directsuite.core.session import SessionFactory
from directsuite.core.sinks import BinaryWriter, PieceWriter
from directsuite.errors import FailureReason
from directsuite.fax.models import (
    FaxMessage,
    FaxMessageInformation,
    FaxRecipient,
    FaxStatus,
)
from directsuite.messaging.listings import MessageList
from directsuite.messaging.models import (
    APIResponse,
    Attachment,
    Authentication,
    AuthenticationWithTuser,
    DirectMessageLog,
    DirectMessageStatusReportResponse,
    GetCountResponse,
    GetFoldersResponse,
    GetMessageResponse,
    GetRawMessageResponse,
    GetUIDResponse,
    Message,
    MessageContent,
    MessageDetail,
    MessageHeader,
    MessageStatus,
    MessageStatusLog,
    MessageWithHeader,
    RawMessage,
    RawMessagesRequest,
    Recipient,
    RecipientCollection,
    RecipientType,
    SendMessageResponse,
    SendRequest,
    SendRequestWithHeader,
    SendWithHeaderWithTuserRequest,
    SendWithTuserRequest,
    SetFoldersSubscribedRequest,
    SmtpIdsRequest,
    UidsRequest,
)
from directsuite.messaging.tracking import OnPoll
from directsuite.oauth.grants import Grant, Token
from directsuite.registration.models import (
    AddUsersResponse,
    AddUsersResponseV2,
    BaseUser,
    DirectUser,
    DirectUserDetail,
    DirectUserType,
    GetPatientAddressesResponse,
    IDProofedIndividual,
    IDProofedIndividualRESTful,
    Login,
    LoginRequest,
    LoginResponse,
    PaymentConfirmation,
    Product,
    ResellerAPIResponse,
    UserPassword,
    UserStateType,
)
from directsuite.settings import SettingsOptions
from directsuite.signing.changes import Document, PdfDestination
from directsuite.signing.models import (
    DocumentInfo,
    DocumentSignature,
    DocumentUpdate,
    FormField,
    MultiSignRequest,
    Page,
    Signature,
    StoredDocument,
    Widget,
)
from directsuite.signing.service import ChangeOptions, DownloadOptions, PullOptions, SignPdfOptions
from directsuite.wire.models import Model


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FHIRQueryParameter(Model):
    """One parameter of a FHIR query."""

    name: str
    value: str | None = None


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FHIRResource(Model):
    """A FHIR resource and its query (FHIRResourceType)."""

    resource_type: str
    query_parameters: list[FHIRQueryParameter] = attrs.field(factory=list[FHIRQueryParameter])


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetMessageStatusReportResponse(APIResponse):
    """Delivery status without details."""

    has_cv_data: bool | None = None
    csv_data: bytes | None = None
    message_logs: list[MessageStatusLog] = attrs.field(factory=list[MessageStatusLog])


@attrs.frozen(kw_only=True, repr=False, eq=False)
class AdminUser(BaseUser):
    """A person who administers an organization."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class ArchivedAuditFile(Model):
    """An archived audit log, compressed with gzip if `is_compressed`."""

    _shown: ClassVar[tuple[str, ...]] = ("size", "is_compressed")

    content: bytes | None = None
    name: str | None = None
    size: int | None = None
    is_compressed: bool | None = None


@attrs.frozen(kw_only=True, repr=False, eq=False)
class GetAuditFileResponse(ResellerAPIResponse):
    """An archived audit log (GetAuditFileResponseType)."""

    archived_audited_messages: ArchivedAuditFile | None = None


@attrs.frozen(kw_only=True, repr=False, eq=False)
class ResellerDomainsResponse(ResellerAPIResponse):
    """A reseller's domains."""

    domains: list[str] = attrs.field(factory=list[str])


@attrs.frozen(kw_only=True, repr=False, eq=False)
class CreditCard(Model):
    """A credit card. The specification does not define its fields, so all are in `extra`."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class ResellerCreditCardsResponse(ResellerAPIResponse):
    """A reseller's credit cards."""

    cards: list[CreditCard] = attrs.field(factory=list[CreditCard])


__all__ = [
    "APIResponse",
    "AddUsersResponse",
    "AddUsersResponseV2",
    "AdminUser",
    "ArchivedAuditFile",
    "Attachment",
    "Authentication",
    "AuthenticationWithTuser",
    "BaseUser",
    "BinaryReader",
    "BinaryWriter",
    "CallGroup",
    "ChangeOptions",
    "Clock",
    "Content",
    "CreditCard",
    "DirectMessageLog",
    "DirectMessageStatusReportResponse",
    "DirectUser",
    "DirectUserDetail",
    "DirectUserType",
    "Document",
    "DocumentInfo",
    "DocumentSignature",
    "DocumentUpdate",
    "DownloadOptions",
    "FHIRQueryParameter",
    "FHIRResource",
    "FailureReason",
    "FaxMessage",
    "FaxMessageInformation",
    "FaxRecipient",
    "FaxStatus",
    "FormField",
    "GetAuditFileResponse",
    "GetCountResponse",
    "GetFoldersResponse",
    "GetMessageResponse",
    "GetMessageStatusReportResponse",
    "GetPatientAddressesResponse",
    "GetRawMessageResponse",
    "GetUIDResponse",
    "Grant",
    "IDProofedIndividual",
    "IDProofedIndividualRESTful",
    "Login",
    "LoginRequest",
    "LoginResponse",
    "Message",
    "MessageContent",
    "MessageDetail",
    "MessageHeader",
    "MessageList",
    "MessageStatus",
    "MessageStatusLog",
    "MessageWithHeader",
    "MultiSignRequest",
    "OnPoll",
    "Page",
    "PaymentConfirmation",
    "PdfDestination",
    "PieceWriter",
    "Product",
    "PullOptions",
    "RawMessage",
    "RawMessagesRequest",
    "RawResponses",
    "Recipient",
    "RecipientCollection",
    "RecipientType",
    "ResellerAPIResponse",
    "ResellerCreditCardsResponse",
    "ResellerDomainsResponse",
    "SendMessageResponse",
    "SendRequest",
    "SendRequestWithHeader",
    "SendWithHeaderWithTuserRequest",
    "SendWithTuserRequest",
    "SessionFactory",
    "SetFoldersSubscribedRequest",
    "SettingsOptions",
    "SignPdfOptions",
    "Signature",
    "SmtpIdsRequest",
    "Source",
    "Stop",
    "StoredDocument",
    "Token",
    "UidsRequest",
    "UserPassword",
    "UserStateType",
    "Wait",
    "Widget",
]
