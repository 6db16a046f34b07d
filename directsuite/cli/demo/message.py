"""Step two: a message with a clinical document and a PDF, followed until nothing more can become of it.

recipient                at once     after 31 minutes   61 minutes        121 minutes
the patient, here        Delivered   Delivered          Delivered         Delivered
confirms in 30 minutes   Waiting     Delivered          Delivered         Delivered
confirms in 2 hours      Waiting     Waiting            NO MDN Received   Delivered
never confirms           Waiting     Waiting            NO MDN Received   NO MDN Received
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from directsuite.cli.demo import clinical
from directsuite.cli.demo.outcome import Done
from directsuite.cli.demo.pdf import Form, consent_form
from directsuite.cli.demo.scene import CLINIC, MAILBOX_PASSWORD, PATIENT, Scene, hold
from directsuite.messaging.models import Attachment, Message, MessageStatus, Recipient, RecipientType

if TYPE_CHECKING:
    from pathlib import Path

    from directsuite.messaging.service import Mailbox

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


async def run(scene: Scene) -> Done:
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
            Attachment(content=clinical.summary(), content_type="text/xml", filename="visit-summary.xml"),
            Attachment(content=consent_form(Form.numbered(1)), content_type="application/pdf", filename="consent.pdf"),
        ],
    )


async def _follow(scene: Scene, clinic: Mailbox, smtp_id: str) -> None:
    elapsed = 0
    for minutes, expected in _COURSE:
        scene.pass_time(minutes=minutes)
        elapsed += minutes
        records = (await clinic.get_message_status(smtp_id)).records
        found = {record.to: record.status for record in records}
        wanted = {recipient.email: status for recipient, status in zip(_RECIPIENTS, expected, strict=True)}
        hold(found == wanted, f"after {elapsed} minutes the statuses are {_texts(found)}, not {_texts(wanted)}")
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
    clinical.check(received.attachments[0].content)
    async with inbox.iter_raw() as listing:
        raw = [stored async for stored in listing]
    hold(len(raw) == 1 and raw[0].to_email()["Subject"] == message.subject, "the raw message is another one")
    file = scene.output / "messages" / "visit-summary.eml"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(raw[0].data or b"")
    return file
