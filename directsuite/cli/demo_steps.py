"""The steps of `directsuite demo`. Each returns a count, its unit and files, or raises AssertionError."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Sequence
from datetime import date, timedelta
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import Any

import attrs
import pikepdf
from pikepdf import Array, Dictionary, Name, String

import directsuite as ds
from directsuite.cli.demo import DemoOptions
from directsuite.sandbox.server import Sandbox

DOMAIN = "direct.example.test"
CLINIC, _RESULTS, _PATIENT = f"clinic@{DOMAIN}", f"results@{DOMAIN}", f"ada@{DOMAIN}"
PASSWORD = "sandbox"  # noqa: S105  of mailboxes that exist only during the demo
_FAX_NUMBER = "15550100199"


StepResult = tuple[int, str, Sequence[Path]]


def check(condition: object, message: str) -> None:
    """Raise AssertionError unless the condition is true. message: the difference."""
    if not condition:
        raise AssertionError(message)


@attrs.frozen(kw_only=True)
class DemoContext:
    """A sandbox, and a suite for it. output: the folder for files."""

    sandbox: Sandbox
    suite: ds.DirectSuite
    output: Path
    options: DemoOptions


async def provision_patient(context: DemoContext) -> StepResult:
    """Provision a patient once, and find the address by name, and by username after the session has expired."""
    born, registration = date(1980, 2, 29), context.suite.registration
    person = ds.IDProofedIndividual(first_name="Ada", last_name="Example", ssn4="1234", dob=born)
    individual = ds.IDProofedIndividualRESTful(
        first_name="Ada", last_name="Example", ssn4="1234", dob=born, direct_username="ada"
    )
    await context.sandbox.add_individual("Ada", "Example", "1234", born.isoformat())
    response = await registration.provision_id_proofed_patient(DOMAIN, individual)
    check(_is_active(response.users), "the provisioned address is not active")
    check(response.payment_confirmation and response.payment_confirmation.amount, "no payment was confirmed")
    await registration.set_patients_passwords(DOMAIN, [ds.UserPassword("ada", PASSWORD)])
    check(await context.suite.mailbox(_PATIENT, PASSWORD).get_message_count() == 0, "the mailbox is not empty")
    found = await registration.get_patient_address_by_meta(DOMAIN, person)
    check(_is_active(found), "the patient was not found by name and birth date")
    context.sandbox.clock.advance(timedelta(minutes=11))  # a session lasts 10 minutes
    found = await registration.get_patient_address_by_username(DOMAIN, "ada")
    check(_is_active(found), "the patient was not found by username after the session had expired")
    try:
        await registration.provision_id_proofed_patient(DOMAIN, individual)
    except ds.BadRequestError as rejection:
        check(rejection.code == "014", f"the service rejected it with the code {rejection.code}, not 014")
    else:
        raise AssertionError("the same address was provisioned twice")
    return 1, "patient", ()


def _is_active(users: list[ds.DirectUserDetail]) -> bool:
    return [(user.username, user.user_state) for user in users] == [("ada", ds.UserStateType.ACTIVATED)]


_RECIPIENTS = (_PATIENT, "slow+30m@hospital.example.test", "slow+2h@lab.example.test", "nomdn@pharmacy.example.test")
_STATUSES = {
    # minutes after sending: the status of each recipient
    0: ("Delivered", "Waiting", "Waiting", "Waiting"),
    31: ("Delivered", "Delivered", "Waiting", "Waiting"),
    61: ("Delivered", "Delivered", "NO MDN Received", "NO MDN Received"),
    121: ("Delivered", "Delivered", "Delivered", "NO MDN Received"),
}


async def send_message(context: DemoContext) -> StepResult:
    """Send a message, check each recipient's status, in time, late or never, and compare the attachments."""
    clinic = context.suite.mailbox(CLINIC, PASSWORD)
    parts = [("consent.pdf", build_consent_form(1)), ("consent-2.pdf", build_consent_form(2))]
    message = ds.Message(
        subject="Your visit summary",
        body="Dear patient,\n\nplease find attached the consent forms of your visit.\n",
        recipients=[ds.Recipient(each) for each in _RECIPIENTS],
        attachment_list=[
            ds.Attachment(content=content, content_type="application/pdf", filename=name) for name, content in parts
        ],
    )
    smtp_id, sent_at = (await clinic.send(message)).smtp_id or "", context.sandbox.clock.now()
    check(smtp_id, "the service returned no Message-ID")
    for minutes, expected in _STATUSES.items():
        context.sandbox.clock.set(sent_at + timedelta(minutes=minutes))
        reported = {each.to: str(each.status) for each in (await clinic.get_message_status(smtp_id)).records}
        wrong = f"after {minutes} minutes the statuses are {', '.join(reported.values())}, not {', '.join(expected)}"
        check(reported == dict(zip(_RECIPIENTS, expected, strict=True)), wrong)
    inbox = context.suite.mailbox(_PATIENT, PASSWORD)
    async with inbox.iter_messages() as listing:
        arrived = [each async for each in listing]
    check(len(arrived) == 1, f"{len(arrived)} messages arrived instead of one")
    check((arrived[0].msg_id, arrived[0].subject) == (smtp_id, message.subject), "a different message arrived")
    contents = [(each.filename, each.content) for each in arrived[0].attachments]
    check(contents == parts, "the received attachments differ from the sent ones")
    [raw] = await inbox.get_raw_messages_by_uids("INBOX", await inbox.get_uids())
    file = context.output / "messages" / "visit-summary.eml"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(raw.data or b"")
    return len(_RECIPIENTS), "recipient", (file,)


async def read_mailbox(context: DemoContext) -> StepResult:
    """Read a mailbox, and compare the count, the order and every byte."""
    count, sandbox = context.options.messages, context.sandbox
    await sandbox.add_account(_RESULTS, PASSWORD)
    raw = [await asyncio.to_thread(_build_result, number) for number in range(1, count + 1)]
    uids = [await sandbox.deliver(_RESULTS, each) for each in raw]
    box = context.suite.mailbox(_RESULTS, PASSWORD)
    check(await box.get_uids() == uids, "the uids are not those of the delivered messages, in ascending order")
    async with box.iter_messages() as messages:
        seen = [(each.uid, [part.content for part in each.attachments]) async for each in messages]
    expected = [(uid, [_make_values(number)]) for number, uid in enumerate(uids, start=1)]
    check(seen == expected, f"iter_messages returned {len(seen)} messages, which are not the {count} delivered ones")
    async with box.iter_raw() as listing:
        received = [each.data or b"" async for each in listing]
    check(received == raw, f"iter_raw returned {len(received)} messages, which are not the {count} delivered ones")
    files = [context.output / "mailbox" / f"{number:04d}.eml" for number in range(1, count + 1)]
    files[0].parent.mkdir(exist_ok=True)
    for file, content in zip(files, received, strict=True):
        await asyncio.to_thread(file.write_bytes, content)
    return count, "message", files


def _make_values(number: int) -> bytes:
    return bytes(range(number % 256)) * (number % 150 + 1)


def _build_result(number: int) -> bytes:
    message = EmailMessage(policy=SMTP)
    message["From"], message["To"] = "laboratory@hospital.example.test", _RESULTS
    message["Subject"] = f"Résultat {number:04d}"
    message["Message-ID"] = f"<result-{number}@hospital.example.test>"
    message["Date"] = "Sun, 01 Mar 2026 09:30:00 +0000"
    message.set_content(f"Résultat {number}: température 36,{number % 10} °C.\n")
    values = _make_values(number)
    message.add_attachment(values, maintype="application", subtype="octet-stream", filename="values.bin")
    return message.as_bytes()


async def sign_documents(context: DemoContext) -> StepResult:
    """Sign PDFs, verify every signature with pyHanko, and delete the stored documents."""
    folder, authority = context.output / "signed", context.output / "sandbox-ca.pem"
    folder.mkdir(exist_ok=True)
    authority.write_bytes(await asyncio.to_thread(context.sandbox.authority_pem))
    files = [folder / f"consent-{number:03d}.pdf" for number in range(1, context.options.documents + 1)]
    place = ds.Widget(x=320, y=660, width=200, height=64, page=1)
    patient = ds.Signature(name="PatientSignature", gs_name="Ada Example", reason="I consent to the treatment")
    clinic = ds.Signature(name="ClinicSignature", gs_name="Example Clinic", reason="Witnessed", widget=place)
    for number, file in enumerate(files, start=1):
        signatures = [patient] if number % 2 else [patient, clinic]
        await _sign_document(context.suite.signing, number, file, signatures, authority.read_bytes())
    return len(files), "document", (*files, authority)


async def _sign_document(
    signing: ds.Signing, number: int, file: Path, signatures: Sequence[ds.Signature], authority: bytes
) -> None:
    original = await asyncio.to_thread(build_consent_form, number)
    stored, names = await signing.save(original), {each.name for each in signatures}
    await signing.multi_sign_and_pull(stored, signatures, destination=file)
    reported = {each.name for each in (await signing.get_doc_info(stored)).signatures if each.is_signed}
    check(reported == names, f"{file.name}: GetDocInfo does not report exactly the signatures that were made")
    content = await asyncio.to_thread(file.read_bytes)
    check(content.startswith(original), f"{file.name}: the original content has changed")
    verdicts = await asyncio.to_thread(verify_signatures, content, authority)
    check(verdicts.keys() == names, f"{file.name}: pyHanko does not find exactly the signatures that were made")
    check(all(verdicts.values()), f"{file.name}: pyHanko does not accept a signature")
    deleted = await signing.delete(stored)
    check(deleted.document_digest == "", f"{file.name}: the service returned a digest for the deleted document")
    try:
        await signing.get_doc(stored)
    except (ds.BadRequestError, ds.NotFoundError):  # services use either status for a missing document
        return
    raise AssertionError("a document can still be read after its deletion")


def verify_signatures(content: bytes, authority: bytes) -> dict[str, bool]:
    """Return whether each signature of a PDF is intact, valid and trusted, by its name. Blocks.

    authority: the PEM certificate to trust.
    """
    from pyhanko.keys import load_certs_from_pemder_data
    from pyhanko.pdf_utils.reader import PdfFileReader
    from pyhanko.sign.validation import validate_pdf_signature
    from pyhanko_certvalidator import ValidationContext

    load: Any = load_certs_from_pemder_data
    context = ValidationContext(trust_roots=list(load(authority)), allow_fetching=False)
    reader: Any = PdfFileReader(io.BytesIO(content))
    verdicts = {each.field_name: validate_pdf_signature(each, context) for each in reader.embedded_regular_signatures}
    return {str(name): bool(status.bottom_line) for name, status in verdicts.items()}


async def read_faxes(context: DemoContext) -> StepResult:
    """List faxes, newest first, while a new one arrives. None is lost or repeated."""
    count, add_fax, handles = context.options.faxes, context.sandbox.add_fax, list[str | None]()
    for number in range(1, count + 1):
        handles.insert(0, await add_fax(_FAX_NUMBER, description=f"Fax {number}"))
    [newest] = (await context.suite.fax.get_single_message_info(_FAX_NUMBER, handles[0] or "")).message_detail
    found = (newest.status, newest.description)
    check(found == (ds.FaxStatus.COMPLETE, f"Fax {count}"), "the newest fax has the wrong status or description")
    listed = list[str | None]()
    async with context.suite.fax.iter_messages(_FAX_NUMBER) as messages:
        async for message in messages:
            if not listed:
                await add_fax(_FAX_NUMBER, description="arrives during the listing")
            listed.append(message.message_handle)
    wrong = f"the listing of {len(listed)} records does not contain each of the {count} faxes once, newest first"
    check(listed == handles, wrong)
    return count, "record", ()


def build_consent_form(number: int) -> bytes:
    """Return a PDF with a filled field and the empty signature field PatientSignature, the same in every run."""
    with pikepdf.new() as opened:
        document: Any = opened  # pikepdf's types are incomplete
        font = Dictionary(F1=Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica))
        page = document.add_blank_page(page_size=(612, 792)).obj
        page.Resources = Dictionary(Font=font)
        page.Contents = document.make_stream(f"BT /F1 12 Tf 54 720 Td (Consent form {number}) Tj ET".encode())
        shape = document.make_stream(b"/Tx BMC BT /F1 11 Tf 4 6 Td (Ada Example) Tj ET EMC", BBox=[0, 0, 300, 20])
        shape.stream_dict.update({"/Subtype": Name.Form, "/Resources": Dictionary(Font=font)})
        common: Any = {"Type": Name.Annot, "Subtype": Name.Widget, "P": page, "F": 4}
        name = Dictionary(FT=Name.Tx, T="patient_name", V="Ada Example", Rect=[54, 640, 354, 660], **common)
        name.DA, name.AP = String("/F1 11 Tf 0 g"), Dictionary(N=shape)
        signature = Dictionary(FT=Name.Sig, T="PatientSignature", Rect=[54, 54, 290, 118], **common)
        page.Annots = Array([document.make_indirect(each) for each in (name, signature)])
        document.Root.AcroForm = Dictionary(Fields=page.Annots, DR=Dictionary(Font=font), DA=String("/F1 0 Tf 0 g"))
        document.docinfo["/Title"], document.docinfo["/Producer"] = f"Consent form {number}", "directsuite demo"
        output = io.BytesIO()
        document.save(output, deterministic_id=True)
        return output.getvalue()


STEPS: dict[str, Callable[[DemoContext], Awaitable[StepResult]]] = {
    "patient": provision_patient,
    "message": send_message,
    "mailbox": read_mailbox,
    "signing": sign_documents,
    "fax": read_faxes,
}
"""The steps in the order of execution, by their name in the report. Their docstrings are in the report."""
