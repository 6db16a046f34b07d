"""The suite in each of the event loops that pytest-asyncio has: one for a test, a class, … the session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal

import pytest_asyncio

if TYPE_CHECKING:
    from directsuite.suite import DirectSuite


def _suite_in(scope: Literal["function", "class", "module", "package", "session"]) -> Any:
    """A fixture that lasts for one test, in a loop that may last longer."""

    @pytest_asyncio.fixture(loop_scope=scope, name=f"_directsuite_suite_in_{scope}_loop")
    async def suite_in_loop(_directsuite_unopened: DirectSuite) -> AsyncIterator[DirectSuite]:
        async with _directsuite_unopened as suite:
            yield suite

    return suite_in_loop


in_function_loop = _suite_in("function")
in_class_loop = _suite_in("class")
in_module_loop = _suite_in("module")
in_package_loop = _suite_in("package")
in_session_loop = _suite_in("session")
