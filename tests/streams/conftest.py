"""Virtual time, and a scripted server on loopback."""

from __future__ import annotations

from tests.core.conftest import clock, pytest_asyncio_loop_factories, server

__all__ = ["clock", "pytest_asyncio_loop_factories", "server"]
