"""The public face as a typed program uses it: read by mypy and pyright, never run."""

from __future__ import annotations

import email.message
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime
from io import BytesIO
from pathlib import Path
from typing import assert_type

import tenacity

import directsuite as ds
import directsuite.types as dt
from directsuite.sandbox import Profiles, Sandbox
from directsuite.sync import Change, ChangeStream, MailboxStatus, MessageState, StoreSink, Synchronizer, Transaction
from directsuite.sync.fleet import Fleet, FleetStatus
from directsuite.sync.postgres import PostgresSink, PostgresStore


async def token() -> str:
    return "token"


async def access_token() -> ds.AccessToken:
    return ds.AccessToken("token", expires_in=3600.0)


async def pieces() -> AsyncIterator[bytes]:
    yield b"%PDF-1.7"


async def write(piece: bytes) -> None:
    assert piece


def progress(done: int, total: int | None) -> None:
    assert total is None or done <= total


def settings() -> None:
    assert_type(ds.Settings(), ds.Settings)
    assert_type(ds.Settings.from_env(), ds.Settings)
    assert_type(ds.Settings.from_toml(Path("directsuite.toml")), ds.Settings)
    policy = ds.RetryPolicy(attempts=2, wait=tenacity.wait_fixed(1), stop=tenacity.stop_after_delay(10))
    assert_type(ds.RetryPolicy.none(), ds.RetryPolicy)
    ds.Settings(signing_url="https://signing.example.test", fax_url=None, timeout=60, max_connections=5, retry=policy)


async def suites() -> None:
    for source in ("token", ds.Secret("token"), token, access_token):
        ds.DirectSuite(ds.Settings(), token=source)
    assert_type(ds.DirectSuite.from_env(), ds.DirectSuite)
    suite = ds.DirectSuite(ds.Settings(), None, ds.Login("reseller", ds.Secret("password")))
    async with suite as opened:
        assert_type(opened, ds.DirectSuite)
        assert_type(opened.signing, ds.Signing)
        assert_type(opened.fax, ds.Fax)
        assert_type(opened.registration, ds.Registration)
        assert_type(opened.mailbox("alice@direct.example.test", "password"), ds.Mailbox)
        assert_type(opened.tuser("t-user", "password", "alice@direct.example.test"), ds.TUser)
        assert_type(opened.signing.with_options(timeout=1.0, retry=ds.RetryPolicy.none()), ds.Signing)
        assert_type(opened.with_options(timeout=1.0, retry=ds.RetryPolicy.none()), ds.DirectSuite)
        assert_type(ds.DirectSuite.from_env(timeout=1.0, settle=0, converter=ds.make_converter()), ds.DirectSuite)
    await suite.aclose()
    await suite.aclose(grace=1.0)


async def signing(signing: ds.Signing) -> None:
    stored = await signing.save(b"%PDF-1.7")
    assert_type(stored, ds.StoredDocument)
    assert_type(stored.identifier, str)
    assert_type(stored.created_time, datetime | None)
    await signing.save("file.pdf")
    await signing.save(Path("file.pdf"), timeout=5.0)
    await signing.save(pieces())
    assert_type(await signing.get_doc(stored), bytes)
    assert_type(await signing.download("d1", Path("file.pdf")), Path)
    file = BytesIO()
    await signing.save(file, progress=progress)
    assert_type(await signing.download("d1", file, sha256="00"), BytesIO)
    assert_type(await signing.sign_and_pull("d1", ds.Signature(name="a"), destination=file), BytesIO)
    assert_type(await signing.download("d1", write, progress=progress, max_bytes=10**8), int)
    assert_type(await signing.flatten_and_pull("d1", destination=write), int)
    async for piece in signing.stream_doc("d1"):
        assert_type(piece, bytes)
    assert_type((await signing.get_doc_info("d1")).signatures, list[ds.DocumentSignature])
    update = await signing.flatten(stored)
    signature = ds.Signature(name="approval", widget=ds.Widget(x=1, y=2.5, width=3, height=4, page=1), gmt_offset=0)
    assert_type(await signing.multi_sign(update, (signature,)), ds.DocumentUpdate)
    assert_type(await signing.flatten_and_pull("d1"), bytes)
    assert_type(await signing.flatten_and_pull("d1", destination="file.pdf"), Path)
    assert_type(await signing.clear_unsigned_fields_and_pull("d1"), bytes)
    assert_type(await signing.clear_unsigned_fields_and_pull("d1", destination="file.pdf"), Path)
    assert_type(await signing.sign_and_pull("d1", signature), bytes)
    assert_type(await signing.sign_and_pull("d1", signature, destination="file.pdf"), Path)
    assert_type(await signing.multi_sign_and_pull("d1", [signature]), bytes)
    assert_type(await signing.multi_sign_and_pull("d1", [signature], destination=Path("file.pdf")), Path)
    assert_type(await signing.sign_pdf("file.pdf", signature), bytes)
    assert_type(await signing.sign_pdf(b"%PDF-1.7", [signature], timeout=5.0), bytes)
    assert_type(await signing.sign_pdf(Path("file.pdf"), (each for each in [signature]), "signed.pdf"), Path)
    assert_type(await signing.sign_pdf(pieces(), signature, file), BytesIO)
    assert_type(await signing.sign_pdf(pieces(), signature, destination=write, settle=5.0), int)
    assert_type(await signing.sign(stored, signature, settle=0), ds.DocumentUpdate)
    assert_type(await signing.flatten_and_pull(stored, settle=5.0), bytes)
    assert_type(await signing.flatten_and_pull(stored, destination=Path("file.pdf"), settle=5.0, max_bytes=9), Path)
    async with signing.stored(pieces(), timeout=5.0) as document:
        assert_type(document, ds.StoredDocument)
    raw = await signing.with_raw_response.get_doc_info("d1")
    assert_type(raw.status, int)
    assert_type(raw.elapsed, float)
    assert_type(raw.attempts, int)


async def fax(fax: ds.Fax) -> None:
    async for message in fax.iter_messages("+15550100", limit=5):
        assert_type(message, ds.FaxMessage)
        assert_type(message.status, ds.FaxStatus | None)
        assert_type(message.updated_ts, datetime | None)
        assert_type(message.recipients, list[ds.FaxRecipient])
    async with fax.watch("+15550100", interval=30, since=None, on_poll=lambda error, wait: None) as changes:
        assert_type(changes, ds.Listing[ds.FaxMessage])
    async with fax.iter_messages("+15550100") as messages:
        async for message in messages:
            assert_type(message, ds.FaxMessage)


async def sending(box: ds.Mailbox, tuser: ds.TUser, recipients: set[str]) -> None:
    message = ds.Message(
        sender="alice@direct.example.test",
        subject="s",
        body="b",
        html_body=False,
        recipients=[ds.Recipient("bob@direct.example.test"), ds.Recipient("c@d", type=ds.RecipientType.CC)],
        attachment_list=[
            ds.Attachment(content=b"x", content_type="a/b", filename="f"),
            ds.Attachment.from_path("ccd.xml"),
        ],
    )
    headers = ds.MessageWithHeader(recipients=message.recipients, headers=[ds.MessageHeader("X-A", "1")])
    assert_type(ds.Message.from_email(email.message.EmailMessage()), ds.Message)
    answer = await box.send(message)
    assert_type(answer, ds.SendMessageResponse)
    assert_type(answer.smtp_id, str)
    await box.forward("INBOX", (1,), [ds.Recipient("bob@direct.example.test"), "carol@direct.example.test"])
    await box.send(to="bob@direct.example.test", cc=["carol@direct.example.test"], body="text")
    await box.send(bcc=recipients, attachments=[Path("report.pdf"), "notes.txt", ds.Attachment(content=b"")])
    await tuser.send(to=("bob@direct.example.test",), subject="Referral")
    ds.Message(recipients=["bob@direct.example.test", ds.Recipient("carol@direct.example.test", "cc")])
    assert_type(message.recipients, list[ds.Recipient])
    status = await box.get_message_status("<1@x>")
    assert_type(status.records, list[ds.DirectMessageLog])
    assert_type(status.records[0].status, ds.MessageStatus | None)
    assert_type(status.records[0].ts, datetime | None)
    assert_type(status.csv_data, bytes | None)
    assert_type(await box.send_once(headers, key="referral-17", resend=True), ds.SendMessageResponse)
    delivery = await box.track("<1@x>", recipients=2, give_up_after=60, on_poll=lambda records, wait: None, timeout=5)
    assert_type(delivery, ds.Delivery)
    assert_type(delivery.delivered, bool)
    assert_type(delivery.records, Sequence[ds.DirectMessageLog])
    assert_type(await tuser.track("<1@x>"), ds.Delivery)


async def reading(box: ds.Mailbox) -> None:
    found = await box.get_messages_by_uids("INBOX", [1])
    assert_type(found, dt.MessageList[ds.MessageDetail])
    assert_type(found.missing_uids, list[int])
    plain: list[ds.MessageDetail] = found
    (detail,) = plain
    assert_type(detail, ds.MessageDetail)
    assert_type(detail.uid, int | None)
    assert_type(detail.received_date, datetime | None)
    assert_type(detail.attachments, list[ds.Attachment])
    assert_type(detail.attachments[0].content, bytes)
    assert_type(detail.attachments[0].media_type, str)
    (raw,) = await box.get_raw_messages_by_uids("INBOX", [1])
    assert_type(raw.data, bytes | None)
    assert_type(raw.to_email(), email.message.EmailMessage)
    async for message in box.iter_messages(limit=5, since=datetime.now(tz=UTC), newest_first=True, batch_size=10):
        assert_type(message, ds.MessageDetail)
    async for message in box.iter_metadata("INBOX"):
        assert_type(message, ds.MessageDetail)
    async for message in box.stream_messages("INBOX"):
        assert_type(message, ds.MessageDetail)
    async with box.iter_raw() as messages:
        async for raw_message in messages:
            assert_type(raw_message, ds.RawMessage)


async def registration(registration: ds.Registration) -> None:
    patient = ds.IDProofedIndividualRESTful(
        first_name="A", last_name="B", ssn4="0001", dob=date(1970, 1, 31), direct_username="a", direct_password="p"
    )
    added = await registration.provision_id_proofed_patient("direct.example.test", patient)
    assert_type(added.payment_confirmation, ds.PaymentConfirmation | None)


def failures(error: ds.DirectSuiteError) -> None:
    assert_type(error.operation, str | None)
    assert_type(error.call, int | None)
    assert_type(error.attempts, int)
    assert_type(error.elapsed, float)
    assert_type(error.outcome, ds.Outcome | None)
    match error:
        case ds.InvalidArgumentError():
            assert_type(error.parameter, str)
        case ds.OutcomeUnknownError():
            assert_type(error.how_to_find_out, str)
        case ds.RateLimitedError():
            assert_type(error.retry_after, float | None)
        case ds.ServiceError():
            assert_type(error.status, int)
            assert_type(error.code, int | str | None)
            assert_type(error.message, str | None)
        case ds.ResponseDecodeError():
            assert_type(error.path, str)
        case _:
            pass


class CallerFunctions:
    """Functions of a program that pass their arguments to the SDK."""

    def suite(
        self, token: dt.Token, session: dt.SessionFactory, wait: dt.Wait, stop: dt.Stop | None, clock: dt.Clock
    ) -> ds.DirectSuite:
        settings = ds.Settings(session_factory=session, retry=ds.RetryPolicy(wait=wait, stop=stop))
        return ds.DirectSuite(settings, token, clock=clock)

    async def save(self, signing: ds.Signing, pdf: dt.Source) -> dt.RawResponses:
        await signing.save(pdf)
        return signing.with_raw_response

    async def download(self, signing: ds.Signing, document: dt.Document, write: dt.PieceWriter) -> int:
        return await signing.download(document, write)

    async def write(self, signing: ds.Signing, document: dt.Document, file: dt.BinaryWriter) -> dt.BinaryWriter:
        return await signing.download(document, file)

    def attach(self, file: dt.BinaryReader) -> dt.Content | Path | None:
        return ds.Attachment.from_file(file).source

    def sandbox(self, profile: Profiles) -> Sandbox:
        return Sandbox(profile=profile)


class OwnSink:
    async def prepare(self, transaction: Transaction) -> None:
        await transaction.connection.execute("CREATE TABLE IF NOT EXISTS told (key text)")

    async def write(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        for change in changes:
            await transaction.connection.execute("INSERT INTO told VALUES (%s)", (str(change.key),))


async def synchronise(suite: ds.DirectSuite, fleet: Fleet, sync: Synchronizer) -> None:
    own: StoreSink = OwnSink()
    for sink in (own, PostgresSink()):
        async with PostgresStore("postgresql://", sink=sink) as store:
            known: Sequence[MailboxStatus] = await store.status()
            assert_type(known[0].folders[0].messages[MessageState.LIVE], int)
    assert_type(await fleet.status(), FleetStatus)
    async with sync.changes() as changes:
        assert_type(changes, ChangeStream)
