"""What the tests of several requests under one deadline share with those of the core: virtual time, a script."""

from __future__ import annotations

from tests.core.conftest import clock, pytest_asyncio_loop_factories, server

__all__ = ["clock", "pytest_asyncio_loop_factories", "server"]
