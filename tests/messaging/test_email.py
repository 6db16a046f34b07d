"""Messages to send, made from emails of the standard library without losing anything."""

from __future__ import annotations

import base64
import contextlib
import email
import email.policy
import quopri
from email.header import Header
from email.message import EmailMessage
from email.mime.message import MIMEMessage
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from email.utils import formataddr
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.messaging.email import read_message_id


def _email(*, subject: str | None = "Grüße") -> EmailMessage:
    message = EmailMessage()
    message["From"] = "Alice <alice@direct.example.test>"
    message["To"] = "Bob <bob@direct.example.test>, carol@direct.example.test"
    message["Cc"] = "dave@direct.example.test"
    message["Bcc"] = "erin@direct.example.test"
    if subject is not None:
        message["Subject"] = subject
    return message


def _from_bytes(raw: bytes) -> ds.Message:
    return ds.Message.from_email(ds.RawMessage(data=raw).to_email())


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


def test_empty_email_gives_an_empty_message() -> None:
    message = ds.Message.from_email(EmailMessage())
    assert (message.sender, message.subject, message.recipients) == (None, None, [])


@pytest.mark.parametrize("value", [b"From: a@direct.example.test\r\n\r\nHello", "From: a@direct.example.test", None])
def test_value_that_is_not_an_email_is_named_in_the_error(value: Any) -> None:
    with pytest.raises(ds.InvalidArgumentError, match="message_from_bytes"):
        ds.Message.from_email(value)


def test_html_is_the_body_if_there_is_no_plain_text() -> None:
    source = _email()
    source.set_content("<p>Hello</p>\n", subtype="html")
    message = ds.Message.from_email(source)
    assert (message.body, message.html_body, message.attachment_list) == ("<p>Hello</p>\n", True, [])


def test_plain_text_goes_before_html_and_html_is_not_an_attachment() -> None:
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
    assert _from_bytes(source.as_bytes()) == ds.Message.from_email(source)  # what was received can be sent again


def test_forwarded_email_becomes_an_eml() -> None:
    inner = _email(subject="inner")
    inner.set_content("inside\n")
    source = _email()
    source.set_content("Hello\n")
    source.add_attachment(inner)
    ((name, content_type, content),) = _attached(ds.Message.from_email(source))
    assert (name, content_type) == ("message-1.eml", "message/rfc822")
    again = email.message_from_bytes(content, policy=email.policy.default)
    assert again["Subject"] == "inner"


def test_inline_image_is_not_lost() -> None:
    source = _email()
    source.set_content("<img src='cid:1'>", subtype="html")
    source.add_related(b"GIF89a", "image", "gif", cid="<1>", filename="dot.gif")
    source.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="a.pdf")
    message = ds.Message.from_email(source)
    assert message.html_body
    assert [name for name, _, _ in _attached(message)] == ["dot.gif", "a.pdf"]


def test_email_that_is_nothing_but_a_file_is_not_lost() -> None:
    source = _email()
    source.set_content(b"%PDF", "application", "pdf", filename="scan.pdf")
    message = ds.Message.from_email(source)
    assert message.body is None
    assert _attached(message) == [("scan.pdf", "application/pdf", b"%PDF")]


def test_second_text_part_is_an_attachment() -> None:
    source = _email()
    source.set_content("Hello\n")
    source.make_mixed()
    footer = EmailMessage()
    footer.set_content("footer\n")
    source.attach(footer)
    message = ds.Message.from_email(source)
    assert message.body == "Hello\n"
    assert [content for _, _, content in _attached(message)] == [b"footer\n"]


def test_invitation_beside_the_text_is_an_attachment() -> None:
    source = _email()
    source.set_content("Hello\n")
    source.add_alternative("BEGIN:VCALENDAR\n", subtype="calendar")
    assert [kind for _, kind, _ in _attached(ds.Message.from_email(source))] == ["text/calendar"]


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize(
    "header", ['Cc: "', "To: a b<a@[", "From: grp:;::", "Bcc: <", "To: a@b <", "From: @", 'Subject: "', "Message-ID: <"]
)
def test_malformed_headers_cost_no_more_than_themselves(header: str) -> None:
    raw = f"{header}\r\nTo: Bob <bob@direct.example.test>\r\n\r\nHello".encode()
    message = _from_bytes(raw)
    assert ds.Recipient("bob@direct.example.test") in message.recipients
    assert message.body == "Hello"


@given(st.binary(max_size=60), st.sampled_from(["To", "From", "Subject", "Content-Type", "Content-Disposition"]))
def test_no_email_raises_anything_of_the_parsers_own(header: bytes, name: str) -> None:
    raw = name.encode() + b": " + header + b"\r\n\r\nHello"
    with contextlib.suppress(ds.InvalidArgumentError):
        _from_bytes(raw)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"Message-ID: <\r\n\r\n", "<"),
        (b"Message-ID: <1@x>\r\n\r\n", "<1@x>"),
        (b"Message-ID:\r\n <1@x>\r\n\r\n", "<1@x>"),
        (b"Subject: x\r\n\r\n", None),
    ],
)
def test_message_id_is_read_however_it_is_written(raw: bytes, expected: str | None) -> None:
    found = read_message_id(raw)
    assert (None if found is None else found.strip()) == expected


@pytest.mark.exhaustive(limit=4)
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
    message = _from_bytes(raw)
    assert [recipient.email for recipient in message.recipients or ()] == addresses
    assert message.sender == addresses[0]


@given(
    name=st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=40),
    address=st.from_regex(r"[a-z0-9!#$%&'*+/=^_`{|}~-]{1,12}(\.[a-z0-9]{1,12})?@[a-z0-9]{1,12}\.test", fullmatch=True),
)
def test_address_that_was_written_is_the_one_that_is_read(name: str, address: str) -> None:
    raw = f"To: {formataddr((name, address))}, b@x.test\r\n\r\ntext".encode("ascii")
    message = _from_bytes(raw)
    assert [recipient.email for recipient in message.recipients or ()] == [address, "b@x.test"]


def _part(content_type: str, content: bytes, *headers: str) -> bytes:
    lines = [f"Content-Type: {content_type}", *headers] if content_type else [*headers]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + content


def _multipart(*parts: bytes, content_type: str = "multipart/mixed") -> bytes:
    header = b"From: a@x.test\r\nTo: b@x.test\r\nMIME-Version: 1.0\r\n"
    header += f'Content-Type: {content_type}; boundary="=_1"\r\n\r\n'.encode()
    text = _part("text/plain", b"Hello\r\n")
    return header + b"".join(b"--=_1\r\n" + part + b"\r\n" for part in (text, *parts)) + b"--=_1--\r\n"


DELIVERY_STATUS = (
    b"Reporting-MTA: dns; mx.x.test\r\nArrival-Date: Thu, 1 Jan 2026 00:00:00 +0000\r\n\r\n"
    b"Final-Recipient: rfc822; b@x.test\r\nAction: failed\r\nStatus: 5.1.1\r\n"
    b"Diagnostic-Code: smtp; 550 5.1.1\r\n  no such user\r\n"
)
NOTIFICATION = (
    b"Reporting-UA: mail.x.test\r\nFinal-Recipient: rfc822;b@x.test\r\n"
    b"Disposition: automatic-action/MDN-sent-automatically; dispatched\r\n"
)
ENCLOSED = b"Subject: inner\r\nX-Long: " + b"x y " * 60 + b"end\r\n\r\nHello\r\n\r\nRegards\r\n"
SIGNED = b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\nGr\xc3\xbc\xc3\x9fe \r\n"
POLICIES = {"default": email.policy.default, "compat32": email.policy.compat32, "SMTP": email.policy.SMTP}

MESSAGE_PARTS = {
    "message/delivery-status": DELIVERY_STATUS,
    "message/disposition-notification": NOTIFICATION,
    "message/feedback-report": b"Feedback-Type: abuse\r\nUser-Agent: x/1\r\n",
    "message/global-delivery-status": DELIVERY_STATUS.replace(b"b@x.test", "ü@x.test".encode()),
    "message/global-headers": "Subject: Grüße\r\nFrom: ü@x.test\r\n".encode(),
    "text/rfc822-headers": b"Subject: inner\r\nFrom: c@x.test\r\n",
    "message/rfc822": ENCLOSED,
    "message/global": ENCLOSED.replace(b"inner", "Grüße".encode()),
    'message/partial; id="1@x.test"; number="1"; total="2"': ENCLOSED,
    'message/external-body; access-type="URL"; url="https://x.test/"': b"Content-Type: image/png\r\n",
    "message/http": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nHello",
}


@pytest.mark.exhaustive(limit=5)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
@pytest.mark.parametrize(("content_type", "content"), MESSAGE_PARTS.items(), ids=MESSAGE_PARTS.keys())
def test_message_part_keeps_its_type_and_bytes(content_type: str, content: bytes, policy: email.policy.Policy) -> None:
    raw = _multipart(_part(content_type, content), content_type="multipart/report; report-type=x")
    message = ds.Message.from_email(email.message_from_bytes(raw, policy=policy))
    assert message.body == "Hello\r\n"
    assert [(kind, content) for _, kind, content in _attached(message)] == [(content_type, content)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("encoding", ["base64", "quoted-printable"])
@pytest.mark.parametrize("content_type", ["message/rfc822", "message/delivery-status"])
def test_encoded_message_part_is_decoded(content_type: str, encoding: str) -> None:
    encode = base64.encodebytes if encoding == "base64" else quopri.encodestring
    part = _part(content_type, encode(DELIVERY_STATUS), f"Content-Transfer-Encoding: {encoding}")
    (attachment,) = _from_bytes(_multipart(part)).attachment_list
    assert (attachment.content_type, attachment.content) == (content_type, DELIVERY_STATUS)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_enclosed_multipart_keeps_its_bytes(policy: email.policy.Policy) -> None:
    enclosed = _multipart(_part("message/rfc822", ENCLOSED), _part("image/png", b"AAAA")).replace(b"=_1", b"=_2")
    raw = _multipart(_part("message/rfc822", enclosed))
    (attachment,) = ds.Message.from_email(email.message_from_bytes(raw, policy=policy)).attachment_list
    assert attachment.content == enclosed
    assert attachment.filename == "message-1.eml"


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_control_characters_end_no_header_of_an_enclosed_message(policy: email.policy.Policy) -> None:
    enclosed = b"Subject: a\x0b\x0cb\x1cc\r\nFrom: c@x.test\r\n\r\ninside\r\n"
    raw = _multipart(_part("message/rfc822", enclosed))
    (attachment,) = ds.Message.from_email(email.message_from_bytes(raw, policy=policy)).attachment_list
    assert attachment.content == enclosed


def test_signed_email_gives_its_text_and_the_signature() -> None:
    signature = _part('application/pkcs7-signature; name="smime.p7s"', b"MIAG", "Content-Transfer-Encoding: base64")
    raw = _multipart(content_type="multipart/signed; protocol=x").replace(_part("text/plain", b"Hello\r\n"), SIGNED)
    raw = raw.replace(b"--=_1--", b"--=_1\r\n" + signature + b"\r\n--=_1--")
    message = _from_bytes(raw)
    assert message.body == "Grüße \r\n"
    assert _attached(message) == [("smime.p7s", "application/pkcs7-signature", b"0\x80\x06")]


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
@pytest.mark.parametrize(
    "parameter",
    [
        'filename="ä b.pdf"',
        "filename*=utf-8''%C3%A4%20b.pdf",
        "filename*0*=utf-8''%C3%A4; filename*1=\" b.pdf\"",
        'filename="=?utf-8?q?=C3=A4_b=2Epdf?="',
    ],
)
def test_file_name_is_read_in_every_encoding(parameter: str, policy: email.policy.Policy) -> None:
    raw = _multipart(_part("application/pdf", b"%PDF", f"Content-Disposition: attachment; {parameter}"))
    message = ds.Message.from_email(email.message_from_bytes(raw, policy=policy))
    assert _attached(message) == [("ä b.pdf", "application/pdf", b"%PDF")]


def test_file_name_in_no_charset_is_still_valid_text() -> None:
    part = _part("application/pdf", b"%PDF").replace(b"pdf", b'pdf; name="\xe4.pdf"', 1)
    ((name, _, content),) = _attached(_from_bytes(_multipart(part)))
    assert (name, content) == ("\ufffd.pdf", b"%PDF")


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("text/calendar; method=REQUEST; charset=UTF-8", 'text/calendar; method="REQUEST"'),
        ("text/csv; charset=iso-8859-1; name=a.csv", 'text/csv; charset="iso-8859-1"'),
        ("application/ms-tnef; name=winmail.dat", "application/ms-tnef"),
        ("nonsense", "text/plain"),
        ("text/\xfc", "application/octet-stream"),
        ("", "text/plain"),
    ],
)
def test_parameters_that_a_file_needs_are_kept(content_type: str, expected: str) -> None:
    ((_, kind, content),) = _attached(_from_bytes(_multipart(_part(content_type, b"\xe4;1\r\n"))))
    assert (kind, content) == (expected, b"\xe4;1\r\n")


def test_multipart_without_parts_is_a_file_of_unknown_type() -> None:
    ((_, kind, content),) = _attached(_from_bytes(_multipart(_part("multipart/mixed; boundary=x", b"Hello"))))
    assert (kind, content.strip()) == ("application/octet-stream", b"Hello")


@pytest.mark.exhaustive(limit=4)
@pytest.mark.parametrize(
    ("header", "content", "body"),
    [
        ("", b"Hello", "Hello"),
        ("multipart/mixed; boundary=x", b"Hello", None),
        ("text/plain", "Grüße".encode(), "Grüße"),
        ("text/plain", "Grüße „x“".encode("windows-1252"), "Grüße „x“"),
        ("text/plain; charset=us-ascii", b"\x81\xfc", "\x81ü"),
        ("text/plain; charset=x-none", b"\xfc", "ü"),
        ("text/plain; charset=x-none", b"\xc3\xa9", "é"),
        ("text/plain; charset=utf-8", b"\xc3\xbc\xff", "ü\ufffd"),
        ("text/plain; charset=hex", b"abc", "abc"),
        ("text/plain; charset*=x''%ff", b"abc", "abc"),
    ],
)
def test_malformed_email_is_read_as_far_as_possible(header: str, content: bytes, body: str | None) -> None:
    assert _from_bytes(_part(header, content)).body == body


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", [email.policy.default, email.policy.compat32], ids=["default", "compat32"])
@pytest.mark.parametrize("charset", ["", "; charset=utf-8", "; charset=iso-8859-1", "; charset=x-unknown"])
def test_email_parsed_from_a_str_keeps_every_character(charset: str, policy: email.policy.Policy) -> None:
    header = "From: alice@direct.example.test\nContent-Type: multipart/mixed; boundary=B\n\n"
    text = f"--B\nContent-Type: text/plain{charset}\n\nGrüße € 日本\n"
    file = "--B\nContent-Type: text/csv; charset=utf-8\nContent-Disposition: attachment\n\nmg;µg\n--B--\n"
    source = email.message_from_string(header + text + file, policy=policy)
    before = source.as_string() if policy is email.policy.compat32 else str(source.get_payload())
    message = ds.Message.from_email(source)
    assert message.body == "Grüße € 日本"
    assert _attached(message) == [("attachment-1", "text/csv", "mg;µg".encode())]
    assert before == (source.as_string() if policy is email.policy.compat32 else str(source.get_payload()))


def test_alternatives_beside_those_of_the_body_are_attachments() -> None:
    def both(text: str) -> MIMEMultipart:
        return MIMEMultipart("alternative", _subparts=[MIMEText(text), MIMEText(f"<p>{text}", "html")])

    message = ds.Message.from_email(MIMEMultipart(_subparts=[both("first"), both("second")]))
    assert message.body == "first"
    assert [part.content for part in message.attachment_list] == [b"second", b"<p>second"]


def test_file_among_alternatives_is_an_attachment() -> None:
    raw = _multipart(
        _part("text/html", b"<p>Hello</p>"),
        _part("text/plain; name=notes.txt", b"notes"),
        content_type="multipart/alternative",
    )
    assert _attached(_from_bytes(raw)) == [("notes.txt", "text/plain", b"notes")]


def test_addresses_beyond_ascii_are_taken_over() -> None:
    raw = 'From: Jürgen <info@exämple.test>\r\nTo: jürgen@bücher.test, "J ü" <j@x.test>\r\n\r\ntext'.encode()
    for policy in (email.policy.default, email.policy.compat32):
        message = ds.Message.from_email(email.message_from_bytes(raw, policy=policy))
        assert message.sender == "info@exämple.test"
        assert [each.email for each in message.recipients] == ["jürgen@bücher.test", "j@x.test"]


def test_email_made_from_parts_of_both_apis_is_read() -> None:
    source: Any = MIMEMultipart()
    source["From"], source["To"] = "a@x.test", "b@x.test"
    source["Subject"] = Header("Grüße", "utf-8")
    source.attach(MIMEText("Grüße", "plain", "utf-8"))
    inner = _email(subject="inner")
    inner.set_content("inside\n")
    source.attach(MIMEMessage(inner))
    message = ds.Message.from_email(source)
    assert (message.subject, message.body) == ("Grüße", "Grüße")
    ((_, kind, content),) = _attached(message)
    assert (kind, email.message_from_bytes(content)["Message-ID"]) == ("message/rfc822", None)
    assert b"inside" in content


@given(
    parts=st.lists(
        st.tuples(st.sampled_from([*MESSAGE_PARTS, "image/png", "text/x-a", ""]), st.binary(max_size=40)), max_size=5
    )
)
def test_every_part_is_attached_whatever_it_contains(parts: list[tuple[str, bytes]]) -> None:
    message = _from_bytes(_multipart(*(_part(kind, content.replace(b"--=_1", b"")) for kind, content in parts)))
    assert len(message.attachment_list) == len(parts)
    for attachment, (kind, content) in zip(message.attachment_list, parts, strict=True):
        if not kind.startswith("message/"):
            assert attachment.content.split() == content.replace(b"--=_1", b"").split()
