"""What sending, forwarding, delivery status and registration really do."""

from __future__ import annotations

from datetime import date, timedelta

import directsuite as ds

from .scenario import ALICE, BOB, DOMAIN, NOON, Scenario, make_message

ADA = ds.IDProofedIndividualRESTful(
    first_name="Ada",
    last_name="Example",
    ssn4="1234",
    dob=date(1980, 2, 29),
    direct_username="ada",
    direct_password="first",
)


async def send(world: Scenario) -> None:
    path = world.folder / "report.xml"
    path.write_bytes(b"<report/>")
    full = ds.Message(
        subject="Grüße",
        body="<p>Hi</p>",
        html_body=True,
        recipients=[ds.Recipient(BOB), ds.Recipient("deliver@ok.test", ds.RecipientType.CC)],
        attachment_list=[
            ds.Attachment.from_path(path, content_type="text/xml"),
            ds.Attachment(content=bytes(range(256)), content_type="image/png", filename="a b.png"),
        ],
    )
    smtp_id = (await world.box.send(full)).smtp_id
    (arrived,) = await world.bob.get_messages()
    assert (arrived.msg_id, arrived.sender, arrived.subject) == (smtp_id, ALICE, "Grüße")
    assert (arrived.html_body, (arrived.body or "").strip()) == (True, "<p>Hi</p>")
    assert [(recipient.email, recipient.type) for recipient in arrived.recipients] == [
        (BOB, "TO"),
        ("deliver@ok.test", "CC"),
    ]
    assert [(part.filename, part.media_type, part.content) for part in arrived.attachments] == [
        ("report.xml", "text/xml", b"<report/>"),
        ("a b.png", "image/png", bytes(range(256))),
    ]
    assert await world.box.get_unread_message_count("INBOX.Sent") == 1


async def send_with_header(world: Scenario) -> None:
    headers = [ds.MessageHeader("X-Case", "7")]
    response = await world.box.send_with_header(
        ds.MessageWithHeader(subject="Case", recipients=[ds.Recipient(BOB)], headers=headers)
    )
    (arrived,) = await world.bob.get_messages()
    assert arrived.msg_id == response.smtp_id
    assert ("X-Case", "7") in {(header.name, header.value) for header in arrived.headers}


async def forward(world: Scenario) -> None:
    uids = await world.deliver("first", "second")
    response = await world.box.forward("INBOX", uids, [BOB])
    (arrived,) = await world.bob.get_messages()
    assert arrived.msg_id == response.smtp_id
    assert len(arrived.attachments) == 2
    assert b"Subject: first" in arrived.attachments[0].content
    assert await world.box.get_message_count("INBOX.Sent") == 1


async def send_with_tuser(world: Scenario) -> None:
    response = await world.tuser.send(make_message("From the desk"))
    (arrived,) = await world.bob.get_messages()
    assert (arrived.msg_id, arrived.sender) == (response.smtp_id, ALICE)
    assert await world.box.get_message_count("INBOX.Sent") == 1


async def send_with_header_with_tuser(world: Scenario) -> None:
    headers = [ds.MessageHeader("X-Desk", "1")]
    await world.tuser.send_with_header(ds.MessageWithHeader(recipients=[ds.Recipient(BOB)], headers=headers))
    (arrived,) = await world.bob.get_messages()
    assert ("X-Desk", "1") in {(header.name, header.value) for header in arrived.headers}


async def get_message_status(world: Scenario) -> None:
    smtp_id = (await world.box.send(make_message("Slow", BOB, "slow@ok.test", "nomdn@ok.test"))).smtp_id or ""
    before = await world.box.get_message_status(smtp_id)
    assert [(record.to, record.status) for record in before.records] == [
        (BOB, ds.MessageStatus.DELIVERED),
        ("slow@ok.test", ds.MessageStatus.WAITING),
        ("nomdn@ok.test", ds.MessageStatus.WAITING),
    ]
    assert {(record.from_, record.message_id, record.ts) for record in before.records} == {(ALICE, smtp_id, NOON)}
    world.sandbox.clock.advance(timedelta(hours=1))
    after = await world.box.get_message_status(smtp_id)
    assert [record.status for record in after.records] == ["Delivered", "Delivered", "NO MDN Received"]


async def get_message_statuses(world: Scenario) -> None:
    smtp_ids = [(await world.box.send(make_message(subject))).smtp_id or "" for subject in ("one", "two")]
    logs = await world.box.get_message_statuses(smtp_ids)
    world.sandbox.csv_above = 0
    csv = await world.box.get_message_statuses(smtp_ids)
    assert (logs.has_cv_data, csv.has_cv_data) == (False, True)
    assert [record.message_id for record in logs.records] == smtp_ids
    columns = ("from_", "to", "message_id", "message_size", "status", "ts")
    for of_csv, of_log in zip(csv.records, logs.records, strict=True):
        assert {name: getattr(of_csv, name) for name in columns} == {name: getattr(of_log, name) for name in columns}


async def get_message_status_with_tuser(world: Scenario) -> None:
    smtp_id = (await world.tuser.send(make_message())).smtp_id or ""
    (record,) = (await world.tuser.get_message_status(smtp_id)).records
    assert (record.from_, record.to, record.status) == (ALICE, BOB, "Delivered")


async def login(world: Scenario) -> None:
    first = await world.suite.registration.login()
    second = await world.suite.registration.login()
    assert first.session_id
    assert first.session_id != second.session_id


async def provision(world: Scenario) -> None:
    response = await world.suite.registration.provision_id_proofed_patient(DOMAIN, ADA)
    (user,) = response.users
    assert (user.username, user.first_name, user.user_type, user.user_state) == ("ada", "Ada", "SMTP", "activated")
    payment = response.payment_confirmation
    assert payment is not None
    assert (payment.amount, payment.order_time) == (12.0, NOON)
    assert [product.start_date for product in payment.products] == [NOON.date()]
    assert await world.suite.mailbox(f"ada@{DOMAIN}", "first").get_message_count() == 0
    assert len(await world.list_effects("ProvisionIDProofedPatient")) == 1


async def get_patient_address_by_meta(world: Scenario) -> None:
    await world.suite.registration.provision_id_proofed_patient(DOMAIN, ADA)
    by_id = await world.suite.registration.get_patient_address_by_meta(DOMAIN, ds.IDProofedIndividual(id=7))
    by_name = await world.suite.registration.get_patient_address_by_meta(
        DOMAIN, ds.IDProofedIndividual(first_name="Ada", last_name="Example", ssn4="1234", dob="1980-02-29")
    )
    assert [user.username for user in by_id] == ["ada"]
    assert by_name == by_id


async def get_patient_address_by_username(world: Scenario) -> None:
    provisioned = await world.suite.registration.provision_id_proofed_patient(DOMAIN, ADA)
    assert await world.suite.registration.get_patient_address_by_username(DOMAIN, "ada") == provisioned.users


async def set_patients_passwords(world: Scenario) -> None:
    await world.suite.registration.provision_id_proofed_patient(DOMAIN, ADA)
    await world.suite.registration.set_patients_passwords(DOMAIN, [ds.UserPassword("ada", "second")])
    assert await world.suite.mailbox(f"ada@{DOMAIN}", "second").get_message_count() == 0


EXERCISES = {
    "Send": send,
    "SendWithHeader": send_with_header,
    "Forward": forward,
    "SendWithTuser": send_with_tuser,
    "SendWithHeaderWithTuser": send_with_header_with_tuser,
    "GetMessageStatus": get_message_status,
    "GetMessageStatusMany": get_message_statuses,
    "GetMessageStatusWithTuser": get_message_status_with_tuser,
    "login": login,
    "ProvisionIDProofedPatient": provision,
    "GetPatientAddressByMeta": get_patient_address_by_meta,
    "GetPatientAddressByUsername": get_patient_address_by_username,
    "SetPatientsPasswords": set_patients_passwords,
}
