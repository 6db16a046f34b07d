"""The calls that the sandbox has answered: which operation, how, and how fast, and the beginning of what they carried.

Of the last 10,000 calls there is a line, and of the last 500 the first 8 kB of the request and of the answer. What goes
over the wire is kept as it came: reading a text masks its secrets (`masked`), and a repr shows nothing of it.
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
"""So many bytes of a body are kept."""
BODY_PREFIX = web.RequestKey("carried", tuple[bytes, int])
"""The key of a request whose body was not kept: its beginning, and the size of the whole."""
FAULT_KIND = web.RequestKey("fault", str)
"""The key of a request that a fault was injected into: the fault's kind."""

_SENSITIVE_WORDS = r"(?:pass(?:word|wd|phrase)|secret|token|session_?id|ssn4?|assertion|verifier|authorization)"
_NAME = re.compile(r"""(?<![\w\\-])([\w\\-]++)["']?\s*+[:=]\s*+""")
"""A name, and what is between it and its value. No letter is read twice: a search begins only where a name does."""
_VALUE = re.compile(r""""(?:[^"\\]|\\.)*+"?|'[^']*+'?|[^\s,&}\]]++""", re.DOTALL)
_SECRET_KEY = re.compile(_SENSITIVE_WORDS, re.IGNORECASE)
_MASK = "•••"
_REJECTION = re.compile(rb'"success": ?false')
_MAX_REJECTION_BYTES = 500
_MAX_PATH_CHARS = 300


@attrs.frozen
class Exchange:
    """What a call carried, as it went over the wire."""

    request: bytes
    """The beginning of the body."""
    response: bytes
    """The beginning of the body; nothing where it was streamed."""
    request_size: int | None
    """Of the whole body; None where it was not read to its end."""
    response_size: int | None
    """None where it was streamed."""


@attrs.frozen
class CallRecord:
    """One request, and how it ended."""

    number: int
    """They count from 1."""
    at: datetime
    """When it came, by the machine's clock."""
    operation: str
    """The specification's name of the operation; "no operation" where the URL or the method is wrong."""
    status: int | None
    """Of the answer; None where the connection ended without one."""
    milliseconds: float
    is_rejected: bool = False
    """True for a refusal that has the status of a success, as messaging and registration answer."""
    method: str = ""
    path: str = attrs.field(default="", repr=False)
    """Without a session and without the query."""
    effects: tuple[str, ...] = attrs.field(default=(), repr=False)
    """What it has done, as the ledger has it: operation and subject."""
    fault: str | None = None
    """The kind of the fault that was injected; None for a call as it is otherwise."""

    @property
    def outcome(self) -> str:
        """The status in words, and the fault where there was one."""
        fault = "" if self.fault is None else f" (fault: {self.fault})"
        return f"{self.status or 'no response'}{' rejected' if self.is_rejected else ''}{fault}"


class Calls:
    """The last 10,000 calls of the services and the OAuth 2.0 endpoints, and who is told of each."""

    def __init__(self) -> None:
        self.records = deque[CallRecord](maxlen=_MAX_CALLS)
        self.listeners = list[Callable[[CallRecord], None]]()
        self.count = 0
        """How many there were."""
        self._exchanges = deque[tuple[int, Exchange]](maxlen=_MAX_EXCHANGES)

    def find_exchange(self, number: int) -> Exchange | None:
        """What a call carried, if it was one of the last."""
        return next((exchange for kept, exchange in self._exchanges if kept == number), None)

    def find(self, number: int) -> CallRecord | None:
        """A call by its number."""
        place = number - self.count - 1 + len(self.records)
        return self.records[place] if 0 <= place < len(self.records) else None

    def make_middleware(self) -> Middleware:
        """The outermost middleware."""

        @web.middleware
        async def record(request: web.Request, handler: Handler) -> web.StreamResponse:
            """The handler's answer, which is noted however it ends."""
            operation, at, began = request.match_info.route.name, datetime.now(UTC), time.perf_counter()
            if operation is None and request.match_info.http_exception is None:  # it is of no service
                return await handler(request)
            status: int | None = None
            answer: web.StreamResponse | None = None
            effects = list[str]()
            EFFECTS.set(effects)
            try:
                answer = response = await handler(request)
                gone = request.transport is None or request.transport.is_closing()
                status = None if gone else response.status
            finally:
                elapsed = 1000 * (time.perf_counter() - began)
                exchange = await _read_exchange(request, answer)
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
                self._exchanges.append((self.count, exchange))
                for listener in self.listeners:
                    listener(call)
            return response

        return record


async def _read_exchange(request: web.Request, answer: web.StreamResponse | None) -> Exchange:
    """The beginnings of both bodies. Of a request that was not read to its end there is nothing."""
    beginning, size = b"", None
    if BODY_PREFIX in request:
        beginning, size = request[BODY_PREFIX]
    elif not request.can_read_body and request.content.exception() is None:
        sent = await request.read()  # read already: nothing is waited for
        beginning, size = sent[:MAX_RECORDED_BYTES], len(sent)
    body = answer.body if isinstance(answer, web.Response) else None
    answered = bytes(body[:MAX_RECORDED_BYTES]) if isinstance(body, bytes | bytearray) else b""
    answer_size = len(body) if isinstance(body, bytes | bytearray) else None
    return Exchange(beginning, answered, size, answer_size)


def _mask_path(request: web.Request) -> str:
    """The path without the session that is a segment of some; of a path that no operation has, its first segments."""
    if request.match_info.route.name is None:
        segments = request.path[:_MAX_PATH_CHARS].split("/")
        return "/".join(segments[:4]) + ("/…" if len(segments) > 4 else "")
    session = request.match_info.get("session_id")
    return (request.path if not session else request.path.replace(session, _MASK))[:_MAX_PATH_CHARS]


def mask_secrets(body: bytes) -> str:
    """Return a body as text that a page can hold, without the values of names that are like a secret's; indent JSON."""
    text = body.decode("utf-8", "replace")
    try:
        document = json.loads(text, object_pairs_hook=_mask_members)
    except (ValueError, RecursionError):
        return _mask_values(text)
    return json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8", "replace").decode()


def _mask_values(text: str) -> str:
    """Replace the value behind each name that is named like a secret."""
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
