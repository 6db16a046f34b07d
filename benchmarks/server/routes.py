"""Which operation gets which answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import count

import attrs

from benchmarks.server import responses
from benchmarks.server.scenario import ServerScenario

_MOMENT = "2026-05-01T12:00:00.000+00:00"
_SIGNING = "/signing/pdf"
_MESSAGING = "/message-rest/api/message"
_REGISTRATION = "/DirectRegistrationRESTful/rest/Patient"
_LINE = re.compile(r"(\S+) /([^/\s]+)(/\S*) HTTP/1\.1")
_UIDS = re.compile(rb'"uids"\s*:\s*\[([\d,\s]*)\]')

_numbers = count(1)


@attrs.frozen
class RouteRequest:
    """scenario: what the path asks for. target: the path behind it. body: all of it, if it is small.

    received: the body's length.
    """

    scenario: ServerScenario
    target: str
    body: bytes
    received: int


@attrs.frozen
class RouteResponse:
    """pieces: head and body. delay: seconds before it is sent."""

    pieces: Iterable[bytes]
    delay: float = 0.0


Responder = Callable[[RouteRequest], RouteResponse]


def _always_return(answer: bytes) -> Responder:
    always = RouteResponse((answer,))
    return lambda _: always


def _make_success(**members: object) -> bytes:
    return responses.make_json_response(success=True, code=0, message=None, **members)


@lru_cache
def _make_count(messages: int) -> RouteResponse:
    return RouteResponse((_make_success(count=messages),))


def _make_send_response(request: RouteRequest) -> RouteResponse:
    return RouteResponse((_make_success(smtpId=f"<{next(_numbers)}.{request.received}@direct.example.test>"),))


def _make_save_response(request: RouteRequest) -> RouteResponse:
    """A new document. Its description tells how much came."""
    answer = responses.make_json_response(
        documentType="PDF",
        createdTime=_MOMENT,
        identifier=f"{next(_numbers):08x}-0000-4000-8000-000000000000",
        documentDigest="q8kTJ1u1d5w=",
        description=f"{request.received} bytes received",
    )
    return RouteResponse((answer,))


def _make_uids(request: RouteRequest) -> RouteResponse:
    """As many as the folder's name says: INBOX.1000."""
    _, _, size = request.target.rpartition(".")
    return RouteResponse((_make_success(uids=list(responses.yield_uids(int(size)))),))


def _make_messages_by_uids(request: RouteRequest) -> RouteResponse:
    found = _UIDS.search(request.body)
    asked = [] if found is None else [int(uid) for uid in found[1].split(b",") if uid.strip()]
    body = responses.make_messages_by_uids(asked, request.scenario.attachment)
    return RouteResponse((responses.make_response(body),), request.scenario.latency)


def _make_fax(request: RouteRequest) -> RouteResponse:
    """One fax message; its handle is the last segment of the path."""
    handle = request.target.rpartition("/")[2]
    recipient = {"Address": "5550100", "Name": None, "PageCount": 1, "description": None}
    message = {
        "MessageHandle": handle,
        "fax_number": "5550100",
        "status": "complete",
        "updated_ts": _MOMENT,
        "recipients": [recipient],
        "description": None,
    }
    answer = responses.make_json_response(
        Username="alice", MessageHandle=handle, MessageDetail=[message], description="one message"
    )
    return RouteResponse((answer,))


def _make_registration(**members: object) -> Responder:
    return _always_return(responses.make_json_response(code="000", success=True, errorMessage=None, **members))


_ROUTES: tuple[tuple[str, str, Responder], ...] = (
    ("POST", f"{_MESSAGING}/GetMessageCount/.+", lambda request: _make_count(request.scenario.messages)),
    ("POST", f"{_MESSAGING}/GetUIDs/.+", _make_uids),
    ("POST", f"{_MESSAGING}/GetMessagesByUIDs/.+", _make_messages_by_uids),
    (
        "POST",
        f"{_MESSAGING}/GetMessageMetaData/.+",
        lambda request: RouteResponse((responses.make_response(responses.make_metadata(request.scenario.messages)),)),
    ),
    (
        "POST",
        f"{_MESSAGING}/GetMessages/.+",
        lambda request: RouteResponse(responses.yield_messages_response(request.scenario)),
    ),
    ("PUT", f"{_MESSAGING}/Send", _make_send_response),
    ("POST", _SIGNING, _make_save_response),
    (
        "GET",
        f"{_SIGNING}/[^/]+",
        lambda request: RouteResponse(responses.yield_document_response(request.scenario.document)),
    ),
    (
        "PATCH",
        f"{_SIGNING}/[^/]+/sign",
        _always_return(responses.make_json_response(documentDigest="w5d1u1JTk8q=", description="signed")),
    ),
    (
        "PATCH",
        f"{_SIGNING}/[^/]+/sign/pull",
        lambda request: RouteResponse(
            (responses.make_signed_response(request.scenario.document),), request.scenario.latency
        ),
    ),
    (
        "DELETE",
        f"{_SIGNING}/[^/]+",
        _always_return(responses.make_json_response(documentDigest="w5d1u1JTk8q=", description="deleted")),
    ),
    ("GET", "/fax/api/fax/.+", _make_fax),
    ("POST", f"{_REGISTRATION}/login", _make_registration(sessionId="0123456789abcdef")),
    ("GET", f"{_REGISTRATION}/GetPatientAddressByUsername/.+", _make_registration(patient=[])),
)

_not_found = _always_return(responses.make_response(b"{}", b"404 Not Found"))


@lru_cache(maxsize=1024)
def _find_route(line: str) -> tuple[ServerScenario, str, Responder]:
    matched = _LINE.fullmatch(line)
    if matched is None:
        return ServerScenario(), "", _not_found
    method, segment, target = matched.groups()
    try:
        scenario = ServerScenario.from_segment(segment)
    except (TypeError, ValueError):
        return ServerScenario(), "", _not_found
    for allowed, pattern, give in _ROUTES:
        if method == allowed and re.fullmatch(pattern, target):
            return scenario, target, give
    return scenario, target, _not_found


def respond(line: str, body: bytes, received: int) -> RouteResponse:
    """What a request gets. line: the request line; body: at least the beginning; received: its whole length."""
    scenario, target, give = _find_route(line)
    return give(RouteRequest(scenario, target, body, received))
