"""Fixtures for the tests of signing jobs."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from directsuite.jobs.signing import SigningJournal
from directsuite.jobs.signing.journal import Lease
from tests.jobs.signing.job_factory import JobFactory
from tests.waiting import notify_waiters


@pytest.fixture(scope="module", autouse=True)
def notify_on_journal_access() -> Generator[None]:
    """Let waiting tests check their conditions after each access to the journal."""

    def telling(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(method)
        async def tell(*values: Any, **options: Any) -> Any:
            result = await method(*values, **options)
            notify_waiters()
            return result

        return tell

    with pytest.MonkeyPatch.context() as patch:
        for name in ("find_entries", "put", "abandon"):
            patch.setattr(Lease, name, telling(getattr(Lease, name)))
        yield


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[JobFactory]:
    async with SigningJournal(tmp_path / "journal.db") as journal:
        yield JobFactory(tmp_path, journal)
