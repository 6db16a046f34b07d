"""A store in PostgreSQL, and the engine of a fleet."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from directsuite.sync.postgres import PostgresStore


@pytest.fixture
async def store(conninfo: str) -> AsyncGenerator[PostgresStore]:
    from directsuite.sync.postgres import PostgresStore
    from tests.sync.fleet.fleet_worker import LoggingSink

    async with PostgresStore(conninfo, sink=LoggingSink()) as store:
        yield store
