"""The specification's types (section 2) and the public shapes beside them, written down by hand: fields as on the wire.

A line is a type as the package names it, then its fields, each `name kind`. Kinds are the specification's own: String,
int, long, float, boolean, Date, byte[], another type of this table, or a list of either. A repr shows exactly the
fields with a `*`: numbers, states, transport dates and ids without a name. Of a contentType it shows the media type.
"""

from __future__ import annotations

import re
from typing import Any

_API = "success boolean*; code int*; message String; "
_RESELLER = "code String*; success boolean*; errorMessage String; "
_MESSAGE = "sender String; subject String; body String; htmlBody boolean; recipients Recipient[]; "
_DOCUMENT = "documentType String*; createdTime Date*; identifier String*; documentDigest String; description String; "
_SIGNATURE = (
    "name String; widget Widget*; reason String; gsName String; timezone String; GMTOffset int*; "
    "graphicalSignature byte[]"
)
_INDIVIDUAL = "id long; firstName String; lastName String; ssn4 String; dob String; "
_USER = (
    "firstName String; lastName String; email String; phone String; dea String; npi String; "
    "sameAsOrganizationAddress boolean; address String; city String; state String; country String; zipcode String; "
)
_DIRECT_USER = _USER + (
    "username String; userType DirectUserType*; endpoint String; endpointDirectory String; endpointUsername String; "
    "endpointPassword String; "
)
_LOG = (
    "from String; to String; messageId String; messageSize long; status String*; ts Date*; xdrId String; "
    "uniqueId String; sourceId String; patientId String; "
)

TYPES: dict[str, str] = {
    # A
    "StoredDocument": _DOCUMENT,
    "DocumentInfo": _DOCUMENT
    + "signatures DocumentSignature[]; formFields FormField[]; pages Page[]; metaData MetaDataObject",
    "DocumentUpdate": "documentDigest String; description String; identifier String*",
    "Signature": _SIGNATURE,
    "MultiSignRequest": "Signatures Signature[]",
    "Widget": "x float*; y float*; width float*; height float*; page int*",
    "DocumentSignature": (
        "name String; width float; height float; left float; top float; pageIndex int*; isSigned boolean*; "
        "signerName String; signatureTime String; reason String; isValid boolean*"
    ),
    "FormField": (
        "name String; value String; left float; top float; width float; height float; pageIndex int*; tabIndex int*"
    ),
    "Page": "index int*; width float*; height float*; rotate int*",
    # B
    "FaxMessageInformation": ("Username String; MessageHandle String; MessageDetail FaxMessage[]*; description String"),
    "FaxMessage": (
        "fax_number String; status String*; updated_ts Date*; recipients FaxRecipient[]; description String; "
        "MessageHandle String"
    ),
    "FaxRecipient": "Address String; Name String; PageCount int*; description String",
    # C
    "Authentication": "username String; password String",
    "AuthenticationWithTuser": "username String; password String; directAddr String",
    "SendRequest": "authentication Authentication; message Message",
    "SendRequestWithHeader": "authentication Authentication; message MessageWithHeader",
    "SendWithTuserRequest": "authentication AuthenticationWithTuser; message Message",
    "SendWithHeaderWithTuserRequest": "authentication AuthenticationWithTuser; message MessageWithHeader",
    "UidsRequest": "auth Authentication; uids long[]; recipients Recipient[]",
    "SmtpIdsRequest": "auth Authentication; smtpIds String[]",
    "SetFoldersSubscribedRequest": "auth Authentication; folders String[]; subscribed boolean",
    "RawMessagesRequest": "auth Authentication; messages RawMessage[]",
    "Message": _MESSAGE + "attachmentList Attachment[]",
    "MessageWithHeader": _MESSAGE + "attachmentList Attachment[]; headers MessageHeader[]",
    "Recipient": "email String; type RecipientType*",
    "Attachment": "content byte[]; contentType String*; filename String",
    "MessageHeader": "name String; value String",
    "FHIRResource": "resourceType String; queryParameters FHIRQueryParameter[]",
    "FHIRQueryParameter": "name String; value String",
    "APIResponse": _API,
    "SendMessageResponse": _API + "smtpId String",
    "DirectMessageStatusReportResponse": _API + "hasCvData boolean; csvData byte[]; messageLogs DirectMessageLog[]",
    "GetFoldersResponse": _API + "folders String[]",
    "GetCountResponse": _API + "count int*",
    "GetMessageResponse": _API + "messages MessageDetail[]",
    "GetUIDResponse": _API + "uids long[]",
    "GetRawMessageResponse": _API + "messages RawMessage[]",
    "DirectMessageLog": _LOG + "statusDetails String",
    "MessageDetail": _MESSAGE
    + (
        "attachments Attachment[]; uid long*; msgnum int; msgID String; folder String; expunged boolean; size int*; "
        "sentDate Date; receivedDate Date*; replyTo String; headers MessageHeader[]"
    ),
    "RawMessage": "uid long*; msgID String; folder String; data byte[]",
    "GetMessageStatusReportResponse": _API + "hasCvData boolean; csvData byte[]; messageLogs MessageStatusLog[]",
    "MessageStatusLog": _LOG,
    # D
    "ResellerAPIResponse": _RESELLER,
    "LoginRequest": "username String; password String",
    "LoginResponse": _RESELLER + "sessionId String",
    "AddUsersResponse": _RESELLER + "users DirectUserDetail[]",
    "AddUsersResponseV2": _RESELLER + "users DirectUserDetail[]; paymentConfirmation PaymentConfirmation",
    "GetPatientAddressesResponse": _RESELLER + "patient DirectUserDetail[]",
    "UserPassword": "username String; password String",
    "IDProofedIndividual": _INDIVIDUAL,
    "IDProofedIndividualRESTful": _INDIVIDUAL + "directUsername String; directPassword String",
    "BaseUser": _USER,
    "AdminUser": _USER,
    "DirectUser": _DIRECT_USER,
    "DirectUserDetail": _DIRECT_USER + "UserStateType UserStateType*",
    "PaymentConfirmation": "orderId int*; amount float; orderTime Date*; products Product[]; detail String",
    "Product": (
        "name String; description String; quantity int; offerPrice float; salePrice float; amount float; "
        "startDate String; expireDate String"
    ),
    "GetAuditFileResponse": _RESELLER + "archivedAuditedMessages ArchivedAuditFile",
    "ArchivedAuditFile": "content byte[]; name String; size long*; isCompressed boolean*",
    "ResellerDomainsResponse": _RESELLER + "domains String[]",
    "ResellerCreditCardsResponse": _RESELLER + "cards CreditCard[]",
    "CreditCard": "",
}

_VALUES: dict[str, object] = {
    "String": "a text",
    "int": 7,
    "long": 2**62,
    "float": 1.5,
    "boolean": True,
    "Date": "2016-07-05T17:47:15.000Z",
    "byte[]": "AAEC",
    "MetaDataObject": {"Author": "a text"},
    "RecipientType": "BCC",
    "DirectUserType": "FTPS",
    "UserStateType": "activated",
}


def list_fields(name: str) -> dict[str, str]:
    entries = [entry.split() for entry in TYPES[name].split(";") if entry.strip()]
    return {field: kind.removesuffix("*") for field, kind in entries}


def list_shown(name: str) -> list[str]:
    return re.findall(r"(\w+) [^ ;]+\*", TYPES[name])


def make_document(name: str) -> dict[str, Any]:
    return {field: _make_value(kind) for field, kind in list_fields(name).items()}


def _make_value(kind: str) -> object:
    if kind in _VALUES:
        return _VALUES[kind]
    return [_make_value(kind.removesuffix("[]"))] if kind.endswith("[]") else make_document(kind)
