"""What the tests of lost responses share with those of the core: virtual time, a scripted server."""

from __future__ import annotations

from tests.core.conftest import clock, pytest_asyncio_loop_factories, server

__all__ = ["clock", "pytest_asyncio_loop_factories", "server"]
