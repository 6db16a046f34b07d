"""Dates in all the forms that servers send."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.wire.parsing import MismatchError
from directsuite.wire.values import read_datetime, read_day, read_http_date, to_milliseconds, write_datetime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
SECONDS = st.datetimes(datetime(1900, 1, 2), datetime(9999, 12, 30), timezones=OFFSETS).map(  # noqa: DTZ001  zoned by it
    lambda moment: moment.replace(microsecond=0)
)


def _looks_like_another_form(moment: datetime) -> bool:
    """Return True if this moment, in milliseconds, could be a number of seconds or digits of a calendar."""
    number = (moment - EPOCH) // timedelta(milliseconds=1)
    return 0 < number < 4_294_967_295 or (str(number)[:4].isdigit() and 1900 <= int(str(number)[:4]) < 2200)


def _java(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000%z")


def _java_text(moment: datetime) -> str:
    utc = moment.astimezone(UTC)
    month = format_datetime(utc)[8:11]
    return f"{month} {utc.day}, {utc.year:04} {utc.hour % 12 or 12}:{utc:%M:%S} {'PM' if utc.hour >= 12 else 'AM'}"


NUMBERS: dict[str, Callable[[datetime], object]] = {
    "milliseconds": lambda moment: int((moment - EPOCH) / timedelta(milliseconds=1)),
    "milliseconds as a float": lambda moment: (moment - EPOCH) / timedelta(milliseconds=1),
    "milliseconds as text": lambda moment: str(int((moment - EPOCH) / timedelta(milliseconds=1))),
}
FORMS: dict[str, Callable[[datetime], object]] = {
    "ISO 8601": lambda moment: moment.isoformat(),
    "a blank for T": lambda moment: moment.isoformat(" "),
    "fraction of milliseconds": lambda moment: moment.isoformat(timespec="milliseconds"),
    "offset without colon": _java,
    "Z": lambda moment: moment.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    "no offset is UTC": lambda moment: moment.astimezone(UTC).replace(tzinfo=None).isoformat(),
    "blanks around": lambda moment: f" {moment.isoformat()}\n",
    "a zone after the offset": lambda moment: f"{moment.isoformat()}[Europe/Berlin]",
    "a space before the offset": lambda moment: moment.strftime("%Y-%m-%d %H:%M:%S %z"),
    "basic ISO 8601": lambda moment: moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ"),
    "RFC 5322": format_datetime,
    "Java's date and time": _java_text,
}


@given(moment=SECONDS)
def test_every_form_gives_the_same_moment(moment: datetime) -> None:
    forms = FORMS if _looks_like_another_form(moment) else FORMS | NUMBERS
    read = {name: read_datetime(form(moment)) for name, form in forms.items()}
    assert read == dict.fromkeys(forms, moment)
    assert {each.tzinfo for each in read.values()} == {UTC}


AT_4_PM = datetime(2024, 11, 6, 16, 6, 15, tzinfo=UTC)
MORNING = AT_4_PM.replace(hour=0)

AT_4_PM_FORMS: list[object] = [
    # ISO 8601
    *("2024-11-06T16:06:15Z[UTC]", "2024-11-06T17:06:15+01:00[Europe/Berlin]", "2024-11-06T11:06:15-05:00[GMT-05:00]"),
    "2024-11-06T11:06:15-05:00[!America/New_York][u-ca=gregory]",
    *("2024-11-06T18:06:15+02", "2024-11-06T18:06:15+0200", "2024-11-06t16:06:15z", "2024-11-06T16:06:15-00:00"),
    *("2024-W45-3T16:06:15", "20241106T160615Z"),
    # RFC 5322
    *(f"Wed, 06 Nov 2024 {time}" for time in ("11:06:15 EST", "12:06:15 EDT", "10:06:15 CST", "11:06:15 CDT")),
    *(f"Wed, 06 Nov 2024 {time}" for time in ("09:06:15 MST", "10:06:15 MDT", "08:06:15 PST", "09:06:15 PDT")),
    *("wed, 6 nov 2024 16:06:15 gmt", "6 Nov 2024 16:06:15 UT", "6 Nov 2024 16:06:15 Z"),
    *("Wed,  6 Nov 24 16:06:15 -0000", "Wed, 06 Nov 2024 17:06:15 +0100 (CET)", "Wed, 06 Nov 2024 21:36:15 +0530"),
    *("Wed, 06 Nov 2024 17:06:15 +01:00", "Wed, 06 Nov 2024 10:36:15 -05:30"),
    # Java
    *("Nov 6, 2024 4:06:15 PM", "Nov 6, 2024, 4:06:15 PM", "Nov 6, 2024, 4:06:15\u202fPM", "Nov 06, 2024 04:06:15 pm"),
    # numbers
    *(1_730_909_175_000, 1_730_909_175, "1730909175", "20241106160615", 20241106160615),
]
READ: list[tuple[object, datetime]] = [
    *((form, AT_4_PM) for form in AT_4_PM_FORMS),
    ("2024-11-06T16:06:15,168Z", AT_4_PM.replace(microsecond=168_000)),
    ("2024-11-06T16:06:15.168123456Z", AT_4_PM.replace(microsecond=168_123)),
    ("2024-11-06T16:06Z", AT_4_PM.replace(second=0)),
    ("2024-11-06", datetime(2024, 11, 6, tzinfo=UTC)),
    ("20241106", datetime(2024, 11, 6, tzinfo=UTC)),
    ("Wed, 06 Nov 2024 16:06 GMT", AT_4_PM.replace(second=0)),
    ("Thu, 06 Nov 69 16:06:15 +0000", AT_4_PM.replace(year=1969)),
    ("Fri, 06 Nov 70 16:06:15 +0000", AT_4_PM.replace(year=1970)),
    ("Nov 6, 2024 12:06:15 AM", MORNING),
    ("Nov 6, 2024 12:06:15 PM", MORNING.replace(hour=12)),
    (1_730_909_175.25, AT_4_PM.replace(microsecond=250_000)),
    (0, EPOCH),
    (1, EPOCH + timedelta(milliseconds=1)),
    (-1, EPOCH - timedelta(milliseconds=1)),
    (-1_500, EPOCH - timedelta(milliseconds=1_500)),
    (-1_730_909_175, EPOCH - timedelta(milliseconds=1_730_909_175)),
    (-62_135_596_800_000, datetime(1, 1, 1, tzinfo=UTC)),
    (253_402_300_799_000, datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
]


def test_listed_forms_are_read() -> None:
    read = [(value, read_datetime(value)) for value, _ in READ]
    assert read == READ
    assert {moment.tzinfo for _, moment in read} == {UTC}


@given(st.datetimes(timezones=st.just(UTC)))
def test_written_datetime_is_read_as_the_same_moment(moment: datetime) -> None:
    text = write_datetime(moment)
    assert text.endswith("Z")
    assert read_datetime(text) == moment


def test_written_in_utc_with_milliseconds() -> None:
    moment = datetime(2016, 7, 5, 13, 47, 15, 250_000, tzinfo=timezone(timedelta(hours=-4)))
    assert write_datetime(moment) == "2016-07-05T17:47:15.250Z"
    assert to_milliseconds(moment) == 1_467_740_835_250


REJECTED: list[object] = [
    # other types and numbers
    *(True, None, [], {}, 1e300, float("nan"), 10**40),
    # other texts
    *("", "soon", "12:30", "1_000", "9" * 5000, "٣", "1 1 1 1:1", "1730909175.25", "11/6/24 4:06 PM"),
    *("06-Nov-2024 16:06:15", "6 Nov 2024", "Nov 2024 6", "Mittwoch, 6. November 2024 16:06:15"),
    # ISO 8601
    *("2016-13-01", "0001-01-01T00:00:00+14:00", "2024-11-06T16:06:15+25:00", "2024-11-06T16:06:15[Europe/Berlin]"),
    *("2024-11-06T24:06:15+01:00", "2024-11-06T16:06:60+01:00", "2024-11-06+02:00", "2024-11-06-05:00"),
    *("2024-11-31", "2024-311", "+12024-11-06T16:06:15Z", "٢٠٢٤-11-06"),
    # RFC 5322
    *(f"Wed, 06 Nov 2024 16:06:15{zone}" for zone in ("", " CET", " JST", " A", " +2", " +0260", " +9999")),
    *(
        "Sun, 06 Nov 55 16:06:15 GMT",
        "Wed, 31 Nov 2024 16:06:15 +0000",
        "Wed, 06 Nov 24 16:06:15 GMT+01:00",
        "Wednesday, 06-Nov-24 16:06:15 GMT",
    ),
    *("Wed, 6 Nov 2024 16:06:15 GMT+0100 (CET)", "Di., 15 Feb. 2022 06:52:44 +0100 (MEZ)"),
    "Wed Nov 06 2024 16:06:15 GMT+0100 (Central European Standard Time)",
    *("Wed Nov 06 16:06:15 EST 2024", "Wed Nov  6 16:06:15 2024"),
    # Java
    *(f"Nov 6, 2024 {time}" for time in ("16:06:15 PM", "0:06:15 AM", "4:06:15", "4:06 PM")),
    "Nov 31, 2024 4:06:15 PM",
    # digits of a calendar
    *("20241306160615", 20241106166015, "20241106160615Z", "20241106160615+0000", "20241106160615.168"),
    *("20241301", "202411061606", "202411", "2024"),
]


def is_rejected(value: object) -> bool:
    try:
        read_datetime(value)
    except MismatchError:
        return True
    return False


def test_invalid_dates_are_rejected() -> None:
    assert [value for value in REJECTED if not is_rejected(value)] == []


@pytest.mark.parametrize(
    "text",
    ["2024-11-06T16:06:15.", "2024-11-06T16:06:15Z[", "Wed, 06 Nov 2024 16:06:15 +0000 (", "Nov 6, 2024 ", "20241106"],
)
def test_long_text_is_rejected(text: str) -> None:
    for filling in ("0", " ", "[a]", "(", "a", ":"):
        assert is_rejected(text + filling * 1_000_000 + "!")


def test_date_of_a_header_is_read_in_each_form() -> None:
    zone = "Sun, 06 Nov 1994 09:49:37 +0100"
    dates = ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", zone]
    assert {*map(read_http_date, dates)} == {datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)}
    others = ["", "soon", "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 31 Nov 1994 08:49:37 GMT", "1994"]
    assert {*map(read_http_date, others)} == {None}


@given(st.text() | st.text("0123456789-+:TZ. ,[]NovAPMGT") | st.integers() | st.floats())
def test_anything_gives_an_aware_moment_or_is_rejected(value: object) -> None:
    assert is_rejected(value) or read_datetime(value).tzinfo is UTC


@given(st.dates())
def test_a_day_reads_as_a_date(day: date) -> None:
    assert read_day(day.isoformat()) == day


def test_other_text_for_a_day_is_unchanged() -> None:
    texts = ["", "01/31/1970", "1970-13-01", "19700131", "1970-W01-1", "January"]
    assert [*map(read_day, texts)] == texts
