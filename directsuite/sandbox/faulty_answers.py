"""What a fault does to one request, down to the TCP segment: the middleware behind `directsuite.sandbox.faults`."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from aiohttp.payload import Payload
from aiohttp.typedefs import Handler, Middleware

from directsuite.sandbox.faults import Fault, Faults, Kind

Expire = Callable[[web.Request], Awaitable[None]]
"""Expires the token or session that the request carries."""

Behaviour = Callable[[Fault, web.Request, Handler], Awaitable[web.StreamResponse]]
"""What one kind of fault does with a request."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close() sends RST instead of FIN
_LOOK_AGAIN = 0.02  # seconds; aiohttp does not tell a handler that the client has left


def fault_injection(faults: Faults, *, expire_token: Expire, expire_session: Expire) -> Middleware:
    """The middleware that lets the rules of `faults` act on requests to the services."""
    behaviours: Mapping[Kind, Behaviour] = {
        "status": _status,
        "latency": _latency,
        "hang": _hanging(faults),
        "reset_before": _reset_before,
        "reset_after": _reset_after,
        "truncate": _truncate,
        "malformed": _malformed,
        "expire_token": _expiring(expire_token),
        "expire_session": _expiring(expire_session),
    }

    @web.middleware
    async def inject(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let the first rule that applies act; a healthy request passes."""
        fault = faults.take(request.match_info.route.name)
        if fault is None:
            return await handler(request)
        await request.read()
        return await behaviours[fault.kind](fault, request, handler)

    return inject


async def _status(fault: Fault, request: web.Request, handler: Handler) -> web.StreamResponse:
    if fault.processed:
        await handler(request)
    is_text = isinstance(fault.body, str)
    body = b"" if fault.body is None else (fault.body if is_text else json.dumps(fault.body)).encode()
    headers = {"Content-Type": fault.media_type or ("text/html" if is_text else "application/json")} if body else {}
    if fault.retry_after is not None:
        headers["Retry-After"] = str(fault.retry_after)
    return web.Response(status=fault.status, body=body, headers=headers)


async def _latency(fault: Fault, request: web.Request, handler: Handler) -> web.StreamResponse:
    await asyncio.sleep(fault.seconds)
    return await handler(request)


def _hanging(faults: Faults) -> Behaviour:
    async def hang(fault: Fault, request: web.Request, handler: Handler) -> web.StreamResponse:
        if fault.processed:
            await handler(request)
        while not (faults.stopped or _has_left(request)):  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(_LOOK_AGAIN)
        return _reset(request)

    return hang


async def _reset_before(fault: Fault, request: web.Request, handler: Handler) -> web.StreamResponse:
    return _reset(request)


async def _reset_after(fault: Fault, request: web.Request, handler: Handler) -> web.StreamResponse:
    await handler(request)
    return _reset(request)


async def _truncate(fault: Fault, request: web.Request, handler: Handler) -> web.StreamResponse:
    processed = await handler(request)
    body = await _body_of(processed)
    answer = web.StreamResponse(status=processed.status, reason=processed.reason, headers=processed.headers)
    answer.content_length = len(body)
    await answer.prepare(request)
    await answer.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()  # flushes what was written, then FIN
    return answer


async def _malformed(fault: Fault, request: web.Request, handler: Handler) -> web.StreamResponse:
    processed = await handler(request)
    body = await _body_of(processed)
    headers = processed.headers.copy()
    headers.popall("Content-Length", None)
    broken = broken_json(body) if processed.content_type == "application/json" else broken_base64(body)
    return web.Response(status=processed.status, headers=headers, body=broken)


def _expiring(expire: Expire) -> Behaviour:
    async def expire_first(fault: Fault, request: web.Request, handler: Handler) -> web.StreamResponse:
        await expire(request)
        return await handler(request)

    return expire_first


def _has_left(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _reset(request: web.Request) -> web.Response:
    transport = request.transport
    if transport is not None:
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        transport.abort()
    return _nothing()


def _nothing() -> web.Response:
    """For aiohttp, which wants an answer even where the connection is gone; not a byte of it is sent."""
    return web.Response()


async def _body_of(response: web.StreamResponse) -> bytes:
    body = response.body if isinstance(response, web.Response) else None
    if isinstance(body, Payload):
        return await body.as_bytes()
    return bytes(body) if isinstance(body, bytes | bytearray) else b""


def broken_json(body: bytes) -> bytes:
    """The first half of a JSON object or array is never JSON."""
    return body[: max(1, len(body) // 2)]


def broken_base64(body: bytes) -> bytes:
    """One character more than whole groups is no base64, even for a decoder that skips foreign characters."""
    characters = b"".join(body.split()).rstrip(b"=")
    return b"!" + characters[: max(0, len(characters) - 1) // 4 * 4] + b"A"
