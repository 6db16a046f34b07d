"""The storm itself: so many callers at once, and three moments at which all credentials turn out to have run out."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from directsuite.core.events import CallStarted

from .storm_actions import ACTIONS, Storm
from .storm_stage import LIFETIME

CALLERS = 64


async def rage(storm: Storm, calls: int, seed: int) -> None:
    """Act until so many calls were made."""
    scene = storm.stage
    scene.sow(seed)
    actions = [action for _, action in ACTIONS]
    weights = [weight for weight, _ in ACTIONS]
    number = 0
    shocks = [calls // 4, calls // 2, 3 * calls // 4]

    async def caller() -> None:
        nonlocal number
        while scene.heard.of(CallStarted) < calls:
            number += 1
            [action] = storm.dice.choices(actions, weights)
            await action(storm, number)
            scene.ended()
            if shocks and scene.heard.of(CallStarted) > shocks[0]:
                shocks.pop(0)
                await scene.credentials.judge()
                if len(shocks) == 1:
                    scene.sandbox.clock.advance(timedelta(seconds=LIFETIME + 1))
                else:
                    await scene.sandbox.expire_sessions()
                    await scene.sandbox.expire_tokens()

    time = asyncio.create_task(scene.let_time_pass())
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(caller())
    finally:
        time.cancel()
        await asyncio.wait([time])
