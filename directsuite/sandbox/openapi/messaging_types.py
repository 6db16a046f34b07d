"""The types of service C of the specification, Direct messaging (section 2.C), in its order and spelling."""

from __future__ import annotations

from directsuite.sandbox.openapi.json_schema import (
    Schema,
    all_nullable,
    array_of,
    base64,
    boolean,
    extending,
    integer,
    long,
    nullable,
    obj,
    one_of,
    ref,
    text,
)
from directsuite.sandbox.openapi.moments import moment

_username = text("Direct email address.")
_password = text("Password.")
_auth = ref("Authentication")
_uids = array_of(long(), "Uids within the folder.")

_credentials: dict[str, Schema] = {
    "Authentication": obj("A mailbox's credentials.", required={"username": _username, "password": _password}),
    "AuthenticationWithTuser": obj(
        "A T-User's credentials and the mailbox it acts for.",
        required={
            "username": text("T-User name."),
            "password": text("T-User password."),
            "directAddr": text("The user's Direct address."),
        },
    ),
}


def _send_request(authentication: str, message: str, description: str) -> Schema:
    return obj(description, required={"authentication": ref(authentication), "message": ref(message)})


_requests: dict[str, Schema] = {
    "SendRequest": _send_request("Authentication", "Message", "A message to send."),
    "SendRequestWithHeader": _send_request(
        "Authentication", "MessageWithHeader", "A message to send with headers of one's own."
    ),
    "SendWithTuserRequest": _send_request("AuthenticationWithTuser", "Message", "A message to send as a T-User."),
    "SendWithHeaderWithTuserRequest": _send_request(
        "AuthenticationWithTuser", "MessageWithHeader", "A message to send as a T-User with headers of one's own."
    ),
    "UidsRequestType": obj(
        "Messages of a folder by uid.",
        required={"auth": _auth, "uids": _uids},
        optional={"recipients": ref("RecipientCollection", "To whom the messages are forwarded.")},
    ),
    "RecipientCollection": array_of(ref("Recipient"), "Recipients of forwarded messages."),
    "SmtpIdsRequestType": obj(
        "Messages by Message-ID.", required={"auth": _auth, "smtpIds": array_of(text(), "Message-IDs.")}
    ),
    "SetFoldersSubscribedRequestType": obj(
        "Folders to subscribe or unsubscribe.",
        required={
            "auth": _auth,
            "folders": array_of(text(), "Folder names."),
            "subscribed": boolean("true sets the folders subscribed, false unsubscribed."),
        },
    ),
    "RawMessagesRequestType": obj(
        "Raw messages to save.", required={"auth": _auth, "messages": array_of(ref("RawMessage"))}
    ),
}

_message_required: dict[str, Schema] = {
    "sender": text("From address, the same as the username."),
    "htmlBody": boolean("true: the body is HTML; false: plain text."),
    "recipients": array_of(ref("Recipient"), "To whom the message goes."),
}

_message_optional: dict[str, Schema] = {
    "subject": text("Subject."),
    "body": text("Body."),
}

_headers = array_of(ref("MessageHeader"), "Message headers.")

_messages: dict[str, Schema] = {
    "Message": obj(
        "A message to send.",
        required=_message_required,
        optional={**_message_optional, "attachmentList": array_of(ref("Attachment"), "Attachments.")},
    ),
    "MessageWithHeader": extending(
        "Message", obj("A message to send with headers of one's own.", optional={"headers": _headers})
    ),
    "Recipient": obj(
        "Who receives a message, and how.",
        required={"email": text("Email address."), "type": ref("RecipientType")},
    ),
    "RecipientType": one_of(["TO", "CC", "BCC"], "How a recipient is addressed."),
    "Attachment": obj(
        "A file that a message carries.",
        required={
            "content": base64("The file's bytes."),
            "contentType": text("Media type, with or without parameters."),
            "filename": text("File name."),
        },
    ),
    "MessageHeader": obj(
        "One header line of a message.",
        optional={"name": text("Header line name."), "value": text("Header line value.")},
    ),
    # A type of its own and no extension of Message: metadata comes without bodies and contents, which Message forbids.
    "MessageDetail": obj(
        "A message of a folder.",
        required=_message_required,
        optional=all_nullable(
            {
                **_message_optional,
                "attachments": array_of(ref("AttachmentDetail"), "Attachments."),
                "attachmentList": array_of(
                    ref("AttachmentDetail"), "The name of `attachments` in the sandbox's profile attachment-list."
                ),
                "uid": long("Received order within the folder; unique and unchanging there."),
                "msgnum": integer("Message number."),
                "msgID": text("Message-ID; null when the header is absent."),
                "folder": text("Folder the message came from; null for a new or nested message."),
                "expunged": boolean("Whether the message is expunged."),
                "size": integer("Content size in bytes; -1 when it cannot be determined.", minimum=-1),
                "sentDate": moment("Sent date."),
                "receivedDate": moment("Received date."),
                "replyTo": text("Address that replies go to; null when the header is absent."),
                "headers": _headers,
            }
        ),
    ),
    "AttachmentDetail": obj(
        "An attachment of a received message; metadata comes without its content.",
        optional=all_nullable(
            {
                "content": base64("The file's bytes."),
                "contentType": text("Media type, with or without parameters."),
                "filename": text("File name."),
            }
        ),
    ),
    "RawMessage": obj(
        "A message as it stands in the mail store.",
        optional=all_nullable(
            {
                "uid": long("Received order within the folder; unique and unchanging there."),
                "msgID": text("Message-ID; null when the header is absent."),
                "folder": text("Folder of the message; null for a new or nested message."),
                "data": base64("Raw message."),
            }
        ),
    ),
}

_log: dict[str, Schema] = all_nullable(
    {
        "from": text("Sender's Direct address."),
        "to": text("Recipient's Direct address."),
        "messageId": text("SMTP Message-ID."),
        "messageSize": long("Message size in bytes."),
        "status": ref("MessageStatus"),
        "statusDetails": text("Details of the delivery status."),
        "ts": moment("Sent time."),
        "xdrId": text("XDR Message ID."),
        "uniqueId": text("XDR Unique ID."),
        "sourceId": text("XDR Source ID."),
        "patientId": text("XDR Patient ID."),
    }
)
_log_without_details = {name: schema for name, schema in _log.items() if name != "statusDetails"}


def _answer(description: str, **added: Schema) -> Schema:
    return extending("APIResponse", obj(description, optional=all_nullable(added)))


def _status_report(description: str, log: Schema) -> Schema:
    return _answer(
        description,
        hasCvData=boolean("true: csvData is filled and messageLogs empty; false: the other way round."),
        csvData=base64("Status report as CSV of ten columns; empty when there is none."),
        messageLogs=array_of(log, "One record per recipient; empty when there is none."),
    )


_answers: dict[str, Schema] = {
    "APIResponse": obj(
        "What every answer of the messaging service has.",
        required={
            "success": boolean("Whether the action succeeded."),
            "code": one_of(range(5), "0 success, 1 authentication failed, 2 address error, 3 and 4 other error."),
        },
        optional={"message": nullable(text("Information."))},
    ),
    "SendMessageResponseType": _answer(
        "A message that was sent or forwarded.", smtpId=text("Message-ID; its status can be asked for.", minLength=1)
    ),
    "DirectMessageStatusReportResponseType": _status_report(
        "How delivery stands, recipient by recipient.", ref("DirectMessageLog")
    ),
    "DirectMessageLog": obj("How delivery to one recipient stands.", optional=_log),
    "MessageStatus": one_of(
        ["Delivered", "Waiting", "Locally Failed", "Remotely Failed", "NO MDN Received"], "Status of a delivery."
    ),
    "GetFoldersResponseType": _answer("Folders.", folders=array_of(text(), "Folder names.")),
    "GetCountResponse": _answer("A number of messages.", count=integer("The number.", minimum=0)),
    "GetMessageResponse": _answer("Messages.", messages=array_of(ref("MessageDetail"))),
    "GetUIDResponseType": _answer("Uids.", uids=array_of(long(minimum=1), "Uids within the folder.")),
    "GetRawMessageResponse": _answer("Raw messages.", messages=array_of(ref("RawMessage"))),
}

_unreferenced: dict[str, Schema] = {
    "FHIRResourceType": obj(
        "A query for a FHIR resource. No operation uses it.",
        required={"resourceType": text("Resource type.")},
        optional={"queryParameters": array_of(ref("FHIRQueryParameterType"))},
    ),
    "FHIRQueryParameterType": obj(
        "A parameter of a FHIR query. No operation uses it.",
        required={"name": text("Parameter name."), "value": text("Parameter value.")},
    ),
    "GetMessageStatusReportResponse": _status_report(
        "How delivery stands, without details. No operation uses it.", obj(optional=_log_without_details)
    ),
    "GetAuditFileResponseType": _answer(
        "An audit file. No operation uses it.", archivedAuditedMessages=ref("ArchivedAuditFile")
    ),
    "ArchivedAuditFile": obj(
        "An archived audit file. No operation uses it.",
        optional=all_nullable(
            {
                "content": base64("The file's bytes."),
                "name": text("File name."),
                "size": long("Size in bytes."),
                "isCompressed": boolean("true: application/x-gzip; false: text/plain."),
            }
        ),
    ),
}

SCHEMAS: dict[str, Schema] = {**_credentials, **_requests, **_messages, **_answers, **_unreferenced}
