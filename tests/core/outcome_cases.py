"""The events that lead to each row of the table in core/outcome.py."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import Mapping
from typing import Any

import attrs

import directsuite as ds

from . import api, responses
from . import failing_networks as networks
from .failing_networks import Network, respond_with, tls_server
from .scripted_server import Responder
from .scripted_suite import ALICE, PASSWORD, PATIENT, PDF, TOKEN

LARGE_BODY_BYTES = 8_000_000
"""More bytes than the buffer of a socket can contain."""
MAX_RESPONSE_BYTES = 20_000


async def _send_large(suite: ds.DirectSuite) -> object:
    message = ds.Message(subject="", body="x" * LARGE_BODY_BYTES, recipients=[ds.Recipient("bob@direct.example.test")])
    return await suite.mailbox(ALICE, PASSWORD).send(message)


SAVE_LARGE = api.ApiCall("Save", lambda suite: suite.signing.save(PDF + bytes(LARGE_BODY_BYTES)), "signing")
SEND_LARGE = api.ApiCall("Send", _send_large, "messaging", may_repeat=False)
GET_DOC = api.ApiCall("GetDoc", lambda suite: suite.signing.get_doc("doc"), "signing")
PULL = api.ApiCall("FlattenAndPull", lambda suite: suite.signing.flatten_and_pull("doc"), "signing", may_repeat=False)

SAFE_CALLS = (api.GET_MESSAGE_COUNT, api.GET_DOC_INFO)
NON_IDEMPOTENT_CALLS = (api.SEND, api.FLATTEN)
DEFAULT_CALLS = SAFE_CALLS + NON_IDEMPOTENT_CALLS
MESSAGING_CALLS = (api.GET_MESSAGE_COUNT, api.SEND)
SIGNING_CALLS = (api.GET_DOC_INFO, api.FLATTEN)
REGISTRATION_CALLS = (api.GET_PATIENT_ADDRESS, api.PROVISION)
UPLOAD_CALLS = (SAVE_LARGE, SEND_LARGE)
BASE64_CALLS = (GET_DOC, PULL)


@attrs.frozen(kw_only=True)
class FaultCase:
    """An event that leads to a row of the table in some calls. error: set if it depends on the service's code."""

    row: str
    variant: str
    network: Network
    api_calls: tuple[api.ApiCall, ...] = DEFAULT_CALLS
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    error: type[ds.DirectSuiteError] | None = None

    def __str__(self) -> str:
        return f"{self.row}: {self.variant}"


def _make_case(
    row: str, seen: str, network: Network, asks: tuple[api.ApiCall, ...] = DEFAULT_CALLS, **settings: Any
) -> FaultCase:
    return FaultCase(row=row, variant=seen, network=network, api_calls=asks, settings=settings)


def _respond(
    row: str, seen: str, play: Responder, asks: tuple[api.ApiCall, ...] = DEFAULT_CALLS, **settings: Any
) -> FaultCase:
    return _make_case(row, seen, respond_with(play), asks, **settings)


def _make_status_cases(row: str, *statuses: int) -> list[FaultCase]:
    body = b"<html>" + PATIENT.encode()
    return [_respond(row, str(status), responses.respond(body, status)) for status in statuses]


def _make_service_error_case(
    row: str, code: int | str | None, error: type[ds.DirectSuiteError], status: int = 200
) -> FaultCase:
    """Return a rejection in the form of messaging (with a numeric code) or of registration."""
    play = responses.respond({"success": False, "code": code, "message": PATIENT}, status)
    asks = REGISTRATION_CALLS if isinstance(code, str) else MESSAGING_CALLS
    return attrs.evolve(_respond(row, f"{code} with {status}", play, asks), error=error)


OLD_TLS_VERSION = ssl.TLSVersion.TLSv1_1
CONNECT_FAULTS: list[FaultCase] = [
    _make_case("dns", "no such name", networks.no_such_name),
    _make_case("unreachable", "no route", networks.no_route),
    _make_case("refused", "nobody listens", networks.connection_refused),
    _make_case("tls", "unknown authority", tls_server(trusted=False)),
    _make_case("tls", "expired", tls_server(days=(-9, -1))),
    _make_case("tls", "not valid yet", tls_server(days=(1, 9))),
    _make_case("tls", "another host's", tls_server(address="127.0.0.2")),
    _make_case("tls", "TLS 1.1 at most", tls_server(newest=OLD_TLS_VERSION)),
    _make_case("tls", "not TLS", networks.plain_server),
    _make_case("tls", "closed instead of a handshake", networks.closed_before_handshake),
    _make_case("tls", "reset in the handshake", networks.reset_during_handshake),
    _make_case("proxy", "not there", networks.proxy(None)),
    _make_case("proxy", "asks for a login", networks.proxy(responses.respond(b"", 407))),
    _make_case("proxy", "finds no way", networks.proxy(responses.respond(b"", 502))),
    _make_case("proxy", "hangs up", networks.proxy(responses.hang_up)),
    _make_case("proxy", "is no proxy", networks.proxy(responses.send_non_http)),
    _make_case("lost-before", "by the time it is given out", networks.closed_before_request),
    _make_case("connect-time", "packets dropped", networks.dropped_packets, attempt_timeout=5),
    _make_case("connect-time", "handshake without end", networks.stalled_handshake, attempt_timeout=5),
    _make_case("connect-time", "silent name server", networks.silent_name_server, attempt_timeout=5),
    _make_case("connect-time", "silent proxy", networks.proxy(responses.never_respond), attempt_timeout=5),
    _make_case("connect-deadline", "packets dropped", networks.dropped_packets, attempt_timeout=100),
    _make_case("connect-deadline", "handshake without end", networks.stalled_handshake, attempt_timeout=100),
]
_SLOW: dict[str, Responder] = {
    "silence": responses.never_respond,
    "a letter a second": responses.send_endlessly(b"HTTP/1.1 200 OK\r\nX: ", b"a", pause=1),
    "half an answer": responses.respond_in_chunks(b"{", responses.Pause(900)),
    "102 for ever": responses.send_endlessly(b"", b"HTTP/1.1 102 Processing\r\n\r\n", pause=1),
}
_EARLY_HINTS = responses.send_raw(b"HTTP/1.1 103 Early Hints\r\n\r\n")
LOST_CONNECTION_FAULTS: list[FaultCase] = [
    _respond("lost-in-body", "reset", responses.reset_during_body, UPLOAD_CALLS),
    _respond("lost-in-body", "closed", responses.hang_up_during_body, UPLOAD_CALLS),
    _respond("lost", "reset", responses.reset),
    _respond("lost", "closed", responses.hang_up),
    _respond("lost", "half a head", responses.send_partial_head),
    _respond("lost", "closed after 103", responses.close_after(_EARLY_HINTS)),
    *(_respond("answer-time", name, play, SAFE_CALLS, attempt_timeout=5) for name, play in _SLOW.items()),
    _respond("answer-time", "body not read", responses.read_partial_body, (SAVE_LARGE,), attempt_timeout=5),
    *(_respond("answer-deadline", name, play, attempt_timeout=100) for name, play in _SLOW.items()),
    _respond("answer-deadline", "silence for long", responses.never_respond, NON_IDEMPOTENT_CALLS, attempt_timeout=5),
    _respond("answer-deadline", "body not read", responses.read_partial_body, UPLOAD_CALLS, attempt_timeout=100),
]

_STATUS_LINE_200 = b"HTTP/1.1 200 OK\r\n"
_SUCCESS_BODY = b'{"success": true, "count": 7, "identifier": "doc"}'
_LENGTH_HEADER = b"Content-Length: %d\r\n\r\n" % len(_SUCCESS_BODY)
NOT_HTTP = {
    "another protocol": b"220 mail.example.test ESMTP\r\n\r\n",
    "HTTP/2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80\x00\x04\x00\x01\x00\x00",
    "two lengths": _STATUS_LINE_200 + b"Content-Length: 1\r\n" + _LENGTH_HEADER + _SUCCESS_BODY,
    "length below zero": _STATUS_LINE_200 + b"Content-Length: -1\r\n\r\n" + _SUCCESS_BODY,
    "length and chunks": _STATUS_LINE_200
    + b"Transfer-Encoding: chunked\r\n"
    + _LENGTH_HEADER
    + b"2\r\n{}\r\n0\r\n\r\n",
    "NUL in a header": _STATUS_LINE_200 + b"X: a\0b\r\n" + _LENGTH_HEADER + _SUCCESS_BODY,
    "status of four digits": b"HTTP/1.1 2000 OK\r\n" + _LENGTH_HEADER + _SUCCESS_BODY,
    "chunk without a size": responses.make_head(200, None) + b"zz\r\n",
    "not what Content-Encoding says": responses.make_head(200, 9, {"Content-Encoding": "gzip"}) + b"not coded",
}
BAD_HEADS = {
    "a long line": responses.send_endlessly(_STATUS_LINE_200 + b"X: ", b"a" * 1000),
    "a long name": responses.send_endlessly(_STATUS_LINE_200, b"a" * 1000),
    "many headers": responses.send_endlessly(_STATUS_LINE_200, b"X: a\r\n" * 100),
    "many trailers": responses.send_endlessly(responses.make_head(200, None) + b"0\r\n", b"X: a\r\n" * 100),
    "a long status line": responses.send_endlessly(b"HTTP/1.1 200 ", b"a" * 1000),
}
TRUNCATED_RESPONSES = {
    "by length": responses.make_head(200, len(_SUCCESS_BODY) + 1) + _SUCCESS_BODY,
    "within a chunk": responses.make_head(200, None) + b"1d\r\n{",
    "between chunks": responses.make_head(200, None) + b"%x\r\n%b\r\n" % (len(_SUCCESS_BODY), _SUCCESS_BODY),
    "no body": responses.make_head(200, 10),
}
MALFORMED_RESPONSES = {
    "not JSON": responses.respond(b'{"success": tr' + PATIENT.encode()),
    "empty": responses.respond(b""),
    "a page": responses.respond(b"<html>" + PATIENT.encode(), Content_Type="text/html"),
    "a list": responses.respond([]),
    "a text": responses.respond("ok"),
    "null": responses.respond(None),
    "UTF-16": responses.respond('{"success": true}'.encode("utf-16")),
    "half of what was compressed": responses.respond(gzip.compress(_SUCCESS_BODY)[:20], Content_Encoding="gzip"),
    "x-gzip": responses.respond(gzip.compress(_SUCCESS_BODY), Content_Encoding="x-gzip"),
    "two codings": responses.respond(gzip.compress(gzip.compress(_SUCCESS_BODY)), Content_Encoding="gzip, gzip"),
    "204": responses.send_raw(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "205": responses.respond(b"", 205),
    "101": responses.send_raw(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
    "status 99": responses.respond(b"", 99),
}
LARGE_RESPONSES = {
    "by length": responses.respond(bytes(MAX_RESPONSE_BYTES + 1)),
    "chunks without end": responses.send_endlessly(responses.make_head(200, None), b"400\r\n%b\r\n" % (b" " * 1024)),
    "a page": responses.respond(bytes(MAX_RESPONSE_BYTES + 1), 404),
}
DAMAGED_RESPONSES: list[FaultCase] = [
    *(_respond("not-http", name, responses.close_after(responses.send_raw(text))) for name, text in NOT_HTTP.items()),
    *(_respond("head-too-large", name, play) for name, play in BAD_HEADS.items()),
    *(
        _respond("truncated", name, responses.close_after(responses.send_raw(text)))
        for name, text in TRUNCATED_RESPONSES.items()
    ),
    *(_respond("malformed", name, play) for name, play in MALFORMED_RESPONSES.items()),
    _respond("malformed", "no word of success", responses.respond({"code": 0}), MESSAGING_CALLS),
    _respond(
        "malformed", "a number's place holds a text", responses.respond({"success": True, "smtpId": []}), (api.SEND,)
    ),
    _respond("malformed", "no count", responses.respond({"success": True}), (api.GET_MESSAGE_COUNT,)),
    _respond("malformed", "not base64", responses.respond(b"&&&&" + PATIENT.encode()), BASE64_CALLS),
    _respond("malformed", "no base64", responses.respond(b""), BASE64_CALLS),
    _respond("malformed", "JSON for base64", responses.respond({"error": "no"}), BASE64_CALLS),
    *(
        _respond("too-large", name, play, max_response_bytes=MAX_RESPONSE_BYTES)
        for name, play in LARGE_RESPONSES.items()
    ),
]
_STATUSES = (302, 400, 401, 404, 408, 421, 500, 502, 503, 504)
_CODES: list[tuple[int | str | None, type[ds.DirectSuiteError]]] = [
    *((1, ds.AuthenticationError), (2, ds.AddressError), (3, ds.ServiceError), (4, ds.ServiceError)),
    *((99, ds.ServiceError), (None, ds.ServiceError), ("002", ds.BadRequestError), ("003", ds.PaymentError)),
    *(("010", ds.BadRequestError), ("013", ds.PermissionDeniedError), ("021", ds.PaymentError)),
    *(("099", ds.ServerError), ("201", ds.ConflictError), ("207", ds.AddressError), ("210", ds.NotFoundError)),
    *(("777", ds.ServiceError), ("999", ds.ServerError)),
]
SERVICE_ERRORS: list[FaultCase] = [
    *(_make_service_error_case("own", code, error) for code, error in _CODES),
    *(_make_service_error_case("own", 3, ds.ServiceError, status) for status in _STATUSES),
    *(_make_service_error_case("own", "010", ds.BadRequestError, status) for status in _STATUSES),
    _make_service_error_case("own", None, ds.ServerError, 500),
    *(_make_service_error_case("own-session", "011", ds.AuthenticationError, status) for status in (200, 401, 500)),
    _respond("own-2xx", "error", responses.respond({"error": PATIENT, "description": PATIENT}), SIGNING_CALLS),
]

_NO_ERROR = {"error": PATIENT, "description": PATIENT}
_VALID_RETRY_AFTERS = ("0", " 1 ", "Fri, 02 Jan 2010 00:00:00 GMT", "Fri, 02 Jan 2010 00:00:00 -0000")
_TOO_LARGE_ZONE, _NO_DATE = "1 Jan 2020 00:00:00 +9999999999999999999", "Fri, 99 Foo 2010 25:61:00 GMT"
_INVALID_RETRY_AFTERS = ("", _TOO_LARGE_ZONE, "-1", "1.5", "soon", _NO_DATE)
_OTHER_4XX_STATUSES = (402, 405, 406, 407, *range(409, 419), 422, 423, 424, 426, 428, 431, 451, 499)
STATUS_FAULTS: list[FaultCase] = [
    *_make_status_cases("3xx", 300, 301, 302, 303, 305, 307, 308),
    _respond("3xx", "304", responses.send_raw(b"HTTP/1.1 304 Not Modified\r\n\r\n")),
    *_make_status_cases("400", 400),
    *_make_status_cases("401", 401),
    *_make_status_cases("403", 403),
    *_make_status_cases("404", 404),
    *_make_status_cases("408", 408),
    *_make_status_cases("421, 425", 421, 425),
    *_make_status_cases("429", 429),
    *_make_status_cases("4xx", *_OTHER_4XX_STATUSES),
    *_make_status_cases("5xx", 500, 501, 502, 503, 504, 505, 507, 508, 511, 520, 599, 600, 999),
    *(
        _respond(row, "signing's own", responses.respond(_NO_ERROR, int(row[:3].replace("x", "0"))), SIGNING_CALLS)
        for row in ("400", "401", "403", "404", "408", "429", "5xx")
    ),
    _respond("429", "a refusal", responses.respond({"success": False, "code": 3}, 429), MESSAGING_CALLS),
    _respond("429", "a success", responses.respond(_SUCCESS_BODY, 429)),
    _respond("5xx", "a success", responses.respond(_SUCCESS_BODY, 500)),
    _respond("5xx", "500, Retry-After", responses.respond(b"", 500, Retry_After="1")),
    _respond("408", "Retry-After", responses.respond(b"", 408, Retry_After="1")),
    *(
        _respond("429", f"Retry-After: {wait!r}", responses.respond(b"", 429, Retry_After=wait))
        for wait in _VALID_RETRY_AFTERS + _INVALID_RETRY_AFTERS
    ),
    *(
        _respond("503-retry-after", repr(wait), responses.respond(b"", 503, Retry_After=wait))
        for wait in _VALID_RETRY_AFTERS
    ),
    *(
        _respond("5xx", f"503, {wait!r}", responses.respond(b"", 503, Retry_After=wait))
        for wait in _INVALID_RETRY_AFTERS
    ),
    _respond("4xx", "413 before the body", responses.respond_early(b"", 413), UPLOAD_CALLS),
    _respond("401", "before the body", responses.respond_early(b"", 401), UPLOAD_CALLS),
    _respond("5xx", "500 before the body", responses.respond_early(b"", 500), UPLOAD_CALLS),
]


async def _fetch_token() -> str:
    return TOKEN


async def _fail_to_fetch() -> str:
    raise RuntimeError(PATIENT)


async def _fetch_token_slowly() -> str:
    await asyncio.sleep(1000)
    return TOKEN


TOKEN_FAULTS: list[FaultCase] = [
    _respond("401-renewable", "a token", responses.respond(b"", 401), SIGNING_CALLS, token=_fetch_token),
    _respond("401-renewable", "a session", responses.respond(b"", 401), REGISTRATION_CALLS),
    _respond("token", "its source raises", responses.respond(b""), SIGNING_CALLS, token=_fail_to_fetch),
    _respond("queue-deadline", "a token", responses.respond(b""), SIGNING_CALLS, token=_fetch_token_slowly, timeout=15),
]

FAULT_CASES = (
    TOKEN_FAULTS + CONNECT_FAULTS + LOST_CONNECTION_FAULTS + DAMAGED_RESPONSES + SERVICE_ERRORS + STATUS_FAULTS
)
