"""Connections to PostgreSQL after a fork, and cancellations that psycopg loses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from directsuite.durable import postgres
from directsuite.durable.postgres import PostgresDatabase, propagate_cancellation
from directsuite.errors import ConfigurationError
from directsuite.sync import StoreError
from tests.statements import sql


@pytest.fixture
async def connections(conninfo: str) -> AsyncGenerator[PostgresDatabase]:
    connections = PostgresDatabase(conninfo, error=StoreError)
    yield connections
    await connections.aclose()


@pytest.mark.postgres
async def test_connections_of_the_parent_are_an_error_in_a_child(
    connections: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = await connections.fetch(sql("SELECT pg_backend_pid()"))
    with monkeypatch.context() as child:
        child.setattr(postgres, "os", SimpleNamespace(getpid=lambda: -1))
        with pytest.raises(ConfigurationError, match="before a fork"):
            await connections.fetch(sql("SELECT 1"))
        await connections.disconnect()
    assert await connections.fetch(sql("SELECT pg_backend_pid()")) == backend


async def loses(outcome: Exception | None) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if outcome is not None:
            raise outcome from None
    return "found"


async def cancel_when_started(work: Coroutine[Any, Any, None]) -> bool:
    """Return True if the work ended as cancelled."""
    working = asyncio.create_task(work)
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait([working])
    return working.cancelled()


@pytest.mark.parametrize("outcome", [None, ValueError("broken off")], ids=["a result", "an error"])
async def test_a_lost_cancellation_is_raised_after_the_block(outcome: Exception | None) -> None:
    async def work() -> None:
        with propagate_cancellation():
            await loses(outcome)

    assert await cancel_when_started(work())


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

    await cancel_when_started(work())
    assert ended


async def test_a_surrounding_timeout_stays_a_timeout() -> None:
    async def bounded() -> None:
        async with asyncio.timeout(0.01):
            with propagate_cancellation():
                await loses(None)

    with pytest.raises(TimeoutError):
        await bounded()
