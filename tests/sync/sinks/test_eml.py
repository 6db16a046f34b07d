"""Messages as RFC 5322 bytes: the standard library reads what was written, whoever wrote it."""

from __future__ import annotations

import email
import email.policy
from datetime import UTC, datetime, timedelta, timezone
from email.header import decode_header, make_header
from email.message import EmailMessage

import pytest
from hypothesis import given
from hypothesis import strategies as st

import directsuite as ds
from directsuite.messaging.models import MessageDetail, MessageHeader
from directsuite.sync.sinks.eml import eml_of, whole_text
from tests.sync.sinks.letters import RECEIVED, letter

HOSTILE = st.text(
    st.one_of(st.characters(), st.sampled_from('\r\n\0\x85\u2028\ud800\udfff "<>@,:;=?_-.\\/')), max_size=60
)


def _bytes(message: MessageDetail) -> bytes:
    return b"".join(eml_of(message))


def _read(message: MessageDetail) -> EmailMessage:
    return email.message_from_bytes(_bytes(message), policy=email.policy.default)


def test_everything_is_read_back() -> None:
    found = _read(letter())
    assert found["From"] == '"Dr. Änne Müller" <anne@direct.test>'
    assert (found["To"], found["Cc"], found["Bcc"]) == ("nurse@direct.test", "bob@direct.test", None)
    assert (found["Subject"], found["Message-ID"]) == ("Befund 1 – Grüße", "<1@direct.test>")
    assert found["Date"].datetime == RECEIVED
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
    assert (empty.get_content(), empty.keys()) == (
        "\n",
        ["MIME-Version", "Content-Type", "Content-Transfer-Encoding"],
    )


def test_the_same_message_has_the_same_bytes() -> None:
    zone = timezone(timedelta(hours=5))
    assert _bytes(letter()) == _bytes(letter(received_date=RECEIVED.astimezone(zone)))
    assert _bytes(letter()) != _bytes(letter(2))


def test_headers_given_do_not_stand_beside_the_messages_own() -> None:
    given_ = [MessageHeader("SUBJECT", "other"), MessageHeader("from", "x@evil.test"), MessageHeader("Received", "a")]
    found = _read(letter(headers=[*given_, MessageHeader("Received", "b")]))
    assert len(found.get_all("Subject", [])) == len(found.get_all("From", [])) == 1
    assert found.get_all("Received") == ["a", "b"]


def test_line_breaks_begin_no_header() -> None:
    evil = 'a\r\nX-Evil: yes\r\n\r\n"\0\x85'
    attachment = ds.Attachment(content=b"x", filename=evil, content_type="a/b\r\nX-Evil: yes")
    message = letter(
        sender=f"{evil} <a@b.test>", subject=evil, msg_id=evil, reply_to=evil, attachments=[attachment],
        headers=[MessageHeader("X-A", evil), MessageHeader("X-Evil: yes\r\nX-B", "b")],
    )  # fmt: skip
    content = _bytes(message)
    assert b"\nX-Evil" not in content
    assert b"\0" not in content
    (part,) = _read(message).iter_attachments()
    assert part.keys() == ["Content-Type", "Content-Transfer-Encoding", "Content-Disposition"]
    assert part.get_content() == b"x"


def test_an_enclosed_email_is_a_file_with_all_its_bytes() -> None:
    enclosed = b"Subject: x\r\n\r\n--=_directsuite--\r\n"
    attachment = ds.Attachment(content=enclosed, content_type="message/rfc822", filename="x.eml")
    (part,) = _read(letter(attachments=[attachment])).iter_attachments()
    assert (part.get_content_type(), part.get_content()) == ("application/octet-stream", enclosed)


def test_a_boundary_in_the_text_ends_no_part() -> None:
    body = "--=_directsuite--\n--=_directsuite\nContent-Type: text/evil\n\n.\nFrom me\n"
    parts = list(_read(letter(body=body)).iter_parts())
    assert [part.get_content_type() for part in parts] == ["text/plain", "application/pdf", "text/xml"]
    assert parts[0].get_content() == body


def test_names_with_commas_and_quotes_stay_one_address() -> None:
    found = _read(MessageDetail(sender='"Doe, \\"J\\" John" <john@direct.test>'))["From"]
    assert [(each.display_name, each.addr_spec) for each in found.addresses] == [('Doe, "J" John', "john@direct.test")]


LETTERS = st.text(st.characters(categories=["L", "M", "N", "S", "Cf", "Cs"]), min_size=1, max_size=30)


@given(local=LETTERS, domain=LETTERS, name=st.just("") | HOSTILE)
def test_an_address_of_any_letters_is_written_and_read(local: str, domain: str, name: str) -> None:
    address = f"{local}@{domain}"
    message = MessageDetail(sender=f"{name} <{address}>" if name else address, reply_to=address)
    content = _bytes(message)
    assert content.isascii()
    assert len(_read(message)["From"].addresses) <= 1
    if address.isascii() and local.isalnum() and domain.isalnum():
        assert _read(message)["Reply-To"].addresses[0].addr_spec == address


@pytest.mark.parametrize(
    "address", ["jürgen@clinic.example", "Jürgen <jürgen@clinic.example>", "a@，b", "=?utf-8?q?b?=@c.example"]
)
def test_an_address_that_is_not_ascii_is_a_name_that_can_be_read(address: str) -> None:
    found = _read(MessageDetail(sender=address, recipients=[ds.Recipient(address), ds.Recipient("bob@direct.test")]))
    assert not found.defects
    assert not found["From"].defects
    (group,) = found["From"].groups
    assert (group.display_name, group.addresses) == (address, ())
    assert [each.addr_spec for each in found["To"].addresses] == ["bob@direct.test"]


def test_a_domain_beyond_ascii_is_written_as_dns_has_it() -> None:
    (address,) = _read(MessageDetail(sender="Jürgen <j@bücher.example>"))["From"].addresses
    assert (address.display_name, address.addr_spec) == ("Jürgen", "j@xn--bcher-kva.example")


def test_huge_values_are_folded_in_time() -> None:
    message = letter(
        subject="ü" * 5_000_000,
        msg_id="x" * 100_000,
        sender="a b: " * 200_000,
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
                content_type=st.none() | HOSTILE,
                filename=st.none() | HOSTILE,
            ),
            max_size=3,
        ),
    )
)
def test_no_value_breaks_out_of_its_place(message: MessageDetail) -> None:
    content = _bytes(message)
    assert content.isascii()
    assert b"\r" not in content
    assert max(map(len, content.split(b"\n"))) <= 998
    found = email.message_from_bytes(content, policy=email.policy.compat32)
    assert not found.defects
    allowed = {"from", "to", "cc", "reply-to", "subject", "date", "message-id", "mime-version", "content-type"}
    allowed |= {"content-transfer-encoding", *((each.name or "").lower() for each in message.headers)}
    assert {name.lower() for name in found.keys()} <= allowed  # noqa: SIM118 - it is no dict
    for name in ("from", "to", "cc", "subject", "date", "mime-version", "content-type"):
        assert len(found.get_all(name, [])) <= max(
            1, sum((each.name or "").lower() == name for each in message.headers)
        )
    parts = found.get_payload() if message.attachments else [found]
    assert len(parts) == 1 + len(message.attachments)
    texts = [part.get_payload(decode=True) for part in parts]  # type: ignore[union-attr]
    assert texts[1:] == [each.content for each in message.attachments]
    body = whole_text(message.body or "").replace("\r\n", "\n").replace("\r", "\n")
    assert str(texts[0], "utf-8").removesuffix("\n") == body.removesuffix("\n")  # type: ignore[arg-type]


@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=300))
def test_a_subject_is_read_back(subject: str) -> None:
    found = email.message_from_bytes(_bytes(MessageDetail(subject=subject)), policy=email.policy.compat32)
    expected = " ".join(subject.split(" ")).strip() if "=?" not in subject else None
    if expected is not None:
        assert " ".join(str(make_header(decode_header(found["Subject"]))).split(" ")) == " ".join(
            each for each in expected.split(" ") if each
        )


def test_the_ends_of_the_calendar_are_written() -> None:
    east, west = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
    for date in (datetime.min.replace(tzinfo=east), datetime.max.replace(tzinfo=west), datetime(2026, 1, 1)):  # noqa: DTZ001
        assert _read(MessageDetail(sent_date=date))["Date"].datetime is not None
