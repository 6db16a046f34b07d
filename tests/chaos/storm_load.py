"""Run the storm: many concurrent callers, and three moments at which all credentials expire."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from directsuite.core.events import CallStarted

from .storm_actions import ACTIONS, Storm
from .storm_context import CREDENTIAL_SECONDS

CALLERS = 64


async def run_calls(storm: Storm, calls: int, seed: int) -> None:
    context = storm.context
    context.inject_faults(seed)
    actions = [action for _, action in ACTIONS]
    weights = [weight for weight, _ in ACTIONS]
    number = 0
    shocks = [calls // 4, calls // 2, 3 * calls // 4]

    async def caller() -> None:
        nonlocal number
        while context.events.count(CallStarted) < calls:
            number += 1
            [action] = storm.dice.choices(actions, weights)
            await action(storm, number)
            context.note_action_ended()
            if shocks and context.events.count(CallStarted) > shocks[0]:
                shocks.pop(0)
                await context.credentials.judge()
                if len(shocks) == 1:
                    context.sandbox.clock.advance(timedelta(seconds=CREDENTIAL_SECONDS + 1))
                else:
                    await context.sandbox.expire_sessions()
                    await context.sandbox.expire_tokens()

    time = asyncio.create_task(context.run_clock())
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(caller())
    finally:
        time.cancel()
        await asyncio.wait([time])
