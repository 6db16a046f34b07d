"""All types of the specification's section 2, and the types of parameters.

The package `directsuite` also has the types that methods use. Those that no operation of version 3.0 uses are defined
here.
"""

from __future__ import annotations

import typing

import attrs

from directsuite.core.clock import Clock as Clock
from directsuite.core.content import BinaryReader as BinaryReader
from directsuite.core.content import Content as Content
from directsuite.core.content import Source as Source
from directsuite.core.events import CallGroup as CallGroup
from directsuite.core.facade import RawResponses as RawResponses
from directsuite.core.retry import Stop as Stop
from directsuite.core.retry import Wait as Wait
from directsuite.core.session import SessionFactory as SessionFactory
from directsuite.core.sinks import BinaryWriter as BinaryWriter
from directsuite.core.sinks import PieceWriter as PieceWriter
from directsuite.errors import FailureReason as FailureReason
from directsuite.fax.models import FaxMessage as FaxMessage
from directsuite.fax.models import FaxMessageInformation as FaxMessageInformation
from directsuite.fax.models import FaxRecipient as FaxRecipient
from directsuite.fax.models import FaxStatus as FaxStatus
from directsuite.messaging.listings import MessageList as MessageList
from directsuite.messaging.models import APIResponse as APIResponse
from directsuite.messaging.models import Attachment as Attachment
from directsuite.messaging.models import Authentication as Authentication
from directsuite.messaging.models import AuthenticationWithTuser as AuthenticationWithTuser
from directsuite.messaging.models import DirectMessageLog as DirectMessageLog
from directsuite.messaging.models import DirectMessageStatusReportResponse as DirectMessageStatusReportResponse
from directsuite.messaging.models import GetCountResponse as GetCountResponse
from directsuite.messaging.models import GetFoldersResponse as GetFoldersResponse
from directsuite.messaging.models import GetMessageResponse as GetMessageResponse
from directsuite.messaging.models import GetRawMessageResponse as GetRawMessageResponse
from directsuite.messaging.models import GetUIDResponse as GetUIDResponse
from directsuite.messaging.models import Message as Message
from directsuite.messaging.models import MessageContent as MessageContent
from directsuite.messaging.models import MessageDetail as MessageDetail
from directsuite.messaging.models import MessageHeader as MessageHeader
from directsuite.messaging.models import MessageStatus as MessageStatus
from directsuite.messaging.models import MessageStatusLog as MessageStatusLog
from directsuite.messaging.models import MessageWithHeader as MessageWithHeader
from directsuite.messaging.models import RawMessage as RawMessage
from directsuite.messaging.models import RawMessagesRequest as RawMessagesRequest
from directsuite.messaging.models import Recipient as Recipient
from directsuite.messaging.models import RecipientCollection as RecipientCollection
from directsuite.messaging.models import RecipientType as RecipientType
from directsuite.messaging.models import SendMessageResponse as SendMessageResponse
from directsuite.messaging.models import SendRequest as SendRequest
from directsuite.messaging.models import SendRequestWithHeader as SendRequestWithHeader
from directsuite.messaging.models import SendWithHeaderWithTuserRequest as SendWithHeaderWithTuserRequest
from directsuite.messaging.models import SendWithTuserRequest as SendWithTuserRequest
from directsuite.messaging.models import SetFoldersSubscribedRequest as SetFoldersSubscribedRequest
from directsuite.messaging.models import SmtpIdsRequest as SmtpIdsRequest
from directsuite.messaging.models import UidsRequest as UidsRequest
from directsuite.messaging.sending import OnPoll as OnPoll
from directsuite.oauth.grants import Grant as Grant
from directsuite.oauth.grants import Token as Token
from directsuite.registration.models import AddUsersResponse as AddUsersResponse
from directsuite.registration.models import AddUsersResponseV2 as AddUsersResponseV2
from directsuite.registration.models import BaseUser as BaseUser
from directsuite.registration.models import DirectUser as DirectUser
from directsuite.registration.models import DirectUserDetail as DirectUserDetail
from directsuite.registration.models import DirectUserType as DirectUserType
from directsuite.registration.models import GetPatientAddressesResponse as GetPatientAddressesResponse
from directsuite.registration.models import IDProofedIndividual as IDProofedIndividual
from directsuite.registration.models import IDProofedIndividualRESTful as IDProofedIndividualRESTful
from directsuite.registration.models import Login as Login
from directsuite.registration.models import LoginRequest as LoginRequest
from directsuite.registration.models import LoginResponse as LoginResponse
from directsuite.registration.models import PaymentConfirmation as PaymentConfirmation
from directsuite.registration.models import Product as Product
from directsuite.registration.models import ResellerAPIResponse as ResellerAPIResponse
from directsuite.registration.models import UserPassword as UserPassword
from directsuite.registration.models import UserStateType as UserStateType
from directsuite.settings import SettingsOptions as SettingsOptions
from directsuite.signing.changes import Document as Document
from directsuite.signing.changes import PdfDestination as PdfDestination
from directsuite.signing.models import DocumentInfo as DocumentInfo
from directsuite.signing.models import DocumentSignature as DocumentSignature
from directsuite.signing.models import DocumentUpdate as DocumentUpdate
from directsuite.signing.models import FormField as FormField
from directsuite.signing.models import MultiSignRequest as MultiSignRequest
from directsuite.signing.models import Page as Page
from directsuite.signing.models import Signature as Signature
from directsuite.signing.models import StoredDocument as StoredDocument
from directsuite.signing.models import Widget as Widget
from directsuite.signing.service import ChangeOptions as ChangeOptions
from directsuite.signing.service import DownloadOptions as DownloadOptions
from directsuite.signing.service import PullOptions as PullOptions
from directsuite.signing.service import SignPdfOptions as SignPdfOptions
from directsuite.wire import models


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FHIRQueryParameter(models.Model):
    """One parameter of a FHIR query."""

    name: str
    value: str | None = None


@attrs.frozen(kw_only=True, repr=False, eq=False)
class FHIRResource(models.Model):
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
class ArchivedAuditFile(models.Model):
    """An archived audit log, compressed with gzip if `is_compressed`."""

    _shown: typing.ClassVar[tuple[str, ...]] = ("size", "is_compressed")

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
class CreditCard(models.Model):
    """A credit card. The specification does not define its fields, so all are in `extra`."""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class ResellerCreditCardsResponse(ResellerAPIResponse):
    """A reseller's credit cards."""

    cards: list[CreditCard] = attrs.field(factory=list[CreditCard])


vars()["__all__"] = [name for name in dir() if name[0].isupper()]
