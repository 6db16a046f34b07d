"""Addresses in headers, and names that look like addresses."""

from __future__ import annotations

import time
from email.header import Header
from email.headerregistry import Address
from email.utils import formataddr
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.sandbox.messaging.parsing import build_content, read_message
from directsuite.sandbox.messaging.requests import Recipient
from directsuite.sandbox.messaging.sending import Draft, compose_message
from tests.sandbox.messaging.mailbox_server import ALICE, NOON_MS

pytestmark = pytest.mark.wide

names = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=40)
plain_addresses = st.from_regex(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,12}(\.[a-z0-9]{1,12})?@[a-z0-9-]{1,12}(\.[a-z]{1,5})?", fullmatch=True
)
local_parts = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20)


def read(*lines: str | bytes) -> dict[str, Any]:
    octets = [line.encode("utf-8") if isinstance(line, str) else line for line in lines]
    detail: dict[str, Any] = msgspec.json.decode(build_content(b"\r\n".join([*octets, b"", b"text", b""])).detail)
    return detail


def recipients(*lines: str | bytes) -> list[str]:
    return [recipient["email"] for recipient in read(*lines)["recipients"]]


@pytest.mark.parametrize(
    ("value", "sender"),
    [
        ("=?utf-8?q?M=C3=BCller=2C_Hans?= <hans@x.test>", "hans@x.test"),
        ("=?utf-8?q?spoof=40evil=2Etest=2C?= <real@x.test>", "real@x.test"),
        ("=?utf-8?q?spoof=40evil=2Etest?= <real@x.test>", "real@x.test"),
        ("=?utf-8?q?=3Cspoof=40evil=2Etest=3E?= <real@x.test>", "real@x.test"),
        ("=?utf-8?b?c3Bvb2ZAZXZpbC50ZXN0LCA8?= <real@x.test>", "real@x.test"),
        ("=?utf-8?q?=0D=0ATo=3A_spoof=40evil=2Etest?= <real@x.test>", "real@x.test"),
        ('"=?utf-8?q?=22_=3Cspoof=40evil=2Etest=3E?=" <real@x.test>', "real@x.test"),
        ("=?utf-8?q?spoof=40evil=2Etest?=@x.test", "=?utf-8?q?spoof=40evil=2Etest?=@x.test"),
        ("spoof@evil.test <real@x.test>", "real@x.test"),
        ("'spoof@evil.test' <real@x.test>", "real@x.test"),
        ('"spoof@evil.test" <real@x.test>', "real@x.test"),
        ('"spoof@evil.test, " <real@x.test>', "real@x.test"),
        ('"a \\" <spoof@evil.test>" <real@x.test>', "real@x.test"),
        ("(spoof@evil.test (nested)) real@x.test (spoof@evil.test)", "real@x.test"),
        ("=?utf-8?Q?Müller, Hans?= <real@x.test>", "real@x.test"),
        ("Müller, Hans <real@x.test>", "real@x.test"),
        ('"unterminated <real@x.test>', "real@x.test"),
        ("J [x] <real@x.test>", "real@x.test"),
        ("<@route.test,@other.test:real@x.test>", "real@x.test"),
        ("mailto:real@x.test", "real@x.test"),
        ("Name <mailto:real@x.test>", "real@x.test"),
        ("Name <real@x.test", "real@x.test"),
        ("real @ x . test", "real@x.test"),
        ('Name <"a b, c"@x.test>', '"a b, c"@x.test'),
        ("real@[IPv6:::1]", "real@[IPv6:::1]"),
        ("Group: real@x.test, other@x.test;", "real@x.test"),
        ("two@signs@x.test", "two@signs@x.test"),  # not an address: the text of the header
        ("nobody", "nobody"),
    ],
)
def test_the_sender_is_the_address_without_the_name(value: str, sender: str) -> None:
    assert read(f"From: {value}")["sender"] == sender
    assert read("From: a@x.test", f"Reply-To: {value}")["replyTo"] == sender


def test_a_message_without_from_has_an_empty_sender() -> None:
    detail = read("Subject: x")
    assert (detail["sender"], detail["replyTo"]) == ("", None)  # the specification requires only the sender


@pytest.mark.parametrize(
    ("value", "addresses"),
    [
        ("=?utf-8?q?spoof=40evil=2Etest=2C?= <a@x.test>, b@x.test", ["a@x.test", "b@x.test"]),
        ("undisclosed-recipients:;", []),
        ("undisclosed recipients", []),
        ("Müller, Hans <a@x.test>, Team: b@x.test, C <c@x.test>;, d@x.test", [f"{c}@x.test" for c in "abcd"]),
        ("a@x.test;b@x.test", ["a@x.test", "b@x.test"]),
        ("a@x.test, ,b@x.test,", ["a@x.test", "b@x.test"]),
        ("a@x.test (b@x.test, c@x.test), d@x.test", ["a@x.test", "d@x.test"]),
        ("", []),
    ],
)
def test_recipients_are_parsed_from_the_header(value: str, addresses: list[str]) -> None:
    assert recipients(f"To: {value}") == addresses


@given(name=names, local=local_parts)
def test_an_address_is_read_as_the_standard_library_writes_it(name: str, local: str) -> None:
    address = Address("", local, "x.test").addr_spec
    written = formataddr((name, address))
    assert read(f"From: {written}")["sender"] == address
    assert recipients(f"To: {written}, a@x.test,\r\n {written}", f"Cc: {written}") == [
        address,
        "a@x.test",
        address,
        address,
    ]


@given(name=names, address=plain_addresses, charset=st.sampled_from(["utf-8", "utf-16", "x-none"]))
def test_no_encoded_word_changes_an_address(name: str, address: str, charset: str) -> None:
    words = Header(name, "utf-8").encode() or "=?utf-8?q??="
    for phrase in (words, words.replace("utf-8", charset), f'"{words}"', f"({words})", f"x {words}"):
        assert read(f"From: {phrase} <{address}>")["sender"] == address
        assert recipients(f"To: {phrase} <{address}>, b@x.test") == [address, "b@x.test"]


@given(name=names, address=plain_addresses)
def test_a_reply_to_header_is_parsed_as_it_was_sent(name: str, address: str) -> None:
    quoted = '"' + name.replace("\\", r"\\").replace('"', r"\"") + '"'
    draft = Draft(
        ALICE, [Recipient("b@x.test", "TO")], "Subject", "text", headers=[("Reply-To", f"{quoted} <{address}>")]
    )
    composed = compose_message(draft, NOON_MS)
    assert composed.recipient_copy == build_content(composed.recipient_copy.raw)
    detail = msgspec.json.decode(composed.recipient_copy.detail)
    assert detail["replyTo"] == address
    assert address.encode() in composed.recipient_copy.raw  # RFC 2047, section 5: never within an encoded word


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("=?utf-8?q?M=C3=BCller=2C_Hans?= <hans@x.test>", '"Müller, Hans" <hans@x.test>'),
        ("=?utf-8?q?M=C3?= =?utf-8?q?=BCller?= <hans@x.test>", "Müller <hans@x.test>"),
        ('"=?utf-8?q?M=C3=BC=22?=" <hans@x.test>', '"Mü\\"" <hans@x.test>'),
        ("=?utf-8?q?=0D=0ABcc=3A?= <hans@x.test>", '" Bcc:" <hans@x.test>'),
    ],
)
def test_a_decoded_name_can_be_parsed_again(value: str, text: str) -> None:
    detail = read(f"From: {value}")
    assert detail["headers"] == [{"name": "From", "value": text}]
    assert read(f"From: {text}")["sender"] == detail["sender"] == "hans@x.test"


@pytest.mark.parametrize(
    "head",
    [
        *("From: a@x.test|Subject : x|To: b@x.test", "From: a@x.test|Subject\t: x|To: b@x.test"),
        *(f"From: a@x.test|{line}|To: b@x.test|Subject: x" for line in ("garbage", ": nameless", "two words: x")),
        *(
            f"From: a@x.test|{line}|To: b@x.test|Subject: x"
            for line in (">From a@x.test Mon", "g\u00e4rbage: x", "x| y")
        ),
        "From a@x.test Mon May  1 12:00:00 2026|From: a@x.test|Subject: x|To: b@x.test",  # the first line of an mbox
        *(f"{blanks}From: a@x.test|Subject: x|To: b@x.test" for blanks in (" |", "\t |", " |  |", " \n")),
    ],
)
def test_lines_that_are_not_headers_are_ignored(head: str) -> None:
    detail = read(head.replace("|", "\r\n"))
    assert (detail["sender"], detail["subject"], detail["body"]) == ("a@x.test", "x", "text\r\n")
    assert detail["recipients"] == [{"email": "b@x.test", "type": "TO"}]
    assert {header["name"] for header in detail["headers"]} == {"From", "Subject", "To"}


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (
            b"Subject: x\r\nDear colleague\r\nplease see\r\nnote: her knee\r\n\r\nRegards",
            "Dear colleague\r\nplease see\r\nnote: her knee\r\n\r\nRegards",
        ),
        (b"  \r\ntext", "  \r\ntext"),
    ],
)
def test_text_without_a_blank_line_before_it_is_the_body(raw: bytes, body: str) -> None:
    assert read_message(raw).body == body


@pytest.mark.parametrize(
    ("charset", "meant", "text"),
    [
        *(("gb2312", "gb18030", "镕"), ("gbk", "gb18030", "㐀"), ("ks_c_5601-1987", "cp949", "똠")),
        *(("shift_jis", "cp932", "①"), ("iso-8859-1", "cp1252", "“€”"), ("us-ascii", "utf-8", "ü")),
    ],
)
def test_a_charset_is_decoded_as_its_superset(charset: str, meant: str, text: str) -> None:
    octets = text.encode(meant)
    word = "".join(f"={octet:02X}" for octet in octets)
    filename = f"Content-Disposition: attachment; filename*={charset}''{word.replace('=', '%')}"
    detail = read(f"Subject: =?{charset}?q?{word}?=", filename)
    assert (detail["subject"], detail["attachments"][0]["filename"]) == (text, text)
    body = b"Content-Type: text/plain; charset=%b\r\n\r\n%b" % (charset.encode(), octets)
    assert msgspec.json.decode(build_content(body).detail)["body"] == text


HOSTILE = [
    *("(", '"', '"\\', '\\"', "<", "<>", ",", ";", ":", "@", "a@", "a.", " ", "a ", "[", "=?"),
    *("=?a?q?", "=?a?q?x", "=?a?q??="),
]
LONG_WORD = "a" * 60


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        *((pattern, 500_000) for pattern in HOSTILE),
        *((f"=?utf-8?q?{LONG_WORD}?= ", 6_000_000), (f"=?punycode?q?{LONG_WORD}-b?= ", 6_000_000)),
    ],
)
def test_headers_are_parsed_in_linear_time(pattern: str, size: int) -> None:
    """Quadratic time would need minutes."""
    began = time.process_time()
    value = pattern * (size // len(pattern))
    read(*([] if size > 500_000 else [f"From: {value}"]), f"Subject: {value}")
    assert time.process_time() - began < 20


@pytest.mark.parametrize("charset", ["idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined"])
def test_codecs_that_are_no_charsets_decode_nothing(charset: str) -> None:
    assert read(f"Subject: =?{charset}?q?xn--a-\\u0041\\q?=")["subject"] == "xn--a-\\u0041\\q"


def test_quotation_marks_in_comments_are_text() -> None:
    assert recipients('To: a@x.test (5" tall), b@x.test (6" tall), "(" <c@x.test>') == [
        "a@x.test",
        "b@x.test",
        "c@x.test",
    ]
    assert read('From: (") real@x.test (")')["sender"] == "real@x.test"
