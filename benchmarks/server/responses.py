"""The operations of the server, and their responses of any size. A large response is never complete in memory.

All records have the same length, so that the length of a response is known before it is written.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import count
from typing import Any

import attrs
import pybase64

from benchmarks.server import ServerScenario

JSON, TEXT = b"application/json", b"text/plain"

_BLOCK = random.Random(11).randbytes(196_608)  # a multiple of three: its base64 can be repeated without padding
_ENCODED = pybase64.b64encode(_BLOCK)
_FIRST_UID = 1_000_001
_MAX_MESSAGES = 8_999_999  # all UIDs have the same number of digits
_UID = 7_777_777  # the placeholder of the UID in the templates
_CONTENT = "@content@"
_OPENING = b'{"success":true,"code":0,"message":null,"messages":['
_CLOSING = b"]}"
_MOMENT = "2026-05-01T12:00:00.000+00:00"
_BODY = "Please see the attached report.\r\n" * 8
_NAMES = {"contentType": "application/pdf", "filename": f"report-{_UID}.pdf"}
_numbers = count(1)


def _make_template(**more: Any) -> bytes:
    """Return a message as JSON, with features that are difficult for decoders."""
    record = {
        "uid": _UID,
        "msgnum": _UID,
        "msgID": f"<{_UID}.1@direct.example.test>",
        "folder": "INBOX",
        "expunged": False,
        "size": 1_400_000,
        "sentDate": _MOMENT,
        "receivedDate": "2026-05-01T12:00:01.000+00:00",
        "replyTo": None,
        "headers": [
            {"name": "X-Request-ID", "value": f'"{_UID}" é [{{'},
            {"name": "Received", "value": f"from mail.example.test by direct.example.test; {_UID}"},
        ],
        "sender": "alice@direct.example.test",
        "subject": f"Laboratory result {_UID}",
        "htmlBody": False,
        "recipients": [{"email": "bob@direct.example.test", "type": "TO"}],
        **more,
    }
    return json.dumps(record, separators=(",", ":")).encode()


def _split(template: bytes) -> list[bytes]:
    return template.split(str(_UID).encode())


_METADATA = _split(_make_template(attachments=[_NAMES]))
_PLAIN = _split(_make_template(body=_BODY, attachments=[]))
_BEFORE_CONTENT, _AFTER_CONTENT = map(
    _split, _make_template(body=_BODY, attachments=[{"content": _CONTENT, **_NAMES}]).split(_CONTENT.encode())
)


def _fill(template: list[bytes], uid: int) -> bytes:
    return (b"%d" % uid).join(template)


def list_uids(messages: int) -> range:
    """Return the UIDs of a folder."""
    if not 0 <= messages <= _MAX_MESSAGES:
        raise ValueError(f"A folder can have up to {_MAX_MESSAGES} messages.")
    return range(_FIRST_UID, _FIRST_UID + messages)


def yield_base64(size: int) -> Iterator[bytes]:
    """Yield the given number of bytes, encoded in base64, in blocks."""
    blocks, rest = divmod(size, len(_BLOCK))
    for _ in range(blocks):
        yield _ENCODED
    if rest:
        yield pybase64.b64encode(_BLOCK[:rest])


def compute_base64_length(size: int) -> int:
    """Return the length of the given number of bytes in base64."""
    return 4 * ((size + 2) // 3)


def _yield_message(uid: int, attachment: int) -> Iterator[bytes]:
    if not attachment:
        yield _fill(_PLAIN, uid)
        return
    yield _fill(_BEFORE_CONTENT, uid)
    yield from yield_base64(attachment)
    yield _fill(_AFTER_CONTENT, uid)


def _yield_body(records: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    yield _OPENING
    for number, record in enumerate(records):
        if number:
            yield b","
        yield from record
    yield _CLOSING


@lru_cache(maxsize=4)
def make_metadata(messages: int) -> bytes:
    """Return the body of GetMessageMetaData."""
    return b"".join(_yield_body((_fill(_METADATA, uid),) for uid in list_uids(messages)))


def make_messages(messages: int, attachment: int) -> bytes:
    """Return the body of GetMessages."""
    return b"".join(_yield_body(_yield_message(uid, attachment) for uid in list_uids(messages)))


def yield_messages_response(scenario: ServerScenario) -> Iterator[bytes]:
    """Yield the response of GetMessages in pieces."""
    messages, attachment = scenario.messages, scenario.attachment
    record = len(_fill(_PLAIN, _FIRST_UID))
    if attachment:
        ends = len(_fill(_BEFORE_CONTENT, _FIRST_UID)) + len(_fill(_AFTER_CONTENT, _FIRST_UID))
        record = ends + compute_base64_length(attachment)
    yield make_head(len(_OPENING) + messages * record + max(messages - 1, 0) + len(_CLOSING))
    yield from _yield_body(_yield_message(uid, attachment) for uid in list_uids(messages))


def yield_document_response(size: int) -> Iterator[bytes]:
    """Yield the response of GetDoc in pieces."""
    yield make_head(compute_base64_length(size), TEXT)
    yield from yield_base64(size)


@lru_cache(maxsize=4)
def make_signed_response(size: int) -> bytes:
    """Return the response of SignAndPull: a document of the given size that appears to be signed."""
    start, end = b"%PDF-1.7\n/ByteRange [0 1 2 3]\n", b"\n%%EOF\n"
    encoded = pybase64.b64encode(start + bytes(max(0, size - len(start) - len(end))) + end)
    return make_head(len(encoded), TEXT) + encoded


def make_head(length: int, media_type: bytes = JSON, status: bytes = b"200 OK") -> bytes:
    """Return the status line and the headers of a response."""
    return b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (status, media_type, length)


def _make_response(body: bytes, status: bytes = b"200 OK") -> bytes:
    return make_head(len(body), JSON, status) + body


def _make_json(**members: object) -> list[bytes]:
    return [_make_response(json.dumps(members).encode())]


def _make_success(**members: object) -> list[bytes]:
    return _make_json(success=True, code=0, message=None, **members)


@attrs.frozen
class RouteRequest:
    """A request. body: its body, complete if it is small. received: the length of the body."""

    scenario: ServerScenario
    target: str
    body: bytes
    received: int


Responder = Callable[[RouteRequest], Iterable[bytes]]
"""Returns head and body in pieces."""


@lru_cache
def _make_count(messages: int) -> list[bytes]:
    return _make_success(count=messages)


def _list_uids(request: RouteRequest) -> list[bytes]:
    messages = int(request.target.rpartition(".")[2])  # INBOX.1000
    return _make_success(uids=list(list_uids(messages)))


def _read_by_uids(request: RouteRequest) -> list[bytes]:
    found = re.search(rb'"uids"\s*:\s*\[([\d,\s]*)\]', request.body)
    uids = [] if found is None else [int(uid) for uid in found[1].split(b",") if uid.strip()]
    return [_make_response(b"".join(_yield_body(_yield_message(uid, request.scenario.attachment) for uid in uids)))]


def _send(request: RouteRequest) -> list[bytes]:
    return _make_success(smtpId=f"<{next(_numbers)}.{request.received}@direct.example.test>")


def _save(request: RouteRequest) -> list[bytes]:
    return _make_json(
        documentType="PDF",
        createdTime=_MOMENT,
        identifier=f"{next(_numbers):08x}-0000-4000-8000-000000000000",
        documentDigest="q8kTJ1u1d5w=",
        description=f"{request.received} bytes received",
    )


_CHANGED = _make_json(documentDigest="w5d1u1JTk8q=", description="changed")
_MESSAGING, _PDF = "/message-rest/api/message", "/signing/pdf"
_BY_UIDS, _PULL = f"POST {_MESSAGING}/GetMessagesByUIDs/.+", f"PATCH {_PDF}/[^/]+/sign/pull"
_ROUTES: dict[str, Responder] = {
    f"POST {_MESSAGING}/GetMessageCount/.+": lambda request: _make_count(request.scenario.messages),
    f"POST {_MESSAGING}/GetUIDs/.+": _list_uids,
    _BY_UIDS: _read_by_uids,
    f"POST {_MESSAGING}/GetMessageMetaData/.+": lambda to: [_make_response(make_metadata(to.scenario.messages))],
    f"POST {_MESSAGING}/GetMessages/.+": lambda request: yield_messages_response(request.scenario),
    f"PUT {_MESSAGING}/Send": _send,
    f"POST {_PDF}": _save,
    f"GET {_PDF}/[^/]+": lambda request: yield_document_response(request.scenario.document),
    f"PATCH {_PDF}/[^/]+/sign": lambda _: _CHANGED,
    _PULL: lambda request: [make_signed_response(request.scenario.document)],
    f"DELETE {_PDF}/[^/]+": lambda _: _CHANGED,
}


@lru_cache(maxsize=1024)
def _find_route(line: str) -> tuple[ServerScenario, str, Responder, float]:
    """Return the scenario, the target, the function that responds, and seconds before the response is sent."""
    if matched := re.fullmatch(r"(\S+) /([^/\s]+)(/\S*) HTTP/1\.1", line):
        method, segment, target = matched.groups()
        for pattern, responder in _ROUTES.items():
            if re.fullmatch(pattern, f"{method} {target}"):
                with contextlib.suppress(TypeError, ValueError):
                    scenario = ServerScenario.from_segment(segment)
                    return scenario, target, responder, scenario.latency if pattern in (_BY_UIDS, _PULL) else 0.0
    return ServerScenario(), "", lambda _: [_make_response(b"{}", b"404 Not Found")], 0.0


def respond(line: str, body: bytes, received: int) -> tuple[Iterable[bytes], float]:
    """Return the pieces of the response to a request, and seconds before it is sent.

    line: the request line. body: at least its start. received: its length.
    """
    scenario, target, responder, delay = _find_route(line)
    return responder(RouteRequest(scenario, target, body, received)), delay
