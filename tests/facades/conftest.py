"""A suite whose requests are answered from memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import directsuite as ds
from directsuite.testing import mocked_services

from .fake_services import ALICE, SETTINGS, FakeServices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


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
