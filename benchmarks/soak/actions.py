"""The actions of the load: reads, listings, sending, folders, documents, faxes and patients."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import attrs

import directsuite as ds
from directsuite.core.iteration import Listing
from directsuite.sandbox.samples import DOMAIN, FAX_NUMBER, MAILBOX_LOGIN, MAILBOXES, TUSER

ALICE, BOB = MAILBOXES
_INBOX = "INBOX"
_ATTACHMENT_BYTES, _PIECE_BYTES = 60_000, 1_000
_PATIENT = ds.Signature(name="PatientSignature", reason="I agree", gs_name="Ada Example", timezone="America/New_York")
_WITNESS = ds.Signature(
    name="Witness", widget=ds.Widget(x=72, y=300, width=200, height=60, page=1), reason="Seen", gmt_offset=-5
)


@attrs.frozen(kw_only=True)
class ActionContext:
    """A suite and the test data. form: a PDF with fields; form_file: the same as a file, in a folder for downloads."""

    suite: ds.DirectSuite
    rng: random.Random
    form: bytes
    form_file: Path

    @property
    def alice(self) -> ds.Mailbox:
        """The mailbox that sends and reads."""
        return self.suite.mailbox(ALICE, MAILBOX_LOGIN)

    @property
    def bob(self) -> ds.Mailbox:
        """The mailbox that receives, and whose folders change."""
        return self.suite.mailbox(BOB, MAILBOX_LOGIN)

    def make_name(self) -> str:
        """Return a unique name."""
        return f"{self.rng.getrandbits(64):016x}"


Action = Callable[[ActionContext], Awaitable[object]]

_READS: tuple[Callable[[ds.Mailbox], Awaitable[object]], ...] = (
    lambda box: box.get_message_count(),
    lambda box: box.get_messages(),
    lambda box: box.get_unread_messages(),
    lambda box: box.get_message_metadata(),
    lambda box: box.get_folders(subscribed_only=True),
    lambda box: box.get_messages_by_received_date(_INBOX, None, datetime.now(UTC)),
    lambda box: box.get_messages_by_sender(_INBOX, BOB),
    lambda box: box.get_message_statuses(["<1@direct.example.test>"] * 120),
)


async def read(context: ActionContext) -> None:
    await context.rng.choice(_READS)(context.alice)


async def mark(context: ActionContext) -> None:
    uids = (await context.alice.get_uids())[:4]
    await context.alice.get_messages_by_uids(_INBOX, uids)
    await context.alice.mark_messages_as_read_by_uids(_INBOX, uids)
    await context.alice.mark_messages_as_unread_by_uids(_INBOX, uids)


async def list_messages(context: ActionContext) -> None:
    """Read a listing to its end, or leave it early, by its context manager or by closing the generator."""
    box, batch = context.alice, context.rng.choice((1, 3, 50))
    listings: tuple[Callable[[], Listing[Any]], ...] = (
        lambda: box.iter_messages(batch_size=batch),
        lambda: box.iter_raw(batch_size=batch),
        box.iter_metadata,
        box.stream_messages,
        lambda: context.suite.fax.iter_messages(FAX_NUMBER),
    )
    messages, leave_after = context.rng.choice(listings)(), context.rng.choice((1, 3, 5, 10**9, 10**9))
    delay = context.rng.choice((0, 0, 0, 0.005))
    async with messages if context.rng.random() < 0.5 else aclosing(messages):
        async for _ in messages:
            await asyncio.sleep(delay)
            leave_after -= 1
            if not leave_after:
                break


_SENDERS: tuple[Callable[[ActionContext, ds.Message], Awaitable[object]], ...] = (
    lambda context, message: context.alice.send(message),
    lambda context, message: context.alice.send_once(message, key=context.make_name(), settle=1.0),
    lambda context, message: context.suite.tuser(*TUSER, ALICE).send(message),
)


async def send(context: ActionContext) -> None:
    attached = list[ds.Attachment]()
    if context.rng.random() < 0.3:
        content = context.rng.randbytes(_ATTACHMENT_BYTES)
        attached.append(ds.Attachment(content=content, content_type="image/png", filename="scan.png"))
        attached.append(ds.Attachment.from_path(context.form_file))
    recipients = [ds.Recipient(BOB), ds.Recipient(f"carol@{DOMAIN}", ds.RecipientType.CC)]
    message = ds.Message(subject="Soak", body="See the files.", recipients=recipients, attachment_list=attached)
    await context.rng.choice(_SENDERS)(context, message)


async def forward(context: ActionContext) -> None:
    if uids := (await context.alice.get_uids())[:2]:
        await context.alice.forward(_INBOX, uids, [BOB])


async def change_folders(context: ActionContext) -> None:
    box, verify = context.bob, context.rng.random() < 0.5
    folder, renamed = f"INBOX.{context.make_name()}", f"INBOX.{context.make_name()}"
    await box.create_folder(folder)
    uids = (await box.get_uids())[:3]
    await box.copy_messages_by_uids(_INBOX, folder, uids, verify=verify)
    await box.save_raw_messages(folder, await box.get_raw_messages_by_uids(_INBOX, uids), verify=verify)
    await box.move_messages_by_uids(_INBOX, folder, uids[:1])
    await box.move_folder(folder, renamed)
    await box.delete_folder(renamed)
    await box.delete_messages_by_uids(_INBOX, (await box.get_uids())[12:], forever=True)


async def store_document(context: ActionContext) -> None:
    signing, document = context.suite.signing, await _save_document(context)
    assert (await signing.get_doc_info(document)).document_digest == document.document_digest
    assert await signing.get_doc(document) == context.form
    await signing.download(document, context.form_file.with_name("downloaded.pdf"))
    await signing.delete(document)


async def change_document(context: ActionContext) -> None:
    signing, document = context.suite.signing, await _save_document(context)
    path = context.rng.choice((None, context.form_file.with_name("signed.pdf")))
    changes: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: signing.sign(document, _PATIENT),
        lambda: signing.multi_sign_and_pull(document, (_PATIENT, _WITNESS), destination=path),
        lambda: signing.flatten_and_pull(document, destination=path),
    )
    await context.rng.choice(changes)()


async def register_patient(context: ActionContext) -> None:
    registration, username = context.suite.registration, f"p{context.make_name()}"
    ada: dict[str, Any] = {"first_name": "Ada", "last_name": "Example", "ssn4": "1234", "dob": date(1980, 2, 29)}
    patient = ds.IDProofedIndividualRESTful(**ada, direct_username=username, direct_password="first")
    await registration.provision_id_proofed_patient(DOMAIN, patient)
    found = await registration.get_patient_address_by_username(DOMAIN, username)
    assert [user.username for user in found] == [username]
    await registration.set_patients_passwords(DOMAIN, [ds.UserPassword(username, "second")])


ACTIONS: tuple[tuple[int, Action], ...] = (
    (16, read),
    (6, mark),
    (20, list_messages),
    (14, send),
    (2, forward),
    (4, change_folders),
    (5, store_document),
    (6, change_document),
    (6, register_patient),
)
"""The actions with their relative frequencies."""


async def _save_document(context: ActionContext) -> ds.StoredDocument:
    sources = (lambda: context.form, lambda: context.form_file, lambda: _yield_pieces(context.form))
    return await context.suite.signing.save(context.rng.choice(sources)())


async def _yield_pieces(content: bytes) -> AsyncGenerator[bytes]:
    for start in range(0, len(content), _PIECE_BYTES):
        yield content[start : start + _PIECE_BYTES]
