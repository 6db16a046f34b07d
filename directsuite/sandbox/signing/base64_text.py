"""Base64 as clients send it: with or without line breaks, now and then behind a `data:` prefix."""

from __future__ import annotations

import re
from contextlib import suppress

import pybase64

from directsuite.sandbox.signing.refusals import InvalidParameterError

_DATA_PREFIX = re.compile(rb"\s*data:[^,]{0,200},")
_WHITE_SPACE = b" \t\r\n"


def decoded(text: bytes | str, what: str) -> bytes:
    """The bytes behind base64 text. Raises InvalidParameterError, which names `what` was wrong."""
    raw = text.encode("ascii", "replace") if isinstance(text, str) else text
    with suppress(ValueError):  # the usual text has nothing to take out, which would be a copy of it
        if raw:
            return pybase64.b64decode(raw, validate=True)
    prefix = _DATA_PREFIX.match(raw)
    compact = (raw[prefix.end() :] if prefix else raw).translate(None, _WHITE_SPACE)
    if not compact:
        raise InvalidParameterError(f"{what} is empty: base64 text is expected")
    try:
        return pybase64.b64decode(compact, validate=True)
    except ValueError:
        raise InvalidParameterError(f"{what} is not valid base64") from None


def encoded(content: bytes) -> bytes:
    """Bytes as base64 text without line breaks."""
    return pybase64.b64encode(content)
