"""Composed messages, and the parsing of arbitrary bytes."""

from __future__ import annotations

import base64
import re
import time
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from directsuite.sandbox.messaging import parsing
from directsuite.sandbox.messaging.parsing import MessageAttachment, StoredContent, build_content, read_message
from directsuite.sandbox.messaging.requests import Recipient
from directsuite.sandbox.messaging.sending import Draft, compose_message
from directsuite.sandbox.rejections import MessagingError
from tests.sandbox.messaging.mailbox_server import ALICE, NOON

MESSAGE_ID = "<1@direct.clinic.test>"

text = st.text(st.characters(exclude_categories=["Cs"]))
line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"))
addresses = st.builds(
    "{}@{}.test".format,
    st.from_regex(r"[a-z0-9!#$%&'*+/=?^_`{|}~-]{1,12}(\.[a-z0-9]{1,12})?", fullmatch=True),
    st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True),
)
addressees = st.builds(Recipient, addresses, st.sampled_from(["TO", "CC", "BCC"]))
content_types = st.sampled_from(
    ["application/pdf", "text/xml; name=ccd.xml", 'text/xml; name="a b.xml"', "text/plain", "message/rfc822"]
)
attachments = st.builds(
    MessageAttachment,
    filename=line.filter(lambda name: len(name) <= 200),
    content_type=content_types,
    content=st.binary(),
)
headers = st.tuples(st.from_regex(r"X-[!-9;-~]{0,20}", fullmatch=True), line)


def decode_detail(content: StoredContent) -> dict[str, Any]:
    detail: dict[str, Any] = msgspec.json.decode(content.detail)
    return detail


def normalize_newlines(body: str) -> str:
    return re.sub(r"\r\n|\r|\n", "\r\n", body)


@settings(deadline=None)
@given(
    recipients=st.lists(addressees, min_size=1, max_size=5),
    subject=st.none() | line,
    body=text,
    html=st.booleans(),
    attached=st.lists(attachments, max_size=3),
    custom=st.lists(headers, max_size=3),
)
@example([Recipient("a@b.test", "TO")], " =?utf-8?q?not?= encoded \t", "From \n.\n\n", False, [], [("X-A", " ")])
@example(
    [Recipient("a@b.test", "TO")], "x" * 2000, "y" * 2000, True, [MessageAttachment("é" * 200, "text/plain", b"")], []
)
@example(
    [Recipient("a@b.test", "BCC")], "", "--=_\r", False, [MessageAttachment("", "message/rfc822", b"\r\n--\r\n")], []
)
def test_a_composed_message_is_parsed_as_its_draft(
    recipients: list[Recipient],
    subject: str | None,
    body: str,
    html: bool,
    attached: list[MessageAttachment],
    custom: list[tuple[str, str]],
) -> None:
    draft = Draft(ALICE, recipients, subject, body, html, attached, custom)
    composed = compose_message(draft, message_id=MESSAGE_ID, at=NOON)
    for content in composed:  # what the composer knew is what a reader finds in the bytes
        assert content == build_content(content.raw)
    own, delivered = decode_detail(composed.sender_copy), decode_detail(composed.recipient_copy)
    for detail in (own, delivered):
        assert detail["sender"] == ALICE
        assert detail["msgID"] == MESSAGE_ID
        assert detail["subject"] == (None if subject is None else subject)
        assert (detail["body"], detail["htmlBody"]) == (normalize_newlines(body), html)
        parts = [(p["filename"], p["contentType"], base64.b64decode(p["content"])) for p in detail["attachments"]]
        assert parts == [tuple(attachment) for attachment in attached]
        names = {name for name, _ in custom}
        assert [(h["name"], h["value"]) for h in detail["headers"] if h["name"] in names] == custom
    by_kind = [{"email": r.email, "type": r.type} for kind in ("TO", "CC", "BCC") for r in recipients if r.type == kind]
    assert own["recipients"] == by_kind
    assert delivered["recipients"] == [recipient for recipient in by_kind if recipient["type"] != "BCC"]
    assert all(len(row) <= 998 for row in composed.sender_copy.raw.split(b"\r\n\r\n")[0].split(b"\r\n"))


HOSTILE_BYTES = st.lists(
    st.sampled_from(
        [
            b"Content-Type: multipart/mixed; boundary=b\r\n",
            b"Content-Type: multipart/mixed\r\n",
            b"Content-Type: message/rfc822\r\n",
            b"Content-Type: message/delivery-status\r\n",
            b"Content-Type: text/plain; charset=utf-7\r\n",
            b"Content-Type: text/plain; charset*=x'y'%ff\r\n",
            b"Content-Type: text/html; charset=zip; name*0*=utf-9''%ff; name*1=x\r\n",
            b"Content-Type: ;;=\r\n",
            b"Content-Transfer-Encoding: base64\r\n",
            b"Content-Transfer-Encoding: x-uuencode\r\n",
            b'Content-Disposition: attachment; filename="\\\r\n',
            b"Subject: =?utf-8?b?!!!?= =?x?q?=ff?= \xff\r\n",
            b'From: <<a@\r\nTo: ,;:"(\r\nDate: Mon, 99 Foo 99999\r\nReply-To: \r\n',
            b"Date: Fri, 31 Dec 9999 23:59:59 -2359\r\n",
            b" folded\r\n",
            b"\r\n",
            b"--b\r\n",
            b"--b--\r\n",
            b"+2AA-begin 644 x\r\n",
            b"AAEC=\r\n",
            b"\n",
        ]
    )
    | st.binary(max_size=40),
    max_size=12,
).map(b"".join)


@settings(deadline=None)
@given(raw=HOSTILE_BYTES | st.binary())
@example(raw=b"Content-Type: text/plain; charset=utf-7\r\n\r\n+2AA-")
@example(raw=b"".join(b"Content-Type: multipart/mixed; boundary=%d\r\n\r\n--%d\r\n" % (n, n) for n in range(2000)))
def test_any_bytes_are_parsed_and_stored_unchanged(raw: bytes) -> None:
    content = build_content(raw)
    assert content.raw == raw
    detail, metadata = msgspec.json.decode(content.detail), msgspec.json.decode(content.metadata)
    assert detail["size"] == len(raw)
    assert isinstance(detail["body"], str)
    assert metadata["body"] is None
    assert content.sent_ms is None or abs(content.sent_ms) < 2**60


def test_html_is_preferred_to_plain_text() -> None:
    reading = read_message(
        b"Content-Type: multipart/alternative; boundary=b\r\n\r\n"
        b"--b\r\n\r\nplain\r\n--b\r\nContent-Type: text/html\r\n\r\n<p>rich</p>\r\n--b--\r\n"
    )
    assert (reading.body, reading.html_body, reading.attachments) == ("<p>rich</p>", True, [])


def test_texts_after_the_first_are_attachments() -> None:
    reading = read_message(
        b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nbody\r\n--b\r\n\r\nfooter\r\n--b--\r\n"
    )
    assert reading.body == "body"
    assert [(part.filename, part.content) for part in reading.attachments] == [("attachment-1", b"footer")]


@pytest.mark.parametrize(
    ("charset", "octets", "expected"),
    [("iso-8859-1", b"Gr\xfc\xdfe", "Grüße"), ("utf-8", b"\xff", "\ufffd"), ("no-such", b"\xfc", "ü")],
)
def test_bodies_with_wrong_charsets_are_decoded(charset: str, octets: bytes, expected: str) -> None:
    assert read_message(b"Content-Type: text/plain; charset=%b\r\n\r\n%b" % (charset.encode(), octets)).body == expected


def test_a_delivery_status_part_is_unchanged() -> None:
    status = b"Reporting-MTA: dns; x\r\n\r\nFinal-Recipient: rfc822; b@x.test\r\nAction: failed\r\n"
    reading = read_message(
        b"Content-Type: multipart/report; boundary=b\r\n\r\n--b\r\n\r\nfailed\r\n"
        b"--b\r\nContent-Type: message/delivery-status\r\n\r\n" + status + b"\r\n--b--\r\n"
    )
    assert [(part.content_type, part.content) for part in reading.attachments] == [("message/delivery-status", status)]


@pytest.mark.parametrize("line_break", [b"\r\n", b"\n", b"\r"])
def test_a_nested_part_with_the_outer_boundary_loses_nothing(line_break: bytes) -> None:
    lines = (
        b"Content-Type: multipart/mixed; boundary=b||preamble|--b|Content-Type: multipart/alternative; boundary=b||"
        b"--b||plain|--b|Content-Type: text/html||<p>rich</p>|--b--  |epilogue|--b|"
        b"Content-Type: application/pdf; name=a.pdf||%PDF-|--b|Content-Type: multipart/mixed; boundary=c||"
        b"--c|Content-Type: text/xml; name=b.xml||<a/>|--b|Content-Disposition: attachment; filename=c||c|--b--|end"
    )
    reading = read_message(lines.replace(b"|", line_break))
    assert (reading.body, reading.html_body) == ("<p>rich</p>", True)
    found = [(part.filename, part.content) for part in reading.attachments]
    assert found == [("a.pdf", b"%PDF-"), ("b.xml", b"<a/>"), ("c", b"c")]


def test_a_multipart_part_without_its_boundary_is_an_attachment() -> None:
    reading = read_message(b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--other\r\n\r\ntext\r\n--other--\r\n")
    assert [part.content for part in reading.attachments] == [b"--other\r\n\r\ntext\r\n--other--\r\n"]


def test_parts_of_a_digest_are_messages() -> None:
    reading = read_message(b"Content-Type: multipart/digest; boundary=b\r\n\r\n--b\r\n\r\nSubject: x\r\n\r\ny\r\n--b--")
    assert reading.attachments == [MessageAttachment("attachment-1", "message/rfc822", b"Subject: x\r\n\r\ny")]


@pytest.mark.exhaustive(limit=1)
@pytest.mark.parametrize(
    "pattern", [b"--b\r\n", b"--b", b"\r", b"--x\r\n", b"a: b\r\n", b"a\r\n", b" \r\n", b"--b--\r\n"]
)
def test_messages_are_parsed_in_linear_time(pattern: bytes) -> None:
    nested = b"".join(b"Content-Type: multipart/mixed; boundary=%d\r\n\r\n--%d\r\n" % (n, n) for n in range(2000))
    began = time.process_time()
    read_message(nested + b"Content-Type: multipart/mixed; boundary=b\r\n\r\n" + pattern * (200_000 // len(pattern)))
    assert time.process_time() - began < 20


def test_filename_segments_contain_complete_characters() -> None:
    draft = Draft(ALICE, [Recipient("b@x.test", "TO")], "", "", attachments=[MessageAttachment("é€𝄞" * 20, "a/b", b"")])
    raw = compose_message(draft, message_id=MESSAGE_ID, at=NOON).recipient_copy.raw.decode("ascii")
    segments = re.findall(r"filename\*\d+\*=(.*?);?\r\n", raw)
    assert len(segments) > 3
    assert "".join(unquote(segment, errors="strict") for segment in segments) == "utf-8''" + "é€𝄞" * 20


@pytest.mark.parametrize("pattern", [b";", b'\\";', b'";"'])
def test_parameters_are_parsed_in_linear_time(pattern: bytes) -> None:
    began = time.process_time()
    read_message(b'Content-Type: text/plain; a="' + pattern * (200_000 // len(pattern)) + b'"\r\n\r\ntext')
    assert time.process_time() - began < 5


@pytest.mark.parametrize("boundary", ["é".encode(), b"\xe9"])
def test_boundaries_and_filenames_may_be_8_bit_text(boundary: bytes) -> None:
    lines = b'Content-Type: multipart/mixed; boundary="b"||--b|Content-Type: a/b; name="M\xc3\xbcller"||x|--b--|'
    reading = read_message(
        lines.replace(b"|", b"\r\n").replace(b'"b"', b'"%b"' % boundary).replace(b"--b", b"--" + boundary)
    )
    assert reading.attachments == [MessageAttachment("Müller", 'a/b; name="Müller"', b"x")]


def test_text_that_follows_an_alternative_is_kept() -> None:
    """Apple Mail sends an attachment in the middle of rich text in this form."""
    lines = (
        b"Content-Type: multipart/alternative; boundary=b||--b||plain|--b|Content-Type: multipart/mixed; boundary=c||"
        b"--c|Content-Type: text/html||<p>rich</p>|--c|Content-Type: a/b||x|--c|"
        b"Content-Type: text/html||<br>|--c--|--b--|"
    )
    reading = read_message(lines.replace(b"|", b"\r\n"))
    assert reading.body == "<p>rich</p>"
    assert [part.content for part in reading.attachments] == [b"x", b"<br>"]


@pytest.mark.parametrize(
    "part", [b"--b\r\n\r\nx\r\n", b"--b\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"], ids=["flat", "nested"]
)
def test_parts_beyond_the_limit_stay_together_in_the_last_one(part: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MAX_PARTS", 20)
    raw = b"From: a@x.test\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" + part * 50 + b"--b--\r\n"
    reading = read_message(raw)
    assert reading.find_header_text("from") == "a@x.test"
    assert len(reading.attachments) < 20
    last = reading.attachments[-1].content if reading.attachments else reading.body.encode()
    assert isinstance(last, bytes)
    assert raw.endswith(last)
    assert last.count(b"--b\r\n") >= 30


def test_a_message_of_very_many_parts_has_a_bounded_reading() -> None:
    raw = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n" + b"--b\r\n\r\nx\r\n" * 200_000 + b"--b--\r\n"
    assert len(read_message(raw).attachments) < parsing.MAX_PARTS


def test_header_lines_beyond_the_limit_are_left_out() -> None:
    raw = b"Subject: first\r\n" + b"a:\r\n" * 30_000 + b"To: b@x.test\r\n\r\nThe text."
    reading = read_message(raw)
    assert len(reading.headers) == parsing.MAX_HEADER_LINES
    assert reading.find_header_text("subject") == "first"
    assert reading.body == "The text."


def test_recipients_beyond_the_limit_are_left_out() -> None:
    content = build_content(b"To: " + b"a@x.test," * 30_000 + b"\r\n\r\nThe text.")
    assert len(msgspec.json.decode(content.metadata)["recipients"]) == parsing.MAX_RECIPIENTS


def test_a_draft_with_too_many_attachments_is_rejected() -> None:
    attachments = [MessageAttachment("a.txt", "text/plain", b"")] * parsing.MAX_PARTS
    draft = Draft(ALICE, [Recipient("b@x.test", "TO")], "s", "x", attachments=attachments)
    with pytest.raises(MessagingError, match="at most 999 attachments"):
        compose_message(draft, message_id=MESSAGE_ID, at=NOON)
    compose_message(draft._replace(attachments=attachments[1:]), message_id=MESSAGE_ID, at=NOON)


def test_a_draft_with_too_many_recipients_is_rejected() -> None:
    recipients = [Recipient(f"b{number}@x.test", "BCC") for number in range(parsing.MAX_RECIPIENTS + 1)]
    with pytest.raises(MessagingError, match="at most 10,000 recipients"):
        compose_message(Draft(ALICE, recipients, "s", "x"), message_id=MESSAGE_ID, at=NOON)
