"""Messages as RFC 5322 bytes, read with the standard library."""

from __future__ import annotations

import email
import email.policy
import re
import time
from datetime import UTC, datetime, timedelta, timezone
from email.header import decode_header, make_header
from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.messaging.models import MessageDetail, MessageHeader
from directsuite.sync.sinks.eml import iter_eml, replace_lone_surrogates
from tests.sync.sinks.sample_changes import RECEIVED_AT, make_message

pytestmark = pytest.mark.wide

HOSTILE = st.text(
    st.one_of(st.characters(), st.sampled_from('\r\n\0\x85\u2028\ud800\udfff "<>@,:;=?_-.\\/')), max_size=60
)


def _bytes(message: MessageDetail) -> bytes:
    return b"".join(iter_eml(message))


def _read(message: MessageDetail) -> EmailMessage:
    return email.message_from_bytes(_bytes(message), policy=email.policy.default)


def test_everything_is_read_back() -> None:
    found = _read(make_message())
    assert found["From"] == '"Dr. Änne Müller" <anne@direct.test>'
    assert (found["To"], found["Cc"], found["Bcc"]) == ("nurse@direct.test", "bob@direct.test", None)
    assert (found["Subject"], found["Message-ID"]) == ("Befund 1 – Grüße", "<1@direct.test>")
    assert found["Date"].datetime == RECEIVED_AT
    assert found["X-Priority"] == "1"
    assert found.get_content_type() == "multipart/mixed"
    assert not found.defects
    text, pdf, xml = list(found.iter_parts())
    assert text.get_content() == "Line one of 1\nüber = alles\n"
    assert (pdf.get_content(), pdf.get_content_type(), pdf.get_filename()) == (
        bytes(range(256)) * 3,
        "application/pdf",
        "a b.pdf",
    )
    assert (xml.get_payload(decode=True), xml.get_content_type(), xml.get_filename()) == (
        b"<x/>\r\n",
        "text/xml",
        "Ö.xml",
    )
    assert xml.get_content_charset() == "utf-8"


def test_html_is_html_and_nothing_is_nothing() -> None:
    html = _read(MessageDetail(body="<p>ü</p>", html_body=True))
    assert (html.get_content_type(), html.get_content()) == ("text/html", "<p>ü</p>\n")
    empty = _read(MessageDetail())
    assert (empty.get_content(), empty.keys()) == ("\n", ["MIME-Version", "Content-Type", "Content-Transfer-Encoding"])


def test_the_same_message_has_the_same_bytes() -> None:
    zone = timezone(timedelta(hours=5))
    assert _bytes(make_message()) == _bytes(make_message(received_date=RECEIVED_AT.astimezone(zone)))
    assert _bytes(make_message()) != _bytes(make_message(2))


def test_copied_headers_do_not_repeat_those_of_fields() -> None:
    given_ = [MessageHeader("SUBJECT", "other"), MessageHeader("from", "x@evil.test"), MessageHeader("Received", "a")]
    found = _read(make_message(headers=[*given_, MessageHeader("Received", "b")]))
    assert len(found.get_all("Subject", [])) == len(found.get_all("From", [])) == 1
    assert found.get_all("Received") == ["a", "b"]


def test_line_breaks_start_no_header() -> None:
    evil = 'a\r\nX-Evil: yes\r\n\r\n"\0\x85'
    attachment = ds.Attachment(content=b"x", filename=evil, content_type="a/b\r\nX-Evil: yes")
    message = make_message(
        sender=f"{evil} <a@b.test>", subject=evil, msg_id=evil, reply_to=evil, attachments=[attachment],
        headers=[MessageHeader("X-A", evil), MessageHeader("X-Evil: yes\r\nX-B", "b")],
    )  # fmt: skip
    content = _bytes(message)
    assert b"\nX-Evil" not in content
    assert b"\0" not in content
    (part,) = _read(message).iter_attachments()
    assert part.keys() == ["Content-Type", "Content-Transfer-Encoding", "Content-Disposition"]
    assert part.get_content() == b"x"


ENCLOSED = b"Subject: inner\nFrom: a@direct.test\n\nHello\n\n--=_directsuite--\n--=_2_directsuite\n"
DELIVERY_STATUS = b"Reporting-MTA: dns; x.test\n\nFinal-Recipient: rfc822; b@x.test\nStatus: 5.1.1\n"
MESSAGE_PARTS = {
    "an enclosed email": ("message/rfc822", ENCLOSED, "7bit"),
    "CRLF": ("message/rfc822", ENCLOSED.replace(b"\n", b"\r\n"), "7bit"),
    "without a line end": ("message/rfc822", b"Subject: x\n\nHello", "7bit"),
    "8-bit text": ("message/rfc822", "Subject: x\n\nGrüße\n".encode(), "8bit"),
    "a long line": ("message/rfc822", b"Subject: x\n\n" + b"a" * 2000, "binary"),
    "UTF-8 headers": ("message/global", "Subject: Grüße\n\nHello\n".encode(), "8bit"),
    "parameters": ('message/partial; id="1@x"; number="1"', ENCLOSED, "7bit"),
    "a delivery status": ("message/delivery-status", DELIVERY_STATUS, "7bit"),
    "a read receipt": ("message/disposition-notification", b"Disposition: manual-action/x; displayed\n", "7bit"),
    "a complaint": ("message/feedback-report", b"Feedback-Type: abuse\r\n", "7bit"),
}


def _raw_parts(message: MessageDetail) -> list[bytes]:
    raw = _bytes(message)
    (boundary,) = re.findall(rb'boundary="([^"]*)"', raw.partition(b"\n\n")[0])
    return raw.split(b"\n--" + boundary)[1:-1]


@pytest.mark.parametrize(("content_type", "content", "encoding"), MESSAGE_PARTS.values(), ids=MESSAGE_PARTS.keys())
def test_a_message_part_is_written_unchanged(content_type: str, content: bytes, encoding: str) -> None:
    attachment = ds.Attachment(content=content, content_type=content_type, filename="x.eml")
    other = ds.Attachment(content=b"\0", content_type="image/png", filename="x.png")
    message = make_message(attachments=[attachment, other])
    header, _, body = _raw_parts(message)[1].partition(b"\n\n")
    assert body == content.replace(b"\r\n", b"\n")
    assert f"Content-Transfer-Encoding: {encoding}\n".encode() in header
    found = _read(message)
    assert not any(part.defects for part in found.walk())
    assert found.get("Content-Transfer-Encoding", "7bit") == encoding
    part = list(found.iter_parts())[1]
    assert (part["Content-Type"], part.get_filename()) == (content_type, "x.eml")
    assert isinstance(part.get_payload(), list)
    again = ds.Message.from_email(found).attachment_list
    assert [each.content for each in again] == [content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"), b"\0"]


@pytest.mark.parametrize(
    ("media_type", "content"),
    [
        ("message/rfc822", b""),
        ("message/rfc822", b"no header\n"),
        ("message/rfc822", b" Subject: x\n\nHello"),
        ("message/rfc822", b"Subject: x\n\nbinary \0\n"),
        ("message/rfc822", b"Subject: x\r\n\r\nmixed\nline ends\r\n"),
        ("message/rfc822", b"Subject: x\n\nbare\rreturn\n"),
        ("message/delivery-status", "Reporting-MTA: dns; ü.test\n".encode()),
        ("message/delivery-status", b"Reporting-MTA: dns; " + b"x" * 1000 + b"\n"),
        ("message/rfc822", b"X-A: b\n" * 50_000),
        ("message/http", b"HTTP/1.1 200 OK\nContent-Type: text/plain\n\nHello"),
        ("multipart/mixed", b"--x\n\nHello\n--x--"),
    ],
)
def test_content_that_cannot_be_written_unchanged_is_a_file(media_type: str, content: bytes) -> None:
    attachment = ds.Attachment(content=content, content_type=f"{media_type}; boundary=x", filename="x.eml")
    (part,) = _read(make_message(attachments=[attachment])).iter_attachments()
    assert (part["Content-Type"], part.get_content()) == ("application/octet-stream", content)
    assert part.get_filename() == "x.eml"


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("text/calendar; method=REQUEST; name=a.ics", 'text/calendar; method="REQUEST"'),
        ("text/csv; charset=iso-8859-1", 'text/csv; charset="iso-8859-1"'),
        ('application/pkcs7-mime; smime-type="a\\"b"', 'application/pkcs7-mime; smime-type="a\\"b"'),
        ("text/plain; x=ä; bad name=1; y", "text/plain; x*=utf-8''%C3%A4"),
        ("text/plain; x=" + "a" * 300, "text/plain"),
    ],
)
def test_parameters_of_a_file_are_kept(content_type: str, expected: str) -> None:
    raw = _bytes(make_message(attachments=[ds.Attachment(content=b"x", content_type=content_type)]))
    part = list(email.message_from_bytes(raw, policy=email.policy.compat32).walk())[-1]
    assert part["Content-Type"] == expected


def test_a_boundary_in_the_text_ends_no_part() -> None:
    body = "--=_directsuite--\n--=_directsuite\nContent-Type: text/evil\n\n.\nFrom me\n"
    parts = list(_read(make_message(body=body)).iter_parts())
    assert [part.get_content_type() for part in parts] == ["text/plain", "application/pdf", "text/xml"]
    assert parts[0].get_content() == body


def test_many_boundaries_in_an_attached_message_are_no_work() -> None:
    lines = [b"--=_directsuite", *(b"--=_%d_directsuite" % number for number in range(2, 50_000))]
    content = b"Subject: x\n\n" + b"\n".join(lines)
    message = make_message(attachments=[ds.Attachment(content=content, content_type="message/rfc822")])
    began = time.process_time()
    raw = _bytes(message)
    assert time.process_time() - began < 10
    _, inner = email.message_from_bytes(raw, policy=email.policy.default).iter_parts()
    assert inner.get_content().get_payload().splitlines() == [line.decode() for line in lines]


def test_names_with_commas_and_quotes_stay_one_address() -> None:
    found = _read(MessageDetail(sender='"Doe, \\"J\\" John" <john@direct.test>'))["From"]
    assert [(each.display_name, each.addr_spec) for each in found.addresses] == [('Doe, "J" John', "john@direct.test")]


LETTERS = st.text(st.characters(categories=["L", "M", "N", "S", "Cf", "Cs"]), min_size=1, max_size=30)


@given(local=LETTERS, domain=LETTERS, name=st.just("") | HOSTILE)
def test_an_address_of_any_letters_is_written_and_read(local: str, domain: str, name: str) -> None:
    address = f"{local}@{domain}"
    message = MessageDetail(sender=f"{name} <{address}>" if name else address, reply_to=address)
    assert _bytes(message).decode("utf-8")
    assert len(_read(message)["From"].addresses) <= 1
    if local.isalnum() and domain.isalnum():
        assert _header_text(message, "Reply-To").startswith(f"{local}@")
    if address.isascii() and local.isalnum() and domain.isalnum():
        assert _read(message)["Reply-To"].addresses[0].addr_spec == address


def _header_text(message: MessageDetail, name: str) -> str:
    value = email.message_from_bytes(_bytes(message), policy=email.policy.default)[name]
    return str(value).encode("utf-8", "surrogateescape").decode("utf-8")


@pytest.mark.parametrize("address", ["=?utf-8?q?b?=@c.example", "Mail Delivery System", "jürgen at clinic"])
def test_text_that_is_not_an_address_is_a_readable_name(address: str) -> None:
    found = _read(MessageDetail(sender=address, recipients=[ds.Recipient(address), ds.Recipient("bob@direct.test")]))
    assert not found.defects
    assert not found["From"].defects
    (group,) = found["From"].groups
    assert (group.display_name, group.addresses) == (address, ())
    assert [each.addr_spec for each in found["To"].addresses] == ["bob@direct.test"]


@pytest.mark.parametrize(
    ("address", "written"),
    [
        ("info@exämple.test", "info@xn--exmple-cua.test"),
        ("Jürgen <info@EXÄMPLE.test>", "Jürgen <info@xn--exmple-cua.test>"),
        ("jürgen@clinic.example", "jürgen@clinic.example"),
        ("Jürgen <jürgen@bücher.example>", "Jürgen <jürgen@xn--bcher-kva.example>"),
        ("info@straße.example", "info@straße.example"),
        ("info@😀.example", "info@xn--e28h.example"),
        ("info@" + "ü" * 80 + ".example", "info@" + "ü" * 80 + ".example"),
        ('"a b, c"@direct.test', '"a b, c"@direct.test'),
        ("a@[192.0.2.1]", "a@[192.0.2.1]"),
        ("a@direct.test, b@direct.test", "a@direct.test, b@direct.test"),
    ],
)
def test_no_address_is_dropped(address: str, written: str) -> None:
    message = MessageDetail(sender=address, reply_to=address, recipients=[ds.Recipient(address)])
    assert {_header_text(message, name) for name in ("From", "To", "Reply-To")} == {written}


def test_an_address_in_another_header_is_still_an_address() -> None:
    message = MessageDetail(headers=[MessageHeader("Sender", "Jürgen <info@exämple.test>"), MessageHeader("X-A", "ü")])
    assert _header_text(message, "Sender") == "Jürgen <info@xn--exmple-cua.test>"
    assert _header_text(message, "X-A") == "ü"


def test_huge_values_are_folded_in_time() -> None:
    message = make_message(
        subject="ü" * 5_000_000,
        msg_id="x" * 100_000,
        sender="a b: " * 200_000,
        reply_to="𝒂" * 390 + "@" + "𝒂" * 390,
        recipients=[ds.Recipient(f"nurse{number}@direct.test") for number in range(5_000)],
        attachments=[ds.Attachment(filename="ü" * 100_000 + ".pdf", content_type="a/" + "b" * 10_000)],
    )
    content = _bytes(message)
    assert max(map(len, content.split(b"\n"))) <= 998
    assert len(_read(message)["To"].addresses) == 5_000
    (part,) = _read(message).iter_attachments()
    assert (part.get_filename() or "").endswith("ü.pdf")


@given(
    message=st.builds(
        MessageDetail,
        sender=st.none() | HOSTILE,
        subject=st.none() | HOSTILE,
        body=st.none() | HOSTILE,
        html_body=st.booleans(),
        msg_id=st.none() | HOSTILE,
        reply_to=st.none() | HOSTILE,
        sent_date=st.none() | st.datetimes(timezones=st.just(UTC) | st.none()),
        received_date=st.none() | st.datetimes(timezones=st.timezones()),
        recipients=st.lists(
            st.builds(ds.Recipient, email=HOSTILE, type=st.builds(ds.RecipientType, st.sampled_from(["TO", "Cc", "?"])))
        ),
        headers=st.lists(st.builds(MessageHeader, name=st.none() | HOSTILE, value=st.none() | HOSTILE)),
        attachments=st.lists(
            st.builds(
                ds.Attachment,
                content=st.binary(max_size=300),
                content_type=st.none() | HOSTILE | HOSTILE.map("text/x-a; b".__add__),
                filename=st.none() | HOSTILE,
            ),
            max_size=3,
        ),
    )
)
def test_no_value_breaks_out_of_its_place(message: MessageDetail) -> None:
    content = _bytes(message)
    assert content.decode("utf-8")
    assert b"\r" not in content
    assert max(map(len, content.split(b"\n"))) <= 998
    found = email.message_from_bytes(content, policy=email.policy.compat32)
    assert not found.defects
    allowed = {"from", "to", "cc", "reply-to", "subject", "date", "message-id", "mime-version", "content-type"}
    allowed |= {"content-transfer-encoding", *((each.name or "").lower() for each in message.headers)}
    assert {name.lower() for name in found.keys()} <= allowed  # noqa: SIM118 - it is not a dict
    for name in ("from", "to", "cc", "subject", "date", "mime-version", "content-type"):
        assert len(found.get_all(name, [])) <= max(
            1, sum((each.name or "").lower() == name for each in message.headers)
        )
    parts = found.get_payload() if message.attachments else [found]
    assert len(parts) == 1 + len(message.attachments)
    texts = [part.get_payload(decode=True) for part in parts]  # type: ignore[union-attr]
    assert texts[1:] == [each.content for each in message.attachments]
    body = replace_lone_surrogates(message.body or "").replace("\r\n", "\n").replace("\r", "\n")
    assert str(texts[0], "utf-8").removesuffix("\n") == body.removesuffix("\n")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("two  spaces", "two  spaces"),
        (" at both ends ", " at both ends "),
        ("folded\r\n  line", "folded line"),
        ("nul\0 and\ttab", "nul and tab"),
        ("", ""),
    ],
)
def test_the_spaces_of_a_subject_are_kept(subject: str, expected: str) -> None:
    assert _read(MessageDetail(subject=subject))["Subject"] == expected


SUBJECTS = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=300).filter(lambda t: "=?" not in t)


@given(SUBJECTS)
def test_a_subject_is_read_back(subject: str) -> None:
    found = email.message_from_bytes(_bytes(MessageDetail(subject=subject)), policy=email.policy.compat32)
    assert str(make_header(decode_header(found["Subject"]))) == subject


def test_the_ends_of_the_calendar_are_written() -> None:
    east, west = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
    for date in (datetime.min.replace(tzinfo=east), datetime.max.replace(tzinfo=west), datetime(2026, 1, 1)):  # noqa: DTZ001
        assert _read(MessageDetail(sent_date=date))["Date"].datetime is not None
