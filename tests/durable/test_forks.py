"""Connections that were made before a fork raise an error in the child, and stay open in the parent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import SimpleNamespace

import pytest

from directsuite.durable import postgres
from directsuite.durable.postgres import PostgresDatabase
from directsuite.errors import ConfigurationError
from directsuite.sync import StoreError
from tests.statements import sql

pytestmark = pytest.mark.postgres


@pytest.fixture
async def connections(conninfo: str) -> AsyncGenerator[PostgresDatabase]:
    connections = PostgresDatabase(conninfo, error=StoreError)
    yield connections
    await connections.aclose()


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
