"""The steps of the demo, in the order of execution. Each checks all responses.

A message with a clinical document and a PDF is followed until the status of each recipient is final:

    recipient                at 0        after 31 minutes   61 minutes        121 minutes
    the patient, here        Delivered   Delivered          Delivered         Delivered
    confirms in 30 minutes   Waiting     Delivered          Delivered         Delivered
    confirms in 2 hours      Waiting     Waiting            NO MDN Received   Delivered
    never confirms           Waiting     Waiting            NO MDN Received   NO MDN Received
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterable
from datetime import date
from email import policy
from email.message import EmailMessage
from pathlib import Path

import attrs

from directsuite.cli.demo.context import (
    CLINIC,
    DOMAIN,
    MAILBOX_PASSWORD,
    PATIENT,
    PATIENT_USERNAME,
    CheckFailedError,
    DemoContext,
    StepOutcome,
    check_condition,
    clear_folder,
)
from directsuite.cli.demo.documents import (
    PATIENT_FIELD,
    Form,
    build_clinical_summary,
    build_consent_form,
    check_clinical_summary,
    draw_handwriting,
    verify_signatures,
)
from directsuite.core.iteration import Listing
from directsuite.errors import BadRequestError, NotFoundError
from directsuite.fax.models import FaxStatus
from directsuite.fax.pages import FULL_PAGE_MESSAGES
from directsuite.messaging.models import Attachment, Message, MessageDetail, MessageStatus, Recipient, RecipientType
from directsuite.messaging.service import Mailbox
from directsuite.registration.models import (
    DirectUserDetail,
    IDProofedIndividual,
    IDProofedIndividualRESTful,
    UserPassword,
    UserStateType,
)
from directsuite.signing.models import Signature, StoredDocument, Widget
from directsuite.signing.service import Signing

_FIRST_NAME, _LAST_NAME, _SSN4, _BIRTH_DATE = "Ada", "Example", "1234", date(1980, 2, 29)
_SESSION_EXPIRED_MINUTES = 11  # one minute more than a session lasts by section 8 of the specification


async def provision_patient(context: DemoContext) -> StepOutcome:
    """Provision an address, and find it by name and by username. The session expires in between."""
    await context.sandbox.add_individual(_FIRST_NAME, _LAST_NAME, _SSN4, _BIRTH_DATE.isoformat())
    registration = context.suite.registration
    context.progress.set_total(5)

    individual = IDProofedIndividualRESTful(
        first_name=_FIRST_NAME, last_name=_LAST_NAME, ssn4=_SSN4, dob=_BIRTH_DATE, direct_username=PATIENT_USERNAME
    )
    response = await registration.provision_id_proofed_patient(DOMAIN, individual)
    check_condition(_has_active_user(response.users), "the provisioned address is not active")
    payment = response.payment_confirmation
    check_condition(payment is not None and payment.amount, "no payment was confirmed")
    context.progress.advance()

    await registration.set_patients_passwords(DOMAIN, [UserPassword(PATIENT_USERNAME, MAILBOX_PASSWORD)])
    check_condition(
        await context.suite.mailbox(PATIENT, MAILBOX_PASSWORD).get_message_count() == 0, "the mailbox is not empty"
    )
    context.progress.advance()

    person = IDProofedIndividual(first_name=_FIRST_NAME, last_name=_LAST_NAME, ssn4=_SSN4, dob=_BIRTH_DATE)
    check_condition(
        _has_active_user(await registration.get_patient_address_by_meta(DOMAIN, person)),
        "the patient was not found by name and birth date",
    )
    context.progress.advance()

    context.advance_clock(minutes=_SESSION_EXPIRED_MINUTES)
    users = await registration.get_patient_address_by_username(DOMAIN, PATIENT_USERNAME)
    check_condition(_has_active_user(users), "the patient was not found by username after the session had expired")
    context.progress.advance()

    await _check_taken_username(context, individual)
    context.progress.advance()
    return StepOutcome(
        count=1,
        unit="patient",
        passed_checks=(
            "address active and paid for, mailbox open",
            "found by name and by username",
            "session renewed after its 10 minutes",
            "a username in use was rejected",
        ),
    )


async def _check_taken_username(context: DemoContext, individual: IDProofedIndividualRESTful) -> None:
    try:
        await context.suite.registration.provision_id_proofed_patient(DOMAIN, individual)
    except BadRequestError as rejection:
        check_condition(rejection.code == "014", f"the service rejected it with the code {rejection.code}, not 014")
        return
    raise CheckFailedError("the same address was provisioned twice")


def _has_active_user(users: list[DirectUserDetail]) -> bool:
    return [(user.username, user.user_state) for user in users] == [(PATIENT_USERNAME, UserStateType.ACTIVATED)]


_DELIVERED, _WAITING, _NO_MDN = MessageStatus.DELIVERED, MessageStatus.WAITING, MessageStatus.NO_MDN_RECEIVED

_RECIPIENTS = (
    Recipient(PATIENT),
    Recipient("slow+30m@hospital.example.test", RecipientType.CC),
    Recipient("slow+2h@laboratory.example.test", RecipientType.CC),
    Recipient("nomdn@pharmacy.example.test", RecipientType.CC),
)
_EXPECTED_STATUSES: tuple[tuple[int, tuple[MessageStatus, ...]], ...] = (
    # Minutes to wait, then the status of each recipient.
    (0, (_DELIVERED, _WAITING, _WAITING, _WAITING)),
    (31, (_DELIVERED, _DELIVERED, _WAITING, _WAITING)),
    (30, (_DELIVERED, _DELIVERED, _NO_MDN, _NO_MDN)),
    (60, (_DELIVERED, _DELIVERED, _DELIVERED, _NO_MDN)),
)


async def send_message(context: DemoContext) -> StepOutcome:
    """Send a message, check the status of every recipient, and compare the received message byte for byte."""
    context.progress.set_total(len(_EXPECTED_STATUSES) + 2)
    clinic = context.suite.mailbox(CLINIC, MAILBOX_PASSWORD)
    message = _make_message()
    sent = await clinic.send(message)
    check_condition(sent.smtp_id, "the service returned no Message-ID")
    context.progress.advance()
    await _check_delivery(context, clinic, sent.smtp_id or "")
    file = await _check_received_message(context, message, sent.smtp_id or "")
    context.progress.advance()
    return StepOutcome(
        count=len(_RECIPIENTS),
        unit="recipient",
        passed_checks=(
            "delivered at once, after 30 minutes, late after 2 hours, and never confirmed",
            "C-CDA and PDF reached the patient byte for byte",
        ),
        files=(file,),
    )


def _make_message() -> Message:
    return Message(
        subject="Your visit summary",
        body="Dear patient,\n\nplease find attached the summary of your visit and the consent form.\n",
        recipients=list(_RECIPIENTS),
        attachment_list=[
            Attachment(content=build_clinical_summary(), content_type="text/xml", filename="visit-summary.xml"),
            Attachment(
                content=build_consent_form(Form.from_number(1)), content_type="application/pdf", filename="consent.pdf"
            ),
        ],
    )


async def _check_delivery(context: DemoContext, clinic: Mailbox, smtp_id: str) -> None:
    elapsed = 0
    for minutes, expected in _EXPECTED_STATUSES:
        context.advance_clock(minutes=minutes)
        elapsed += minutes
        records = (await clinic.get_message_status(smtp_id)).records
        reported = {record.to: record.status for record in records}
        statuses = dict(zip((each.email for each in _RECIPIENTS), expected, strict=True))
        check_condition(
            reported == statuses,
            f"after {elapsed} minutes the statuses are {_format_statuses(reported)}, not {_format_statuses(statuses)}",
        )
        context.progress.advance()


def _format_statuses(statuses: dict[str, MessageStatus] | dict[str | None, MessageStatus | None]) -> str:
    return ", ".join(str(status) for status in statuses.values())


async def _check_received_message(context: DemoContext, message: Message, smtp_id: str) -> Path:
    inbox = context.suite.mailbox(PATIENT, MAILBOX_PASSWORD)
    async with inbox.iter_messages() as listing:
        arrived = [received async for received in listing]
    check_condition(len(arrived) == 1, f"{len(arrived)} messages arrived instead of one")
    received = arrived[0]
    check_condition(received.msg_id == smtp_id, "a different message arrived than was sent")
    check_condition(received.subject == message.subject, "the received subject differs from the sent one")
    check_condition(
        [(part.filename, part.media_type, part.content) for part in received.attachments]
        == [(part.filename, part.content_type, part.content) for part in message.attachment_list],
        "the received attachments differ from the sent ones",
    )
    check_clinical_summary(received.attachments[0].content)
    async with inbox.iter_raw() as listing:
        raw = [stored async for stored in listing]
    check_condition(
        len(raw) == 1 and raw[0].to_email()["Subject"] == message.subject, "the raw message is a different one"
    )
    file = context.output / "messages" / "visit-summary.eml"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(raw[0].data or b"")
    return file


_RESULTS_ADDRESS = f"results@{DOMAIN}"
_MAX_ATTACHMENT_BYTES = 48_000
_SENDER = "laboratory@hospital.example.test"


@attrs.frozen
class _SampleMessage:
    subject: str
    body: str
    attachment: bytes

    @classmethod
    def from_number(cls, number: int) -> _SampleMessage:
        seed = hashlib.sha256(str(number).encode()).digest()
        size = 1 + int.from_bytes(seed[:4]) % _MAX_ATTACHMENT_BYTES
        return cls(
            subject=f"Résultat {number:04d}",
            body=f"Résultat {number}: température 36,{number % 10} °C.\n",
            attachment=(seed * (size // len(seed) + 1))[:size],
        )

    @classmethod
    def from_received(cls, message: MessageDetail) -> _SampleMessage:
        parts = message.attachments
        body = (message.body or "").replace("\r\n", "\n")
        return cls(message.subject or "", body, parts[0].content if len(parts) == 1 else b"")

    def to_bytes(self, number: int) -> bytes:
        message = EmailMessage(policy=policy.SMTP)
        message["From"], message["To"] = _SENDER, _RESULTS_ADDRESS
        message["Subject"] = self.subject
        message["Message-ID"] = f"<result-{number}@hospital.example.test>"
        message["Date"] = "Sun, 01 Mar 2026 09:30:00 +0000"
        message.set_content(self.body)
        message.add_attachment(self.attachment, maintype="application", subtype="octet-stream", filename="values.bin")
        return message.as_bytes()


async def read_mailbox(context: DemoContext) -> StepOutcome:
    """Fill a mailbox, read it with each iterator, and compare the count, the order and every byte."""
    count = context.options.messages
    context.progress.set_total(count * 5)
    samples = [_SampleMessage.from_number(number) for number in range(1, count + 1)]
    uids, raw = await _fill_mailbox(context, samples)
    box = context.suite.mailbox(_RESULTS_ADDRESS, MAILBOX_PASSWORD)
    check_condition(await box.get_message_count() == count, f"the service does not count {count} messages")
    check_condition(await box.get_uids() == uids, "the uids are not those of the delivery, ascending")
    for name, listing in (("iter_messages", box.iter_messages()), ("stream_messages", box.stream_messages())):
        await _compare_messages(name, _iter_with_progress(context, listing), uids, samples)
    await _compare_metadata(context, box, uids, samples)
    files = await _save_raw_messages(context, box, raw)
    return StepOutcome(
        count=count,
        unit="message",
        passed_checks=(
            "iter_messages and stream_messages: count, order, every byte",
            "iter_metadata: count, order, subjects, no contents",
            "iter_raw: every byte as delivered",
        ),
        files=tuple(files),
    )


async def _fill_mailbox(context: DemoContext, samples: list[_SampleMessage]) -> tuple[list[int], list[bytes]]:
    await context.sandbox.add_account(_RESULTS_ADDRESS, MAILBOX_PASSWORD)
    uids: list[int] = []
    raw: list[bytes] = []
    for number, sample in enumerate(samples, start=1):
        raw.append(await asyncio.to_thread(sample.to_bytes, number))
        uids.append(await context.sandbox.deliver(_RESULTS_ADDRESS, raw[-1]))
        context.progress.advance()
    return uids, raw


async def _compare_messages(
    name: str, messages: AsyncIterable[MessageDetail], uids: list[int], samples: list[_SampleMessage]
) -> None:
    seen = 0
    async for message in messages:
        check_condition(seen < len(uids), f"{name} returns more than {len(uids)} messages")
        check_condition(message.uid == uids[seen], f"{name} returns uid {message.uid} instead of {uids[seen]}")
        check_condition(
            _SampleMessage.from_received(message) == samples[seen], f"{name} changes the message of uid {message.uid}"
        )
        seen += 1
    check_condition(seen == len(uids), f"{name} returns {seen} of {len(uids)} messages")


async def _compare_metadata(context: DemoContext, box: Mailbox, uids: list[int], samples: list[_SampleMessage]) -> None:
    async with box.iter_metadata() as listing:
        received = [message async for message in _iter_with_progress(context, listing)]
    check_condition([message.uid for message in received] == uids, "iter_metadata returns other uids, or another order")
    subjects = [sample.subject for sample in samples]
    check_condition([message.subject for message in received] == subjects, "iter_metadata returns other subjects")
    check_condition(not any(message.body for message in received), "iter_metadata returns bodies")


async def _save_raw_messages(context: DemoContext, box: Mailbox, raw: list[bytes]) -> list[Path]:
    folder = clear_folder(context.output / "mailbox", r"[0-9]{4,5}\.eml")
    files: list[Path] = []
    async with box.iter_raw() as listing:
        async for message in listing:
            check_condition(
                len(files) < len(raw) and message.data == raw[len(files)], "iter_raw returns other bytes than delivered"
            )
            file = folder / f"{len(files) + 1:04d}.eml"
            await asyncio.to_thread(file.write_bytes, message.data or b"")
            files.append(file)
            context.progress.advance()
    check_condition(len(files) == len(raw), f"iter_raw returns {len(files)} of {len(raw)} messages")
    return files


async def _iter_with_progress(context: DemoContext, listing: Listing[MessageDetail]) -> AsyncIterable[MessageDetail]:
    async with listing as messages:
        async for message in messages:
            yield message
            context.progress.advance()


_MAX_DOCUMENTS_IN_FLIGHT = 8


async def sign_documents(context: DemoContext) -> StepOutcome:
    """Sign documents with one or two signatures each, and verify every signature with pyHanko."""
    count = context.options.documents
    context.progress.set_total(count)
    folder = clear_folder(context.output / "signed", r"consent-[0-9]{3}\.pdf")
    files = {number: folder / f"consent-{number:03d}.pdf" for number in range(1, count + 1)}
    in_flight = asyncio.Semaphore(_MAX_DOCUMENTS_IN_FLIGHT)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_process_document(context, Form.from_number(number), file, in_flight))
            for number, file in files.items()
        ]
    authority = context.output / "sandbox-ca.pem"
    authority.write_bytes(await asyncio.to_thread(_get_authority_pem, context))
    return StepOutcome(
        count=count,
        unit="document",
        passed_checks=(
            f"{sum(task.result() for task in tasks)} signatures, each intact, valid and trusted (pyHanko)",
            "the original content is unchanged",
            "documents deleted from the service",
        ),
        files=(*files.values(), authority),
    )


async def _process_document(context: DemoContext, form: Form, file: Path, in_flight: asyncio.Semaphore) -> int:
    async with in_flight:
        signatures = await _run_document_steps(context, form, file)
        context.progress.advance()
        return signatures


async def _run_document_steps(context: DemoContext, form: Form, file: Path) -> int:
    signing = context.suite.signing
    original = await asyncio.to_thread(build_consent_form, form)
    stored = await signing.save(original)
    signatures = _make_signatures(form)
    if len(signatures) == 1:
        await signing.sign_and_pull(stored, signatures[0], destination=file)
    else:
        await signing.multi_sign(stored, signatures)
        await signing.download(stored, file)
    names = {signature.name for signature in signatures}
    reported = {signature.name for signature in (await signing.get_doc_info(stored)).signatures if signature.is_signed}
    check_condition(reported == names, f"{file.name}: GetDocInfo reports other signatures than were made")
    await _verify_document(context, file, original, names)
    await _delete_document(signing, stored)
    return len(signatures)


def _make_signatures(form: Form) -> list[Signature]:
    patient = Signature(
        name=PATIENT_FIELD, gs_name="Ada Example", reason="I consent to the treatment", timezone="America/New_York"
    )
    if not form.is_countersigned:
        return [patient]
    x, y, width, height = form.clinic_signature_rect
    clinic = Signature(
        name="ClinicSignature",
        gs_name="Example Clinic",
        reason="Witnessed",
        timezone="UTC",
        widget=Widget(x=x, y=y, width=width, height=height, page=1),
        graphical_signature=draw_handwriting(),
    )
    return [patient, clinic]


async def _verify_document(context: DemoContext, file: Path, original: bytes, names: set[str | None]) -> None:
    content = await asyncio.to_thread(file.read_bytes)
    check_condition(content.startswith(original), f"{file.name}: the original content has changed")
    authority = await asyncio.to_thread(_get_authority_pem, context)
    verdicts = await asyncio.to_thread(verify_signatures, content, authority)
    check_condition({verdict.field for verdict in verdicts} == names, f"{file.name}: pyHanko finds other signatures")
    for verdict in verdicts:
        check_condition(verdict.is_accepted, f"{file.name}: pyHanko does not accept {verdict}")


async def _delete_document(signing: Signing, stored: StoredDocument) -> None:
    deleted = await signing.delete(stored)
    check_condition(deleted.document_digest == "", "the digest is not empty after deletion")
    try:
        await signing.get_doc(stored)
    except (BadRequestError, NotFoundError):  # services use either status for a missing document
        return
    raise CheckFailedError("a document can still be read after its deletion")


def _get_authority_pem(context: DemoContext) -> bytes:
    return context.sandbox.authority_pem()


_FAX_NUMBER = "15550100199"


async def read_faxes(context: DemoContext) -> StepOutcome:
    """Read every page, then iterate over all records, newest first, while a new one arrives."""
    count = context.options.faxes
    context.progress.set_total(count * 3)
    newest_first: list[str] = []
    for position in range(1, count + 1):
        status = "waiting" if position == count else "complete"
        newest_first.insert(0, await context.sandbox.add_fax(_FAX_NUMBER, status=status, description=f"Fax {position}"))
        context.progress.advance()
    await _read_pages(context, newest_first)
    await _read_records(context, newest_first)
    return StepOutcome(
        count=count,
        unit="record",
        passed_checks=(
            f"{-(-count // FULL_PAGE_MESSAGES)} pages of at most {FULL_PAGE_MESSAGES}, newest first",
            "a new fax during the listing: none is lost or repeated",
        ),
    )


async def _read_pages(context: DemoContext, newest_first: list[str]) -> None:
    fax = context.suite.fax
    for offset in range(0, len(newest_first), FULL_PAGE_MESSAGES):
        page = (await fax.get_multiple_message_info(_FAX_NUMBER, offset)).message_detail
        expected = newest_first[offset : offset + FULL_PAGE_MESSAGES]
        check_condition(
            [message.message_handle for message in page] == expected,
            f"the page at offset {offset} contains other faxes",
        )
        context.progress.advance(len(page))
    newest = (await fax.get_single_message_info(_FAX_NUMBER, newest_first[0])).message_detail
    check_condition(
        [(message.status, message.description) for message in newest]
        == [(FaxStatus.WAITING, f"Fax {len(newest_first)}")],
        "the newest fax is not the waiting one",
    )


async def _read_records(context: DemoContext, newest_first: list[str]) -> None:
    walked: list[str | None] = []
    async with context.suite.fax.iter_messages(_FAX_NUMBER) as messages:
        async for message in messages:
            if not walked:
                await context.sandbox.add_fax(_FAX_NUMBER, description="arrives during the walk")
            walked.append(message.message_handle)
            context.progress.advance()
    check_condition(
        walked == newest_first, f"the listing has {len(walked)} records, not each of {len(newest_first)} once, in order"
    )
