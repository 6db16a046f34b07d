"""Registration sessions that run out under many callers: one login serves them all."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import directsuite as ds
from directsuite.sandbox.clock import Clock
from directsuite.sandbox.server import DEMO_LOGIN, Sandbox

DOMAIN = "direct.example.test"


@pytest.mark.parametrize(("advance", "logins"), [(timedelta(minutes=5), 1), (timedelta(minutes=11), 2)])
async def test_hundred_callers_on_an_expired_session_cause_one_login(advance: timedelta, logins: int) -> None:
    clock = Clock()
    clock.freeze(datetime(2026, 5, 1, 12, tzinfo=UTC))
    async with Sandbox(clock=clock) as sandbox:
        await sandbox.add_reseller(*DEMO_LOGIN, [DOMAIN])
        asked = sandbox.inject_fault("login", "latency", seconds=0.01, times=None)
        async with ds.DirectSuite.from_env(sandbox.environment) as suite:

            async def look() -> None:
                with pytest.raises(ds.NotFoundError):
                    await suite.registration.get_patient_address_by_username(DOMAIN, "nobody")

            await look()
            clock.advance(advance)
            await asyncio.gather(*(look() for _ in range(100)))
        assert [rule["applied"] for rule in sandbox.faults() if rule["id"] == asked] == [logins]
