"""Arguments that the facades reject before a request, and the parameter that the error names."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import directsuite as ds
from directsuite.messaging.arguments import RESERVED_FOLDERS
from tests.fake_services import ALICE, BOB, DOMAIN, FakeServices

from . import OPERATIONS
from .case import OperationCase

AWARE, NAIVE = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 1)  # noqa: DTZ001  what is refused


Call = Callable[[ds.DirectSuite, ds.Mailbox, str], Any]


def message(recipient: Any = BOB, sender: Any = None, **members: Any) -> ds.Message:
    return ds.Message(sender=sender, recipients=[ds.Recipient(recipient)], **members)


def with_headers(recipient: Any = BOB, *headers: Any, sender: Any = None) -> ds.MessageWithHeader:
    return ds.MessageWithHeader(sender=sender, recipients=[ds.Recipient(recipient)], headers=list(headers))


INVALID_ADDRESSES = (
    *("", "bob", f"bob@x@{DOMAIN}", f"@{DOMAIN}", "bob@"),
    *(f"bob@{DOMAIN}\nBcc: eve@{DOMAIN}", f"bob\r@{DOMAIN}", f"bob\0@{DOMAIN}"),
)

ADDRESSED: dict[str, tuple[str, Call]] = {
    "mailbox": ("username", lambda suite, _, address: suite.mailbox(address, "secret")),
    "tuser": ("direct_addr", lambda suite, _, address: suite.tuser("front-desk", "secret", address)),
    "send": ("recipients[0]", lambda _, box, address: box.send(message(address))),
    "send_with_header": ("recipients[0]", lambda _, box, address: box.send_with_header(with_headers(address))),
    "forward": ("recipients[0]", lambda _, box, address: box.forward("INBOX", [1], [address])),
    "forward to Recipient": (
        "recipients[0]",
        lambda _, box, address: box.forward("INBOX", [1], [ds.Recipient(address)]),
    ),
    "tuser.send": ("recipients[0]", lambda suite, _, address: suite.tuser("t", "s", ALICE).send(message(address))),
    "tuser.send_with_header": (
        "recipients[0]",
        lambda suite, _, address: suite.tuser("t", "s", ALICE).send_with_header(with_headers(address)),
    ),
}

INVALID_VALUES: dict[str, tuple[Any, ...]] = {
    "begin": (NAIVE, "2026-05-01"),
    "end": (NAIVE, "2026-05-01", AWARE + timedelta(hours=12)),  # 123 milliseconds before `begin` of the rows
    "folders": (["INBOX.a", ""], None),
    "identifier": (None, ds.DocumentUpdate(), ds.Widget(page=1)),
    "message": (None, {}),
    "messages": ([None], [ds.RawMessage(uid=1)], None),
    "new_folder": (*RESERVED_FOLDERS, "Archive", "INBOX.", None),
    "offset": (-1, "1"),
    "passwords": ([], None),
    "recipients": ([None], 5, [5], BOB),
    "signature": (None, {}),
    "signatures": ([None], None, [], ()),
    "smtp_ids": (["<m@x>", ""], None),
    "uids": (None, 5, [5.0], ["5"], [True], [-1], [1, -1], [2**63]),
}
"""Values of a parameter that each operation rejects."""

PATH_TEXTS = ("", ".", "..")
"""Texts that each operation rejects in a path: servers and proxies resolve them, even percent-encoded."""

MAILBOX: list[tuple[str, str, tuple[Any, ...]]] = [
    *(("send", "sender", (message(sender=sender),)) for sender in (BOB, "", 5)),
    *(("send", "subject", (message(subject=subject),)) for subject in ("a\nb", "a\rb", "a\0b", 5, b"a")),
    *(("send", "body", (message(body=body),)) for body in (b"a", 5)),
    ("send_with_header", "sender", (with_headers(sender=BOB),)),
    ("send", "recipients", (ds.Message(),)),
    ("send", "recipients", (ds.Message(recipients=cast("Any", [None])),)),
    ("send", "recipients[0]", (message(None),)),
    *(
        ("send_with_header", "headers", (with_headers(BOB, header),))
        for header in (
            ds.MessageHeader("X-A\n", "b"),
            ds.MessageHeader("X-A", "b\r\nBcc: c"),
            ds.MessageHeader("", "b"),
            None,
        )
    ),
    ("send", "attachment_list[0]", (message(attachment_list=[ds.Attachment.from_path("/nowhere/file.pdf")]),)),
    ("send", "attachment_list", (message(attachment_list=[None]),)),
    *(
        ("send", "attachment_list", (message(attachment_list=[attachment]),))
        for attachment in (
            ds.Attachment(content=b"a", filename="a.txt"),
            ds.Attachment(content=b"a", content_type="text/plain"),
        )
    ),
    ("send_once", "message", (None,)),
    ("forward", "uids", ("INBOX", [], [BOB])),
    ("get_messages_by_uids", "folder", ("", [])),
    *(
        ("create_folder", "folder", (folder,))
        for folder in (
            *RESERVED_FOLDERS,
            *("inbox.sent", "Archive", "INBOX.", "INBOX", "XINBOX.a", "INBOXReferrals", "", None),
        )
    ),
    *(("move_folder", "folder", (folder, "INBOX.new")) for folder in (*RESERVED_FOLDERS, "Inbox.Spam")),
    *(("delete_folder", "folder", (folder,)) for folder in (*RESERVED_FOLDERS, "inbox", None)),
]
"""The method, the parameter that the error names, and the arguments."""

SEND_ONCE: list[tuple[str, dict[str, Any]]] = [
    ("key", {"since": AWARE}),
    *(("key", {"key": key}) for key in ("", 5, "patient-\ud800")),
    ("since", {"key": "k", "since": NAIVE}),
    *(("settle", {"key": "k", "settle": settle}) for settle in (-1.0, 10**400, "30")),
    ("timeout", {"key": "k", "timeout": 0.0}),
]

OTHERS: list[tuple[str, str, tuple[Any, ...]]] = [
    ("tuser.send", "sender", (message(sender="front-desk"),)),
    ("tuser.send_with_header", "sender", (with_headers(sender=BOB),)),
    *(
        ("signing.save", "pdf", (pdf,))
        for pdf in (b"PK\x03\x04", b"", Path(__file__), "/nowhere/consent.pdf", "/", "%PDF-1.7\n")
    ),
    ("signing.download", "destination", ("d1", "/nowhere/d1.pdf")),
    ("signing.download", "destination", ("d1", "/")),
    (
        "registration.get_patient_address_by_meta",
        "individual",
        (DOMAIN, ds.IDProofedIndividual(first_name="Ada", last_name="Example", dob=date(1980, 2, 29))),
    ),
    (
        "registration.provision_id_proofed_patient",
        "individual",
        (DOMAIN, ds.IDProofedIndividualRESTful(direct_username="ada")),
    ),
]

METHODS = [*((f"mailbox.{name}", parameter, arguments) for name, parameter, arguments in MAILBOX), *OTHERS]

LISTINGS: list[tuple[str, str, dict[str, Any]]] = [
    *(("fax.iter_messages", "limit", {"fax_number": "15550100100", "limit": limit}) for limit in (0, -1, "5")),
    ("fax.iter_messages", "fax_number", {"fax_number": ""}),
    ("fax.iter_messages", "timeout", {"fax_number": "15550100100", "timeout": -1}),
    *(("mailbox.iter_messages", "limit", {"limit": limit}) for limit in (0, "5", True)),
    *(("mailbox.iter_messages", "since", {"since": since}) for since in (NAIVE, "2026-05-01")),
    *((f"mailbox.{name}", "batch_size", {"batch_size": 0}) for name in ("iter_messages", "iter_raw")),
    *(
        (f"mailbox.{name}", parameter, {parameter: value})
        for name in ("iter_messages", "iter_raw", "iter_metadata", "stream_messages")
        for parameter, value in (("folder", ""), ("timeout", 0))
    ),
]


def find_method(suite: ds.DirectSuite, path: str) -> Callable[..., Any]:
    name, _, method = path.partition(".")
    facade: Any = getattr(suite, name)
    credentials = {"mailbox": (ALICE, "secret"), "tuser": ("front-desk", "secret", ALICE)}.get(name)
    return cast("Callable[..., Any]", getattr(facade if credentials is None else facade(*credentials), method))


async def assert_rejected(
    parameter: str, services: FakeServices, call: Callable[..., Any], *arguments: Any, **options: Any
) -> None:
    with pytest.raises(ds.InvalidArgumentError, match=f"^{re.escape(parameter)}: ") as caught:
        await call(*arguments, **options)
    assert isinstance(caught.value, ValueError)
    assert caught.value.parameter == parameter
    assert services.requests_by_url == []


@pytest.mark.parametrize(("parameter", "call"), ADDRESSED.values(), ids=ADDRESSED)
async def test_invalid_address_is_rejected(
    parameter: str, call: Call, services: FakeServices, suite: ds.DirectSuite, box: ds.Mailbox
) -> None:
    for address in INVALID_ADDRESSES:
        await assert_rejected(parameter, services, call, suite, box, address)


@pytest.mark.parametrize("case", OPERATIONS.values(), ids=str)
async def test_each_operation_rejects(case: OperationCase, services: FakeServices, suite: ds.DirectSuite) -> None:
    for parameter in case.arguments:
        for value in INVALID_VALUES.get(parameter, ()) + PATH_TEXTS * (parameter in case.path_texts):
            await assert_rejected(parameter, services, case.call, suite, {parameter: value})


def test_invalid_values_are_those_of_existing_parameters() -> None:
    assert INVALID_VALUES.keys() - {parameter for case in OPERATIONS.values() for parameter in case.arguments} == set()


@pytest.mark.parametrize("path", sorted({path for path, *_ in METHODS}))
async def test_method_rejects(path: str, services: FakeServices, suite: ds.DirectSuite) -> None:
    for name, parameter, arguments in METHODS:
        if name == path:
            await assert_rejected(parameter, services, find_method(suite, path), *arguments)


async def test_send_once_rejects(services: FakeServices, box: ds.Mailbox) -> None:
    for parameter, options in SEND_ONCE:
        await assert_rejected(parameter, services, box.send_once, message(), **options)


async def test_listing_rejects_at_the_call(services: FakeServices, suite: ds.DirectSuite) -> None:
    for path, parameter, arguments in LISTINGS:
        with pytest.raises(ds.InvalidArgumentError) as caught:
            find_method(suite, path)(**arguments)
        assert caught.value.parameter == parameter
    assert services.requests_by_url == []
