"""A sandbox with two mailboxes, a messaging service with odd responses, and clients of both; a store in memory."""

from collections.abc import AsyncIterator

import pytest

from directsuite.sync import SqliteStore
from tests.integration.conftest import sandbox as sandbox
from tests.integration.conftest import scenario as scenario
from tests.sync.mail_service import MailService, SyncClient, open_client, run_service


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    async with SqliteStore(":memory:") as store:
        yield store


@pytest.fixture
async def service() -> AsyncIterator[MailService]:
    async with run_service() as service:
        yield service


@pytest.fixture
async def client(service: MailService) -> AsyncIterator[SyncClient]:
    async with open_client(service) as client:
        yield client
