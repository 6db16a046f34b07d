"""Virtual time, a scripted server, and responses from memory."""

from __future__ import annotations

from tests.fixtures import box, clock, pytest_asyncio_loop_factories, server, services, suite

__all__ = ["box", "clock", "pytest_asyncio_loop_factories", "server", "services", "suite"]
