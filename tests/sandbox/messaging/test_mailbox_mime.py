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
from tests.sandbox.messaging.mailbox_server import ALICE, NOON_MS

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
    composed = compose_message(draft, NOON_MS)
    own, delivered = decode_detail(composed.sender_copy), decode_detail(composed.recipient_copy)
    for content, detail in ((composed.sender_copy, own), (composed.recipient_copy, delivered)):
        assert content == build_content(content.raw)  # what the composer knew is what a reader finds in the bytes
        assert (detail["sender"], detail["msgID"], detail["subject"]) == (ALICE, composed.smtp_id, subject)
        assert (detail["body"], detail["htmlBody"]) == (normalize_newlines(body), html)
        parts = [(p["filename"], p["contentType"], base64.b64decode(p["content"])) for p in detail["attachments"]]
        assert parts == [tuple(attachment) for attachment in attached]
        names = {name for name, _ in custom}
        assert [(h["name"], h["value"]) for h in detail["headers"] if h["name"] in names] == custom
    by_kind = [{"email": r.email, "type": r.type} for kind in ("TO", "CC", "BCC") for r in recipients if r.type == kind]
    assert own["recipients"] == by_kind
    assert delivered["recipients"] == [recipient for recipient in by_kind if recipient["type"] != "BCC"]
    assert all(len(row) <= 998 for row in composed.sender_copy.raw.split(b"\r\n\r\n")[0].split(b"\r\n"))


NESTED = b"".join(b"Content-Type: multipart/mixed; boundary=%d\r\n\r\n--%d\r\n" % (n, n) for n in range(2000))
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
@example(raw=NESTED)
def test_any_bytes_are_parsed_and_stored_unchanged(raw: bytes) -> None:
    content = build_content(raw)
    assert content.raw == raw
    detail, metadata = msgspec.json.decode(content.detail), msgspec.json.decode(content.metadata)
    assert detail["size"] == len(raw)
    assert isinstance(detail["body"], str)
    assert metadata["body"] is None
    assert content.sent_ms is None or abs(content.sent_ms) < 2**60


MULTIPART = b"Content-Type: multipart/mixed; boundary=b||"
STATUS = b"Reporting-MTA: dns; x|"
READINGS: dict[str, tuple[bytes, str, list[tuple[str, str, bytes]]]] = {
    "HTML is preferred to plain text": (
        b"Content-Type: multipart/alternative; boundary=b||--b||plain|--b|Content-Type: text/html||<p>rich</p>|--b--|",
        "<p>rich</p>",
        [],
    ),
    "texts after the first are attachments": (
        MULTIPART + b"--b||body|--b||footer|--b--|",
        "body",
        [("attachment-1", "text/plain", b"footer")],
    ),
    "a delivery status is unchanged": (
        MULTIPART + b"--b||failed|--b|Content-Type: message/delivery-status||" + STATUS + b"|--b--|",
        "failed",
        [("attachment-1", "message/delivery-status", STATUS)],
    ),
    "a multipart part without its boundary is an attachment": (
        MULTIPART + b"--other||text|--other--|",
        "",
        [("attachment-1", "multipart/mixed; boundary=b", b"--other||text|--other--|")],
    ),
    "parts of a digest are messages": (
        b"Content-Type: multipart/digest; boundary=b||--b||Subject: x||y|--b--",
        "",
        [("attachment-1", "message/rfc822", b"Subject: x||y")],
    ),
    # Apple Mail sends an attachment in the middle of rich text in this form.
    "text that follows an alternative is kept": (
        b"Content-Type: multipart/alternative; boundary=b||--b||plain|--b|Content-Type: multipart/mixed; boundary=c||"
        b"--c|Content-Type: text/html||<p>rich</p>|--c|Content-Type: a/b||x|--c|"
        b"Content-Type: text/html||<br>|--c--|--b--|",
        "<p>rich</p>",
        [("attachment-1", "a/b", b"x"), ("attachment-2", "text/html", b"<br>")],
    ),
    "names may be 8-bit text": (
        MULTIPART + b'--b|Content-Type: a/b; name="M\xc3\xbcller"||x|--b--|',
        "",
        [("Müller", 'a/b; name="Müller"', b"x")],
    ),
    "boundaries may be UTF-8": (MULTIPART.replace(b"=b", b'="\xc3\xa9"') + b"--\xc3\xa9||x|--\xc3\xa9--|", "x", []),
    "boundaries may be Latin-1": (MULTIPART.replace(b"=b", b'="\xe9"') + b"--\xe9||x|--\xe9--|", "x", []),
}


def test_a_message_is_divided_into_body_and_attachments() -> None:
    for case, (raw, body, attachments) in READINGS.items():
        reading = read_message(raw.replace(b"|", b"\r\n"))
        expected = [(name, kind, content.replace(b"|", b"\r\n")) for name, kind, content in attachments]
        assert (reading.body, [tuple(part) for part in reading.attachments]) == (body, expected), case
        assert reading.html_body is body.startswith("<"), case


def test_bodies_with_wrong_charsets_are_decoded() -> None:
    for charset, octets, expected in (
        ("iso-8859-1", b"Gr\xfc\xdfe", "Grüße"),
        ("utf-8", b"\xff", "\ufffd"),
        ("no-such", b"\xfc", "ü"),
    ):
        assert (
            read_message(b"Content-Type: text/plain; charset=%b\r\n\r\n%b" % (charset.encode(), octets)).body
            == expected
        ), (charset, octets, expected)


def test_a_nested_part_with_the_outer_boundary_loses_nothing() -> None:
    for line_break in (b"\r\n", b"\n", b"\r"):
        lines = (
            b"Content-Type: multipart/mixed; boundary=b||preamble|--b|Content-Type: multipart/alternative; boundary=b||"
            b"--b||plain|--b|Content-Type: text/html||<p>rich</p>|--b--  |epilogue|--b|"
            b"Content-Type: application/pdf; name=a.pdf||%PDF-|--b|Content-Type: multipart/mixed; boundary=c||"
            b"--c|Content-Type: text/xml; name=b.xml||<a/>|--b|Content-Disposition: attachment; filename=c||c|--b--|end"
        )
        reading = read_message(lines.replace(b"|", line_break))
        assert (reading.body, reading.html_body) == ("<p>rich</p>", True), line_break
        found = [(part.filename, part.content) for part in reading.attachments]
        assert found == [("a.pdf", b"%PDF-"), ("b.xml", b"<a/>"), ("c", b"c")], line_break


IN_PARTS = NESTED + b"Content-Type: multipart/mixed; boundary=b\r\n\r\n"


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(
    ("start", "pattern"),
    [
        *(
            (IN_PARTS, line)
            for line in (b"--b\r\n", b"--b", b"\r", b"--x\r\n", b"a: b\r\n", b"a\r\n", b" \r\n", b"--b--\r\n")
        ),
        *((b'Content-Type: text/plain; a="', text) for text in (b";", b'\\";', b'";"')),
    ],
)
def test_messages_are_parsed_in_linear_time(start: bytes, pattern: bytes) -> None:
    began = time.process_time()
    read_message(start + pattern * (200_000 // len(pattern)) + b'"\r\n\r\ntext')
    assert time.process_time() - began < 20


def test_filename_segments_contain_complete_characters() -> None:
    draft = Draft(ALICE, [Recipient("b@x.test", "TO")], "", "", attachments=[MessageAttachment("é€𝄞" * 20, "a/b", b"")])
    raw = compose_message(draft, NOON_MS).recipient_copy.raw.decode("ascii")
    segments = re.findall(r"filename\*\d+\*=(.*?);?\r\n", raw)
    assert len(segments) > 3
    assert "".join(unquote(segment, errors="strict") for segment in segments) == "utf-8''" + "é€𝄞" * 20


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


def test_headers_beyond_the_limits_are_left_out() -> None:
    reading = read_message(b"Subject: first\r\n" + b"a:\r\n" * 30_000 + b"To: b@x.test\r\n\r\nThe text.")
    assert (len(reading.headers), reading.headers[0].text) == (parsing.MAX_HEADER_LINES, "first")
    assert reading.body == "The text."
    content = build_content(b"To: " + b"a@x.test," * 30_000 + b"\r\n\r\nThe text.")
    assert len(msgspec.json.decode(content.metadata)["recipients"]) == parsing.MAX_RECIPIENTS


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"attachments": [MessageAttachment("a.txt", "text/plain", b"")] * 1000}, "at most 999 attachments"),
        ({"recipients": [Recipient(f"b{n}@x.test", "BCC") for n in range(10_001)]}, "at most 10,000 recipients"),
    ],
)
def test_a_draft_with_too_many_parts_is_rejected(members: dict[str, Any], error: str) -> None:
    draft = Draft(ALICE, [Recipient("b@x.test", "TO")], "s", "x")
    with pytest.raises(MessagingError, match=error):
        compose_message(draft._replace(**members), NOON_MS)
    compose_message(draft._replace(**{name: each[1:] for name, each in members.items()}), NOON_MS)
