"""Arguments that the facades reject before a request, and the parameter that the error names."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import directsuite as ds
from directsuite.messaging.arguments import RESERVED_FOLDERS
from tests.fake_services import ALICE, BOB, DOMAIN, FakeServices

AWARE, NAIVE = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 1)  # noqa: DTZ001  what is refused
TO_BOB = [ds.Recipient(BOB)]
SIGNATURE = ds.Signature(name="PatientSig")

UNTYPED: Any = None

OnBox = Callable[[ds.Mailbox], Awaitable[Any]]
OnTUser = Callable[[ds.TUser], Awaitable[Any]]
OnSuite = Callable[[ds.DirectSuite], Any]


def message(recipient: str = BOB, sender: str | None = None) -> ds.Message:
    return ds.Message(sender=sender, recipients=[ds.Recipient(recipient)])


def with_headers(recipient: str = BOB, sender: str | None = None, *headers: ds.MessageHeader) -> ds.MessageWithHeader:
    return ds.MessageWithHeader(sender=sender, recipients=[ds.Recipient(recipient)], headers=list(headers))


def calling(name: str, *arguments: Any) -> OnBox:
    return lambda box: getattr(box, name)(*arguments)


def listing(name: str, **arguments: Any) -> OnSuite:
    return lambda suite: getattr(suite.mailbox(ALICE, "secret"), name)(**arguments)


INVALID_ADDRESSES = {
    "empty": "",
    "no at": "bob",
    "two ats": f"bob@x@{DOMAIN}",
    "no local part": f"@{DOMAIN}",
    "no domain": "bob@",
    "line feed": f"bob@{DOMAIN}\nBcc: eve@{DOMAIN}",
    "carriage return": f"bob\r@{DOMAIN}",
    "null": f"bob\0@{DOMAIN}",
}

ADDRESSED: dict[str, tuple[str, Callable[[ds.DirectSuite, str], Any]]] = {
    "mailbox": ("username", lambda suite, address: suite.mailbox(address, "secret")),
    "tuser": ("direct_addr", lambda suite, address: suite.tuser("front-desk", "secret", address)),
    "send": ("recipients[0]", lambda suite, address: suite.mailbox(ALICE, "secret").send(message(address))),
    "send_with_header": (
        "recipients[0]",
        lambda suite, address: suite.mailbox(ALICE, "secret").send_with_header(with_headers(address)),
    ),
    "forward to an address": (
        "recipients[0]",
        lambda suite, address: suite.mailbox(ALICE, "secret").forward("INBOX", [1], [address]),
    ),
    "forward to a Recipient": (
        "recipients[0]",
        lambda suite, address: suite.mailbox(ALICE, "secret").forward("INBOX", [1], [ds.Recipient(address)]),
    ),
    "tuser.send": ("recipients[0]", lambda suite, address: suite.tuser("t", "secret", ALICE).send(message(address))),
    "tuser.send_with_header": (
        "recipients[0]",
        lambda suite, address: suite.tuser("t", "secret", ALICE).send_with_header(with_headers(address)),
    ),
}

# Where each call refuses, and why: (parameter, call).
INVALID_FOR_MAILBOX: dict[str, tuple[str, OnBox]] = {
    "sender of send": ("sender", lambda box: box.send(message(sender=BOB))),
    "empty sender": ("sender", lambda box: box.send(message(sender=""))),
    "sender of send_with_header": ("sender", lambda box: box.send_with_header(with_headers(sender=BOB))),
    "no recipients": ("recipients", lambda box: box.send(ds.Message())),
    "line break in a header's name": (
        "headers",
        lambda box: box.send_with_header(with_headers(BOB, None, ds.MessageHeader("X-A\n", "b"))),
    ),
    "line break in a header's value": (
        "headers",
        lambda box: box.send_with_header(with_headers(BOB, None, ds.MessageHeader("X-A", "b\r\nBcc: c"))),
    ),
    "header without a name": (
        "headers",
        lambda box: box.send_with_header(with_headers(BOB, None, ds.MessageHeader("", "b"))),
    ),
    "missing attachment": (
        "attachment_list[0]",
        lambda box: box.send(
            ds.Message(recipients=TO_BOB, attachment_list=[ds.Attachment.from_path("/nowhere/file.pdf")])
        ),
    ),
    **{
        f"{call} of {given!r}": (parameter, calling(call, *arguments))
        for call, parameter, given, arguments in cast(
            "tuple[tuple[str, str, object, tuple[object, ...]], ...]",
            (
                ("send", "message", None, (None,)),
                ("send_with_header", "message", {}, ({},)),
                ("send_once", "message", None, (None,)),
                ("send", "recipients", [None], (ds.Message(recipients=[UNTYPED]),)),
                ("send", "recipients", [BOB], (ds.Message(recipients=[cast("Any", BOB)]),)),
                ("send", "recipients[0]", "Recipient(None)", (ds.Message(recipients=[ds.Recipient(UNTYPED)]),)),
                ("send", "sender", 5, (ds.Message(sender=cast("Any", 5), recipients=TO_BOB),)),
                ("send", "attachment_list", [None], (ds.Message(recipients=TO_BOB, attachment_list=[UNTYPED]),)),
                ("send_with_header", "headers", [None], (ds.MessageWithHeader(recipients=TO_BOB, headers=[UNTYPED]),)),
                ("forward", "recipients", [None], ("INBOX", [1], [None])),
                *(("forward", "recipients", each, ("INBOX", [1], each)) for each in (5, [5], BOB)),
                *(
                    ("get_messages_by_uids", "uids", each, ("INBOX", each))
                    for each in (None, 5, [5.0], ["5"], [True], [-1])
                ),
                ("create_folder", "folder", "INBOXReferrals", ("INBOXReferrals",)),
                ("create_folder", "folder", None, (None,)),
                ("delete_folder", "folder", None, (None,)),
                ("move_folder", "new_folder", None, ("INBOX.a", None)),
                ("save_raw_messages", "messages", [None], ("INBOX", [None])),
                ("set_folders_subscribed", "folders", None, (None, True)),
                (
                    "get_messages_by_received_date",
                    "end",
                    "before begin",
                    ("INBOX", AWARE, AWARE - timedelta(seconds=1)),
                ),
                ("get_messages_by_received_date", "begin", "a text", ("INBOX", "2026-05-01", None)),
            ),
        )
    },
    "since without a key": ("key", lambda box: box.send_once(message(), since=AWARE)),
    "empty key": ("key", lambda box: box.send_once(message(), key="")),
    "key that is no text": ("key", lambda box: box.send_once(message(), key=cast("Any", 5))),
    "key without UTF-8": ("key", lambda box: box.send_once(message(), key="patient-\ud800")),
    "naive since": ("since", lambda box: box.send_once(message(), key="k", since=NAIVE)),
    "negative settle": ("settle", lambda box: box.send_once(message(), key="k", settle=-1.0)),
    "endless settle": ("settle", lambda box: box.send_once(message(), key="k", settle=10**400)),
    "settle as text": ("settle", lambda box: box.send_once(message(), key="k", settle=cast("Any", "30"))),
    "timeout of a send_once": ("timeout", lambda box: box.send_once(message(), key="k", timeout=0.0)),
    "forward nothing": ("uids", lambda box: box.forward("INBOX", [], [BOB])),
    "negative uid": ("uids", lambda box: box.get_messages_by_uids("INBOX", [1, -1])),
    "uid beyond a long": ("uids", lambda box: box.delete_messages_by_uids("INBOX", [2**63])),
    "empty Message-ID": ("smtp_id", lambda box: box.get_message_status("")),
    "empty Message-ID among others": ("smtp_ids", lambda box: box.get_message_statuses(["<m@x>", ""])),
    "empty folder": ("folder", lambda box: box.get_message_count("")),
    "folder that is a dot": ("folder", lambda box: box.get_uids(".")),
    "folder that is two dots": ("folder", lambda box: box.iter_raw("..").__anext__()),
    "empty folder with nothing to do": ("folder", lambda box: box.get_messages_by_uids("", [])),
    "empty destination": ("dest_folder", lambda box: box.copy_messages_by_uids("INBOX", "", [1])),
    "empty folder to subscribe to": ("folders", lambda box: box.set_folders_subscribed(["INBOX.a", ""], True)),
    "empty sender to look for": ("sender", lambda box: box.get_messages_by_sender("INBOX", "")),
    "empty subject to look for": ("subject", lambda box: box.get_messages_by_subject("INBOX", "")),
    "raw message without data": ("messages", lambda box: box.save_raw_messages("INBOX", [ds.RawMessage(uid=1)])),
    **{
        f"create {folder}": ("folder", calling("create_folder", folder))
        for folder in (*RESERVED_FOLDERS, "inbox.sent", "Archive", "INBOX.", "INBOX", "XINBOX.a", "")
    },
    **{
        f"rename {folder}": ("folder", calling("move_folder", folder, "INBOX.new"))
        for folder in (*RESERVED_FOLDERS, "Inbox.Spam")
    },
    **{
        f"rename to {folder}": ("new_folder", calling("move_folder", "INBOX.a", folder))
        for folder in (*RESERVED_FOLDERS, "Archive", "INBOX.")
    },
    **{f"delete {folder}": ("folder", calling("delete_folder", folder)) for folder in (*RESERVED_FOLDERS, "inbox")},
    "naive begin": ("begin", lambda box: box.get_messages_by_received_date("INBOX", NAIVE, AWARE)),
    "naive end": ("end", lambda box: box.get_messages_by_received_date("INBOX", AWARE, NAIVE)),
    "naive begin in UTC": ("begin", lambda box: box.get_messages_by_received_date_utc("INBOX", NAIVE, None)),
    "naive end in UTC": ("end", lambda box: box.get_messages_by_received_date_utc("INBOX", None, NAIVE)),
    "naive begin of metadata": (
        "begin",
        lambda box: box.search_messages_metadata_by_received_date("INBOX", NAIVE, None),
    ),
    "naive end of metadata in UTC": (
        "end",
        lambda box: box.search_messages_metadata_by_received_date_utc("INBOX", None, NAIVE),
    ),
}

INVALID_FOR_TUSER: dict[str, tuple[str, OnTUser]] = {
    "sender is the T-User": ("sender", lambda tuser: tuser.send(message(sender="front-desk"))),
    "sender is another": ("sender", lambda tuser: tuser.send_with_header(with_headers(sender=BOB))),
    "empty Message-ID": ("smtp_id", lambda tuser: tuser.get_message_status("")),
}

# Not awaited: refused at the call itself.
INVALID_AT_THE_CALL: dict[str, tuple[str, OnSuite]] = {
    "limit that is no number": ("limit", lambda suite: suite.fax.iter_messages("15550100100", limit=cast("Any", "5"))),
    "limit": ("limit", lambda suite: suite.fax.iter_messages("15550100100", limit=0)),
    "negative limit": ("limit", lambda suite: suite.fax.iter_messages("15550100100", limit=-1)),
    "fax number of a listing": ("fax_number", lambda suite: suite.fax.iter_messages("")),
    **{f"batch_size of {name}": ("batch_size", listing(name, batch_size=0)) for name in ("iter_messages", "iter_raw")},
    **{
        f"folder of {name}": ("folder", listing(name, folder=""))
        for name in ("iter_messages", "iter_raw", "iter_metadata", "stream_messages")
    },
}

INVALID_FOR_OTHERS: dict[str, tuple[str, OnSuite]] = {
    "bytes that are no PDF": ("pdf", lambda suite: suite.signing.save(b"PK\x03\x04")),
    "no bytes": ("pdf", lambda suite: suite.signing.save(b"")),
    "file that is no PDF": ("pdf", lambda suite: suite.signing.save(Path(__file__))),
    "missing file": ("pdf", lambda suite: suite.signing.save("/nowhere/consent.pdf")),
    "folder for a file": ("pdf", lambda suite: suite.signing.save("/")),
    "empty identifier": ("identifier", lambda suite: suite.signing.get_doc("")),
    "document without identifier": ("identifier", lambda suite: suite.signing.delete(ds.DocumentUpdate())),
    "identifier that is two dots": ("identifier", lambda suite: suite.signing.flatten("..")),
    "no identifier": ("identifier", lambda suite: suite.signing.get_doc(UNTYPED)),
    "identifier that is another answer": (
        "identifier",
        lambda suite: suite.signing.get_doc_info(cast("Any", ds.Widget(page=1))),
    ),
    "no signature": ("signature", lambda suite: suite.signing.sign("d1", UNTYPED)),
    "signature that is a dict": ("signature", lambda suite: suite.signing.sign_and_pull("d1", cast("Any", {}))),
    "signatures that are none": ("signatures", lambda suite: suite.signing.multi_sign("d1", [UNTYPED])),
    "None for signatures": ("signatures", lambda suite: suite.signing.multi_sign_and_pull("d1", UNTYPED)),
    "offset that is no number": (
        "offset",
        lambda suite: suite.fax.get_multiple_message_info("15550100100", cast("Any", "1")),
    ),
    "no signatures": ("signatures", lambda suite: suite.signing.multi_sign("d1", [])),
    "no signatures to pull": ("signatures", lambda suite: suite.signing.multi_sign_and_pull("d1", ())),
    "destination in no folder": ("destination", lambda suite: suite.signing.download("d1", "/nowhere/d1.pdf")),
    "destination that is a folder": (
        "destination",
        lambda suite: suite.signing.sign_and_pull("d1", SIGNATURE, destination="/"),
    ),
    "negative offset": ("offset", lambda suite: suite.fax.get_multiple_message_info("15550100100", -1)),
    "empty handle": ("message_handle", lambda suite: suite.fax.get_single_message_info("15550100100", "")),
    "half a person": (
        "individual",
        lambda suite: suite.registration.get_patient_address_by_meta(
            DOMAIN, ds.IDProofedIndividual(first_name="Ada", last_name="Example", dob=date(1980, 2, 29))
        ),
    ),
    "half a person to provision": (
        "individual",
        lambda suite: suite.registration.provision_id_proofed_patient(
            DOMAIN, ds.IDProofedIndividualRESTful(direct_username="ada")
        ),
    ),
    "empty domain": ("direct_domain", lambda suite: suite.registration.get_patient_address_by_username("", "ada")),
    "empty Direct username": (
        "direct_username",
        lambda suite: suite.registration.get_patient_address_by_username(DOMAIN, ""),
    ),
    "no passwords": ("passwords", lambda suite: suite.registration.set_patients_passwords(DOMAIN, [])),
}


async def assert_rejected(call: Callable[[], Any], parameter: str, context: FakeServices) -> None:
    with pytest.raises(ds.InvalidArgumentError, match=f"^{re.escape(parameter)}: ") as caught:
        await call()
    assert isinstance(caught.value, ValueError)
    assert caught.value.parameter == parameter
    assert context.requests_by_url == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("address", INVALID_ADDRESSES.values(), ids=INVALID_ADDRESSES)
@pytest.mark.parametrize(("parameter", "call"), ADDRESSED.values(), ids=ADDRESSED)
async def test_invalid_address_is_rejected(
    parameter: str,
    call: Callable[[ds.DirectSuite, str], Any],
    address: str,
    services: FakeServices,
    suite: ds.DirectSuite,
) -> None:
    await assert_rejected(lambda: call(suite, address), parameter, services)


@pytest.mark.parametrize(("parameter", "call"), INVALID_FOR_MAILBOX.values(), ids=INVALID_FOR_MAILBOX)
async def test_mailbox_rejects(parameter: str, call: OnBox, services: FakeServices, box: ds.Mailbox) -> None:
    await assert_rejected(lambda: call(box), parameter, services)


@pytest.mark.parametrize(("parameter", "call"), INVALID_FOR_TUSER.values(), ids=INVALID_FOR_TUSER)
async def test_tuser_rejects(parameter: str, call: OnTUser, services: FakeServices, suite: ds.DirectSuite) -> None:
    await assert_rejected(lambda: call(suite.tuser("front-desk", "secret", ALICE)), parameter, services)


@pytest.mark.parametrize(("parameter", "call"), INVALID_FOR_OTHERS.values(), ids=INVALID_FOR_OTHERS)
async def test_signing_fax_and_registration_reject(
    parameter: str, call: OnSuite, services: FakeServices, suite: ds.DirectSuite
) -> None:
    await assert_rejected(lambda: call(suite), parameter, services)


@pytest.mark.parametrize(("parameter", "call"), INVALID_AT_THE_CALL.values(), ids=INVALID_AT_THE_CALL)
async def test_listing_rejects_at_the_call(
    parameter: str, call: OnSuite, services: FakeServices, suite: ds.DirectSuite
) -> None:
    with pytest.raises(ds.InvalidArgumentError) as caught:
        call(suite)
    assert caught.value.parameter == parameter
    assert services.requests_by_url == []
