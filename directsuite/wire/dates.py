"""Read and write dates and times in JSON and in HTTP headers.

The specification does not define the format of dates, and real servers use several. `read_datetime` supports these
forms, each with one meaning, and rejects all others.

ISO 8601    `2024-11-06T16:06:15.168+01:00`, `20241106T160615Z`, `2024-11-06`: extended or basic, with a space instead
            of `T` or before the offset. Offsets are `Z`, `±hh`, `±hhmm` or `±hh:mm`. Without an offset it is UTC.
… [zone]    `2024-11-06T17:06:15+01:00[Europe/Berlin]`, the format of Java and RFC 9557. The offset is required. The
            zone is ignored.
RFC 5322    `Wed, 06 Nov 2024 16:06:15 -0500`: the zone is required. It is an offset, `GMT`, `UT`, `UTC`, `Z`, or one
            of the American zones from `EST` to `PDT`.
Java        `Nov 6, 2024 4:06:15 PM`, the pattern `MMM d, yyyy h:mm:ss a`: UTC. A comma may follow the year, and the
            space before AM or PM may be U+202F, as in newer versions of Java.
number      `1730909175168`, or the digits as text: see below.

Other zone names, such as CET or the military letters of RFC 822, are rejected because their offset is not certain.

The size of a number determines its meaning. The last column shows which times can therefore not be given in
milliseconds:

    19000101 to 21991231                yyyyMMdd                     as milliseconds: 1970-01-01, 5 to 7 o'clock
    1,000,000,000 to 4,294,967,295      seconds, 2001 to 2106        as milliseconds: 1970-01-12 to 1970-02-19
    19000101000000 to 21991231235959    yyyyMMddHHmmss in UTC        as milliseconds: years 2572 to 2666
    4, 6 or 12 digits, from 1900…       rejected: yyyy, yyyyMM, yyyyMMddHHmm
    any other                           milliseconds since 1970, also negative: years 1 to 9999

`write_datetime` writes ISO 8601 with `Z`.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime

from directsuite.wire.parsing import MismatchError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXPECTED = "a date in a supported form, such as ISO 8601 or milliseconds since 1970"
_MAX_CHARS = 128
"""No text in a supported form is longer."""

# Every quantifier is bounded or followed by a character that it does not match, so matching takes linear time.
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_ISO = re.compile(
    r"""
    (?P<date> [0-9]{4} (?: -[0-9]{2}-[0-9]{2} | [0-9]{4} | -?W[0-9]{2}-?[0-9] ) )
    (?: [Tt\ ]
        (?P<time> (?:[01][0-9]|2[0-3]) (?: : [0-9]{2} (?: :[0-9]{2} (?:[.,][0-9]{1,12})? )?
                                         | [0-9]{2} (?: [0-9]{2} (?:[.,][0-9]{1,12})? )? )? )
        (?: \ ?(?P<offset> [Zz] | [+-][0-9]{2}(?: :?[0-9]{2})? ) (?: \[ !?[A-Za-z0-9_/+:.=-]{1,64} \] ){0,3} )?
    )?
    """,
    re.VERBOSE,
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_RFC_5322 = re.compile(
    rf"""
    (?: (?:mon|tue|wed|thu|fri|sat|sun) [ \t]{{0,4}} , [ \t]{{0,4}} )?
    (?P<day>[0-9]{{1,2}}) [ \t]{{1,4}} (?P<month>{"|".join(_MONTHS)}) [ \t]{{1,4}}
    (?P<year>[0-9]{{4}}|[0-9]{{2}}) [ \t]{{1,4}}
    (?P<hour>[0-9]{{1,2}}):(?P<minute>[0-9]{{2}}) (?: :(?P<second>[0-9]{{2}}) )? [ \t]{{1,4}}
    (?P<zone> [+-][0-9]{{2}}:?[0-5][0-9] | ut | utc | gmt | z | [ecmp][sd]t )
    (?: [ \t]{{0,4}} \( [^()]{{0,64}} \) )?
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_JAVA = re.compile(
    rf"(?P<month>{'|'.join(_MONTHS)}) (?P<day>[0-9]{{1,2}}), (?P<year>[0-9]{{4}}),? "
    r"(?P<hour>0?[1-9]|1[0-2]):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})[ \u00a0\u202f](?P<half>[ap])m",
    re.IGNORECASE | re.ASCII,
)
_ZONE_HOURS = {"e": -5, "c": -6, "m": -7, "p": -8}
"""The offsets of American standard times (RFC 5322, 4.3), by the first letter of their names."""

_CALENDAR_YEARS = range(1900, 2200)
_MIN_SECONDS, _MAX_SECONDS = 1_000_000_000, 4_294_967_295


def read_datetime(value: object) -> datetime:
    """Return a datetime in UTC from a value in a supported form. Raise MismatchError for any other value."""
    try:
        if type(value) is str and value[10:11] == "T" and (moment := datetime.fromisoformat(value)).tzinfo is UTC:
            return moment
    except ValueError:
        pass
    try:
        if isinstance(value, str):
            return _read_text(value.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _read_number(value)
    except (ValueError, OverflowError):  # also for a day or time that does not exist
        pass
    raise MismatchError(_EXPECTED)


def _read_text(text: str) -> datetime:
    if len(text) > _MAX_CHARS:
        raise ValueError
    if _NUMBER.fullmatch(text):
        return _read_number(int(text))
    if match := _ISO.fullmatch(text):
        day, time, offset = match["date"], match["time"], match["offset"]
        return _parse_iso(day if time is None else f"{day}T{time}{offset or 'Z'}".upper())
    if match := _RFC_5322.fullmatch(text):
        year = int(match["year"])
        if len(match["year"]) == 2:  # RFC 5322 (4.3)
            year += 2000 if year < 50 else 1900
        return _build_datetime(match, year, int(match["hour"]), _find_offset(match["zone"].lower()))
    if match := _JAVA.fullmatch(text):
        return _build_datetime(match, int(match["year"]), int(match["hour"]) % 12 + 12 * (match["half"] in "pP"), "Z")
    raise ValueError


def _read_number(number: float) -> datetime:
    # Nearly all numbers are milliseconds between 2001 and 2286, which have 13 digits.
    if not 10**12 <= number < 10**13:
        if _MIN_SECONDS <= number <= _MAX_SECONDS:
            return _EPOCH + timedelta(seconds=number)
        digits = str(int(number))
        if len(digits) in (4, 6, 8, 12, 14) and int(digits[:4]) in _CALENDAR_YEARS:
            if len(digits) not in (8, 14):
                raise ValueError
            return _parse_iso(f"{digits[:8]}T{digits[8:] or '00'}")
    return _EPOCH + timedelta(milliseconds=number)


def _parse_iso(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _find_offset(zone: str) -> str:
    if zone[0] in "+-":
        return zone
    hours = _ZONE_HOURS.get(zone[0], 0) + (zone[1:] == "dt")
    return f"{hours:+03}:00"


def _build_datetime(match: re.Match[str], year: int, hour: int, offset: str) -> datetime:
    month = _MONTHS.index(match["month"].lower()) + 1
    day, minute, second = (int(match[name] or 0) for name in ("day", "minute", "second"))
    return _parse_iso(f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{offset}")


def read_http_date(text: str) -> datetime | None:
    """Return the time zone aware date from an HTTP header (RFC 9110, 5.6.7), or None if the text is not a date."""
    try:
        moment = parsedate_to_datetime(text[:_MAX_CHARS])
        if moment.tzinfo is None and text.strip()[-4:].isdigit():  # an obsolete form that ends with the year
            return moment.replace(tzinfo=UTC)
        return None if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def write_datetime(moment: datetime) -> str:
    """Return ISO 8601 text in UTC, with milliseconds, or with microseconds if they are not zero.

    A datetime without time zone counts as local time.
    """
    precision = "microseconds" if moment.microsecond % 1000 else "milliseconds"
    return moment.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def read_day(text: str) -> date | str:
    """Return a date from a text in the form `yyyy-MM-dd`. Return other texts, also impossible days, unchanged."""
    try:
        return date.fromisoformat(text) if len(text) == 10 and text[4] == text[7] == "-" else text
    except ValueError:
        return text


def to_milliseconds(moment: datetime) -> int:
    """Return the milliseconds since 1970-01-01T00:00:00Z, rounded down. The datetime must have a time zone."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)
