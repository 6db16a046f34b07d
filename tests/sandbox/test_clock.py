"""The clock: its range, rejected changes, and its stored time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING

import aiohttp
from hypothesis import given
from hypothesis import strategies as st

from directsuite.sandbox.clock import MAX_TIME, MIN_TIME, Clock
from directsuite.sandbox.server import Sandbox

from .conftest import Api

if TYPE_CHECKING:
    from pathlib import Path

    import aiohttp

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
CENTURY = timedelta(days=36_500)


@given(
    frozen=st.booleans(),
    to=st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-14)), timezone(timedelta(hours=14))])),
    by=st.timedeltas(min_value=timedelta(0)),
)
def test_a_rejected_change_leaves_the_clock_unchanged(frozen: bool, to: datetime, by: timedelta) -> None:
    clock = Clock()
    if frozen:
        clock.freeze()
    for change in (partial(clock.set, to), partial(clock.advance, by), partial(clock.freeze, to), clock.resume):
        before = clock.state
        refused = ""
        try:
            change()
        except ValueError as error:
            refused = str(error)
        assert not refused or clock.state == before
        assert not refused or refused == "the clock accepts times from 1970-01-01 to 9999-01-01"
        assert MIN_TIME <= clock.now() <= MAX_TIME + timedelta(hours=1)


def test_changes_lose_no_time() -> None:
    clock = Clock()
    for _ in range(100):
        clock.advance(timedelta(seconds=60))
    assert clock.state.offset_us == 6_000_000_000


async def test_a_frozen_clock_is_stored_with_the_state(tmp_path: Path, http: aiohttp.ClientSession) -> None:
    async with Sandbox(tmp_path) as first:
        await Api(first, http).control("POST", "clock/freeze", {"at": NOON.isoformat()})
        await Api(first, http).control("POST", "reset", {})
    async with Sandbox(tmp_path) as second:
        assert (second.clock.frozen, second.clock.now()) == (True, NOON)
        second.clock.advance(CENTURY)
    async with Sandbox(tmp_path) as third:
        assert third.clock.now() == NOON + CENTURY
        third.clock.resume()
    async with Sandbox(tmp_path) as fourth:
        assert not fourth.clock.frozen
        assert timedelta(0) < fourth.clock.now() - NOON - CENTURY < timedelta(minutes=5)


async def test_a_changed_clock_is_committed_before_the_response(tmp_path: Path, http: aiohttp.ClientSession) -> None:
    async with Sandbox(tmp_path) as sandbox:
        for path, body in (("freeze", {"at": NOON.isoformat()}), ("advance", {"seconds": 1}), ("resume", {})):
            assert (await Api(sandbox, http).control("POST", f"clock/{path}", body))[0] == 200
            kept = await sandbox._database.read(lambda connection: tuple(connection.execute("SELECT * FROM clock")))
            assert [row["frozen_at_us"] is not None for row in kept] == [sandbox.clock.frozen]


async def test_a_clock_of_the_caller_is_used_unchanged(tmp_path: Path) -> None:
    async with Sandbox(tmp_path) as first:
        first.clock.advance(CENTURY)
    clock = Clock()
    clock.freeze(NOON)
    async with Sandbox(tmp_path, clock=clock) as second:
        assert second.clock.now() == NOON
    clock.advance(CENTURY)  # the sandbox is closed and listens no more
    async with Sandbox(tmp_path) as third:
        assert third.clock.now() == NOON
