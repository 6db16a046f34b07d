"""Dates in all the forms that servers send."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.wire.dates import milliseconds, read_datetime, read_day, write_datetime
from directsuite.wire.parsing import MismatchError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
SECONDS = st.datetimes(datetime(1900, 1, 2), datetime(9999, 12, 30), timezones=OFFSETS).map(  # noqa: DTZ001  zoned by it
    lambda moment: moment.replace(microsecond=0)
)


def _java(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000%z")


FORMS: dict[str, Callable[[datetime], object]] = {
    "milliseconds": lambda moment: int((moment - EPOCH) / timedelta(milliseconds=1)),
    "milliseconds as a float": lambda moment: (moment - EPOCH) / timedelta(milliseconds=1),
    "milliseconds as text": lambda moment: str(int((moment - EPOCH) / timedelta(milliseconds=1))),
    "ISO 8601": lambda moment: moment.isoformat(),
    "a blank for T": lambda moment: moment.isoformat(" "),
    "fraction of milliseconds": lambda moment: moment.isoformat(timespec="milliseconds"),
    "offset without colon": _java,
    "Z": lambda moment: moment.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    "Z and fraction": lambda moment: moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000000000Z"),
    "no offset is UTC": lambda moment: moment.astimezone(UTC).replace(tzinfo=None).isoformat(),
    "blanks around": lambda moment: f" {moment.isoformat()}\n",
    "RFC 5322": format_datetime,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@given(moment=SECONDS)
def test_every_form_gives_the_same_moment(form: Callable[[datetime], object], moment: datetime) -> None:
    read = read_datetime(form(moment))
    assert read == moment
    assert read.tzinfo is UTC


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_is_written_reads_as_the_same_moment(moment: datetime) -> None:
    text = write_datetime(moment)
    assert text.endswith("Z")
    assert read_datetime(text) == moment


def test_written_in_utc_with_milliseconds() -> None:
    moment = datetime(2016, 7, 5, 13, 47, 15, 250_000, tzinfo=timezone(timedelta(hours=-4)))
    assert write_datetime(moment) == "2016-07-05T17:47:15.250Z"
    assert milliseconds(moment) == 1_467_740_835_250


REFUSED: list[object] = [
    "",
    "soon",
    "12:30",
    "2016-13-01",
    "1_000",
    "9" * 5000,
    "0001-01-01T00:00:00+14:00",
    True,
    None,
    [],
    {},
    1e300,
    float("nan"),
    10**40,
]


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: repr(value)[:24])
def test_what_is_no_date_is_refused(value: object) -> None:
    with pytest.raises(MismatchError):
        read_datetime(value)


@given(st.text() | st.text("0123456789-+:TZ. ,") | st.integers() | st.floats())
def test_anything_gives_an_aware_moment_or_is_refused(value: object) -> None:
    try:
        read = read_datetime(value)
    except MismatchError:
        return
    assert read.tzinfo is UTC


@given(st.dates())
def test_a_day_reads_as_a_date(day: date) -> None:
    assert read_day(day.isoformat()) == day


@pytest.mark.parametrize("text", ["", "01/31/1970", "1970-13-01", "19700131", "1970-W01-1", "January"])
def test_other_text_for_a_day_stays_as_it_came(text: str) -> None:
    assert read_day(text) == text
