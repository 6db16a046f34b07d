"""A sandbox with two mailboxes, a messaging service with odd responses; a store in memory."""

from collections.abc import AsyncIterator

import pytest

from directsuite.sync import SqliteStore
from tests.integration.conftest import sandbox as sandbox
from tests.integration.conftest import scenario as scenario
from tests.integration.scenario import Scenario
from tests.sync.mail_service import MailScenario, open_mail
from tests.sync.test_synchronizer import EventCounter


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    async with SqliteStore(":memory:") as store:
        yield store


@pytest.fixture
def heard(scenario: Scenario) -> EventCounter:
    heard = EventCounter()
    scenario.suite.add_listener(heard)
    return heard


@pytest.fixture
async def mail(store: SqliteStore) -> AsyncIterator[MailScenario]:
    async with open_mail(store) as mail:
        yield mail
