"""Fixtures of the services' tests: virtual time, a scripted server, and responses from memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import pytest

import directsuite as ds
from directsuite.testing import mocked_services
from tests.core.conftest import clock, server
from tests.core.virtual_time import VirtualTimeLoop

from .fake_services import ALICE, SETTINGS, FakeServices

__all__ = ["box", "clock", "pytest_asyncio_loop_factories", "server", "services", "suite"]

VIRTUAL_TIME_FIXTURES = frozenset({"box", "clock", "server", "services", "suite"})


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run tests with one of these fixtures in virtual time. Tests with a sandbox need the real time."""
    if VIRTUAL_TIME_FIXTURES & set(getattr(item, "fixturenames", ())):
        return {"virtual time": VirtualTimeLoop}
    return {"real time": asyncio.new_event_loop}


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
