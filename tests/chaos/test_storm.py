"""A storm of thousands of calls of all kinds, 64 at a time, with faults in a tenth of the requests and expiring
credentials. Afterwards no effect is doubled or lost, every error is typed, and all resources are released.
"""

from __future__ import annotations

import asyncio

import pytest

from directsuite.core.events import CallFinished, CallStarted, RenewalFailed, SessionRenewed, TokenRefreshed
from tests.core.scripted_suite import assert_no_leaks
from tests.core.virtual_time import yield_until

from .matrix_time import LeapingLoop
from .storm_actions import Storm, run_calls
from .storm_context import CONNECTIONS, FAULTS, StormContext, open_context
from .storm_evidence import (
    NON_IDEMPOTENT_OPERATIONS,
    find_false_reports,
    find_lost_changes,
    find_lost_or_duplicate_messages,
    find_mixed_up_responses,
    find_untyped_errors,
    group_effects,
)


@pytest.mark.parametrize(
    ("calls", "seed"), [pytest.param(1000, 24, marks=pytest.mark.wide), pytest.param(10_000, 2, marks=pytest.mark.slow)]
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
    async with open_context() as context:
        storm = Storm(context, seed)
        before = asyncio.all_tasks()
        await run_calls(storm, calls, seed)
        await yield_until(lambda: not _own_tasks() - before)
        assert_no_leaks(context.suite, CONNECTIONS)
        assert await _applied_all(context)
        context.sandbox.clear_faults()
        await _held(storm, calls)


def _own_tasks() -> set[asyncio.Task[object]]:
    """Return the tasks of the client and the storm, without those of the sandbox's connections."""
    return {task for task in asyncio.all_tasks() if "RequestHandler" not in repr(task.get_coro())}


async def _applied_all(context: StormContext) -> bool:
    rules = context.sandbox.faults()
    return len(rules) == len(FAULTS) and all(rule["applied"] for rule in rules)


async def _held(storm: Storm, calls: int) -> None:
    context, claims = storm.context, storm.claims
    effects = await group_effects(context)
    assert find_untyped_errors(claims) == []
    assert storm.wrong == []
    assert find_false_reports(claims, effects) == []
    assert [key for key, found in effects.items() if key[0] in NON_IDEMPOTENT_OPERATIONS and len(found) > 1] == []
    assert find_mixed_up_responses(claims, effects) == []
    assert await find_lost_or_duplicate_messages(context, claims) == []
    assert await find_lost_changes(context, claims) == []
    heard = context.events
    assert heard.count(CallStarted) == heard.count(CallFinished) >= calls
    # One login or token request at a time, however many calls wait for it.
    assert heard.count(CallStarted, "login") == heard.count(SessionRenewed) + heard.count(RenewalFailed)
    assert context.tokens.fetches == heard.count(TokenRefreshed)
    assert min(heard.count(SessionRenewed), heard.count(TokenRefreshed)) > 3
