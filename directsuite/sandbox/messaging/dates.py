"""Dates as the messaging service reads them from paths; into answers they are written by moments.py."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from directsuite.sandbox.messaging.refusals import Code, Refusal

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS = re.compile(r"-?[0-9]{1,18}")
_UTC_SECONDS = re.compile(r"[0-9]{14}")


def from_milliseconds(begin: str, end: str) -> tuple[int | None, int | None]:
    """The bounds of a search given in milliseconds since 1970; 0 as the end is open. Refuses with code 4."""
    for text in (begin, end):
        if _MILLISECONDS.fullmatch(text) is None:
            raise Refusal(Code.OTHER, "beginTime and endTime are numbers of milliseconds since 1970")
    return int(begin), int(end) or None


def from_utc(begin: str, end: str) -> tuple[int | None, int | None]:
    """The bounds of a search given as yyyyMMddHHmmss, the second of the end included. Refuses with code 4."""
    return _utc_milliseconds(begin), _utc_milliseconds(end) + 999


def _utc_milliseconds(text: str) -> int:
    try:
        if _UTC_SECONDS.fullmatch(text) is None:
            raise ValueError(text)
        moment = datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        raise Refusal(Code.OTHER, "beginTime and endTime are UTC times of the form yyyyMMddHHmmss") from None
    return (moment - _EPOCH) // timedelta(milliseconds=1)
