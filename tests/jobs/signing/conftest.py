"""Jobs that are made anew for each test, and PostgreSQL for those of fleets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from directsuite.jobs.signing import Journal
from tests.jobs.signing.jobs import Jobs
from tests.sync.fleet.conftest import a_new_server

if TYPE_CHECKING:
    from tests.sync.fleet.postgres_server import PostgresServer


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[Jobs]:
    """On a journal of their own."""
    async with Journal(tmp_path / "journal.db") as journal:
        yield Jobs(tmp_path, journal)


@pytest.fixture(scope="session")
def postgres() -> Generator[PostgresServer]:
    """A PostgreSQL server that stays up, or the test is skipped."""
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
