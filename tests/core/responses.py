"""What the scripted server can do with a request: answer it, or one of the many ways not to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import attrs

from .scripted_server import Exchange, Responder

_REASONS = {200: "OK", 302: "Found", 401: "Unauthorized", 429: "Too Many Requests", 503: "Service Unavailable"}


def make_head(status: int, length: int | None, headers: Mapping[str, str] | None = None) -> bytes:
    """The head of an answer; without a length it is chunked."""
    body = {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
    fields = {"Content-Type": "application/json"} | body | dict(headers or {})
    lines = [
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Other')}",
        *(f"{name}: {text}" for name, text in fields.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def encode_body(document: Any) -> bytes:
    """Bytes as they are, anything else as JSON."""
    return document if isinstance(document, bytes) else json.dumps(document).encode()


def respond(document: Any, status: int = 200, **headers: str) -> Responder:
    """A whole answer; headers with `_` for `-`."""
    body = encode_body(document)
    fields = {name.replace("_", "-"): text for name, text in headers.items()}

    async def play(exchange: Exchange) -> None:
        await exchange.read()
        await exchange.write(make_head(status, len(body), fields) + body)

    return play


def respond_early(document: Any, status: int) -> Responder:
    """A whole answer as soon as the request's head has come; then the connection is closed."""

    async def play(exchange: Exchange) -> None:
        await exchange.write(
            make_head(status, len(encode_body(document)), {"Connection": "close"}) + encode_body(document)
        )
        exchange.close()

    return play


def respond_after(gate: asyncio.Event, then: Responder) -> Responder:
    """Wait for the test's word, then go on."""

    async def respond_when_set(exchange: Exchange) -> None:
        await gate.wait()
        await then(exchange)

    return respond_when_set


def delay(seconds: float, then: Responder) -> Responder:
    """Go on after so many (virtual) seconds."""

    async def play(exchange: Exchange) -> None:
        await asyncio.sleep(seconds)
        await then(exchange)

    return play


@attrs.frozen
class Pause:
    """A pause in the middle of an answer."""

    seconds: float


def respond_in_chunks(*parts: bytes | Pause, length: int | None = None) -> Responder:
    """A chunked answer in pieces; a Pause between them. length: a Content-Length, for one that breaks off."""

    async def play(exchange: Exchange) -> None:
        await exchange.read()
        await exchange.write(make_head(200, length))
        for part in parts:
            if isinstance(part, Pause):
                await asyncio.sleep(part.seconds)
            else:
                await exchange.write(part if length is not None else b"%x\r\n%s\r\n" % (len(part), part))
        if length is None:
            await exchange.write(b"0\r\n\r\n")
        else:
            exchange.close()

    return play


def truncate(document: Any) -> Responder:
    """Announces the whole answer, sends half of it and closes."""
    body = encode_body(document)
    return respond_in_chunks(body[: len(body) // 2], length=len(body))


async def reset(exchange: Exchange) -> None:
    """Read the request, then break the connection off (RST)."""
    await exchange.read()
    exchange.reset()


async def hang_up(exchange: Exchange) -> None:
    """Read the request, then close the connection without an answer (FIN)."""
    await exchange.read()
    exchange.close()


async def send_partial_head(exchange: Exchange) -> None:
    """Begin the answer's head and close."""
    await exchange.read()
    await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Le")
    exchange.close()


async def send_non_http(exchange: Exchange) -> None:
    """Answer in another protocol."""
    await exchange.read()
    await exchange.write(b"220 mail.example.test ESMTP\r\n\r\n")
    exchange.close()


async def never_respond(exchange: Exchange) -> None:
    """Read the request and never answer."""
    await exchange.read()
    await exchange.wait_for_disconnect()


def send_raw(*parts: bytes | Pause) -> Responder:
    """These bytes, whatever they are, and no end of the connection."""

    async def play(exchange: Exchange) -> None:
        await exchange.read()
        for part in parts:
            if isinstance(part, Pause):
                await asyncio.sleep(part.seconds)
            else:
                await exchange.write(part)

    return play


def send_endlessly(first: bytes, piece: bytes, *, pause: float = 0.0) -> Responder:
    """Begin an answer and go on with the same piece for as long as the client is there; a pause between pieces."""

    async def play(exchange: Exchange) -> None:
        await exchange.read()
        await exchange.write(first)
        while True:
            await exchange.write(piece)
            await asyncio.sleep(pause)

    return play


def close_after(play: Responder) -> Responder:
    """Play, then close the connection in order (FIN)."""

    async def closing(exchange: Exchange) -> None:
        await play(exchange)
        exchange.close()

    return closing


async def reset_during_body(exchange: Exchange) -> None:
    """Break the connection off (RST) while the request's body is still coming."""
    await exchange.read_some()
    exchange.reset()


async def hang_up_during_body(exchange: Exchange) -> None:
    """Close the connection in order (FIN) while the request's body is still coming."""
    await exchange.read_some()
    exchange.close()


async def read_partial_body(exchange: Exchange) -> None:
    """Read a part of the request's body and no more."""
    await exchange.read_some()
    await asyncio.sleep(1000)
