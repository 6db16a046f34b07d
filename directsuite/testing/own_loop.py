"""The event loop of an async test that no other plugin runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any

import pytest

_RUNNER = pytest.StashKey[asyncio.Runner]()


@contextmanager
def runner_of(item: pytest.Item) -> Generator[asyncio.Runner]:
    """A runner for a test and the suite that is open in it."""
    with asyncio.Runner() as runner:
        item.stash[_RUNNER] = runner
        yield runner


def run(item: pytest.Item, test: Coroutine[Any, Any, object]) -> None:
    """Run the test in the item's runner; in one for itself where no suite is open."""
    if _RUNNER in item.stash:
        item.stash[_RUNNER].run(test)
    else:
        asyncio.run(test)
