"""A sandbox with two mailboxes, a client whose clock advances only while it sleeps, and a store in memory."""

from collections.abc import AsyncIterator

import pytest

from directsuite.sync import SqliteStore
from tests.integration.conftest import sandbox as sandbox
from tests.integration.conftest import scenario as scenario


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    async with SqliteStore(":memory:") as store:
        yield store
