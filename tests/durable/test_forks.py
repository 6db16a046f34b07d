"""Connections that were made before a fork raise an error in the child, and stay open in the parent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import SimpleNamespace

import pytest

from directsuite.durable import postgres
from directsuite.durable.postgres import Connections
from directsuite.errors import ConfigurationError
from directsuite.sync import StoreError

pytestmark = pytest.mark.postgres


@pytest.fixture
async def connections(conninfo: str) -> AsyncGenerator[Connections]:
    connections = Connections(conninfo, error=StoreError)
    yield connections
    await connections.aclose()


async def test_connections_of_the_parent_are_an_error_in_a_child(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await connections.fetch("SELECT 1") == [(1,)]
    with monkeypatch.context() as child:
        child.setattr(postgres, "os", SimpleNamespace(getpid=lambda: -1))
        with pytest.raises(ConfigurationError, match="before a fork"):
            await connections.fetch("SELECT 1")
        await connections.disconnect()
    assert await connections.fetch("SELECT 2") == [(2,)]
    assert connections.connections_made == 1
