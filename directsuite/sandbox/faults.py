"""Faults on demand: rules that make the responses or connections of operations fail.

    status          respond with any status, without running the operation (processed=True: after running it)
    latency         wait `seconds` of real time, then run the operation
    hang            do not respond until the client disconnects (processed=True: after running the operation)
    reset_before    reset the connection without running the operation
    reset_after     run the operation, then reset the connection before the first byte of the response
    truncate        run the operation; send all headers, half of the body, then close the connection
    malformed       run the operation; send a body that is neither valid JSON nor valid base64
    expire_token    expire the caller's access token first
    expire_session  expire the caller's registration session first

Every fault first reads the entire request, so that its effect does not depend on how much the client has sent.
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
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import msgspec
from aiohttp import web

from directsuite.sandbox.calls import FAULT_KIND
from directsuite.sandbox.files import PiecesPayload, has_small_body, receive_body
from directsuite.sandbox.rejections import respond_to_error

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler, Middleware

FAULT_KINDS = (
    *("status", "latency", "hang", "reset_before", "reset_after", "truncate", "malformed"),
    *("expire_token", "expire_session"),
)
EVERY_OPERATION = "*"

_HeaderText = Annotated[str, msgspec.Meta(pattern=r"^[ -~]+$(?!\n)")]  # JSON Schema has no \Z
_Natural = Annotated[int, msgspec.Meta(ge=0)]


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault rule: an operation, a fault, and how often it applies."""

    operation: _HeaderText
    """The name in the specification, or `*` for all operations."""
    kind: Annotated[str, msgspec.Meta(extra_json_schema={"enum": FAULT_KINDS})]
    status: Annotated[int, msgspec.Meta(ge=200, le=599)] = 503
    retry_after: _Natural | _HeaderText | None = None
    """For `status`: the Retry-After header, in seconds or as an HTTP date. None: no header.

    Without it, directsuite waits 30 to 60 seconds after a 503 if the timeout of the call allows this, and otherwise at
    most 0.5 seconds before the second attempt.
    """
    body: Any = None
    """For `status`: text is sent unchanged, other values as JSON. None: the body is empty."""
    media_type: _HeaderText | None = None
    """For `status`. None: text/html for text, application/json for other values."""
    seconds: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.1
    """For `latency`: the delay, in real time, because clients measure that."""
    processed: bool = False
    """For `status` and `hang`: True to run the operation."""
    times: Annotated[int, msgspec.Meta(gt=0)] | None = 1
    """How often the rule applies. None: without limit."""
    skip: _Natural = 0
    """The number of requests that the rule skips first. A request to which another rule applies also counts."""
    probability: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """The probability that the rule applies to a request, from a random generator with `seed`."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in FAULT_KINDS:
            raise ValueError(f"the kind {self.kind!r} of the fault is unknown: use one of {', '.join(FAULT_KINDS)}")

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Fault:
        """Return a fault from JSON members. Raises ValueError for an invalid member."""
        try:
            return msgspec.convert(members, cls)
        except msgspec.ValidationError as mismatch:
            raise ValueError(
                f"the fault rule is invalid ({mismatch}): its members are {', '.join(cls.__struct_fields__)}"
            ) from None


@attrs.define
class _FaultRule:
    fault: Fault
    rng: random.Random
    requests: int = 0
    times_applied: int = 0

    @property
    def remaining(self) -> int | None:
        return None if self.fault.times is None else self.fault.times - self.times_applied


class Faults:
    """The fault rules, oldest first. The first that applies to a request is used."""

    def __init__(self) -> None:
        self._rules: dict[int, _FaultRule] = {}
        self._last_number = 0
        self.operations: frozenset[str] = frozenset()
        """The names of the sandbox's operations. `add` rejects rules for others, except `*`."""
        self.changes = 0
        """The number of changes of the rules, including how often they were applied."""
        self.stopped = False
        """True once the sandbox stops, which ends requests that hang."""

    def add(self, fault: Fault) -> int:
        """Add a rule and return its id. Raises ValueError for an unknown operation."""
        if fault.operation != EVERY_OPERATION:
            self.validate_operation(fault.operation)
        self._last_number += 1
        self._rules[self._last_number] = _FaultRule(fault, random.Random(fault.seed))
        self.changes += 1
        return self._last_number

    def validate_operation(self, operation: str) -> None:
        """Raise ValueError if the operation is unknown."""
        if operation not in self.operations:
            alike = difflib.get_close_matches(operation, self.operations, 1)
            raise ValueError(f"there is no operation {operation!r}" + (f": did you mean {alike[0]}?" if alike else ""))

    def remove(self, number: int) -> bool:
        """Remove a rule. Return False if its id is unknown."""
        self.changes += 1
        return self._rules.pop(number, None) is not None

    def clear(self) -> None:
        """Remove all rules."""
        self.changes += 1
        self._rules.clear()

    def list_rules(self) -> list[dict[str, Any]]:
        """Return the fields of the rules, with `id`, `applied` (how often), and `remaining` (None: without limit)."""
        return [
            {"id": number}
            | msgspec.structs.asdict(rule.fault)
            | {"applied": rule.times_applied, "remaining": rule.remaining}
            for number, rule in self._rules.items()
        ]

    def claim_fault(self, operation: str | None) -> Fault | None:
        """Count a request. Return the fault of the first rule that applies to it, and count its use, or return None."""
        if operation not in self.operations:
            return None
        rules = [rule for rule in self._rules.values() if rule.fault.operation in {operation, EVERY_OPERATION}]
        for rule in rules:
            rule.requests += 1  # for all rules, not only up to the first that applies
        for rule in rules:
            is_due = rule.requests > rule.fault.skip and rule.remaining != 0
            if is_due and (rule.fault.probability == 1 or rule.rng.random() < rule.fault.probability):
                rule.times_applied += 1
                self.changes += 1
                return rule.fault
        return None


def describe_kind(rule: Mapping[str, Any]) -> str:
    """Return the kind of a rule of `Faults.list_rules`, with its status or delay, such as "status 503"."""
    match rule["kind"]:
        case "status":
            return f"status {rule['status']}"
        case "latency":
            return f"latency {rule['seconds']:g} s"
        case kind:
            return str(kind)


def describe_remaining(rule: Mapping[str, Any]) -> str:
    """Return how often a rule still applies: a number, "always" or "used up"."""
    return {None: "always", 0: "used up"}.get(rule["remaining"], str(rule["remaining"]))


ExpireFn = Callable[[web.Request], Awaitable[None]]

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of 0: close() sends RST instead of FIN
_STREAMED_OPERATION = "Save"  # reads its body itself, which may be too large for memory
_LARGE_BODY_OPERATIONS = frozenset(
    {"Send", "SendWithHeader", "SendWithTuser", "SendWithHeaderWithTuser", "SaveRawMessages"}
)
_POLL_INTERVAL = 0.02  # seconds; aiohttp reports no disconnected client


def make_fault_middleware(faults: Faults, *, expire_token: ExpireFn, expire_session: ExpireFn) -> Middleware:
    """Return the middleware that applies the rules of `faults` to requests to the services.

    expire_token, expire_session: expire the token or session of a request.
    """

    @web.middleware
    async def inject(request: web.Request, handler: Handler) -> web.StreamResponse:
        name = request.match_info.route.name
        fault = faults.claim_fault(name)
        if fault is None:
            return await handler(request)
        request[FAULT_KIND] = fault.kind
        runs = fault.processed if fault.kind in {"status", "hang"} else fault.kind != "reset_before"
        if name != _STREAMED_OPERATION and (name not in _LARGE_BODY_OPERATIONS or has_small_body(request)):
            await request.read()  # now: the operation may run after the client has disconnected
        elif not runs:
            await receive_body(request, sys.maxsize, len)
        match fault.kind:
            case "latency":
                await asyncio.sleep(fault.seconds)
            case "expire_token":
                await expire_token(request)
            case "expire_session":
                await expire_session(request)
            case _:
                pass
        response: web.StreamResponse = web.Response()
        if runs:
            try:
                response = await handler(request)
            except Exception as error:  # noqa: BLE001  error responses are also changed
                response = respond_to_error(error, request)
        match fault.kind:
            case "status":
                return _build_status_response(fault)
            case "hang":
                # There is no event for it.
                while not (faults.stopped or request.transport is None or request.transport.is_closing()):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_INTERVAL)
                return _reset_connection(request)
            case "reset_before" | "reset_after":
                return _reset_connection(request)
            case "truncate":
                return await _send_truncated(request, response)
            case "malformed":
                return _break_response(response)
            case _:
                return response

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
    truncated = web.StreamResponse(status=response.status, reason=response.reason, headers=response.headers)
    truncated.content_length = body.size
    writer = await truncated.prepare(request)
    if writer is not None:
        await body.cut(body.size // 2).write(writer)
    if request.transport is not None:
        request.transport.close()  # flushes what was written, then FIN
    return truncated


def _reset_connection(request: web.Request) -> web.Response:
    transport = request.transport
    if transport is not None:
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        transport.abort()
    return web.Response()  # required by aiohttp, but never sent


def _get_body(response: web.StreamResponse) -> PiecesPayload:
    body: Any = response.body if isinstance(response, web.Response) else None
    return body if isinstance(body, PiecesPayload) else PiecesPayload.from_bytes(bytes(body or b""))


def _break_response(response: web.StreamResponse) -> web.Response:
    headers = response.headers.copy()
    headers.popall("Content-Length", None)
    breaking = _break_json if response.content_type == "application/json" else _break_base64
    return web.Response(status=response.status, headers=headers, body=breaking(_get_body(response)))


def _break_json(body: PiecesPayload) -> PiecesPayload:
    return body.cut(max(1, body.size // 2))


def _break_base64(body: PiecesPayload) -> PiecesPayload:
    return body.cut(max(0, body.size - 1) // 4 * 4, b"!", b"A")
