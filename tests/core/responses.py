"""The responses of the scripted server, and its ways to fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import attrs

from .scripted_server import Exchange, Responder

_REASONS = {200: "OK", 302: "Found", 401: "Unauthorized", 429: "Too Many Requests", 503: "Service Unavailable"}


def make_head(status: int, length: int | None, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the head of a response, chunked if there is no length."""
    body = {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
    fields = {"Content-Type": "application/json"} | body | dict(headers or {})
    lines = [
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Other')}",
        *(f"{name}: {text}" for name, text in fields.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def encode_body(document: Any) -> bytes:
    return document if isinstance(document, bytes) else json.dumps(document).encode()


def respond(document: Any, status: int = 200, **headers: str) -> Responder:
    body = encode_body(document)
    fields = {name.replace("_", "-"): text for name, text in headers.items()}
    return send_raw(make_head(status, len(body), fields) + body)


def respond_early(document: Any, status: int) -> Responder:
    """Respond after the head of the request, then close the connection."""

    async def play(exchange: Exchange) -> None:
        await exchange.write(
            make_head(status, len(encode_body(document)), {"Connection": "close"}) + encode_body(document)
        )
        exchange.close()

    return play


def respond_after(gate: asyncio.Event, then: Responder) -> Responder:
    async def respond_when_set(exchange: Exchange) -> None:
        await gate.wait()
        await then(exchange)

    return respond_when_set


def delay(seconds: float, then: Responder) -> Responder:
    async def play(exchange: Exchange) -> None:
        await asyncio.sleep(seconds)
        await then(exchange)

    return play


@attrs.frozen
class Pause:
    seconds: float


def respond_in_chunks(*parts: bytes | Pause, length: int | None = None) -> Responder:
    """Respond in chunks, with pauses. length: a Content-Length, for a response that is cut off."""
    if length is not None:
        return close_after(send_raw(make_head(200, length), *parts))
    chunks = [part if isinstance(part, Pause) else b"%x\r\n%s\r\n" % (len(part), part) for part in parts]
    return send_raw(make_head(200, None), *chunks, b"0\r\n\r\n")


def truncate(document: Any) -> Responder:
    body = encode_body(document)
    return respond_in_chunks(body[: len(body) // 2], length=len(body))


async def reset(exchange: Exchange) -> None:
    await exchange.read()
    exchange.reset()


async def never_respond(exchange: Exchange) -> None:
    await exchange.read()
    await exchange.wait_for_disconnect()


def send_raw(*parts: bytes | Pause) -> Responder:
    """Send these bytes, and keep the connection open."""

    async def play(exchange: Exchange) -> None:
        await exchange.read()
        for part in parts:
            if isinstance(part, Pause):
                await asyncio.sleep(part.seconds)
            else:
                await exchange.write(part)

    return play


def send_endlessly(first: bytes, piece: bytes, *, pause: float = 0.0) -> Responder:
    """Repeat the same piece of a response, with pauses, until the client disconnects."""

    async def play(exchange: Exchange) -> None:
        await exchange.read()
        await exchange.write(first)
        while True:
            await exchange.write(piece)
            await asyncio.sleep(pause)

    return play


def close_after(play: Responder) -> Responder:
    async def closing(exchange: Exchange) -> None:
        await play(exchange)
        exchange.close()

    return closing


hang_up = close_after(send_raw())
"""Read the request, then close the connection without a response (FIN)."""
send_partial_head = close_after(send_raw(b"HTTP/1.1 200 OK\r\nContent-Le"))
send_non_http = close_after(send_raw(b"220 mail.example.test ESMTP\r\n\r\n"))


async def reset_during_body(exchange: Exchange) -> None:
    """Reset the connection (RST) while the body of the request is being received."""
    await exchange.read_some()
    exchange.reset()


async def hang_up_during_body(exchange: Exchange) -> None:
    """Close the connection (FIN) while the body of the request is being received."""
    await exchange.read_some()
    exchange.close()


async def read_partial_body(exchange: Exchange) -> None:
    await exchange.read_some()
    await asyncio.sleep(1000)
