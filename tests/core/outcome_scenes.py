"""What can happen to a call on the wire: for each row of the table in core/outcome.py, the ways to get there."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

import directsuite as ds

from . import failing_networks as networks
from . import plays
from .failing_networks import Network, answering, secured
from .opened import (
    ALICE,
    FLATTEN,
    GET_DOC_INFO,
    GET_MESSAGE_COUNT,
    GET_PATIENT_ADDRESS,
    PASSWORD,
    PATIENT,
    PDF,
    PROVISION,
    SEND,
    TOKEN,
    Ask,
)

LARGE = 8_000_000
"""Bytes that no socket's buffer takes at once."""
LIMIT = 20_000


async def _send_large(suite: ds.DirectSuite) -> object:
    message = ds.Message(subject="", body="x" * LARGE, recipients=[ds.Recipient("bob@direct.example.test")])
    return await suite.mailbox(ALICE, PASSWORD).send(message)


SAVE_LARGE = Ask("Save", lambda suite: suite.signing.save(PDF + bytes(LARGE)), "signing", may_repeat=True, good={})
SEND_LARGE = Ask("Send", _send_large, "messaging", may_repeat=False, good={})
GET_DOC = Ask("GetDoc", lambda suite: suite.signing.get_doc("doc"), "signing", may_repeat=True, good=b"")
PULL = Ask("FlattenAndPull", lambda suite: suite.signing.flatten_and_pull("doc"), "signing", may_repeat=False, good=b"")

SAFE = (GET_MESSAGE_COUNT, GET_DOC_INFO)
ONCE = (SEND, FLATTEN)
ANY = SAFE + ONCE
MESSAGING = (GET_MESSAGE_COUNT, SEND)
SIGNING = (GET_DOC_INFO, FLATTEN)
REGISTRATION = (GET_PATIENT_ADDRESS, PROVISION)
UPLOADS = (SAVE_LARGE, SEND_LARGE)
BASE64 = (GET_DOC, PULL)


@attrs.frozen(kw_only=True)
class Scene:
    """One way to a row of the table, for some calls. error: where the row leaves it to the service's code."""

    row: str
    seen: str
    network: Network
    asks: tuple[Ask, ...] = ANY
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    error: type[ds.DirectSuiteError] | None = None

    def __str__(self) -> str:
        return f"{self.row}: {self.seen}"


def _scene(row: str, seen: str, network: Network, asks: tuple[Ask, ...] = ANY, **settings: Any) -> Scene:
    return Scene(row=row, seen=seen, network=network, asks=asks, settings=settings)


def _status(row: str, statuses: Iterable[int], body: bytes = b"<html>" + PATIENT.encode()) -> list[Scene]:
    return [_scene(row, str(status), answering(plays.answer(body, status))) for status in statuses]


def _own(row: str, code: int | str | None, error: type[ds.DirectSuiteError], status: int = 200) -> Scene:
    """A refusal in the form of messaging, where the code is a number, or of registration."""
    play = plays.answer({"success": False, "code": code, "message": PATIENT}, status)
    asks = REGISTRATION if isinstance(code, str) else MESSAGING
    return Scene(row=row, seen=f"{code} with {status}", network=answering(play), asks=asks, error=error)


OLD = ssl.TLSVersion.TLSv1_1
NOWHERE: list[Scene] = [
    _scene("dns", "no such name", networks.no_such_name),
    _scene("unreachable", "no route", networks.no_way),
    _scene("refused", "nobody listens", networks.nobody_listens),
    _scene("tls", "unknown authority", secured(trusted=False)),
    _scene("tls", "expired", secured(days=(-9, -1))),
    _scene("tls", "not valid yet", secured(days=(1, 9))),
    _scene("tls", "another host's", secured(address="127.0.0.2")),
    _scene("tls", "TLS 1.1 at most", secured(newest=OLD)),
    _scene("tls", "not TLS", networks.plain_server),
    _scene("tls", "closed instead of a handshake", networks.closes_instead_of_a_handshake),
    _scene("tls", "reset in the handshake", networks.resets_in_the_handshake),
    _scene("proxy", "not there", networks.proxy(None)),
    _scene("proxy", "asks for a login", networks.proxy(plays.answer(b"", 407))),
    _scene("proxy", "finds no way", networks.proxy(plays.answer(b"", 502))),
    _scene("proxy", "hangs up", networks.proxy(plays.hang_up)),
    _scene("proxy", "is no proxy", networks.proxy(plays.not_http)),
    _scene("lost-before", "by the time it is given out", networks.ends_before_the_request),
    _scene("connect-time", "packets dropped", networks.dropped_packets, attempt_timeout=5),
    _scene("connect-time", "handshake without end", networks.handshake_without_end, attempt_timeout=5),
    _scene("connect-deadline", "packets dropped", networks.dropped_packets, attempt_timeout=100),
    _scene("connect-deadline", "handshake without end", networks.handshake_without_end, attempt_timeout=100),
]
LOST: list[Scene] = [
    _scene("lost-in-body", "reset", answering(plays.reset_in_body), UPLOADS),
    _scene("lost-in-body", "closed", answering(plays.hang_up_in_body), UPLOADS),
    _scene("lost", "reset", answering(plays.reset)),
    _scene("lost", "closed", answering(plays.hang_up)),
    _scene("lost", "half a head", answering(plays.half_a_head)),
    _scene("lost", "closed after 103", answering(plays.breaks_off(plays.raw(b"HTTP/1.1 103 Early Hints\r\n\r\n")))),
    _scene("answer-time", "silence", answering(plays.silence), SAFE, attempt_timeout=5),
    _scene(
        "answer-time",
        "a letter a second",
        answering(plays.endless(b"HTTP/1.1 200 OK\r\nX: ", b"a", pause=1)),
        SAFE,
        attempt_timeout=5,
    ),
    _scene("answer-time", "half an answer", answering(plays.pieces(b"{", plays.Pause(900))), SAFE, attempt_timeout=5),
    _scene(
        "answer-time",
        "102 for ever",
        answering(plays.endless(b"", b"HTTP/1.1 102 Processing\r\n\r\n", pause=1)),
        SAFE,
        attempt_timeout=5,
    ),
    _scene("answer-time", "body not read", answering(plays.half_a_body), (SAVE_LARGE,), attempt_timeout=5),
    _scene("answer-deadline", "silence", answering(plays.silence), attempt_timeout=100),
    _scene("answer-deadline", "silence for long", answering(plays.silence), ONCE, attempt_timeout=5),
    _scene(
        "answer-deadline",
        "a letter a second",
        answering(plays.endless(b"HTTP/1.1 200 OK\r\nX: ", b"a", pause=1)),
        attempt_timeout=100,
    ),
    _scene("answer-deadline", "half an answer", answering(plays.pieces(b"{", plays.Pause(900))), attempt_timeout=100),
    _scene("answer-deadline", "body not read", answering(plays.half_a_body), UPLOADS, attempt_timeout=100),
]

_OK = b"HTTP/1.1 200 OK\r\n"
_GOOD = b'{"success": true, "count": 7, "identifier": "doc"}'
_LENGTH = b"Content-Length: %d\r\n\r\n" % len(_GOOD)
NOT_HTTP = {
    "another protocol": b"220 mail.example.test ESMTP\r\n\r\n",
    "HTTP/2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80\x00\x04\x00\x01\x00\x00",
    "two lengths": _OK + b"Content-Length: 1\r\n" + _LENGTH + _GOOD,
    "length below zero": _OK + b"Content-Length: -1\r\n\r\n" + _GOOD,
    "length and chunks": _OK + b"Transfer-Encoding: chunked\r\n" + _LENGTH + b"2\r\n{}\r\n0\r\n\r\n",
    "NUL in a header": _OK + b"X: a\0b\r\n" + _LENGTH + _GOOD,
    "status of four digits": b"HTTP/1.1 2000 OK\r\n" + _LENGTH + _GOOD,
    "chunk without a size": plays.head(200, None) + b"zz\r\n",
    "not what Content-Encoding says": plays.head(200, 9, {"Content-Encoding": "gzip"}) + b"not coded",
}
HEADS = {
    "a long line": plays.endless(_OK + b"X: ", b"a" * 1000),
    "a long name": plays.endless(_OK, b"a" * 1000),
    "many headers": plays.endless(_OK, b"X: a\r\n" * 100),
    "many trailers": plays.endless(plays.head(200, None) + b"0\r\n", b"X: a\r\n" * 100),
    "a long status line": plays.endless(b"HTTP/1.1 200 ", b"a" * 1000),
}
TRUNCATED = {
    "by length": plays.head(200, len(_GOOD) + 1) + _GOOD,
    "within a chunk": plays.head(200, None) + b"1d\r\n{",
    "between chunks": plays.head(200, None) + b"%x\r\n%b\r\n" % (len(_GOOD), _GOOD),
    "no body": plays.head(200, 10),
}
MALFORMED = {
    "not JSON": plays.answer(b'{"success": tr' + PATIENT.encode()),
    "empty": plays.answer(b""),
    "a page": plays.answer(b"<html>" + PATIENT.encode(), Content_Type="text/html"),
    "a list": plays.answer([]),
    "a text": plays.answer("ok"),
    "null": plays.answer(None),
    "UTF-16": plays.answer('{"success": true}'.encode("utf-16")),
    "half of what was compressed": plays.answer(gzip.compress(_GOOD)[:20], Content_Encoding="gzip"),
    "x-gzip": plays.answer(gzip.compress(_GOOD), Content_Encoding="x-gzip"),
    "two codings": plays.answer(gzip.compress(gzip.compress(_GOOD)), Content_Encoding="gzip, gzip"),
    "204": plays.raw(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "205": plays.answer(b"", 205),
    "101": plays.raw(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
    "status 99": plays.answer(b"", 99),
}
SPOILT: list[Scene] = [
    *(_scene("not-http", name, answering(plays.breaks_off(plays.raw(text)))) for name, text in NOT_HTTP.items()),
    *(_scene("head-too-large", name, answering(play)) for name, play in HEADS.items()),
    *(_scene("truncated", name, answering(plays.breaks_off(plays.raw(text)))) for name, text in TRUNCATED.items()),
    *(_scene("malformed", name, answering(play)) for name, play in MALFORMED.items()),
    _scene("malformed", "no word of success", answering(plays.answer({"code": 0})), MESSAGING),
    _scene(
        "malformed", "a number's place holds a text", answering(plays.answer({"success": True, "smtpId": []})), (SEND,)
    ),
    _scene("malformed", "no count", answering(plays.answer({"success": True})), (GET_MESSAGE_COUNT,)),
    _scene("malformed", "not base64", answering(plays.answer(b"&&&&" + PATIENT.encode())), BASE64),
    _scene("malformed", "no base64", answering(plays.answer(b"")), BASE64),
    _scene("malformed", "JSON for base64", answering(plays.answer({"error": "no"})), BASE64),
    _scene("too-large", "by length", answering(plays.answer(bytes(LIMIT + 1))), max_response_bytes=LIMIT),
    _scene(
        "too-large",
        "chunks without end",
        answering(plays.endless(plays.head(200, None), b"400\r\n%b\r\n" % (b" " * 1024))),
        max_response_bytes=LIMIT,
    ),
    _scene("too-large", "a page", answering(plays.answer(bytes(LIMIT + 1), 404)), max_response_bytes=LIMIT),
]
OWN: list[Scene] = [
    _own("own", 1, ds.AuthenticationError),
    _own("own", 2, ds.AddressError),
    _own("own", 3, ds.ServiceError),
    _own("own", 4, ds.ServiceError),
    _own("own", 99, ds.ServiceError),
    *(_own("own", 3, ds.ServiceError, status) for status in (302, 400, 401, 404, 408, 421, 500, 502, 503, 504)),
    _own("own", None, ds.ServiceError),
    _own("own", None, ds.ServerError, 500),
    _own("own", "002", ds.BadRequestError),
    _own("own", "003", ds.PaymentError),
    _own("own", "010", ds.BadRequestError),
    _own("own", "013", ds.PermissionDeniedError),
    _own("own", "021", ds.PaymentError),
    _own("own", "099", ds.ServerError),
    _own("own", "201", ds.ConflictError),
    _own("own", "207", ds.AddressError),
    _own("own", "210", ds.NotFoundError),
    _own("own", "777", ds.ServiceError),
    _own("own", "999", ds.ServerError),
    *(_own("own", "010", ds.BadRequestError, status) for status in (302, 400, 401, 404, 408, 421, 500, 502, 503, 504)),
    _own("own-session", "011", ds.AuthenticationError),
    _own("own-session", "011", ds.AuthenticationError, 401),
    _own("own-session", "011", ds.AuthenticationError, 500),
    _scene("own-2xx", "error", answering(plays.answer({"error": PATIENT, "description": PATIENT})), SIGNING),
]


def _dated(days: int) -> str:
    return f"Fri, 0{1 + days} Jan 2010 00:00:00 GMT"


_NO_ERROR = {"error": PATIENT, "description": PATIENT}
_SOON = ("0", " 1 ", _dated(1), _dated(1).replace("GMT", "-0000"))
_NEVER = ("", "1 Jan 2020 00:00:00 +9999999999999999999", "-1", "1.5", "soon", "Fri, 99 Foo 2010 25:61:00 GMT")
_OTHERS = (402, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 422, 423, 424, 426, 428, 431, 451, 499)
STATUSES: list[Scene] = [
    *_status("3xx", (300, 301, 302, 303, 305, 307, 308)),
    _scene("3xx", "304", answering(plays.raw(b"HTTP/1.1 304 Not Modified\r\n\r\n"))),
    *_status("400", (400,)),
    *_status("401", (401,)),
    *_status("403", (403,)),
    *_status("404", (404,)),
    *_status("408", (408,)),
    *_status("421, 425", (421, 425)),
    *_status("429", (429,)),
    *_status("4xx", _OTHERS),
    *_status("5xx", (500, 501, 502, 503, 504, 505, 507, 508, 511, 520, 599, 600, 999)),
    *(
        _scene(row, "signing's own", answering(plays.answer(_NO_ERROR, int(row[:3].replace("x", "0")))), SIGNING)
        for row in ("400", "401", "403", "404", "408", "429", "5xx")
    ),
    _scene("429", "a refusal", answering(plays.answer({"success": False, "code": 3}, 429)), MESSAGING),
    _scene("429", "a success", answering(plays.answer(_GOOD, 429))),
    _scene("5xx", "a success", answering(plays.answer(_GOOD, 500))),
    _scene("5xx", "500, Retry-After", answering(plays.answer(b"", 500, Retry_After="1"))),
    _scene("408", "Retry-After", answering(plays.answer(b"", 408, Retry_After="1"))),
    *(
        _scene("429", f"Retry-After: {wait!r}", answering(plays.answer(b"", 429, Retry_After=wait)))
        for wait in _SOON + _NEVER
    ),
    *(_scene("503-retry-after", repr(wait), answering(plays.answer(b"", 503, Retry_After=wait))) for wait in _SOON),
    *(_scene("5xx", f"503, {wait!r}", answering(plays.answer(b"", 503, Retry_After=wait))) for wait in _NEVER),
    _scene("4xx", "413 before the body", answering(plays.early(b"", 413)), UPLOADS),
    _scene("401", "before the body", answering(plays.early(b"", 401)), UPLOADS),
    _scene("5xx", "500 before the body", answering(plays.early(b"", 500)), UPLOADS),
]


async def _fresh() -> str:
    return TOKEN


async def _broken() -> str:
    raise RuntimeError(PATIENT)


async def _slow() -> str:
    await asyncio.sleep(1000)
    return TOKEN


TOKENS: list[Scene] = [
    _scene("401-renewable", "a token", answering(plays.answer(b"", 401)), SIGNING, token=_fresh),
    _scene("401-renewable", "a session", answering(plays.answer(b"", 401)), REGISTRATION),
    _scene("token", "its source raises", answering(plays.answer(b"")), SIGNING, token=_broken),
    _scene("queue-deadline", "a token", answering(plays.answer(b"")), SIGNING, token=_slow, timeout=50),
]

SCENES = TOKENS + NOWHERE + LOST + SPOILT + OWN + STATUSES
