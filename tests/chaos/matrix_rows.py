"""The rows of the matrix: every effect of the specification that must not happen twice, in all its variants.

The list is written by hand, so that it differs from an operation whose record is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import attrs

import directsuite as ds
from directsuite.sandbox import Sandbox
from directsuite.sandbox.server import DEMO_LOGIN
from tests.integration.documents import make_consent_form

DOMAIN = "direct.example.test"
ALICE, BOB = f"alice@{DOMAIN}", f"bob@{DOMAIN}"
PASSWORD = "correct horse"
TUSER = "front-desk"
DRAFTS = "INBOX.Drafts"

Effect = Mapping[str, Any]
"""A row of the sandbox's ledger."""


@attrs.frozen
class MatrixContext:
    """The sandbox, a fresh suite that uses it, and a number that no other run has."""

    sandbox: Sandbox
    suite: ds.DirectSuite
    number: int

    @property
    def box(self) -> ds.Mailbox:
        return self.suite.mailbox(ALICE, PASSWORD)

    @property
    def tuser(self) -> ds.TUser:
        return self.suite.tuser(TUSER, PASSWORD, ALICE)


@attrs.frozen
class MatrixRow:
    """One operation in one variant.

    prepare: create the object that the call changes, and return it. is_consistent: compare the caller's result with the
    ledger.
    """

    operation: str
    variant: str
    prepare: Callable[[MatrixContext], Awaitable[Any]]
    call: Callable[[MatrixContext, Any], Awaitable[Any]]
    is_consistent: Callable[[Any, Effect], bool]

    def __str__(self) -> str:
        return f"{self.operation}, {self.variant}" if self.variant else self.operation


async def populate(sandbox: Sandbox) -> None:
    for address in (ALICE, BOB):
        await sandbox.add_account(address, PASSWORD)
    await sandbox.add_tuser(TUSER, PASSWORD, [ALICE])
    await sandbox.add_reseller(*DEMO_LOGIN, [DOMAIN])
    await sandbox.add_individual("Ada", "Example", "1234", "1980-02-29", id=7)


SIGNATURES = [ds.Signature(name="PatientSig", reason="I agree"), ds.Signature(name="WitnessSig", reason="Seen")]
_CHANGES: dict[str, Callable[[ds.Signing, Any], Awaitable[Any]]] = {
    "Flatten": lambda signing, document: signing.flatten(document),
    "FlattenAndPull": lambda signing, document: signing.flatten_and_pull(document),
    "ClearUnsignedFields": lambda signing, document: signing.clear_unsigned_fields(document),
    "ClearUnsignedFieldsAndPull": lambda signing, document: signing.clear_unsigned_fields_and_pull(document),
    "Sign": lambda signing, document: signing.sign(document, SIGNATURES[0]),
    "SignAndPull": lambda signing, document: signing.sign_and_pull(document, SIGNATURES[0]),
    "MultiSign": lambda signing, document: signing.multi_sign(document, SIGNATURES),
    "MultiSignAndPull": lambda signing, document: signing.multi_sign_and_pull(document, SIGNATURES),
}


async def _save_document(context: MatrixContext) -> ds.StoredDocument:
    return await context.suite.signing.save(make_consent_form())


def _has_digest(result: Any, effect: Effect) -> bool:
    digest = hashlib.sha256(result).hexdigest() if isinstance(result, bytes) else result.document_digest
    return bool(digest == effect["detail"]["digest"])


def _make_signing_row(operation: str, *, bare: bool) -> MatrixRow:
    async def call(context: MatrixContext, document: ds.StoredDocument) -> Any:
        return await _CHANGES[operation](context.suite.signing, document.identifier if bare else document)

    return MatrixRow(operation, "bare identifier" if bare else "StoredDocument", _save_document, call, _has_digest)


def make_message(number: int) -> ds.Message:
    return ds.Message(subject=f"number {number}", body="once", recipients=[ds.Recipient(BOB)])


def make_message_with_header(number: int) -> ds.MessageWithHeader:
    recipients, headers = [ds.Recipient(BOB)], [ds.MessageHeader("X-Case", str(number))]
    return ds.MessageWithHeader(subject=f"number {number}", body="once", recipients=recipients, headers=headers)


def make_raw_message(subject: str) -> bytes:
    name = subject.replace(" ", ".")
    return (
        f"From: {BOB}\r\nTo: {ALICE}\r\nSubject: {subject}\r\nMessage-ID: <{name}@{DOMAIN}>\r\n\r\nOnce.\r\n"
    ).encode()


async def _prepare_nothing(_: MatrixContext) -> None: ...


async def _expose_request_id(context: MatrixContext) -> None:
    """Add a marked message to the folder, so that the server shows custom headers."""
    await context.box.send_once(make_message(context.number))


async def _deliver(context: MatrixContext) -> list[int]:
    return [await context.sandbox.deliver(ALICE, make_raw_message(f"number {context.number}"))]


async def _make_raw(context: MatrixContext) -> ds.RawMessage:
    return ds.RawMessage(data=make_raw_message(f"number {context.number}"))


async def _create_folder(context: MatrixContext) -> str:
    folder = f"INBOX.Case{context.number}"
    await context.box.create_folder(folder)
    return folder


async def _resend_once(context: MatrixContext, _: None) -> Any:
    return await context.box.send_once(make_message(context.number), settle=20, resend=True)


async def _copy(context: MatrixContext, uids: list[int], *, verify: bool = False) -> None:
    await context.box.copy_messages_by_uids("INBOX", DRAFTS, uids, verify=verify)


async def _save_raw(context: MatrixContext, message: ds.RawMessage, *, verify: bool = False) -> None:
    await context.box.save_raw_messages(DRAFTS, [message], verify=verify)


def _has_smtp_id(response: Any, effect: Effect) -> bool:
    return bool(response.smtp_id == effect["subject"])


def _returns_none(answer: Any, _: Effect) -> bool:
    return answer is None


def _has_address(answer: Any, effect: Effect) -> bool:
    return bool(f"{answer.users[0].username}@{DOMAIN}" == effect["subject"])


async def _provision_by_id(context: MatrixContext, _: None, **names: Any) -> Any:
    individual = ds.IDProofedIndividualRESTful(id=7, **names)
    return await context.suite.registration.provision_id_proofed_patient(DOMAIN, individual)


async def _provision_with_names(context: MatrixContext, _: None) -> Any:
    names = {"first_name": "Ada", "last_name": "Example", "direct_username": f"ada{context.number}"}
    return await _provision_by_id(context, None, **names)


_SENDS: list[tuple[str, str, Callable[[MatrixContext, None], Awaitable[Any]]]] = [
    ("Send", "", lambda context, _: context.box.send(make_message(context.number))),
    ("SendWithHeader", "", lambda context, _: context.box.send_with_header(make_message_with_header(context.number))),
    ("SendWithHeader", "send_once", lambda context, _: context.box.send_once(make_message(context.number))),
    ("SendWithTuser", "", lambda context, _: context.tuser.send(make_message(context.number))),
    (
        "SendWithHeaderWithTuser",
        "",
        lambda context, _: context.tuser.send_with_header(make_message_with_header(context.number)),
    ),
]
ROWS: list[MatrixRow] = [
    *(_make_signing_row(operation, bare=bare) for operation in _CHANGES for bare in (True, False)),
    *(MatrixRow(operation, variant, _prepare_nothing, call, _has_smtp_id) for operation, variant, call in _SENDS),
    MatrixRow("SendWithHeader", "send_once, resend=True", _expose_request_id, _resend_once, _has_smtp_id),
    MatrixRow("Forward", "", _deliver, lambda context, uids: context.box.forward("INBOX", uids, [BOB]), _has_smtp_id),
    MatrixRow(
        "DeleteFolder", "", _create_folder, lambda context, folder: context.box.delete_folder(folder), _returns_none
    ),
    MatrixRow("CopyMessagesByUIDs", "", _deliver, _copy, _returns_none),
    MatrixRow("CopyMessagesByUIDs", "verify=True", _deliver, partial(_copy, verify=True), _returns_none),
    MatrixRow("SaveRawMessages", "", _make_raw, _save_raw, _returns_none),
    MatrixRow("SaveRawMessages", "verify=True", _make_raw, partial(_save_raw, verify=True), _returns_none),
    MatrixRow(
        "ProvisionIDProofedPatient", "with user name and names", _prepare_nothing, _provision_with_names, _has_address
    ),
    MatrixRow("ProvisionIDProofedPatient", "by id", _prepare_nothing, _provision_by_id, _has_address),
]
