"""Responses of a broken or malicious server, as data for tests."""

from __future__ import annotations

from .sample_responses import MARKER

DEPTHS = (10, 500, 950, 985, 995, 1005, 5_000)
"""Levels of nesting, most of them near the interpreter's limit."""


def nest(opening: bytes, closing: bytes, depth: int) -> bytes:
    return opening * depth + b"0" + closing * depth


VALUES: list[bytes] = [
    b"null",
    b'"null"',
    b"true",
    b'"true"',
    b"false",
    b'"FALSE"',
    b"0",
    b"-0",
    b"-0.0",
    b"-1",
    b"1.5",
    b"1e308",
    b"1e400",
    b"-1e-400",
    b"NaN",
    b"Infinity",
    b"9007199254740993",
    b"18446744073709551616",
    b"253402300800000",
    b"-62135596800001",
    b"9" * 4300,
    b"9" * 4301,
    b'""',
    b'" "',
    b'"%s"' % MARKER.encode(),
    b'"\\u0000"',
    b'"\\"],\\\\"',
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\xc0\xaf"',
    '"\u0661\u0662"'.encode(),
    b'"%s"' % (b"1" * 41),
    b'"1_000"',
    b'"nan"',
    b'"-inf"',
    b'"0x10"',
    b'"2016-07-05"',
    b'"9999-12-31T23:59:59-23:59"',
    b'"0001-01-01T00:00:00+23:59"',
    b'"1 Jan , 00:00 +0000"',
    b'"Mon, 1 Jan 99999 00:00:00 +9999"',
    b'"YQ"',
    b'"YQ==YQ=="',
    b'"YQ=="',
    '"é"'.encode(),
    b'"%s"' % (b"A" * 4000),
    b"[]",
    b"{}",
    b"[[]]",
    b"[{}]",
    b"[null]",
    b'["null"]',
    b'{"":null}',
    b'{"key":1}',
    b'{"key":{"a":[1]},"value":null}',
    b'[{"key":"a"},{"value":1}]',
    b'{"a":1,"a":2}',
    b'{"code":"000","success":true}',
    nest(b"[", b"]", 200),
    nest(b'{"a":', b"}", 200),
]
"""JSON values, and texts that are not JSON, as replacements of any value."""

CODES: list[bytes] = ['"\u0967"'.encode(), b'"011"', b'"11"', b'"000"', b"11", b"000", b"1.0", b"[]", b"9" * 4300]
"""Values of a service's code."""

NON_INTEGER_DIGITS: list[bytes] = ['"\u00b2"'.encode(), b'"%s"' % (b"1" * 5000)]
"""Codes that are digits for str.isdigit, but not for int."""

BODIES: list[bytes] = [
    b"",
    b" ",
    b"null",
    b"[]",
    b"{}",
    b'"text"',
    b"\xef\xbb\xbf{}",
    b'\xef\xbb\xbf{"success":true}',
    '{"success":true}'.encode("utf-16"),
    '{"success":true}'.encode("utf-32"),
    b'{"success":true',
    b'{"success":true}}',
    b'{"success":true}{"success":false}',
    b'{"success":true,"success":false}',
    b'{"success":false,"success":true}',
    b"{'success':true}",
    b'{"success":tru',
    b"<html>%s" % MARKER.encode(),
    b"\x00" * 100,
    b"\xff\xfe\xfd",
    b"YQ==",
    b"YQ==YQ==",
    b"YQ==\r\nYQ==",
    b"YQ=\n=",
    b"\xef\xbb\xbfYQ==",
    *(nest(b"[", b"]", depth) for depth in DEPTHS),
    *(nest(b'{"messages":', b"}", depth) for depth in DEPTHS),
    *(b"[" * depth for depth in DEPTHS),
    *(b'{"extra":' * depth for depth in DEPTHS),
]
"""Complete bodies."""

STATUSES = (0, 100, 101, 199, 200, 201, 204, 206, 299, 300, 304, 399, 400, 401, 403, 404, 408, 421, 425, 429, 500, 503)

RETRY_AFTERS = (
    "",
    " ",
    "0",
    "-1",
    "1.5",
    "1e3",
    "9" * 400,
    "\u00b2",
    "\u0661",
    "\udcff",
    "soon",
    "Wed, 21 Oct 2015 07:28:00 GMT",
    "Fri, 31 Dec 9999 23:59:59 -2359",
    "Mon, 1 Jan 0001 00:00:00 +2359",
    "Mon, 1 Jan 99999 00:00:00 GMT",
    "1 Jan , 00:00 +0000",
    ",",
    ", , , , ,",
    "Mon, 01 Jan 2024 00:00:00 +99999999999",
    "\x00",
)

CONTENT_TYPES = ("", "application/json", "text/html; charset=\x00", "\udcff\udcfe", ";", "a" * 8000, "\x1b[31m", "é/ü")
