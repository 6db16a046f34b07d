"""No planted text is shown if the sandbox has a fault of each kind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import directsuite as ds
from directsuite.sandbox.faults import FAULT_KINDS
from directsuite.sandbox.server import DEMO_LOGIN, Sandbox
from tests.integration.scenario import SleepDrivenClock, make_settings

from . import sentinels
from .leak_capture import (
    OutputCapture,
    collect_error_texts,
    collect_frame_locals,
    collect_pickles,
    collect_reprs,
    find_leaks,
)
from .test_no_leaks import ALL_BUT_IDENTIFIERS, await_outcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.wide

SLOW = pytest.mark.slow
SIMILAR = ("latency", "reset_before", "truncate", "expire_token")
"""Kinds that end like another one."""
HANGS: dict[str, dict[str, Any]] = {"hang": {"timeout": 0.2, "attempt_timeout": 0.1}}
"""Settings with which faults in real time are short."""

SERVERS = ("log of directsuite.sandbox", "log of aiohttp.server", "log of aiohttp.web", "log of aiohttp.access")
"""Loggers of the sandbox, which does not belong to the client."""


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        for address in (sentinels.ALICE, sentinels.BOB):
            await sandbox.add_account(address, sentinels.PASSWORD)
        await sandbox.add_tuser("planted-tuser", sentinels.TUSER_PASSWORD, [sentinels.ALICE])
        await sandbox.add_individual(sentinels.NAME, sentinels.SURNAME, "1234", sentinels.BIRTH, id=7)
        await sandbox.deliver(sentinels.ALICE, sentinels.RAW, "INBOX")
        yield sandbox


def sessions_of(suite: ds.DirectSuite) -> list[str]:
    return [cache._credential.token.reveal() for cache in suite._caches if cache._credential is not None]


@pytest.mark.exhaustive(limit=2)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=SLOW if kind in SIMILAR else ()) for kind in (*FAULT_KINDS, "none")]
)
async def test_faulty_services_show_nothing(kind: str, sandbox: Sandbox) -> None:
    if kind != "none":
        sandbox.inject_fault("*", kind, times=None, seconds=0.01)
    token = sandbox.environment["DIRECTSUITE_TOKEN"]
    settings = make_settings(sandbox, circuit_failures=0, requests_per_second=10_000.0, **HANGS.get(kind, {}))
    calls = sentinels.CALLS | sentinels.MULTI_REQUEST_CALLS
    with OutputCapture() as captured:
        async with ds.DirectSuite(settings, token, ds.Login(*DEMO_LOGIN), clock=SleepDrivenClock()) as suite:
            captured.listen(suite)
            errors = await asyncio.gather(*(await_outcome(call, suite) for call in calls.values()))
            secrets = sentinels.encode_variants([*sentinels.SECRETS, token, DEMO_LOGIN[1], *sessions_of(suite)])
            everything = secrets | sentinels.encode_variants(sentinels.ALL_SENTINELS)
            assert find_leaks(collect_reprs(suite), secrets) == []
    for name, error in zip(calls, errors, strict=True):
        if isinstance(error, Exception):
            assert (name, find_leaks(collect_error_texts(error), everything)) == (name, [])
            assert (name, find_leaks(collect_pickles(error), everything)) == (name, [])
            assert (name, find_leaks(collect_frame_locals(error), secrets | ALL_BUT_IDENTIFIERS)) == (name, [])
    own = [shown for shown in captured.collect_texts() if not shown[0].startswith(SERVERS)]
    assert find_leaks(own, everything) == []
    assert captured.operations >= set(sentinels.CALLS)
