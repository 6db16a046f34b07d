"""A new messaging service on a real socket for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.sandbox.messaging.mailbox_server import MessagingServer, open_messaging_server


@pytest.fixture
async def mail() -> AsyncIterator[MessagingServer]:
    async with open_messaging_server() as server:
        yield server
