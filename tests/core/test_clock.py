"""Waiting for a time or an event."""

from __future__ import annotations

import asyncio

import pytest

import directsuite as ds
from directsuite.core.clock import sleep_or_event


async def test_wait_ends_with_the_sleep_or_with_the_event() -> None:
    event, woken = asyncio.Event(), asyncio.Event()
    waiting = asyncio.create_task(sleep_or_event(_until(woken), event))
    await asyncio.sleep(0)
    assert not waiting.done()
    woken.set()
    await waiting
    event.set()
    await sleep_or_event(_until(asyncio.Event()), event)


async def test_what_ends_a_sleep_is_raised() -> None:
    async def closed() -> None:
        raise ds.ClosedError("the suite is closed")

    with pytest.raises(ds.ClosedError):
        await sleep_or_event(closed(), asyncio.Event())


async def test_wait_that_is_cancelled_leaves_no_sleep_behind() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def sleep() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(sleep_or_event(sleep(), asyncio.Event()))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def _until(event: asyncio.Event) -> None:
    await event.wait()
