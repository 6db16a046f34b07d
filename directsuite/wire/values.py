"""Read JSON values as Python values, with one reader for each type of a model's field, and write dates as JSON.

Base64 text is also decoded in pieces. Its alphabet is checked strictly. Line breaks in it are ignored.

Real servers send a text of digits for a number, a number for a text, a single object for a list with one element, and
null or the text "null" for no value. The readers accept all of these. For any other value they raise MismatchError.
The reader of the enclosing object then decides whether to use the field's default.

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
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Union, cast

import attrs
import msgspec
import pybase64

from directsuite.wire.models import MAX_UID, NULL_VALUES, OpenEnum, Uid
from directsuite.wire.parsing import BrokenText, MismatchError

PAIR_MEMBERS = frozenset({"key", "value"})
"""The member names of an object that is one entry of a mapping."""

_DIGITS = re.compile(r"[+-]?\d{1,40}\Z")

_EXPECTED_BASE64 = "base64 text"
_WHITESPACE = b" \t\r\n"
_BASE_BLANK_CHARS, _BLANK_CHARS_PER_BYTE = 65_536, 4
"""Whitespace allowed at first, and for each decoded byte: the limit prevents endless responses."""

Report = dict[str, int]
"""The number of unreadable values of a document, by JSON path."""
Place = Union["tuple[Place, str]", Report, None]
"""The position of a value, used to count unreadable values.

For a document it is a report, or None. For a value inside, it is a tuple: the place
of the enclosing value, and the step from there, a part of a JSON path without indices, such as `.messages[]`.
"""


def count_unreadable(place: Place, step: str = "") -> None:
    """Count an unreadable value in the report of its document, if any."""
    while isinstance(place, tuple):
        above, last = place
        place, step = above, last + step
    if place is not None:
        place[f"${step}"] = place.get(f"${step}", 0) + 1


@attrs.frozen
class ReadElements:
    """The elements of a list of objects that have been read already, in the place of the list's JSON value."""

    elements: list[Any]


def make_object_list_reader(read: Callable[[Any, Place], Any]) -> Callable[[Any, Place], list[Any]]:
    """Return a reader for lists of objects, which skips and counts unreadable elements. read: reads one object."""

    def read_list(value: Any, place: Place) -> list[Any]:
        if value.__class__ is not list:  # calls are slow
            if value.__class__ is ReadElements:
                return value.elements
            value = _as_elements(value)
        elements: list[Any] = []
        for element in value:
            try:
                elements.append(read(element, place))
            except MismatchError:
                count_unreadable(place)
        return elements

    return read_list


def make_scalar_list_reader(
    read: Callable[[Any], Any], *, is_text: bool, exact: bool
) -> Callable[[Any, Place], list[Any]]:
    """Return a reader for lists of texts or numbers, which skips no elements, because programs rely on their positions.

    An unreadable text becomes an empty text and is counted. An unreadable number raises MismatchError.

    exact: True if a text with broken UTF-8 also raises MismatchError.
    """

    def read_list(value: Any, place: Place) -> list[Any]:
        elements: list[Any] = []
        for number, element in enumerate(_as_elements(value)):
            try:
                elements.append(read(element))
            except MismatchError as mismatch:
                if not is_text or (exact and isinstance(element, BrokenText)):
                    raise mismatch.prepend_step(f"[{number}]") from None
                count_unreadable(place)
                elements.append("")
        return elements

    return read_list


def _as_elements(value: Any) -> Iterable[Any]:
    if type(value) is list:
        return cast("Iterable[Any]", value)
    return () if value in NULL_VALUES else (value,)


def make_exact_reader(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a reader that also rejects texts with broken UTF-8."""

    def read_exactly(value: Any) -> Any:
        if isinstance(value, BrokenText):
            raise MismatchError("text without broken characters")
        return read(value)

    return read_exactly


def read_text(value: Any) -> str:
    """Return a text unchanged, and a number as its JSON text. Raise MismatchError for any other value."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str(value)
    if type(value) in (int, float):
        try:
            return msgspec.json.encode(value).decode()
        except ValueError:  # the int has too many digits
            pass
    raise MismatchError("text")


def read_int(value: Any) -> int:
    """Return an int from a whole number or a text of at most 40 digits. Raise MismatchError for any other value."""
    if type(value) is int:
        return value
    if type(value) is str and _DIGITS.match(value):
        return int(value)
    if type(value) is float and value.is_integer():
        return int(value)
    raise MismatchError("a whole number")


def read_uid(value: Any) -> int:
    """Return a message's number. Raise MismatchError unless `read_int` reads it and it is from 0 to MAX_UID."""
    uid = read_int(value)
    if 0 <= uid <= MAX_UID:
        return uid
    raise MismatchError("a uid: a whole number of 63 bits, not negative")


def read_float(value: Any) -> float:
    """Return a float from a finite number or its text. Raise MismatchError for any other value."""
    if type(value) in (int, float) or type(value) is str:
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number) and not (type(value) is str and "_" in value):
            return number
    raise MismatchError("a number")


def read_bool(value: Any) -> bool:
    """Return a bool from true, false, "true" or "false" (in any case). Raise MismatchError for any other value."""
    if value is True or value is False:
        return bool(value)
    if type(value) is str and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise MismatchError("true or false")


def read_bytes(value: Any) -> bytes:
    """Decode base64 text, or return bytes unchanged. Raise MismatchError for any other value."""
    if type(value) is bytes:
        return value
    if type(value) is str:
        return decode_base64(value)
    raise MismatchError(_EXPECTED_BASE64)


def decode_base64(text: bytes | str) -> bytes:
    """Decode base64 text with or without line breaks. Raises MismatchError if it is not base64."""
    try:
        return pybase64.b64decode(text, validate=True)
    except ValueError:
        pass
    try:
        plain = text.encode("ascii") if isinstance(text, str) else bytes(text)
        return pybase64.b64decode(plain.translate(None, _WHITESPACE), validate=True)
    except ValueError:
        pass
    raise MismatchError(_EXPECTED_BASE64)


def read_pairs(value: Any) -> dict[str, str]:
    """Return a mapping of texts.

    It is read from an object, a list of objects with the members `key` and `value`, or one such object. A missing
    `value` becomes an empty text. null and "null" become an empty mapping. Any other value raises MismatchError.
    """
    if value in NULL_VALUES:
        return {}
    if isinstance(value, dict) and value.keys() != PAIR_MEMBERS:
        return {key: _as_text(member) for key, member in cast("dict[str, Any]", value).items()}
    pairs = list(_as_elements(value))
    if all(isinstance(pair, dict) and "key" in pair for pair in pairs):
        return {_as_text(pair["key"]): _as_text(pair.get("value")) for pair in pairs}
    raise MismatchError("an object, or a list of key and value")


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return str(value)
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (ValueError, RecursionError):
        pass
    raise MismatchError("a string")


def read_member(value: Any, cls: type[OpenEnum]) -> OpenEnum:
    """Return the enum's member for a text, or for a number's text. Raise MismatchError for any other value."""
    if value in NULL_VALUES:
        raise MismatchError("text")
    return cls(read_text(value))


def read_day(value: Any) -> date | str:
    """Return a date from a text in the form `yyyy-MM-dd`. Return other texts, also impossible days, unchanged.

    Raises MismatchError for "null", and if the value is neither a text nor a number.
    """
    if value in NULL_VALUES:
        raise MismatchError("text")
    text = read_text(value)
    try:
        return date.fromisoformat(text) if len(text) == 10 and text[4] == text[7] == "-" else text
    except ValueError:
        return text


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXPECTED_DATE = "a date in a supported form, such as ISO 8601 or milliseconds since 1970"
_MAX_DATE_CHARS = 128
"""No date in a supported form is longer."""

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
# Of the two-digit years, email.utils reads those from 50 to 68 in another way than RFC 5322 (4.3).
_RFC_5322 = re.compile(
    rf"""
    (?: (?:mon|tue|wed|thu|fri|sat|sun) [ \t]{{0,4}} , [ \t]{{0,4}} )?
    (?P<moment>
        [0-9]{{1,2}} [ \t]{{1,4}} (?:{"|".join(_MONTHS)}) [ \t]{{1,4}} (?:[1-9][0-9]{{3}}|[0-47-9][0-9]|69) [ \t]{{1,4}}
        [0-9]{{1,2}}:[0-9]{{2}} (?: :[0-9]{{2}} )? [ \t]{{1,4}}
        (?: [+-][0-9]{{2}}:?[0-5][0-9] | ut | utc | gmt | z | [ecmp][sd]t )
    )
    (?: [ \t]{{0,4}} \( [^()]{{0,64}} \) )?
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_JAVA = re.compile(
    rf"(?P<month>{'|'.join(_MONTHS)}) (?P<day>[0-9]{{1,2}}), (?P<year>[0-9]{{4}}),? "
    r"(?P<hour>0?[1-9]|1[0-2]):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})[ \u00a0\u202f](?P<half>[ap])m",
    re.IGNORECASE | re.ASCII,
)
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
            return _parse_date(value.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _parse_number(value)
    except (ValueError, OverflowError):  # also for a day or time that does not exist
        pass
    raise MismatchError(_EXPECTED_DATE)


def _parse_date(text: str) -> datetime:
    if len(text) > _MAX_DATE_CHARS:
        raise ValueError
    if _NUMBER.fullmatch(text):
        return _parse_number(int(text))
    if match := _ISO.fullmatch(text):
        day, time, offset = match["date"], match["time"], match["offset"]
        return _parse_iso(day if time is None else f"{day}T{time}{offset or 'Z'}".upper())
    if match := _RFC_5322.fullmatch(text):
        return _to_utc(parsedate_to_datetime(re.sub(r"(?<=[+-]..):", "", match["moment"])))
    if match := _JAVA.fullmatch(text):
        hour = int(match["hour"]) % 12 + 12 * (match["half"] in "pP")
        year, day, minute, second = map(int, match.group("year", "day", "minute", "second"))
        return datetime(year, _MONTHS.index(match["month"].lower()) + 1, day, hour, minute, second, tzinfo=UTC)
    raise ValueError


def _parse_number(number: float) -> datetime:
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
    return _to_utc(datetime.fromisoformat(text))


def _to_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def read_http_date(text: str) -> datetime | None:
    """Return the time zone aware date from an HTTP header (RFC 9110, 5.6.7), or None if the text is not a date."""
    try:
        moment = parsedate_to_datetime(text[:_MAX_DATE_CHARS])
        has_no_zone = moment.tzinfo is None and not text.strip()[-4:].isdigit()  # an obsolete form ends with the year
        return None if has_no_zone else _to_utc(moment)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def write_datetime(moment: datetime) -> str:
    """Return ISO 8601 text in UTC, with milliseconds, or with microseconds if they are not zero.

    A datetime without time zone counts as local time.
    """
    precision = "microseconds" if moment.microsecond % 1000 else "milliseconds"
    return moment.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def to_milliseconds(moment: datetime) -> int:
    """Return the milliseconds since 1970-01-01T00:00:00Z, rounded down. The datetime must have a time zone."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


class Base64Decoder:
    """Decodes base64 text in pieces that may end anywhere. Raises MismatchError if it is not base64.

    Text with far more white space than base64 needs is also rejected.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._has_ended = False
        self._blanks_left = _BASE_BLANK_CHARS

    def feed(self, piece: bytes | memoryview) -> bytes:
        """Return the bytes of all complete groups. Up to three characters are retained."""
        text = self._rest + piece if self._rest else piece
        complete_size = len(text) - len(text) % 4
        try:  # without a copy; fails if there are line breaks
            content = pybase64.b64decode(memoryview(text)[:complete_size], validate=True)
            rest = self._remove_blanks(text[complete_size:])
        except ValueError:
            text = self._remove_blanks(text)
            complete_size = len(text) - len(text) % 4
            content, rest = decode_base64(text[:complete_size]), text[complete_size:]
        if content and self._has_ended:
            raise MismatchError(_EXPECTED_BASE64)
        self._rest = rest
        self._has_ended = self._has_ended or text[complete_size - 1 : complete_size] == b"="
        self._blanks_left += _BLANK_CHARS_PER_BYTE * len(content)
        if self._blanks_left < 0:
            raise MismatchError(_EXPECTED_BASE64)
        return content

    def _remove_blanks(self, text: bytes | memoryview) -> bytes:
        dense = bytes(text).translate(None, _WHITESPACE)
        self._blanks_left -= len(text) - len(dense)
        return dense

    def finish(self) -> None:
        """Raise MismatchError if the text ended within a group."""
        if self._rest:
            raise MismatchError(_EXPECTED_BASE64)


READERS: dict[Any, Callable[[Any], Any]] = {
    str: read_text,
    int: read_int,
    Uid: read_uid,
    float: read_float,
    bool: read_bool,
    bytes: read_bytes,
    date: read_day,
    datetime: read_datetime,
    dict: read_pairs,
}
