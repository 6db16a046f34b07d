"""One sandbox with content, for all tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .real_values import RealValues, run_sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def real_values() -> Iterator[RealValues]:
    with run_sandbox() as running:
        values = RealValues(running)
        yield values
        values.close()
