"""The calls that the sandbox has received, with their results, durations and the start of their bodies.

The last 10,000 calls have a record, and the last 500 also the first 8 KiB of both bodies, unchanged: use
`mask_secrets` to read them.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import attrs
from aiohttp import web

from directsuite.sandbox.database import EFFECTS

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

_MAX_CALLS = 10_000
_MAX_EXCHANGES = 500
MAX_RECORDED_BYTES = 8192
BODY_PREFIX = web.RequestKey("carried", tuple[bytes, int])
"""For a request whose body is not in memory: the start of the body, and its size."""
FAULT_KIND = web.RequestKey("fault", str)
"""For a request with an injected fault: the fault's kind."""

_SENSITIVE_WORDS = r"(?:pass(?:word|wd|phrase)|secret|token|session_?id|ssn4?|assertion|verifier|authorization)"
_NAME = re.compile(r"""(?<![\w\\-])([\w\\-]++)["']?\s*+[:=]\s*+""")
"""A name and the text before its value. Linear: a match begins only at the start of a name."""
_VALUE = re.compile(r""""(?:[^"\\]|\\.)*+"?|'[^']*+'?|[^\s,&}\]]++""", re.DOTALL)
_SECRET_KEY = re.compile(_SENSITIVE_WORDS, re.IGNORECASE)
_MASK = "•••"
_REJECTION = re.compile(rb'"success": ?false')
_MAX_REJECTION_BYTES = 500
_MAX_PATH_CHARS = 300


@attrs.frozen
class Exchange:
    """The start of the bodies of a call, unchanged."""

    request: bytes
    response: bytes
    """Empty if the response was streamed."""
    request_size: int | None
    """The size in bytes, or None if the body was not read completely."""
    response_size: int | None
    """The size in bytes, or None if the body was streamed."""


@attrs.frozen
class CallRecord:
    """A request and its result."""

    number: int
    """The number of the call, from 1."""
    at: datetime
    """The time of the request, on the machine's clock."""
    operation: str
    """The name in the specification, or "no operation" for a wrong URL or method."""
    status: int | None
    """The HTTP status, or None if the connection ended without a response."""
    milliseconds: float
    is_rejected: bool = False
    """True for a rejection with HTTP 200 (messaging and registration)."""
    method: str = ""
    path: str = attrs.field(default="", repr=False)
    """The path without query, and with its session id masked."""
    effects: tuple[str, ...] = attrs.field(default=(), repr=False)
    """Operation and subject of each effect in the ledger."""
    fault: str | None = None

    @property
    def outcome(self) -> str:
        """The status or "no response", then "rejected" if `is_rejected`, and the injected fault, as text."""
        fault = "" if self.fault is None else f" (fault: {self.fault})"
        return f"{self.status or 'no response'}{' rejected' if self.is_rejected else ''}{fault}"

    @property
    def is_unusable(self) -> bool:
        """True for a status of 500 or more, no response, or a response that a fault destroyed."""
        return self.status is None or self.status >= 500 or self.fault in {"truncate", "malformed"}

    @property
    def has_failed(self) -> bool:
        """True for a rejection, an error status or an unusable response."""
        return self.is_rejected or self.is_unusable or (self.status or 0) >= 400


class Calls:
    """The last 10,000 calls of the services and OAuth 2.0 endpoints, and the listeners for new ones."""

    def __init__(self) -> None:
        self.records = deque[CallRecord](maxlen=_MAX_CALLS)
        self.listeners = list[Callable[[CallRecord], None]]()
        self.count = 0
        self.exchanges = dict[int, Exchange]()
        """The start of the bodies of the newest calls, by number."""

    def find(self, number: int) -> CallRecord | None:
        """Return the call with this number, or None if it is not stored."""
        return next((call for call in self.records if call.number == number), None)

    def make_middleware(self) -> Middleware:
        """Return the middleware that records calls. It must be the outermost."""

        @web.middleware
        async def record(request: web.Request, handler: Handler) -> web.StreamResponse:
            operation, at, began = request.match_info.route.name, datetime.now(UTC), time.perf_counter()
            if operation is None and request.match_info.http_exception is None:  # such as the page or the control API
                return await handler(request)
            status: int | None = None
            received: web.StreamResponse | None = None
            effects = list[str]()
            EFFECTS.set(effects)
            try:
                received = response = await handler(request)
                has_disconnected = request.transport is None or request.transport.is_closing()
                status = None if has_disconnected else response.status
            finally:
                elapsed = 1000 * (time.perf_counter() - began)
                exchange = await _read_exchange(request, received)
                self.count += 1
                call = CallRecord(
                    self.count,
                    at,
                    operation or "no operation",
                    status,
                    elapsed,
                    is_rejected=status == HTTPStatus.OK
                    and _REJECTION.search(exchange.response[:_MAX_REJECTION_BYTES]) is not None,
                    method=request.method,
                    path=_mask_path(request),
                    effects=(*effects,),
                    fault=request.get(FAULT_KIND),
                )
                self.records.append(call)
                self.exchanges[self.count] = exchange
                self.exchanges.pop(self.count - _MAX_EXCHANGES, None)
                for listener in self.listeners:
                    listener(call)
            return response

        return record


async def _read_exchange(request: web.Request, response: web.StreamResponse | None) -> Exchange:
    beginning, size = b"", None
    if BODY_PREFIX in request:
        beginning, size = request[BODY_PREFIX]
    elif not request.can_read_body and request.content.exception() is None:
        sent = await request.read()  # returns immediately, because the body was already read
        beginning, size = sent[:MAX_RECORDED_BYTES], len(sent)
    body = response.body if isinstance(response, web.Response) else None
    response_start = bytes(body[:MAX_RECORDED_BYTES]) if isinstance(body, bytes | bytearray) else b""
    response_size = len(body) if isinstance(body, bytes | bytearray) else None
    return Exchange(beginning, response_start, size, response_size)


def _mask_path(request: web.Request) -> str:
    if request.match_info.route.name is None:
        segments = request.path[:_MAX_PATH_CHARS].split("/")
        return "/".join(segments[:4]) + ("/…" if len(segments) > 4 else "")
    session = request.match_info.get("session_id")
    return (request.path if not session else request.path.replace(session, _MASK))[:_MAX_PATH_CHARS]


def mask_secrets(body: bytes) -> str:
    """Return a body as text in which passwords, tokens and other secrets are masked. JSON is indented."""
    text = body.decode("utf-8", "replace")
    try:
        document = json.loads(text, object_pairs_hook=_mask_members)
    except (ValueError, RecursionError):
        return _mask_values(text)
    return json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8", "replace").decode()


def _mask_values(text: str) -> str:
    parts, end = list[str](), 0
    for name in _NAME.finditer(text):
        if name.start() < end or not _SECRET_KEY.search(name[1]):
            continue
        if (value := _VALUE.match(text, name.end())) is not None:
            parts += (text[end : name.end()], _MASK)
            end = value.end()
    return "".join((*parts, text[end:]))


def _mask_members(members: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: _MASK if _SECRET_KEY.search(name) and value is not None else value for name, value in members}
