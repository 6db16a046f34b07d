"""Reading JSON that anyone may have sent: what cannot be used is a `MalformedBodyError`, never a crash.

RefusedError beside bad syntax: text that is not UTF-8, NaN and Infinity, nesting too deep to parse, numbers too long to
read, unpaired surrogates (which no database or mailbox could store) and numbers beyond 64 bits.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

LARGEST_INTEGER = 2**63 - 1


class MalformedBodyError(Exception):
    """The request body is not what the operation takes; the text says what is wrong."""


class MalformedMemberError(MalformedBodyError):
    """The request body is JSON, but a member of it, or its shape, is not what the operation takes."""


async def read_json(request: web.Request) -> Any:
    """The request body as JSON, whatever its media type says. Raises MalformedBodyError."""
    return parse_json(await request.read())


async def read_object(request: web.Request) -> dict[str, Any]:
    """The request body as a JSON object; an empty body is an empty object. Raises MalformedBodyError."""
    body = await request.read()
    return as_object(parse_json(body) if body.strip() else {})


def parse_json(body: bytes) -> Any:
    """JSON text as Python values. Raises MalformedBodyError, whose text never quotes the body."""
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except MalformedBodyError:
        raise
    except UnicodeError:
        raise MalformedBodyError("the request body is not valid UTF-8 text") from None
    except (ValueError, RecursionError):
        raise MalformedBodyError("the request body is not valid JSON") from None
    return value


def as_object(value: Any) -> dict[str, Any]:
    """The value, which must be a JSON object. Raises MalformedMemberError."""
    if not _is_object(value):
        raise MalformedMemberError("a JSON object is wanted here")
    return value


def as_array(value: Any) -> list[Any]:
    """The value, which must be a JSON array. Raises MalformedMemberError."""
    if not _is_array(value):
        raise MalformedMemberError("a JSON array is wanted here")
    return value


def text_member(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A member that must be non-empty text; without a default it is required. Raises MalformedMemberError."""
    value = body.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or not value.strip():
        raise MalformedMemberError(f"{name} must be a text that is not empty")
    return value


def optional_text_member(body: Mapping[str, Any], name: str) -> str | None:
    """A member that may be absent or null, and is text otherwise. Raises MalformedMemberError."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise MalformedMemberError(f"{name} must be text")
    return value


def integer_member(body: Mapping[str, Any], name: str) -> int | None:
    """A member that may be absent or null, else a 64-bit integer or its digits. Raises MalformedMemberError."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST_INTEGER:
        raise MalformedMemberError(f"{name} must be an integer")
    return value


def _refuse_constant(name: str) -> Any:
    raise MalformedBodyError(f"{name} is not JSON")


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_array(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
