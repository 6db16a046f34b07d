"""Fixtures of the services' tests: virtual time, a scripted server, and responses from memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

import directsuite as ds
from directsuite.testing import mocked_services
from tests.core.conftest import clock, pytest_asyncio_loop_factories, server

from .fake_services import ALICE, SETTINGS, FakeServices

__all__ = ["box", "clock", "pytest_asyncio_loop_factories", "server", "services", "suite"]


@pytest.fixture
def services() -> Iterator[FakeServices]:
    with mocked_services() as mocked:
        yield FakeServices(mocked)


@pytest.fixture
async def suite(services: FakeServices) -> AsyncIterator[ds.DirectSuite]:
    async with ds.DirectSuite(SETTINGS, token="access-token", login=ds.Login("reseller", "secret")) as suite:
        yield suite


@pytest.fixture
def box(suite: ds.DirectSuite) -> ds.Mailbox:
    return suite.mailbox(ALICE, "secret")
