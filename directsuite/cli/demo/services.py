"""The steps of the demo, in the order in which they run, each with a check of everything that comes back.

A message with a clinical document and a PDF is followed until nothing more can become of it:

    recipient                at once     after 31 minutes   61 minutes        121 minutes
    the patient, here        Delivered   Delivered          Delivered         Delivered
    confirms in 30 minutes   Waiting     Delivered          Delivered         Delivered
    confirms in 2 hours      Waiting     Waiting            NO MDN Received   Delivered
    never confirms           Waiting     Waiting            NO MDN Received   NO MDN Received

PDFs are signed at the same time:

    save ──► sign_and_pull, or multi_sign and download ──► GetDocInfo ──► pyHanko ──► delete
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

from directsuite.cli.demo.documents import (
    PATIENT_FIELD,
    Form,
    check_clinical,
    clinical_summary,
    consent_form,
    handwriting,
    verify_signatures,
)
from directsuite.cli.demo.scene import (
    CLINIC,
    DOMAIN,
    MAILBOX_PASSWORD,
    PATIENT,
    PATIENT_USERNAME,
    Done,
    NotHeldError,
    Scene,
    cleared,
    hold,
)
from directsuite.core.iteration import Listing
from directsuite.errors import BadRequestError, NotFoundError
from directsuite.fax.models import FaxStatus
from directsuite.fax.pages import PAGE
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

_FIRST_NAME, _LAST_NAME, _SSN4, _BORN = "Ada", "Example", "1234", date(1980, 2, 29)
_SESSION_AND_A_MINUTE = 11  # minutes: specification section 8, and one more


async def provision_patient(scene: Scene) -> Done:
    """Provision the address, find it by name and by username, with a session that runs out in between."""
    await scene.sandbox.add_individual(_FIRST_NAME, _LAST_NAME, _SSN4, _BORN.isoformat())
    registration = scene.suite.registration
    scene.progress.expect(5)

    individual = IDProofedIndividualRESTful(
        first_name=_FIRST_NAME, last_name=_LAST_NAME, ssn4=_SSN4, dob=_BORN, direct_username=PATIENT_USERNAME
    )
    answer = await registration.provision_id_proofed_patient(DOMAIN, individual)
    hold(_active(answer.users), "the provisioned address is not active")
    payment = answer.payment_confirmation
    hold(payment is not None and payment.amount, "no payment was confirmed")
    scene.progress.advance()

    await registration.set_patients_passwords(DOMAIN, [UserPassword(PATIENT_USERNAME, MAILBOX_PASSWORD)])
    hold(await scene.suite.mailbox(PATIENT, MAILBOX_PASSWORD).get_message_count() == 0, "the mailbox is not empty")
    scene.progress.advance()

    person = IDProofedIndividual(first_name=_FIRST_NAME, last_name=_LAST_NAME, ssn4=_SSN4, dob=_BORN)
    hold(_active(await registration.get_patient_address_by_meta(DOMAIN, person)), "not found by name and birth date")
    scene.progress.advance()

    scene.pass_time(minutes=_SESSION_AND_A_MINUTE)
    users = await registration.get_patient_address_by_username(DOMAIN, PATIENT_USERNAME)
    hold(_active(users), "not found by username once the session had run out")
    scene.progress.advance()

    await _refuses_a_taken_username(scene, individual)
    scene.progress.advance()
    return Done(
        count=1,
        thing="patient",
        checked=(
            "address active and paid for, mailbox open",
            "found by name and by username",
            "session renewed once its 10 minutes were over",
            "a username that is taken was refused",
        ),
    )


async def _refuses_a_taken_username(scene: Scene, individual: IDProofedIndividualRESTful) -> None:
    try:
        await scene.suite.registration.provision_id_proofed_patient(DOMAIN, individual)
    except BadRequestError as refused:
        hold(refused.code == "014", f"the service refused with the code {refused.code} in place of 014")
        return
    raise NotHeldError("the same address was provisioned twice")


def _active(users: list[DirectUserDetail]) -> bool:
    return [(user.username, user.user_state) for user in users] == [(PATIENT_USERNAME, UserStateType.ACTIVATED)]


_DELIVERED, _WAITING, _NO_MDN = MessageStatus.DELIVERED, MessageStatus.WAITING, MessageStatus.NO_MDN_RECEIVED

_RECIPIENTS = (
    Recipient(PATIENT),
    Recipient("slow+30m@hospital.example.test", RecipientType.CC),
    Recipient("slow+2h@laboratory.example.test", RecipientType.CC),
    Recipient("nomdn@pharmacy.example.test", RecipientType.CC),
)
_COURSE: tuple[tuple[int, tuple[MessageStatus, ...]], ...] = (
    # minutes that pass first, then the status of each recipient
    (0, (_DELIVERED, _WAITING, _WAITING, _WAITING)),
    (31, (_DELIVERED, _DELIVERED, _WAITING, _WAITING)),
    (30, (_DELIVERED, _DELIVERED, _NO_MDN, _NO_MDN)),
    (60, (_DELIVERED, _DELIVERED, _DELIVERED, _NO_MDN)),
)


async def send_message(scene: Scene) -> Done:
    """Send it, watch every recipient's status, and read it in the patient's mailbox, byte for byte."""
    scene.progress.expect(len(_COURSE) + 2)
    clinic = scene.suite.mailbox(CLINIC, MAILBOX_PASSWORD)
    message = _message()
    sent = await clinic.send(message)
    hold(sent.smtp_id, "the service gave no Message-ID")
    scene.progress.advance()
    await _follow(scene, clinic, sent.smtp_id or "")
    file = await _read(scene, message, sent.smtp_id or "")
    scene.progress.advance()
    return Done(
        count=len(_RECIPIENTS),
        thing="recipient",
        checked=(
            "delivered at once, after 30 minutes, late after 2 hours, and never confirmed",
            "C-CDA and PDF reached the patient byte for byte",
        ),
        files=(file,),
    )


def _message() -> Message:
    return Message(
        subject="Your visit summary",
        body="Dear patient,\n\nplease find attached the summary of your visit and the consent form.\n",
        recipients=list(_RECIPIENTS),
        attachment_list=[
            Attachment(content=clinical_summary(), content_type="text/xml", filename="visit-summary.xml"),
            Attachment(content=consent_form(Form.numbered(1)), content_type="application/pdf", filename="consent.pdf"),
        ],
    )


async def _follow(scene: Scene, clinic: Mailbox, smtp_id: str) -> None:
    elapsed = 0
    for minutes, expected in _COURSE:
        scene.pass_time(minutes=minutes)
        elapsed += minutes
        records = (await clinic.get_message_status(smtp_id)).records
        reported = {record.to: record.status for record in records}
        statuses = dict(zip((each.email for each in _RECIPIENTS), expected, strict=True))
        hold(
            reported == statuses,
            f"after {elapsed} minutes the statuses are {_texts(reported)}, not {_texts(statuses)}",
        )
        scene.progress.advance()


def _texts(statuses: dict[str, MessageStatus] | dict[str | None, MessageStatus | None]) -> str:
    return ", ".join(str(status) for status in statuses.values())


async def _read(scene: Scene, message: Message, smtp_id: str) -> Path:
    """Compare what arrived with what was sent, and keep the message as it stands on the server."""
    inbox = scene.suite.mailbox(PATIENT, MAILBOX_PASSWORD)
    async with inbox.iter_messages() as listing:
        arrived = [received async for received in listing]
    hold(len(arrived) == 1, f"{len(arrived)} messages arrived in place of one")
    received = arrived[0]
    hold(received.msg_id == smtp_id, "another message arrived than the one that was sent")
    hold(received.subject == message.subject, "the subject has changed on the way")
    hold(
        [(part.filename, part.media_type, part.content) for part in received.attachments]
        == [(part.filename, part.content_type, part.content) for part in message.attachment_list],
        "the attachments have changed on the way",
    )
    check_clinical(received.attachments[0].content)
    async with inbox.iter_raw() as listing:
        raw = [stored async for stored in listing]
    hold(len(raw) == 1 and raw[0].to_email()["Subject"] == message.subject, "the raw message is another one")
    file = scene.output / "messages" / "visit-summary.eml"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(raw[0].data or b"")
    return file


_ADDRESS = f"results@{DOMAIN}"
_LARGEST = 48_000  # bytes of an attachment
_SENDER = "laboratory@hospital.example.test"


@attrs.frozen
class _Letter:
    """What a message says, as it was delivered."""

    subject: str
    body: str
    attachment: bytes

    @classmethod
    def numbered(cls, number: int) -> _Letter:
        """The message of this number: all different, the same on every run."""
        seed = hashlib.sha256(str(number).encode()).digest()
        size = 1 + int.from_bytes(seed[:4]) % _LARGEST
        return cls(
            subject=f"Résultat {number:04d}",
            body=f"Résultat {number}: température 36,{number % 10} °C.\n",
            attachment=(seed * (size // len(seed) + 1))[:size],
        )

    @classmethod
    def received(cls, message: MessageDetail) -> _Letter:
        """What a message says that came through the client."""
        parts = message.attachments
        body = (message.body or "").replace("\r\n", "\n")
        return cls(message.subject or "", body, parts[0].content if len(parts) == 1 else b"")

    def raw(self, number: int) -> bytes:
        """The message as RFC 5322 text."""
        message = EmailMessage(policy=policy.SMTP)
        message["From"], message["To"] = _SENDER, _ADDRESS
        message["Subject"] = self.subject
        message["Message-ID"] = f"<result-{number}@hospital.example.test>"
        message["Date"] = "Sun, 01 Mar 2026 09:30:00 +0000"
        message.set_content(self.body)
        message.add_attachment(self.attachment, maintype="application", subtype="octet-stream", filename="values.bin")
        return message.as_bytes()


async def read_mailbox(scene: Scene) -> Done:
    """Fill the mailbox, then read it through each iterator: the count, the order and every byte have to be right."""
    count = scene.options.messages
    scene.progress.expect(count * 5)
    letters = [_Letter.numbered(number) for number in range(1, count + 1)]
    uids, raw = await _fill(scene, letters)
    box = scene.suite.mailbox(_ADDRESS, MAILBOX_PASSWORD)
    hold(await box.get_message_count() == count, f"the service counts other than {count} messages")
    hold(await box.get_uids() == uids, "the uids are not those of the delivery, ascending")
    for name, listing in (("iter_messages", box.iter_messages()), ("stream_messages", box.stream_messages())):
        await _compare(name, _counted(scene, listing), uids, letters)
    await _compare_metadata(scene, box, uids, letters)
    files = await _keep(scene, box, raw)
    return Done(
        count=count,
        thing="message",
        checked=(
            "iter_messages and stream_messages: count, order, every byte",
            "iter_metadata: count, order, subjects, no contents",
            "iter_raw: as they were delivered",
        ),
        files=tuple(files),
    )


async def _fill(scene: Scene, letters: list[_Letter]) -> tuple[list[int], list[bytes]]:
    """Deliver them one after the other; gives their uids, and the messages as they were delivered."""
    await scene.sandbox.add_account(_ADDRESS, MAILBOX_PASSWORD)
    uids: list[int] = []
    raw: list[bytes] = []
    for number, letter in enumerate(letters, start=1):
        raw.append(await asyncio.to_thread(letter.raw, number))
        uids.append(await scene.sandbox.deliver(_ADDRESS, raw[-1]))
        scene.progress.advance()
    return uids, raw


async def _compare(name: str, messages: AsyncIterable[MessageDetail], uids: list[int], letters: list[_Letter]) -> None:
    seen = 0
    async for message in messages:
        hold(seen < len(uids), f"{name} gives more than {len(uids)} messages")
        hold(message.uid == uids[seen], f"{name} gives uid {message.uid} in the place of {uids[seen]}")
        hold(_Letter.received(message) == letters[seen], f"{name} changes the message of uid {message.uid}")
        seen += 1
    hold(seen == len(uids), f"{name} gives {seen} messages of {len(uids)}")


async def _compare_metadata(scene: Scene, box: Mailbox, uids: list[int], letters: list[_Letter]) -> None:
    async with box.iter_metadata() as listing:
        received = [message async for message in _counted(scene, listing)]
    hold([message.uid for message in received] == uids, "iter_metadata gives other uids, or another order")
    subjects = [letter.subject for letter in letters]
    hold([message.subject for message in received] == subjects, "iter_metadata gives other subjects")
    hold(not any(message.body for message in received), "iter_metadata gives bodies")


async def _keep(scene: Scene, box: Mailbox, raw: list[bytes]) -> list[Path]:
    folder = cleared(scene.output / "mailbox", r"[0-9]{4,5}\.eml")
    files: list[Path] = []
    async with box.iter_raw() as listing:
        async for message in listing:
            hold(len(files) < len(raw) and message.data == raw[len(files)], "iter_raw gives other bytes than delivered")
            file = folder / f"{len(files) + 1:04d}.eml"
            await asyncio.to_thread(file.write_bytes, message.data or b"")
            files.append(file)
            scene.progress.advance()
    hold(len(files) == len(raw), f"iter_raw gives {len(files)} messages of {len(raw)}")
    return files


async def _counted(scene: Scene, listing: Listing[MessageDetail]) -> AsyncIterable[MessageDetail]:
    async with listing as messages:
        async for message in messages:
            yield message
            scene.progress.advance()


_AT_ONCE = 8  # documents under way


async def sign_documents(scene: Scene) -> Done:
    """Sign all of them, each with one or two signatures, and have every signature verified apart from the client."""
    count = scene.options.documents
    scene.progress.expect(count)
    folder = cleared(scene.output / "signed", r"consent-[0-9]{3}\.pdf")
    files = {number: folder / f"consent-{number:03d}.pdf" for number in range(1, count + 1)}
    under_way = asyncio.Semaphore(_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_sign(scene, Form.numbered(number), file, under_way)) for number, file in files.items()
        ]
    authority = scene.output / "sandbox-ca.pem"
    authority.write_bytes(await asyncio.to_thread(_authority, scene))
    return Done(
        count=count,
        thing="document",
        checked=(
            f"{sum(task.result() for task in tasks)} signatures, each intact, valid and trusted (pyHanko)",
            "what was there before signing is unchanged",
            "documents deleted from the service",
        ),
        files=(*files.values(), authority),
    )


async def _sign(scene: Scene, form: Form, file: Path, under_way: asyncio.Semaphore) -> int:
    """Take one document all the way, once there is room for it; gives the number of its signatures."""
    async with under_way:
        signatures = await _save_to_delete(scene, form, file)
        scene.progress.advance()
        return signatures


async def _save_to_delete(scene: Scene, form: Form, file: Path) -> int:
    signing = scene.suite.signing
    original = await asyncio.to_thread(consent_form, form)
    stored = await signing.save(original)
    signatures = _signatures(form)
    if len(signatures) == 1:
        await signing.sign_and_pull(stored, signatures[0], destination=file)
    else:
        await signing.multi_sign(stored, signatures)
        await signing.download(stored, file)
    names = {signature.name for signature in signatures}
    reported = {signature.name for signature in (await signing.get_doc_info(stored)).signatures if signature.is_signed}
    hold(reported == names, f"{file.name}: GetDocInfo tells of other signatures than were made")
    await _verify(scene, file, original, names)
    await _delete(signing, stored)
    return len(signatures)


def _signatures(form: Form) -> list[Signature]:
    """The patient signs in the form's own field; every other document is signed by the clinic as well, beside it."""
    patient = Signature(
        name=PATIENT_FIELD, gs_name="Ada Example", reason="I consent to the treatment", timezone="America/New_York"
    )
    if not form.countersigned:
        return [patient]
    x, y, width, height = form.clinic_place
    clinic = Signature(
        name="ClinicSignature",
        gs_name="Example Clinic",
        reason="Witnessed",
        timezone="UTC",
        widget=Widget(x=x, y=y, width=width, height=height, page=1),
        graphical_signature=handwriting(),
    )
    return [patient, clinic]


async def _verify(scene: Scene, file: Path, original: bytes, names: set[str | None]) -> None:
    content = await asyncio.to_thread(file.read_bytes)
    hold(content.startswith(original), f"{file.name}: what was there before signing has been changed")
    authority = await asyncio.to_thread(_authority, scene)
    verdicts = await asyncio.to_thread(verify_signatures, content, authority)
    hold({verdict.field for verdict in verdicts} == names, f"{file.name}: pyHanko finds other signatures")
    for verdict in verdicts:
        hold(verdict.good, f"{file.name}: pyHanko does not accept {verdict}")


async def _delete(signing: Signing, stored: StoredDocument) -> None:
    deleted = await signing.delete(stored)
    hold(deleted.document_digest == "", "the digest is not empty after deletion")
    try:
        await signing.get_doc(stored)
    except (BadRequestError, NotFoundError):  # such services say either of a document that is not there
        return
    raise NotHeldError("a document can still be read after its deletion")


def _authority(scene: Scene) -> bytes:
    return scene.sandbox.authority_pem()


_NUMBER = "15550100199"


async def walk_faxes(scene: Scene) -> Done:
    """Read every page, then walk all records with one arriving meanwhile: each comes once, the newest first."""
    count = scene.options.faxes
    scene.progress.expect(count * 3)
    newest_first: list[str] = []
    for position in range(1, count + 1):
        status = "waiting" if position == count else "complete"
        newest_first.insert(0, await scene.sandbox.add_fax(_NUMBER, status=status, description=f"Fax {position}"))
        scene.progress.advance()
    await _read_pages(scene, newest_first)
    await _walk(scene, newest_first)
    return Done(
        count=count,
        thing="record",
        checked=(
            f"{-(-count // PAGE)} pages of at most {PAGE}, newest first",
            "a fax that arrives on the way costs and doubles none",
        ),
    )


async def _read_pages(scene: Scene, newest_first: list[str]) -> None:
    fax = scene.suite.fax
    for offset in range(0, len(newest_first), PAGE):
        page = (await fax.get_multiple_message_info(_NUMBER, offset)).message_detail
        expected = newest_first[offset : offset + PAGE]
        hold([message.message_handle for message in page] == expected, f"the page at offset {offset} holds others")
        scene.progress.advance(len(page))
    newest = (await fax.get_single_message_info(_NUMBER, newest_first[0])).message_detail
    hold(
        [(message.status, message.description) for message in newest]
        == [(FaxStatus.WAITING, f"Fax {len(newest_first)}")],
        "the newest fax is not the one that still waits",
    )


async def _walk(scene: Scene, newest_first: list[str]) -> None:
    walked: list[str | None] = []
    async with scene.suite.fax.iter_messages(_NUMBER) as messages:
        async for message in messages:
            if not walked:
                await scene.sandbox.add_fax(_NUMBER, description="arrives during the walk")
            walked.append(message.message_handle)
            scene.progress.advance()
    hold(
        walked == newest_first, f"the walk gives {len(walked)} records, not each of {len(newest_first)} once, in order"
    )
