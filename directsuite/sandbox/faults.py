"""Faults on demand: rules, by operation, for answers and connections that go wrong.

    status          answer with any status, without running the operation (processed=True: after running it)
    latency         a real delay of `seconds`, then the operation
    hang            no answer until the client leaves (processed=True: after running the operation)
    reset_before    the request is read, not processed, and the connection reset
    reset_after     processed, then the connection reset before the first byte of the answer
    truncate        processed; the headers announce the whole answer, half of it comes, then the connection closes
    malformed       processed; the body is neither JSON nor base64
    expire_token    the caller's access token is expired first
    expire_session  the caller's registration session is expired first

Every fault first reads the request to its end, so that what a client sees does not depend on how far it had sent.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import random
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

import attrs
import msgspec
from aiohttp import web
from aiohttp.payload import Payload

from directsuite.sandbox.calls import FAULT_KIND
from directsuite.sandbox.files import PiecesPayload, has_small_body, receive_body
from directsuite.sandbox.rejections import respond_to_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp.typedefs import Handler, Middleware

FaultKind = Literal[
    "status",
    "latency",
    "hang",
    "reset_before",
    "reset_after",
    "truncate",
    "malformed",
    "expire_token",
    "expire_session",
]
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
EVERY_OPERATION = "*"

ResponseBody: TypeAlias = bytes | PiecesPayload
"""The body of an answer: what is large is in files, and is not read to be spoilt."""

_HeaderText = Annotated[str, msgspec.Meta(pattern=r"^[ -~]+$(?!\n)")]  # JSON Schema has no \Z
_Natural = Annotated[int, msgspec.Meta(ge=0)]


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule: which operation, what goes wrong, and how often."""

    operation: _HeaderText
    """The specification's name of the operation, or `*` for all of them."""
    kind: FaultKind
    status: Annotated[int, msgspec.Meta(ge=200, le=599)] = 503
    """HTTP status of the answer, for `status`."""
    retry_after: _Natural | _HeaderText | None = None
    """Value of the Retry-After header, in seconds or as an HTTP date, for `status`."""
    body: Any = None
    """Answer body for `status`: text as it stands, anything else as JSON, None for an empty one."""
    media_type: _HeaderText | None = None
    """Content-Type of the body; text/html for text and application/json for JSON where it is None."""
    seconds: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.1
    """Delay for `latency`; real time, since clients measure it."""
    processed: bool = False
    """True to run the operation, for `status` and `hang`."""
    times: Annotated[int, msgspec.Meta(gt=0)] | None = 1
    """How often the rule applies before it is used up; None for ever."""
    skip: _Natural = 0
    """How many requests of the operation it lets through first, whether or not other rules apply to them."""
    probability: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """Chance that it applies to a request, drawn from a generator with the rule's `seed`."""
    seed: int = 0

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Fault:
        """A fault from JSON members of the same names. Raises ValueError that names what does not fit."""
        if (kind := members.get("kind", FAULT_KINDS[0])) not in FAULT_KINDS:
            raise ValueError(f"there is no fault of the kind {kind!r}: give one of {', '.join(FAULT_KINDS)}")
        try:
            return msgspec.convert(members, cls)
        except msgspec.ValidationError as mismatch:
            raise ValueError(f"no such fault: {mismatch}") from None


@attrs.define
class _FaultRule:
    fault: Fault
    rng: random.Random
    skips_left: int
    uses_left: int | None
    times_applied: int = 0

    def count_request(self) -> bool:
        """Count a request, and return True unless it is to be skipped."""
        if self.skips_left == 0:
            return True
        self.skips_left -= 1
        return False

    def try_to_apply(self) -> bool:
        """Return True if the rule acts on this request, which it then counts as applied."""
        if self.uses_left == 0:
            return False
        if self.fault.probability < 1 and self.rng.random() >= self.fault.probability:
            return False
        self.times_applied += 1
        if self.uses_left is not None:
            self.uses_left -= 1
        return True


class Faults:
    """The rules in the order in which they were added; the first one that applies to a request decides."""

    def __init__(self) -> None:
        self._rules: dict[int, _FaultRule] = {}
        self._last_number = 0
        self._operations: frozenset[str] = frozenset()
        self.listeners = list[Callable[[], None]]()
        """Called after each change of the rules."""
        self.stopped = False
        """True once the sandbox stops: requests that hang end."""

    def set_operations(self, operations: Iterable[str]) -> None:
        """Tell which operations there are, so that a rule for a misspelt one is refused."""
        self._operations = frozenset(operations)

    def add(self, fault: Fault) -> int:
        """Add a rule and return its number. Raises ValueError for an operation that does not exist."""
        if fault.operation != EVERY_OPERATION:
            self.validate_operation(fault.operation)
        self._last_number += 1
        self._rules[self._last_number] = _FaultRule(fault, random.Random(fault.seed), fault.skip, fault.times)
        self._notify_listeners()
        return self._last_number

    def validate_operation(self, operation: str) -> None:
        """Raise ValueError if there is no such operation."""
        if operation not in self._operations:
            alike = difflib.get_close_matches(operation, self._operations, 1)
            raise ValueError(f"there is no operation {operation!r}" + (f"; did you mean {alike[0]}?" if alike else ""))

    def remove(self, number: int) -> bool:
        """Remove one rule; False if there is none of this number."""
        existed = self._rules.pop(number, None) is not None
        self._notify_listeners()
        return existed

    def clear(self) -> None:
        """Remove all rules."""
        self._rules.clear()
        self._notify_listeners()

    def _notify_listeners(self) -> None:
        for listener in self.listeners:
            listener()

    @property
    def operations(self) -> frozenset[str]:
        """The operations that rules may name."""
        return self._operations

    def list_rules(self) -> list[dict[str, Any]]:
        """Every rule with its number, how often it has applied, and how often it still will."""
        return [
            {
                "id": number,
                **msgspec.structs.asdict(rule.fault),
                "applied": rule.times_applied,
                "remaining": rule.uses_left,
            }
            for number, rule in self._rules.items()
        ]

    def claim_fault(self, operation: str | None) -> Fault | None:
        """The fault for this request, counted as applied; None for a healthy one or a path outside the services."""
        if operation not in self._operations:
            return None
        rules = [rule for rule in self._rules.values() if rule.fault.operation in {operation, EVERY_OPERATION}]
        due = [rule for rule in rules if rule.count_request()]  # each of them counts the request
        return next((rule.fault for rule in due if rule.try_to_apply()), None)


def describe_kind(rule: Mapping[str, Any]) -> str:
    """Name the kind of a rule, as `Faults.rules` has it, with its status or its delay."""
    match rule["kind"]:
        case "status":
            return f"status {rule['status']}"
        case "latency":
            return f"latency {rule['seconds']:g} s"
        case kind:
            return str(kind)


def describe_remaining(rule: Mapping[str, Any]) -> str:
    """Say how often a rule still applies."""
    return {None: "always", 0: "used up"}.get(rule["remaining"], str(rule["remaining"]))


ExpireFn = Callable[[web.Request], Awaitable[None]]
"""Expires the token or session that the request carries."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close() sends RST instead of FIN
_STREAMED_OPERATION = "Save"  # read by the operation to the end, and too large to be kept
_LARGE_BODY_OPERATIONS = frozenset(
    {"Send", "SendWithHeader", "SendWithTuser", "SendWithHeaderWithTuser", "SaveRawMessages"}
)
_POLL_INTERVAL = 0.02  # seconds; aiohttp does not tell a handler that the client has left


def make_fault_middleware(faults: Faults, *, expire_token: ExpireFn, expire_session: ExpireFn) -> Middleware:
    """The middleware that lets the rules of `faults` act on requests to the services."""

    @web.middleware
    async def inject(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let the first rule that applies act; a healthy request passes."""
        fault = faults.claim_fault(request.match_info.route.name)
        if fault is None:
            return await handler(request)
        request[FAULT_KIND] = fault.kind
        name = request.match_info.route.name
        if name != _STREAMED_OPERATION and (name not in _LARGE_BODY_OPERATIONS or has_small_body(request)):
            await request.read()  # at once: the operation may act when the client has left
        elif not fault.processed and fault.kind in {"status", "hang", "reset_before"}:
            await receive_body(request, sys.maxsize, len)

        async def respond() -> web.StreamResponse:
            """The operation's answer, a refusal included: that too can be spoilt."""
            try:
                return await handler(request)
            except Exception as error:  # noqa: BLE001  whatever it is, the operation has answered it
                return respond_to_error(error, request)

        if fault.processed and fault.kind in {"status", "hang"}:
            await respond()
        match fault.kind:
            case "status":
                return _build_status_response(fault)
            case "latency":
                await asyncio.sleep(fault.seconds)
                return await respond()
            case "hang":
                while not (faults.stopped or _has_disconnected(request)):  # noqa: ASYNC110  there is no event for it
                    await asyncio.sleep(_POLL_INTERVAL)
                return _reset_connection(request)
            case "reset_before":
                return _reset_connection(request)
            case "reset_after":
                await respond()
                return _reset_connection(request)
            case "truncate":
                return await _send_truncated(request, await respond())
            case "malformed":
                return _build_malformed(await respond())
            case "expire_token":
                await expire_token(request)
                return await respond()
            case "expire_session":
                await expire_session(request)
                return await respond()

    return inject


def _build_status_response(fault: Fault) -> web.Response:
    is_text = isinstance(fault.body, str)
    body = b"" if fault.body is None else (fault.body if is_text else json.dumps(fault.body)).encode()
    headers = {"Content-Type": fault.media_type or ("text/html" if is_text else "application/json")} if body else {}
    if fault.retry_after is not None:
        headers["Retry-After"] = str(fault.retry_after)
    return web.Response(status=fault.status, body=body, headers=headers)


async def _send_truncated(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    body = _get_body(response)
    answer = web.StreamResponse(status=response.status, reason=response.reason, headers=response.headers)
    answer.content_length = _get_size(body)
    writer = await answer.prepare(request)
    half = _cut_body(body, _get_size(body) // 2)
    if isinstance(half, bytes):
        await answer.write(half)
    elif writer is not None:
        await half.write(writer)
    if request.transport is not None:
        request.transport.close()  # flushes what was written, then FIN
    return answer


def _build_malformed(response: web.StreamResponse) -> web.Response:
    headers = response.headers.copy()
    headers.popall("Content-Length", None)
    breaking = break_json if response.content_type == "application/json" else break_base64
    return web.Response(status=response.status, headers=headers, body=breaking(_get_body(response)))


def _has_disconnected(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _reset_connection(request: web.Request) -> web.Response:
    transport = request.transport
    if transport is not None:
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        transport.abort()
    return web.Response()  # aiohttp wants one even where the connection is gone; not a byte of it is sent


def _get_body(response: web.StreamResponse) -> ResponseBody:
    body = response.body if isinstance(response, web.Response) else None
    if isinstance(body, Payload) and not isinstance(body, PiecesPayload):
        raise TypeError(f"a fault can't spoil a {type(body).__name__}")
    return bytes(body or b"") if not isinstance(body, PiecesPayload) else body


def _get_size(body: ResponseBody) -> int:
    return len(body) if isinstance(body, bytes) else body.size


def _cut_body(body: ResponseBody, size: int) -> ResponseBody:
    return body[:size] if isinstance(body, bytes) else body.cut(size)


def break_json(body: ResponseBody) -> ResponseBody:
    """The first half of a JSON object or array is never JSON."""
    return _cut_body(body, max(1, _get_size(body) // 2))


def break_base64(body: ResponseBody) -> ResponseBody:
    """One character more than whole groups is no base64, even for a decoder that skips foreign characters.

    What is in files has no line breaks.
    """
    if not isinstance(body, bytes):
        return body.cut(max(0, body.size - 1) // 4 * 4, b"!", b"A")
    characters = b"".join(body.split()).rstrip(b"=")
    return b"!" + characters[: max(0, len(characters) - 1) // 4 * 4] + b"A"
