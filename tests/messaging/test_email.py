"""Messages to send from the standard library's emails: nothing of them is lost on the way."""

from __future__ import annotations

import contextlib
import email
import email.policy
from email.message import EmailMessage
from email.utils import formataddr

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.messaging.email import message_id


def _email(*, subject: str | None = "Grüße") -> EmailMessage:
    message = EmailMessage()
    message["From"] = "Alice <alice@direct.example.test>"
    message["To"] = "Bob <bob@direct.example.test>, carol@direct.example.test"
    message["Cc"] = "dave@direct.example.test"
    message["Bcc"] = "erin@direct.example.test"
    if subject is not None:
        message["Subject"] = subject
    return message


def _attached(message: ds.Message) -> list[tuple[str | None, str | None, bytes]]:
    return [(part.filename, part.content_type, part.content) for part in message.attachment_list]


def test_headers_and_body_are_taken_over() -> None:
    source = _email()
    source.set_content("Hello\n")
    assert ds.Message.from_email(source) == ds.Message(
        sender="alice@direct.example.test",
        subject="Grüße",
        body="Hello\n",
        recipients=[
            ds.Recipient("bob@direct.example.test"),
            ds.Recipient("carol@direct.example.test"),
            ds.Recipient("dave@direct.example.test", ds.RecipientType.CC),
            ds.Recipient("erin@direct.example.test", ds.RecipientType.BCC),
        ],
    )


def test_an_empty_email_gives_an_empty_message() -> None:
    message = ds.Message.from_email(EmailMessage())
    assert (message.sender, message.subject, message.recipients) == (None, None, [])


def test_html_is_the_body_where_there_is_no_plain_text() -> None:
    source = _email()
    source.set_content("<p>Hello</p>\n", subtype="html")
    message = ds.Message.from_email(source)
    assert (message.body, message.html_body, message.attachment_list) == ("<p>Hello</p>\n", True, [])


def test_plain_text_goes_before_html_and_html_is_no_attachment() -> None:
    source = _email()
    source.set_content("Hello\n")
    source.add_alternative("<p>Hello</p>", subtype="html")
    message = ds.Message.from_email(source)
    assert (message.body, message.html_body, message.attachment_list) == ("Hello\n", False, [])


def test_attachments_keep_name_type_and_bytes() -> None:
    source = _email()
    source.set_content("Hello\n")
    source.add_attachment(b"\x00\xff%PDF", maintype="application", subtype="pdf", filename="é b.pdf")
    source.add_attachment("line\n", subtype="xml", filename="ccd.xml")
    source.add_attachment(b"\x01", maintype="application", subtype="octet-stream")
    assert _attached(ds.Message.from_email(source)) == [
        ("é b.pdf", "application/pdf", b"\x00\xff%PDF"),
        ("ccd.xml", "text/xml", b"line\n"),
        ("attachment-3", "application/octet-stream", b"\x01"),
    ]


def test_a_forwarded_email_becomes_an_eml() -> None:
    inner = _email(subject="inner")
    inner.set_content("inside\n")
    source = _email()
    source.set_content("Hello\n")
    source.add_attachment(inner)
    ((name, content_type, content),) = _attached(ds.Message.from_email(source))
    assert (name, content_type) == ("message-1.eml", "message/rfc822")
    again = email.message_from_bytes(content, policy=email.policy.default)
    assert again["Subject"] == "inner"


def test_an_inline_image_is_not_lost() -> None:
    source = _email()
    source.set_content("<img src='cid:1'>", subtype="html")
    source.add_related(b"GIF89a", "image", "gif", cid="<1>", filename="dot.gif")
    source.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="a.pdf")
    message = ds.Message.from_email(source)
    assert message.html_body
    assert [name for name, _, _ in _attached(message)] == ["dot.gif", "a.pdf"]


def test_an_email_that_is_nothing_but_a_file_is_not_lost() -> None:
    source = _email()
    source.set_content(b"%PDF", "application", "pdf", filename="scan.pdf")
    message = ds.Message.from_email(source)
    assert message.body is None
    assert _attached(message) == [("scan.pdf", "application/pdf", b"%PDF")]


def test_a_second_text_part_is_an_attachment() -> None:
    source = _email()
    source.set_content("Hello\n")
    source.make_mixed()
    footer = EmailMessage()
    footer.set_content("footer\n")
    source.attach(footer)
    message = ds.Message.from_email(source)
    assert message.body == "Hello\n"
    assert [content for _, _, content in _attached(message)] == [b"footer\n"]


def test_an_invitation_beside_the_text_is_an_attachment() -> None:
    source = _email()
    source.set_content("Hello\n")
    source.add_alternative("BEGIN:VCALENDAR\n", subtype="calendar")
    assert [kind for _, kind, _ in _attached(ds.Message.from_email(source))] == ["text/calendar"]


MALFORMED = {
    "charset nobody knows": (b"Content-Type: text/plain; charset=x-none\r\n\r\nHello \xc3\xa9", "Hello é"),
    "wrong charset": (b"Content-Type: text/plain; charset=us-ascii\r\n\r\nHello", "Hello"),
    "multipart without parts": (b"Content-Type: multipart/mixed; boundary=x\r\n\r\nHello", None),
    "no headers": (b"\r\nHello", "Hello"),
}


@pytest.mark.parametrize(("raw", "body"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_emails_are_read_as_far_as_they_go(raw: bytes, body: str | None) -> None:
    message = ds.Message.from_email(ds.RawMessage(data=raw).to_email())
    assert message.body == body


def test_what_was_received_can_be_sent_again() -> None:
    source = _email()
    source.set_content("Hello\n")
    source.add_attachment(b"\x00\x01", maintype="application", subtype="pdf", filename="a.pdf")
    again = ds.Message.from_email(ds.RawMessage(data=source.as_bytes()).to_email())
    assert again == ds.Message.from_email(source)


@pytest.mark.parametrize(
    "header", ['Cc: "', "To: a b<a@[", "From: grp:;::", "Bcc: <", "To: a@b <", "From: @", 'Subject: "', "Message-ID: <"]
)
def test_malformed_headers_cost_no_more_than_themselves(header: str) -> None:
    raw = f"{header}\r\nTo: Bob <bob@direct.example.test>\r\n\r\nHello".encode()
    message = ds.Message.from_email(ds.RawMessage(data=raw).to_email())
    assert ds.Recipient("bob@direct.example.test") in message.recipients
    assert message.body == "Hello"


@given(st.binary(max_size=60), st.sampled_from(["To", "From", "Subject", "Content-Type", "Content-Disposition"]))
def test_no_email_raises_anything_of_the_parsers_own(header: bytes, name: str) -> None:
    raw = name.encode() + b": " + header + b"\r\n\r\nHello"
    with contextlib.suppress(ds.InvalidArgumentError):
        ds.Message.from_email(ds.RawMessage(data=raw).to_email())


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"Message-ID: <\r\n\r\n", "<"),
        (b"Message-ID: <1@x>\r\n\r\n", "<1@x>"),
        (b"Message-ID:\r\n <1@x>\r\n\r\n", "<1@x>"),
        (b"Subject: x\r\n\r\n", None),
    ],
)
def test_a_message_id_is_read_however_it_is_written(raw: bytes, expected: str | None) -> None:
    found = message_id(raw)
    assert (None if found is None else found.strip()) == expected


@pytest.mark.parametrize(
    ("written", "addresses"),
    [
        ("=?utf-8?q?M=C3=BCller=2C_Hans?= <hans@x.test>", ["hans@x.test"]),
        ("=?utf-8?q?spoof=40evil=2Etest=2C?= <real@x.test>, b@x.test", ["real@x.test", "b@x.test"]),
        ("=?utf-8?q?=0D=0ABcc:_spoof@evil.test?= <real@x.test>", ["real@x.test"]),
        ("=?utf-8?q?M, spoof@evil.test?= <real@x.test>", ["real@x.test"]),
        ("spoof@evil.test <real@x.test>", ["real@x.test"]),
        ("'spoof@evil.test' <real@x.test>, J [x] <b@x.test>", ["real@x.test", "b@x.test"]),
        ('"spoof@evil.test, <" <real@x.test>', ["real@x.test"]),
        ("Team: a@x.test, Bee (spoof@evil.test) <b@x.test>;", ["a@x.test", "b@x.test"]),
        ('"a <b>, c"@x.test', ['"a <b>, c"@x.test']),
    ],
)
def test_no_name_in_a_header_changes_who_receives_a_message(written: str, addresses: list[str]) -> None:
    raw = f"From: {written}\r\nTo: {written}\r\n\r\ntext".encode()
    message = ds.Message.from_email(ds.RawMessage(data=raw).to_email())
    assert [recipient.email for recipient in message.recipients or ()] == addresses
    assert message.sender == addresses[0]


@given(
    name=st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=40),
    address=st.from_regex(r"[a-z0-9!#$%&'*+/=^_`{|}~-]{1,12}(\.[a-z0-9]{1,12})?@[a-z0-9]{1,12}\.test", fullmatch=True),
)
def test_the_address_that_was_written_is_the_one_that_is_read(name: str, address: str) -> None:
    raw = f"To: {formataddr((name, address))}, b@x.test\r\n\r\ntext".encode("ascii")
    message = ds.Message.from_email(ds.RawMessage(data=raw).to_email())
    assert [recipient.email for recipient in message.recipients or ()] == [address, "b@x.test"]
