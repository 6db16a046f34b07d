"""Spans of received dates in paths: both ends included, open if None, widened to the precision of each form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.errors import InvalidArgumentError
from directsuite.messaging.arguments import format_span_in_milliseconds, format_span_in_utc
from tests.fake_services import MESSAGE, SUCCESS, FakeServices

if TYPE_CHECKING:
    import directsuite as ds

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BERLIN = timezone(timedelta(hours=2))

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SPANS: dict[str, tuple[datetime | None, datetime | None, str, str]] = {
    "open": (None, None, "0/253402300799000", "19700101000000/99991231235959"),
    "open end": (NOON, None, "1777636800000/253402300799000", "20260501120000/99991231235959"),
    "open begin": (None, NOON, "0/1777636800000", "19700101000000/20260501120000"),
    "another zone": (
        datetime(2026, 5, 1, 14, tzinfo=BERLIN),
        datetime(2026, 5, 2, 1, tzinfo=BERLIN),
        "1777636800000/1777676400000",
        "20260501120000/20260501230000",
    ),
    "milliseconds": (
        NOON + 1000 * MICROSECOND,
        NOON + 999_000 * MICROSECOND,
        "1777636800001/1777636800999",
        "20260501120000/20260501120001",
    ),
    "microseconds": (
        NOON + MICROSECOND,
        NOON + MICROSECOND,
        "1777636800000/1777636800001",
        "20260501120000/20260501120001",
    ),
    "over midnight": (MIDNIGHT, MIDNIGHT, "1798761599500/1798761599500", "20261231235959/20270101000000"),
}


@pytest.mark.exhaustive(limit=3)
@pytest.mark.parametrize("metadata", [False, True], ids=["messages", "metadata"])
@pytest.mark.parametrize(("begin", "end", "in_milliseconds", "in_utc"), SPANS.values(), ids=SPANS)
async def test_span_in_the_path(
    begin: datetime | None,
    end: datetime | None,
    in_milliseconds: str,
    in_utc: str,
    metadata: bool,
    services: FakeServices,
    box: ds.Mailbox,
) -> None:
    name = "SearchMessagesMetadataByReceivedDate" if metadata else "GetMessagesByReceivedDate"
    by_date = box.search_messages_metadata_by_received_date if metadata else box.get_messages_by_received_date
    by_utc = box.search_messages_metadata_by_received_date_utc if metadata else box.get_messages_by_received_date_utc
    urls = [f"{MESSAGE}/{name}/INBOX/{in_milliseconds}", f"{MESSAGE}/{name}UTC/INBOX/{in_utc}"]
    for url in urls:
        services.add_response("POST", url, SUCCESS)
    assert await by_date("INBOX", begin, end) == []
    assert await by_utc("INBOX", begin, end) == []
    assert [request.url for request in services.requests_by_url] == urls


ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(min_value=datetime(1970, 1, 3), max_value=datetime(9999, 12, 29), timezones=ZONES)  # noqa: DTZ001  Hypothesis adds the zone


@given(MOMENTS)
def test_span_of_one_moment_holds_it_and_hardly_more(moment: datetime) -> None:
    begin, end = (EPOCH + timedelta(milliseconds=int(text)) for text in format_span_in_milliseconds(moment, moment))
    assert begin <= moment <= end
    assert end - begin <= timedelta(milliseconds=1)
    first, last = (datetime.strptime(f"{text}+0000", "%Y%m%d%H%M%S%z") for text in format_span_in_utc(moment, moment))
    assert first <= moment <= last
    assert last - first <= timedelta(seconds=1)


@pytest.mark.parametrize("naive", [datetime.min, datetime.max])  # noqa: DTZ901  the zone is added below
@pytest.mark.parametrize("hours", [0, -12, 14])
def test_ends_of_time_are_ends_of_a_span(naive: datetime, hours: int) -> None:
    moment = naive.replace(tzinfo=timezone(timedelta(hours=hours)))
    begin, end = format_span_in_milliseconds(moment, moment)
    assert int(begin) <= int(end)
    first, last = format_span_in_utc(moment, moment)
    assert len(first) == len(last) == len("yyyyMMddHHmmss")
    assert first <= last


class NoOffset(tzinfo):
    """A zone without an offset, which leaves a datetime naive."""

    def utcoffset(self, dt: datetime | None) -> None: ...

    def dst(self, dt: datetime | None) -> None: ...

    def tzname(self, dt: datetime | None) -> None: ...


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize("span", [format_span_in_milliseconds, format_span_in_utc], ids=lambda span: span.__name__)
@pytest.mark.parametrize("parameter", ["begin", "end"])
@pytest.mark.parametrize("zone", [None, NoOffset()], ids=["none", "no offset"])
def test_naive_datetime_is_rejected(span: object, parameter: str, zone: tzinfo | None) -> None:
    naive = datetime(2026, 5, 1, tzinfo=zone)
    aware = datetime(2026, 5, 1, tzinfo=UTC)
    assert callable(span)
    with pytest.raises(ValueError, match=f"^{parameter}: "):
        span(*((naive, aware) if parameter == "begin" else (aware, naive)))


def test_hour_that_a_zone_has_twice_counts_as_it_passes() -> None:
    """Datetimes of one zone are compared by wall-clock time, at which 1:10 occurs again after 1:30."""
    zone = ZoneInfo("America/New_York")
    before = datetime(2026, 11, 1, 1, 30, tzinfo=zone)
    after = datetime(2026, 11, 1, 1, 10, fold=1, tzinfo=zone)
    assert format_span_in_utc(before, after) == ("20261101053000", "20261101061000")
    for span in (format_span_in_milliseconds, format_span_in_utc):
        with pytest.raises(InvalidArgumentError):
            span(after, before)
