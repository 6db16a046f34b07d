"""Dates and times on the wire.

The specification leaves the format of dates open, and real servers use several. Read are integer milliseconds since
1970 (also as text), ISO 8601 with or without fraction and offset, with `T` or a blank, and RFC 5322; they give aware
UTC datetimes, a text without an offset being UTC. Written is ISO 8601 with `Z`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime

from directsuite.wire.parsing import MismatchError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS = re.compile(r"-?\d+\Z")
_A_DATE = "a date: milliseconds since 1970, or ISO 8601"


def read_datetime(value: object) -> datetime:
    """An aware UTC datetime from any of the forms that servers use; MismatchError where it is none of them."""
    try:
        if type(value) is str and value[4:5] == "-" and (moment := datetime.fromisoformat(value)).tzinfo is UTC:
            return moment
    except ValueError:
        pass
    try:
        if isinstance(value, str):
            return _from_text(value.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _EPOCH + timedelta(milliseconds=value)
    except (ValueError, OverflowError, TypeError):
        pass
    raise MismatchError(_A_DATE)


def _from_text(text: str) -> datetime:
    if _MILLISECONDS.match(text):
        return _EPOCH + timedelta(milliseconds=int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = parsedate_to_datetime(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def write_datetime(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds, or microseconds where there are any."""
    precision = "microseconds" if moment.microsecond % 1000 else "milliseconds"
    return moment.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def read_day(value: object) -> date | str:
    """A day as `yyyy-MM-dd`; any other text stays as it came."""
    if not isinstance(value, str):
        raise MismatchError("a day as yyyy-MM-dd, or text")
    if len(value) == len("yyyy-MM-dd") and value[4] == value[7] == "-":
        try:
            return date.fromisoformat(value)
        except ValueError:
            return value
    return value


def milliseconds(moment: datetime) -> int:
    """Whole milliseconds since 1970-01-01T00:00:00Z."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)
