"""A cancellation that a library swallows is raised when the library returns."""

from __future__ import annotations

import asyncio

import pytest

from directsuite.durable.postgres import propagate_cancellation


async def loses(outcome: Exception | None) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if outcome is not None:
            raise outcome from None
    return "found"


@pytest.mark.parametrize("outcome", [None, ValueError("broken off")], ids=["a result", "an error"])
async def test_a_lost_cancellation_is_raised_after_the_block(outcome: Exception | None) -> None:
    async def work() -> None:
        with propagate_cancellation():
            await loses(outcome)

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait([working])
    assert working.cancelled()


async def test_cancelled_task_may_still_finish_cleanup() -> None:
    ended = False

    async def work() -> None:
        nonlocal ended
        try:
            await asyncio.Event().wait()
        finally:
            with propagate_cancellation():
                await asyncio.sleep(0)
            ended = True

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait([working])
    assert ended


async def test_a_surrounding_timeout_stays_a_timeout() -> None:
    async def bounded() -> None:
        async with asyncio.timeout(0.01):
            with propagate_cancellation():
                await loses(None)

    with pytest.raises(TimeoutError):
        await bounded()
