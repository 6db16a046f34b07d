"""Planted secrets and patient data, and calls of every operation that contain them.

None of these texts occurs by chance. Leaks are also searched for in base64 and with escapes.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from urllib.parse import quote

import directsuite as ds
from tests.operations import OPERATIONS
from tests.operations.case import Accounts, OperationCase

PASSWORD = "planted!password~1"
TUSER_PASSWORD = "planted!tuser~2"
LOGIN_PASSWORD = "planted!login~3"
TOKEN = "planted.token-4"
SESSION = "planted!session/5"
PATIENT_PASSWORD = "planted!patient~6"
CLIENT_SECRET, REFRESH_TOKEN = "planted!client~7", "planted.refresh-8"
CODE, VERIFIER = "planted.code-9", "planted.verifier-" + "0" * 32
SECRETS = (
    *(PASSWORD, TUSER_PASSWORD, LOGIN_PASSWORD, TOKEN, SESSION, PATIENT_PASSWORD),
    *(CLIENT_SECRET, REFRESH_TOKEN, CODE, VERIFIER),
)

ALICE = "planted-alice@direct.example.test"
BOB = "planted-bob@direct.example.test"
SUBJECT, BODY, NAME, SURNAME = "planted subject", "planted body", "Plantedada", "Plantedsson"
SSN4, BIRTH, STREET, USERNAME = "Q#7Z", "1907-03-19", "7 Planted Street", "planted-username"
FOLDER, OTHER_FOLDER = "INBOX.planted-folder", "INBOX.planted-other"
FILE_NAME, ATTACHED, RAW = "planted-file.xml", b"<planted-attachment/>", b"Subject: planted raw\r\n\r\nplanted text"
DOCUMENT, REASON, SIGNER, PICTURE = "planted-document", "planted reason", "planted signer", b"planted picture"
PDF = b"%PDF-1.7 planted page"
NUMBER, HANDLE, SMTP_ID, HEADER = "+19995550137", "planted-handle", "<planted-id@direct.example.test>", "planted header"
UID = 918_273_645_546
PATIENT_DATA = (
    *(ALICE, BOB, SUBJECT, BODY, NAME, SURNAME, SSN4, BIRTH, STREET, USERNAME, FOLDER, OTHER_FOLDER),
    *(FILE_NAME, ATTACHED.decode(), "planted raw", "planted text", DOCUMENT, REASON, SIGNER, PICTURE.decode()),
    *("planted page", NUMBER, HANDLE, SMTP_ID, HEADER, str(UID), "planted-reseller", "planted-tuser"),
)


def encode_variants(texts: Iterable[str]) -> frozenset[str]:
    """Return the texts in the forms in which they may leak: plain, escaped, and within base64 at each offset."""
    found: set[str] = set()
    for text in texts:
        found |= {text, quote(text, safe=""), json.dumps(text)[1:-1], repr(text)[1:-1]}
        content = text.encode()
        for offset in range(3):
            coded = base64.b64encode(b"\0" * offset + content).decode()
            # Characters that contain bits of the neighbouring text are left out, because they vary with it.
            inner = coded[4 if offset else 0 : -4 if len(content) % 3 or offset else None]
            if len(inner) >= 8:
                found.add(inner)
    return frozenset(found)


LOGIN = ds.Login("planted-reseller", LOGIN_PASSWORD)
MESSAGE = ds.Message(
    subject=SUBJECT,
    body=BODY,
    recipients=[ds.Recipient(BOB)],
    attachment_list=[ds.Attachment(content=ATTACHED, content_type="text/xml", filename=FILE_NAME)],
)
MESSAGE_WITH_HEADER = ds.MessageWithHeader(
    subject=SUBJECT, body=BODY, recipients=[ds.Recipient(BOB)], headers=[ds.MessageHeader("X-Planted", HEADER)]
)
SIGNATURE = ds.Signature(name=SIGNER, reason=REASON, gs_name=NAME, graphical_signature=PICTURE)
PROOFED_INDIVIDUAL = ds.IDProofedIndividualRESTful(
    first_name=NAME, last_name=SURNAME, ssn4=SSN4, dob=BIRTH, direct_username=USERNAME, direct_password=PATIENT_PASSWORD
)
INDIVIDUAL = ds.IDProofedIndividual(first_name=NAME, last_name=SURNAME, ssn4=SSN4, dob=BIRTH)
RAW_MESSAGES = [ds.RawMessage(data=RAW)]
DAY = datetime(1907, 3, 19, tzinfo=UTC)

SuiteCall = Callable[[ds.DirectSuite], Awaitable[object]]

ACCOUNTS: Accounts = {"mailbox": (ALICE, PASSWORD), "tuser": ("planted-tuser", TUSER_PASSWORD, ALICE)}
ARGUMENTS: dict[str | type, object] = {
    ds.Message: MESSAGE,
    ds.MessageWithHeader: MESSAGE_WITH_HEADER,
    ds.Signature: SIGNATURE,
    ds.IDProofedIndividual: INDIVIDUAL,
    ds.IDProofedIndividualRESTful: PROOFED_INDIVIDUAL,
    "pdf": PDF,
    "identifier": DOCUMENT,
    "signatures": [SIGNATURE],
    "fax_number": NUMBER,
    "folder": FOLDER,
    "root": FOLDER,
    "folders": [FOLDER],
    "new_folder": OTHER_FOLDER,
    "dest_folder": OTHER_FOLDER,
    "uids": [UID],
    "recipients": [BOB],
    "sender": BOB,
    "subject": SUBJECT,
    "begin": DAY,
    "end": DAY,
    "smtp_id": SMTP_ID,
    "smtp_ids": [SMTP_ID],
    "messages": RAW_MESSAGES,
    "direct_username": USERNAME,
    "passwords": [ds.UserPassword(USERNAME, PATIENT_PASSWORD)],
}
"""The planted values of arguments, by their class or by the name of the parameter."""
OTHER_TEXTS = {
    name: f"planted-{name}"
    for case in OPERATIONS.values()
    for name, value in case.arguments.items()
    if isinstance(value, str) and name not in ARGUMENTS
}
ALL_SENTINELS = (*SECRETS, *PATIENT_DATA, *OTHER_TEXTS.values())


def get_mailbox(suite: ds.DirectSuite) -> ds.Mailbox:
    return suite.mailbox(*ACCOUNTS["mailbox"])


def get_tuser(suite: ds.DirectSuite) -> ds.TUser:
    return suite.tuser(*ACCOUNTS["tuser"])


def _plant(case: OperationCase) -> SuiteCall:
    """Return the call of an operation with planted values; numbers and bools stay."""
    planted = {
        name: OTHER_TEXTS.get(name) or ARGUMENTS[type(value) if type(value) in ARGUMENTS else name]
        for name, value in case.arguments.items()
        if not isinstance(value, int)
    }
    return lambda suite: case.call(suite, planted, ACCOUNTS)


CALLS: dict[str, SuiteCall] = {name: _plant(case) for name, case in OPERATIONS.items()}
"""A call of each operation."""


async def _stream_messages(suite: ds.DirectSuite) -> None:
    async for _ in get_mailbox(suite).stream_messages(FOLDER):
        pass


async def _iterate_messages(suite: ds.DirectSuite) -> None:
    async for _ in get_mailbox(suite).iter_messages(FOLDER):
        pass


async def _iterate_faxes(suite: ds.DirectSuite) -> None:
    async for _ in suite.fax.iter_messages(NUMBER):
        pass


def _make_stored_document(number: int) -> ds.StoredDocument:
    """Return a separate document, because only the first unknown change of a document is verified."""
    return ds.StoredDocument(identifier=f"{DOCUMENT}-{number}", document_digest=DOCUMENT)


async def _pull_to_file(suite: ds.DirectSuite) -> object:
    with tempfile.TemporaryDirectory() as folder:
        return await suite.signing.sign_and_pull(
            _make_stored_document(3), SIGNATURE, destination=Path(folder, FILE_NAME)
        )


async def _download(suite: ds.DirectSuite) -> object:
    with tempfile.TemporaryDirectory() as folder:
        return await suite.signing.download(DOCUMENT, Path(folder, FILE_NAME))


VERIFIED_CALLS: dict[str, SuiteCall] = {
    "sign and settle": lambda suite: suite.signing.sign(_make_stored_document(1), SIGNATURE),
    "pull and settle": lambda suite: suite.signing.sign_and_pull(_make_stored_document(2), SIGNATURE),
    "pull to a file and settle": _pull_to_file,
    "provision and settle": CALLS["ProvisionIDProofedPatient"],
}
"""Calls that verify their effect if the response is lost."""

MULTI_REQUEST_CALLS: dict[str, SuiteCall] = {
    "send_once": lambda suite: get_mailbox(suite).send_once(MESSAGE, key="planted-key", since=DAY),
    "copy and verify": lambda suite: get_mailbox(suite).copy_messages_by_uids(FOLDER, OTHER_FOLDER, [UID], verify=True),
    "save raw and verify": lambda suite: get_mailbox(suite).save_raw_messages(FOLDER, RAW_MESSAGES, verify=True),
    "download": _download,
    "stream_messages": _stream_messages,
    "iter_messages": _iterate_messages,
    "fax iter_messages": _iterate_faxes,
    "raw response": lambda suite: get_mailbox(suite).with_raw_response.get_messages(FOLDER),
    **VERIFIED_CALLS,
}
"""Methods with more than one request, or with a streamed response."""


def _search_with_naive_datetime(suite: ds.DirectSuite) -> Awaitable[object]:
    return get_mailbox(suite).get_messages_by_received_date(FOLDER, DAY.replace(tzinfo=None), None)


async def _open_from_environment(**variables: str) -> None:
    ds.DirectSuite.from_env({"DIRECTSUITE_TOKEN": TOKEN, **variables})


INVALID_CALLS: dict[str, SuiteCall] = {
    "foreign sender": lambda suite: get_mailbox(suite).send(
        ds.Message(sender=BOB, subject=SUBJECT, body=BODY, recipients=[ds.Recipient(BOB)])
    ),
    "address with a line break": lambda suite: get_mailbox(suite).send(
        ds.Message(subject=SUBJECT, recipients=[ds.Recipient(f"{BOB}\r\n{NAME}")])
    ),
    "header with a line break": lambda suite: get_mailbox(suite).send_with_header(
        ds.MessageWithHeader(recipients=[ds.Recipient(BOB)], headers=[ds.MessageHeader(HEADER, f"{HEADER}\r\n")])
    ),
    "not a mailbox": lambda suite: suite.mailbox(NAME, PASSWORD).get_uids(),
    "not a PDF": lambda suite: suite.signing.save(b"planted page"),
    "no file": lambda suite: suite.signing.save(Path(f"/nowhere/{FILE_NAME}")),
    "folder elsewhere": lambda suite: get_mailbox(suite).create_folder("planted-folder"),
    "half a surrogate": lambda suite: suite.signing.get_doc(f"{DOCUMENT}\ud800"),
    "naive datetime": _search_with_naive_datetime,
    "uids that are none": lambda suite: get_mailbox(suite).get_messages_by_uids(FOLDER, cast("list[int]", [SUBJECT])),
    "nobody's password": lambda suite: suite.registration.set_patients_passwords(
        "..", [ds.UserPassword(USERNAME, PATIENT_PASSWORD)]
    ),
    "no uids": lambda suite: get_mailbox(suite).forward(FOLDER, []),
    "not an address of a T-User": lambda suite: suite.tuser(str(ACCOUNTS["tuser"][0]), TUSER_PASSWORD, NAME).send(
        MESSAGE
    ),
    "unsafe URL in the environment": lambda _: _open_from_environment(DIRECTSUITE_FAX_URL="ftp://fax.example.test"),
    "half a login in the environment": lambda _: _open_from_environment(DIRECTSUITE_LOGIN_PASSWORD=LOGIN_PASSWORD),
}
"""Calls that are rejected before a request."""
