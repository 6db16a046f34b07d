"""As the core's tests: virtual time, and a scripted server on loopback."""

from __future__ import annotations

from tests.core.conftest import pytest_asyncio_loop_factories, server

__all__ = ["pytest_asyncio_loop_factories", "server"]
