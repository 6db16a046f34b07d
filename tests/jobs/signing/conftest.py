"""Jobs that are made anew for each test."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from directsuite.jobs.signing import Journal
from directsuite.jobs.signing.journal import Chunk
from tests.jobs.signing.jobs import Jobs
from tests.waiting import happened


@pytest.fixture(scope="module", autouse=True)
def journals_tell() -> Generator[None]:
    """Have tests that wait look whenever a journal was read or written: a job goes on with that before they do."""

    def telling(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(method)
        async def tell(*values: Any, **options: Any) -> Any:
            result = await method(*values, **options)
            happened()
            return result

        return tell

    with pytest.MonkeyPatch.context() as patch:
        for name in ("known", "put", "abandon"):
            patch.setattr(Chunk, name, telling(getattr(Chunk, name)))
        yield


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[Jobs]:
    """On a journal of their own."""
    async with Journal(tmp_path / "journal.db") as journal:
        yield Jobs(tmp_path, journal)
