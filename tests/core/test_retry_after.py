"""The Retry-After header, in both of its forms and in none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from directsuite.core.retry import retry_after


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
        ("99999999999999", 999999999.0),
        ("Thu, 01 Jan 1970 00:01:30 GMT", 30.0),
        ("Thu, 01 Jan 1970 00:01:30 -0000", 30.0),
        ("Thu, 01 Jan 1970 01:01:30 +0100", 30.0),
        ("Thu, 01 Jan 1970 00:00:30 GMT", 0.0),
        ("Mon, 99 Jan 1970 00:00:30 GMT", None),
        ("٣", None),
    ],
)
def test_retry_after_is_read_in_both_forms(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, now=lambda: 60.0) == seconds


@given(st.text())
def test_retry_after_never_fails(header: str) -> None:
    wait = retry_after(header)
    assert wait is None or wait >= 0


@given(st.integers(min_value=0, max_value=10**6))
def test_retry_after_as_a_date_is_the_seconds_until_then(seconds: int) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    header = format_datetime(now + timedelta(seconds=seconds), usegmt=True)
    assert retry_after(header, now=now.timestamp) == seconds
