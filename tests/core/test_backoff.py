"""The pauses after consecutive failures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from directsuite.core.retry import MAX_RETRY_AFTER, Backoff

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
