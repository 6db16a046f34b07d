"""Methods of the messaging types: media types, attachments from files, both forms of a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from directsuite import types
from directsuite.wire.codec import Codec

CODEC = Codec()

MEDIA_TYPES: list[tuple[str | None, str]] = [
    ("text/xml", "text/xml"),
    ("text/xml; name=ccd.xml", "text/xml"),
    ('text/xml; name="a b.xml"', "text/xml"),
    ("Application/PDF;name=x", "application/pdf"),
    (" text/plain ; charset=utf-8", "text/plain"),
    (None, "application/octet-stream"),
    ("", "application/octet-stream"),
]


@pytest.mark.parametrize(("content_type", "media_type"), MEDIA_TYPES)
def test_media_type_is_the_bare_one(content_type: str | None, media_type: str) -> None:
    attachment = ds.Attachment(content_type=content_type)
    assert (attachment.media_type, attachment.content_type) == (media_type, content_type)


PATHS: list[tuple[str, dict[str, str], tuple[str, ...], str]] = [
    ("ccd.xml", {}, ("text/xml", "application/xml"), "ccd.xml"),
    ("scan.PDF", {}, ("application/pdf",), "scan.PDF"),
    ("letter", {}, ("application/octet-stream",), "letter"),
    ("a b.é", {"content_type": "x/y"}, ("x/y",), "a b.é"),
    ("scan.pdf", {"filename": "other.pdf"}, ("application/pdf",), "other.pdf"),
]


@pytest.mark.parametrize(("name", "options", "content_types", "filename"), PATHS)
def test_attachment_from_a_path_is_named_and_typed_by_it(
    name: str, options: dict[str, Any], content_types: tuple[str, ...], filename: str
) -> None:
    for path in (Path("folder") / name, f"folder/{name}"):
        attachment = ds.Attachment.from_path(path, **options)
        assert attachment.content_type in content_types
        assert attachment.filename == filename
        assert attachment.source == Path("folder") / name
        assert attachment.content == b""


def test_path_of_an_attachment_never_goes_on_the_wire() -> None:
    written = CODEC.encode(ds.Attachment.from_path("/private/Zaphod/scan.pdf"))
    assert b"Zaphod" not in written
    assert "Zaphod" not in repr(ds.Attachment.from_path("/private/Zaphod/scan.pdf"))


def test_repr_shows_what_is_set_and_how_large_it_is() -> None:
    scan = ds.Attachment(content=b"%PDF-", filename="Zaphod.pdf", content_type="application/pdf; name=Zaphod.pdf")
    message = ds.Message(subject="Zaphod", recipients=[ds.Recipient("zaphod@x.test")], attachment_list=[scan])
    assert repr(message) == "Message(subject=<6 chars>, html_body=False, recipients=<1>, attachment_list=<1>)"
    assert repr(scan) == (
        "Attachment(media_type='application/pdf', content=<5 bytes>, content_type=<32 chars>, filename=<10 chars>)"
    )
    assert repr(ds.Login("zaphod", "Zaphod1")) == "Login(username=<6 chars>, password=Secret('***'))"


def test_everything_is_revealed_to_those_who_ask_for_it() -> None:
    message = ds.Message(subject="Zaphod", recipients=[ds.Recipient("zaphod@x.test")])
    recipient = "Recipient(email='zaphod@x.test', type=<RecipientType.TO: 'TO'>)"
    assert ds.reveal([message]) == f"[Message(subject='Zaphod', html_body=False, recipients=[{recipient}])]"
    assert ds.reveal(ds.Login("zaphod", "Zaphod1")) == "Login(username='zaphod', password='Zaphod1')"


def test_required_members_are_written_even_with_default_values() -> None:
    assert CODEC.encode(ds.Message()) == b'{"htmlBody":false}'
    assert CODEC.encode(ds.Attachment(content_type="a/b", filename="f")) == (
        b'{"content":"","contentType":"a/b","filename":"f"}'
    )


def test_nested_subclass_is_written_with_all_its_fields() -> None:
    message = ds.MessageWithHeader(headers=[ds.MessageHeader("X-A", "1")])
    request = types.SendRequest(authentication=types.Authentication(username="a@b", password="p"), message=message)
    assert CODEC.converter.unstructure(request)["message"]["headers"] == [{"name": "X-A", "value": "1"}]


def test_raw_message_becomes_an_email() -> None:
    raw = b"From: alice@direct.example.test\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n\r\nHello\r\n"
    message = ds.RawMessage(data=raw).to_email()
    assert message["Subject"] == "Grüße"
    assert message.get_content() == "Hello\r\n"


def test_raw_message_without_data_is_not_an_email() -> None:
    with pytest.raises(ValueError, match="no data"):
        ds.RawMessage(uid=1).to_email()
