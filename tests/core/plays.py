"""What the scripted server can do with a request: answer it, or one of the many ways not to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import attrs

from .scripted_server import Exchange, Play

_REASONS = {200: "OK", 302: "Found", 401: "Unauthorized", 429: "Too Many Requests", 503: "Service Unavailable"}


def head(status: int, length: int | None, headers: Mapping[str, str] | None = None) -> bytes:
    """The head of an answer; without a length it is chunked."""
    body = {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
    fields = {"Content-Type": "application/json"} | body | dict(headers or {})
    lines = [
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Other')}",
        *(f"{name}: {text}" for name, text in fields.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def content(document: Any) -> bytes:
    """Bytes as they are, anything else as JSON."""
    return document if isinstance(document, bytes) else json.dumps(document).encode()


def answer(document: Any, status: int = 200, **headers: str) -> Play:
    """A whole answer; headers with `_` for `-`."""
    body = content(document)
    fields = {name.replace("_", "-"): text for name, text in headers.items()}

    async def play(exchange: Exchange) -> None:
        await exchange.read()
        await exchange.write(head(status, len(body), fields) + body)

    return play


def early(document: Any, status: int) -> Play:
    """A whole answer as soon as the request's head has come; then the connection is closed."""

    async def play(exchange: Exchange) -> None:
        await exchange.write(head(status, len(content(document)), {"Connection": "close"}) + content(document))
        exchange.close()

    return play


def gated(gate: asyncio.Event, then: Play) -> Play:
    """Wait for the test's word, then go on."""

    async def play(exchange: Exchange) -> None:
        await gate.wait()
        await then(exchange)

    return play


def slow(seconds: float, then: Play) -> Play:
    """Go on after so many (virtual) seconds."""

    async def play(exchange: Exchange) -> None:
        await asyncio.sleep(seconds)
        await then(exchange)

    return play


@attrs.frozen
class Pause:
    """A pause in the middle of an answer."""

    seconds: float


def pieces(*parts: bytes | Pause, length: int | None = None) -> Play:
    """A chunked answer in pieces; a Pause between them. length: a Content-Length, for one that breaks off."""

    async def play(exchange: Exchange) -> None:
        await exchange.read()
        await exchange.write(head(200, length))
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


def truncated(document: Any) -> Play:
    """Announces the whole answer, sends half of it and closes."""
    body = content(document)
    return pieces(body[: len(body) // 2], length=len(body))


async def reset(exchange: Exchange) -> None:
    """Read the request, then break the connection off (RST)."""
    await exchange.read()
    exchange.reset()


async def hang_up(exchange: Exchange) -> None:
    """Read the request, then close the connection without an answer (FIN)."""
    await exchange.read()
    exchange.close()


async def half_a_head(exchange: Exchange) -> None:
    """Begin the answer's head and close."""
    await exchange.read()
    await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Le")
    exchange.close()


async def not_http(exchange: Exchange) -> None:
    """Answer in another protocol."""
    await exchange.read()
    await exchange.write(b"220 mail.example.test ESMTP\r\n\r\n")
    exchange.close()


async def silence(exchange: Exchange) -> None:
    """Read the request and never answer."""
    await exchange.read()
    await exchange.gone()
