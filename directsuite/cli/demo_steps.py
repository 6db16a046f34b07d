"""The steps of `directsuite demo`. Each uses a service and checks its effects. The clock of the sandbox is moved.

A step returns the fields of `StepResult` that describe what it did, and raises CheckFailedError if a check fails.
"""

from __future__ import annotations

import asyncio
import io
import re
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import Any

import attrs
import pikepdf
from pikepdf import Array, Dictionary, Name, String

import directsuite as ds
from directsuite.cli.options import DemoOptions
from directsuite.fax.pages import FULL_PAGE_MESSAGES
from directsuite.sandbox.server import Sandbox

_DOMAIN = "direct.example.test"
_CLINIC, _RESULTS, _PATIENT = f"clinic@{_DOMAIN}", f"results@{_DOMAIN}", f"ada@{_DOMAIN}"
_PASSWORD = "sandbox"  # noqa: S105  of mailboxes that exist only during the demo
_FAX_NUMBER = "15550100199"
_PAGE_SIZE = (612, 792)  # points


class CheckFailedError(AssertionError):
    """A check of the demo failed. The text describes the difference."""


def check(condition: object, message: str) -> None:
    """Raise CheckFailedError unless the condition is true."""
    if not condition:
        raise CheckFailedError(message)


@attrs.frozen(kw_only=True)
class DemoContext:
    """A sandbox, and a suite for it. output: the folder for files."""

    sandbox: Sandbox
    suite: ds.DirectSuite
    output: Path
    options: DemoOptions

    def reset_clock(self) -> None:
        """Set the sandbox's clock to the current time: later signatures must not be in the future."""
        self.sandbox.clock.set(datetime.now(UTC))


@asynccontextmanager
async def open_context(output: Path, options: DemoOptions) -> AsyncGenerator[DemoContext]:
    """Start a sandbox in a temporary folder, with a clinic's mailbox, and open a suite for it."""
    with tempfile.TemporaryDirectory(prefix="directsuite-demo-") as folder:
        async with Sandbox(Path(folder)) as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
            name, password = (sandbox.environment[f"DIRECTSUITE_LOGIN_{each}"] for each in ("USERNAME", "PASSWORD"))
            await sandbox.add_reseller(name, password, [_DOMAIN])
            await sandbox.add_account(_CLINIC, _PASSWORD)
            yield DemoContext(sandbox=sandbox, suite=suite, output=output, options=options)


async def provision_patient(context: DemoContext) -> dict[str, Any]:
    """Provision an address, and find it by name and by username. The session expires in between."""
    born = date(1980, 2, 29)
    await context.sandbox.add_individual("Ada", "Example", "1234", born.isoformat())
    registration = context.suite.registration
    individual = ds.IDProofedIndividualRESTful(
        first_name="Ada", last_name="Example", ssn4="1234", dob=born, direct_username="ada"
    )
    response = await registration.provision_id_proofed_patient(_DOMAIN, individual)
    check(_is_active(response.users), "the provisioned address is not active")
    check(response.payment_confirmation and response.payment_confirmation.amount, "no payment was confirmed")
    await registration.set_patients_passwords(_DOMAIN, [ds.UserPassword("ada", _PASSWORD)])
    check(await context.suite.mailbox(_PATIENT, _PASSWORD).get_message_count() == 0, "the mailbox is not empty")
    person = ds.IDProofedIndividual(first_name="Ada", last_name="Example", ssn4="1234", dob=born)
    users = await registration.get_patient_address_by_meta(_DOMAIN, person)
    check(_is_active(users), "the patient was not found by name and birth date")
    context.sandbox.clock.advance(timedelta(minutes=11))  # a session lasts 10 minutes
    users = await registration.get_patient_address_by_username(_DOMAIN, "ada")
    check(_is_active(users), "the patient was not found by username after the session had expired")
    try:
        await registration.provision_id_proofed_patient(_DOMAIN, individual)
    except ds.BadRequestError as rejection:
        check(rejection.code == "014", f"the service rejected it with the code {rejection.code}, not 014")
    else:
        raise CheckFailedError("the same address was provisioned twice")
    checked = (
        "address active and paid for, mailbox open",
        "found by name and by username",
        "session renewed after its 10 minutes",
        "duplicate username rejected, as required",
    )
    return {"count": 1, "unit": "patient", "checked": checked}


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


async def send_message(context: DemoContext) -> dict[str, Any]:
    """Send a message, check every recipient's status, and compare the attachments byte for byte."""
    clinic = context.suite.mailbox(_CLINIC, _PASSWORD)
    parts = [("consent.pdf", build_consent_form(1)), ("consent-2.pdf", build_consent_form(2))]
    message = ds.Message(
        subject="Your visit summary",
        body="Dear patient,\n\nplease find attached the consent forms of your visit.\n",
        recipients=[ds.Recipient(each) for each in _RECIPIENTS],
        attachment_list=[
            ds.Attachment(content=content, content_type="application/pdf", filename=name) for name, content in parts
        ],
    )
    smtp_id = (await clinic.send(message)).smtp_id or ""
    check(smtp_id, "the service returned no Message-ID")
    elapsed = 0
    for minutes, expected in _STATUSES.items():
        context.sandbox.clock.advance(timedelta(minutes=minutes - elapsed))
        elapsed = minutes
        reported = {each.to: str(each.status) for each in (await clinic.get_message_status(smtp_id)).records}
        wrong = f"after {minutes} minutes the statuses are {', '.join(reported.values())}, not {', '.join(expected)}"
        check(reported == dict(zip(_RECIPIENTS, expected, strict=True)), wrong)
    inbox = context.suite.mailbox(_PATIENT, _PASSWORD)
    async with inbox.iter_messages() as listing:
        arrived = [each async for each in listing]
    check(len(arrived) == 1, f"{len(arrived)} messages arrived instead of one")
    [received] = arrived
    check((received.msg_id, received.subject) == (smtp_id, message.subject), "a different message arrived")
    contents = [(each.filename, each.content) for each in received.attachments]
    check(contents == parts, "the received attachments differ from the sent ones")
    async with inbox.iter_raw() as listing:
        raw = [each async for each in listing]
    check(
        [each.to_email()["Subject"] for each in raw] == [message.subject],
        "the raw message is not the one that was sent",
    )
    file = context.output / "messages" / "visit-summary.eml"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(raw[0].data or b"")
    checked = (
        "delivered at once, after 30 minutes, late after 2 hours, and never confirmed",
        "both PDFs reached the patient byte for byte",
    )
    return {"count": len(_RECIPIENTS), "unit": "recipient", "checked": checked, "files": (file,)}


async def read_mailbox(context: DemoContext) -> dict[str, Any]:
    """Fill a mailbox, read it with each iterator, and compare the count, the order and every byte."""
    count = context.options.messages
    await context.sandbox.add_account(_RESULTS, _PASSWORD)
    values = [bytes(range(number % 256)) * (number % 150 + 1) for number in range(1, count + 1)]
    raw, uids = list[bytes](), list[int]()
    for number, each in enumerate(values, start=1):
        raw.append(await asyncio.to_thread(_build_result, number, each))
        uids.append(await context.sandbox.deliver(_RESULTS, raw[-1]))
    box = context.suite.mailbox(_RESULTS, _PASSWORD)
    check(await box.get_message_count() == count, f"the service does not count {count} messages")
    check(await box.get_uids() == uids, "the uids are not those of the delivered messages, in ascending order")
    for name, iterate in (("iter_messages", box.iter_messages), ("stream_messages", box.stream_messages)):
        async with iterate() as messages:
            seen = [(each.uid, [part.content for part in each.attachments]) async for each in messages]
        expected = [(uid, [each]) for uid, each in zip(uids, values, strict=True)]
        check(seen == expected, f"{name} returned {len(seen)} messages, which are not the {count} delivered ones")
    async with box.iter_metadata() as listing:
        metadata = [(each.subject, each.body or "") async for each in listing]
    subjects = [(f"Résultat {number:04d}", "") for number in range(1, count + 1)]
    check(metadata == subjects, "iter_metadata returns wrong subjects, or message bodies")
    async with box.iter_raw() as listing:
        received = [each.data or b"" async for each in listing]
    check(received == raw, f"iter_raw returned {len(received)} messages, which are not the {count} delivered ones")
    folder = _clear_folder(context.output / "mailbox", r"[0-9]{4,5}\.eml")
    files = [folder / f"{number:04d}.eml" for number in range(1, count + 1)]
    for file, content in zip(files, received, strict=True):
        await asyncio.to_thread(file.write_bytes, content)
    checked = (
        "iter_messages and stream_messages: count, order, every byte",
        "iter_metadata: count, order, subjects, no contents",
        "iter_raw: every byte as delivered",
    )
    return {"count": count, "unit": "message", "checked": checked, "files": tuple(files)}


def _build_result(number: int, values: bytes) -> bytes:
    message = EmailMessage(policy=SMTP)
    message["From"], message["To"] = "laboratory@hospital.example.test", _RESULTS
    message["Subject"] = f"Résultat {number:04d}"
    message["Message-ID"] = f"<result-{number}@hospital.example.test>"
    message["Date"] = "Sun, 01 Mar 2026 09:30:00 +0000"
    message.set_content(f"Résultat {number}: température 36,{number % 10} °C.\n")
    message.add_attachment(values, maintype="application", subtype="octet-stream", filename="values.bin")
    return message.as_bytes()


async def sign_documents(context: DemoContext) -> dict[str, Any]:
    """Sign documents with one or two signatures each, and verify every signature with pyHanko."""
    folder, in_flight = _clear_folder(context.output / "signed", r"consent-[0-9]{3}\.pdf"), asyncio.Semaphore(8)
    authority = context.output / "sandbox-ca.pem"
    await asyncio.to_thread(lambda: authority.write_bytes(context.sandbox.authority_pem()))

    async def sign(number: int, file: Path) -> int:
        async with in_flight:
            return await _sign_document(context.suite.signing, number, file, authority.read_bytes())

    files = {number: folder / f"consent-{number:03d}.pdf" for number in range(1, context.options.documents + 1)}
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(sign(*each)) for each in files.items()]
    checked = (
        f"{sum(task.result() for task in tasks)} signatures, each intact, valid and trusted (pyHanko)",
        "the original content is unchanged",
        "documents deleted from the service",
    )
    return {"count": len(files), "unit": "document", "checked": checked, "files": (*files.values(), authority)}


async def _sign_document(signing: ds.Signing, number: int, file: Path, authority: bytes) -> int:
    original = await asyncio.to_thread(build_consent_form, number)
    stored = await signing.save(original)
    patient = ds.Signature(name="PatientSignature", gs_name="Ada Example", reason="I consent to the treatment")
    place = ds.Widget(x=320, y=660, width=200, height=64, page=1)
    clinic = ds.Signature(name="ClinicSignature", gs_name="Example Clinic", reason="Witnessed", widget=place)
    if number % 2:
        names = {"PatientSignature"}
        await signing.sign_and_pull(stored, patient, destination=file)
    else:
        names = {"PatientSignature", "ClinicSignature"}
        await signing.multi_sign(stored, [patient, clinic])
        await signing.download(stored, file)
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
        return len(names)
    raise CheckFailedError("a document can still be read after its deletion")


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


async def read_faxes(context: DemoContext) -> dict[str, Any]:
    """Read every page, then iterate over all records, newest first, while a new one arrives."""
    count, fax, handles = context.options.faxes, context.suite.fax, list[str | None]()
    for number in range(1, count + 1):
        status = "waiting" if number == count else "complete"
        handles.insert(0, await context.sandbox.add_fax(_FAX_NUMBER, status=status, description=f"Fax {number}"))
    for offset in range(0, count, FULL_PAGE_MESSAGES):
        page = (await fax.get_multiple_message_info(_FAX_NUMBER, offset)).message_detail
        expected = handles[offset : offset + FULL_PAGE_MESSAGES]
        check(
            [each.message_handle for each in page] == expected,
            f"the page at offset {offset} does not contain the expected faxes",
        )
    newest = (await fax.get_single_message_info(_FAX_NUMBER, handles[0] or "")).message_detail
    found = [(each.status, each.description) for each in newest]
    check(found == [(ds.FaxStatus.WAITING, f"Fax {count}")], "the newest fax has the wrong status or description")
    listed = list[str | None]()
    async with fax.iter_messages(_FAX_NUMBER) as messages:
        async for message in messages:
            if not listed:
                await context.sandbox.add_fax(_FAX_NUMBER, description="arrives during the listing")
            listed.append(message.message_handle)
    check(
        listed == handles,
        f"the listing of {len(listed)} records does not contain each of the {count} faxes once, newest first",
    )
    checked = (
        f"{-(-count // FULL_PAGE_MESSAGES)} pages of at most {FULL_PAGE_MESSAGES}, newest first",
        "a new fax during the listing: none is lost or repeated",
    )
    return {"count": count, "unit": "record", "checked": checked}


def build_consent_form(number: int) -> bytes:
    """Return a PDF with a filled field and the empty signature field PatientSignature, the same in every run."""
    with pikepdf.new() as opened:
        document: Any = opened  # pikepdf's types are incomplete
        font = Dictionary(F1=Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica))
        page = document.add_blank_page(page_size=_PAGE_SIZE).obj
        page.Resources = Dictionary(Font=font)
        lines = (f"Consent form {number}", "I consent to the planned treatment. Its risks were explained to me.")
        text = " 0 -24 Td ".join(f"({line}) Tj" for line in lines)
        page.Contents = document.make_stream(f"BT /F1 12 Tf 54 720 Td {text} ET".encode())
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


def _clear_folder(folder: Path, name_pattern: str) -> Path:
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        if re.fullmatch(name_pattern, file.name) and file.is_file():
            file.unlink()
    return folder


@attrs.frozen
class Step:
    """A step of the demo. title: text for people."""

    title: str
    run: Callable[[DemoContext], Awaitable[dict[str, Any]]]


STEPS = {
    "patient": Step("Provision a patient", provision_patient),
    "message": Step("Send a message and track it", send_message),
    "mailbox": Step("Read a mailbox", read_mailbox),
    "signing": Step("Sign PDFs", sign_documents),
    "fax": Step("List faxes", read_faxes),
}
"""The steps in the order of execution, by their name in the report."""
