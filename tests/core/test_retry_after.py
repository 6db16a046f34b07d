"""The Retry-After header in both forms, and the pauses after consecutive failures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.core.retry import MAX_RETRY_AFTER, Backoff, parse_retry_after


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        (" 12 ", 12.0),
        ("-3", None),
        ("1.5", None),
        ("soon", None),
        ("3601", 3600.0),
        ("99999999999999", 3600.0),
        ("Thu, 01 Jan 1970 00:01:30 GMT", 30.0),
        ("Thu, 01 Jan 1970 00:01:30 -0000", 30.0),
        ("Thu, 01 Jan 1970 01:01:30 +0100", 30.0),
        ("Thu, 01 Jan 1970 00:00:30 GMT", 0.0),
        ("Mon, 99 Jan 1970 00:00:30 GMT", None),
        ("Thursday, 01-Jan-70 00:01:30 GMT", 30.0),
        ("Thu Jan  1 00:01:30 1970", 30.0),
        ("Thu, 01 Jan 1970 00:01:30 CET", None),
        ("Sat, 01 Jan 2000 00:00:00 GMT", 3600.0),
        ("٣", None),
    ],
)
def test_retry_after_is_read_in_both_forms(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, now=lambda: 60.0) == seconds


@pytest.mark.parametrize("clock_error", [-2 * 365 * 86400.0, -3600.0, 3600.0, 2 * 365 * 86400.0])
def test_retry_after_date_is_counted_from_the_response_date(clock_error: float) -> None:
    server_time = datetime(2026, 1, 1, tzinfo=UTC)
    header, date = (format_datetime(server_time + timedelta(seconds=seconds), usegmt=True) for seconds in (30, 0))
    assert parse_retry_after(header, date, now=lambda: server_time.timestamp() + clock_error) == 30


def test_unreadable_response_date_leaves_the_local_clock() -> None:
    assert parse_retry_after("Thu, 01 Jan 1970 00:01:30 GMT", "today", now=lambda: 60.0) == 30


@given(st.text())
def test_retry_after_never_fails(header: str) -> None:
    wait = parse_retry_after(header)
    assert wait is None or wait >= 0


SECONDS = st.floats(min_value=0.001, max_value=1e6)


def test_pause_doubles_until_the_longest() -> None:
    backoff = Backoff(30.0, 200.0)
    assert [backoff.compute_wait(failures) for failures in (1, 2, 3, 4, 100_000)] == [30.0, 60.0, 120.0, 200.0, 200.0]


def test_service_gets_the_pause_that_it_asks_for_up_to_an_hour() -> None:
    backoff = Backoff(1.0, 60.0)
    assert backoff.compute_wait(1, 42.0) == 42.0
    assert backoff.compute_wait(7, 42.0) == 60.0
    assert backoff.compute_wait(1, 86_400.0) == MAX_RETRY_AFTER == 3600.0


@given(SECONDS, SECONDS, st.integers(1, 10**9), st.none() | SECONDS)
def test_pauses_never_shrink_and_keep_within_their_bounds(
    first: float, longest: float, failures: int, retry_after: float | None
) -> None:
    backoff = Backoff(first, longest)
    wait = backoff.compute_wait(failures, retry_after)
    assert min(first, longest) <= wait <= max(longest, MAX_RETRY_AFTER)
    assert wait <= backoff.compute_wait(failures + 1, retry_after)
