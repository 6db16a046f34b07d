"""Which operation gets which answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import count

import attrs

from benchmarks.server import answers
from benchmarks.server.scenario import Scenario

_MOMENT = "2026-05-01T12:00:00.000+00:00"
_SIGNING = "/signing/pdf"
_MESSAGING = "/message-rest/api/message"
_REGISTRATION = "/DirectRegistrationRESTful/rest/Patient"
_LINE = re.compile(r"(\S+) /([^/\s]+)(/\S*) HTTP/1\.1")
_UIDS = re.compile(rb'"uids"\s*:\s*\[([\d,\s]*)\]')

_numbers = count(1)


@attrs.frozen
class Request:
    """scenario: what the path asks for. target: the path behind it. body: all of it, if it is small.

    received: the body's length.
    """

    scenario: Scenario
    target: str
    body: bytes
    received: int


@attrs.frozen
class Answer:
    """pieces: head and body. delay: seconds before it is sent."""

    pieces: Iterable[bytes]
    delay: float = 0.0


Give = Callable[[Request], Answer]


def _fixed(answer: bytes) -> Give:
    always = Answer((answer,))
    return lambda _: always


def _succeeded(**members: object) -> bytes:
    return answers.told(success=True, code=0, message=None, **members)


@lru_cache
def _counted(messages: int) -> Answer:
    return Answer((_succeeded(count=messages),))


def _sent(request: Request) -> Answer:
    return Answer((_succeeded(smtpId=f"<{next(_numbers)}.{request.received}@direct.example.test>"),))


def _saved(request: Request) -> Answer:
    """A new document. Its description tells how much came."""
    answer = answers.told(
        documentType="PDF",
        createdTime=_MOMENT,
        identifier=f"{next(_numbers):08x}-0000-4000-8000-000000000000",
        documentDigest="q8kTJ1u1d5w=",
        description=f"{request.received} bytes received",
    )
    return Answer((answer,))


def _uids_of_folder(request: Request) -> Answer:
    """As many as the folder's name says: INBOX.1000."""
    _, _, size = request.target.rpartition(".")
    return Answer((_succeeded(uids=list(answers.uids(int(size)))),))


def _by_uids(request: Request) -> Answer:
    found = _UIDS.search(request.body)
    asked = [] if found is None else [int(uid) for uid in found[1].split(b",") if uid.strip()]
    body = answers.messages_by_uids(asked, request.scenario.attachment)
    return Answer((answers.whole(body),), request.scenario.latency)


def _fax(request: Request) -> Answer:
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
    answer = answers.told(Username="alice", MessageHandle=handle, MessageDetail=[message], description="one message")
    return Answer((answer,))


def _registration(**members: object) -> Give:
    return _fixed(answers.told(code="000", success=True, errorMessage=None, **members))


_ROUTES: tuple[tuple[str, str, Give], ...] = (
    ("POST", f"{_MESSAGING}/GetMessageCount/.+", lambda request: _counted(request.scenario.messages)),
    ("POST", f"{_MESSAGING}/GetUIDs/.+", _uids_of_folder),
    ("POST", f"{_MESSAGING}/GetMessagesByUIDs/.+", _by_uids),
    (
        "POST",
        f"{_MESSAGING}/GetMessageMetaData/.+",
        lambda request: Answer((answers.whole(answers.metadata(request.scenario.messages)),)),
    ),
    (
        "POST",
        f"{_MESSAGING}/GetMessages/.+",
        lambda request: Answer(answers.streamed_messages(request.scenario)),
    ),
    ("PUT", f"{_MESSAGING}/Send", _sent),
    ("POST", _SIGNING, _saved),
    ("GET", f"{_SIGNING}/[^/]+", lambda request: Answer(answers.document(request.scenario.document))),
    (
        "PATCH",
        f"{_SIGNING}/[^/]+/sign",
        _fixed(answers.told(documentDigest="w5d1u1JTk8q=", description="signed")),
    ),
    (
        "PATCH",
        f"{_SIGNING}/[^/]+/sign/pull",
        lambda request: Answer((answers.signed(request.scenario.document),), request.scenario.latency),
    ),
    (
        "DELETE",
        f"{_SIGNING}/[^/]+",
        _fixed(answers.told(documentDigest="w5d1u1JTk8q=", description="deleted")),
    ),
    ("GET", "/fax/api/fax/.+", _fax),
    ("POST", f"{_REGISTRATION}/login", _registration(sessionId="0123456789abcdef")),
    ("GET", f"{_REGISTRATION}/GetPatientAddressByUsername/.+", _registration(patient=[])),
)

_unknown = _fixed(answers.whole(b"{}", b"404 Not Found"))


@lru_cache(maxsize=1024)
def _route(line: str) -> tuple[Scenario, str, Give]:
    matched = _LINE.fullmatch(line)
    if matched is None:
        return Scenario(), "", _unknown
    method, segment, target = matched.groups()
    try:
        scenario = Scenario.of(segment)
    except (TypeError, ValueError):
        return Scenario(), "", _unknown
    for allowed, pattern, give in _ROUTES:
        if method == allowed and re.fullmatch(pattern, target):
            return scenario, target, give
    return scenario, target, _unknown


def answer(line: str, body: bytes, received: int) -> Answer:
    """What a request gets. line: the request line; body: at least the beginning; received: its whole length."""
    scenario, target, give = _route(line)
    return give(Request(scenario, target, body, received))
