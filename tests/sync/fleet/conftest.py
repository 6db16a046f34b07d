"""PostgreSQL for the tests, where it is installed."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer


def a_new_server() -> Generator[PostgresServer]:
    """A server of its own, or the test is skipped."""
    pytest.importorskip("psycopg", reason="psycopg isn't installed: the extra 'fleet' brings it")
    from tests.sync.fleet.postgres_server import a_server, binaries

    where = binaries()
    if where is None:
        pytest.skip("PostgreSQL isn't installed: initdb was not found")
    with a_server(where) as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Generator[PostgresServer]:
    """A server that stays up."""
    yield from a_new_server()


@pytest.fixture(scope="session")
def shaky_postgres() -> Generator[PostgresServer]:
    """Another one, which tests stop and start; each leaves it running."""
    yield from a_new_server()


@pytest.fixture
def conninfo(postgres: PostgresServer) -> Generator[str]:
    """A database in which nothing is."""
    with postgres.lent_database() as conninfo:
        yield conninfo


@pytest.fixture(scope="session")
def shared_database(postgres: PostgresServer) -> str:
    """A database for tests that only need room."""
    return postgres.new_database()
