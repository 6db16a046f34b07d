"""A storm: thousands of calls of all kinds, 64 at a time, a tenth of the requests spoilt, credentials running out.

Afterwards nothing is doubled, nothing acknowledged is lost, no error is untyped, and nothing is left over.
"""

from __future__ import annotations

import asyncio

import pytest

from directsuite.core.events import CallFinished, CallStarted, RenewalFailed, SessionRenewed, TokenRefreshed
from tests.core.opened import assert_nothing_held
from tests.core.virtual_time import until

from .matrix_time import LeapingLoop
from .storm_actions import Storm
from .storm_evidence import (
    ONCE,
    answers_of_others,
    effects_of,
    false_claims,
    lost_changes,
    lost_or_doubled_messages,
    untyped,
)
from .storm_rage import rage
from .storm_stage import CONNECTIONS, FAULTS, Stage, stage


@pytest.mark.parametrize(
    ("calls", "seed"), [pytest.param(1000, 1, marks=pytest.mark.wide), pytest.param(10_000, 2, marks=pytest.mark.slow)]
)
def test_storm_leaves_no_doubt(calls: int, seed: int) -> None:
    complaints: list[str] = []
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        runner.get_loop().set_exception_handler(
            lambda _, context: complaints.append(f"{context['message']}: {context.get('exception')!r}")
        )
        runner.run(_storm(calls, seed))
    assert complaints == []


async def _storm(calls: int, seed: int) -> None:
    async with stage() as scene:
        storm = Storm(scene, seed)
        before = asyncio.all_tasks()
        await rage(storm, calls, seed)
        await until(lambda: not _own_tasks() - before)
        assert_nothing_held(scene.suite, CONNECTIONS)
        assert await _applied_all(scene)
        scene.sandbox.clear_faults()
        await _held(storm, calls)


def _own_tasks() -> set[asyncio.Task[object]]:
    """The client's and the storm's tasks, without those in which the sandbox serves connections."""
    return {task for task in asyncio.all_tasks() if "RequestHandler" not in repr(task.get_coro())}


async def _applied_all(scene: Stage) -> bool:
    rules = scene.sandbox.faults()
    return len(rules) == len(FAULTS) and all(rule["applied"] for rule in rules)


async def _held(storm: Storm, calls: int) -> None:
    scene, claims = storm.stage, storm.claims
    effects = await effects_of(scene)
    assert untyped(claims) == []
    assert storm.wrong == []
    assert false_claims(claims, effects) == []
    assert [key for key, found in effects.items() if key[0] in ONCE and len(found) > 1] == []
    assert answers_of_others(claims, effects) == []
    assert await lost_or_doubled_messages(scene, claims) == []
    assert await lost_changes(scene, claims) == []
    heard, credentials = scene.heard, scene.credentials
    assert heard.of(CallStarted) == heard.of(CallFinished) >= calls
    # One login at a time, however many wait for it; and none without need.
    assert heard.of(CallStarted, "login") == heard.of(SessionRenewed) + heard.of(RenewalFailed)
    assert credentials.fetches == heard.of(TokenRefreshed)
    await credentials.judge()
    assert credentials.in_vain == []
    assert all(len(generations) > 3 for generations in credentials.generations.values())
