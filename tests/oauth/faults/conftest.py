"""Virtual time, a scripted server, and a token service on it."""

from __future__ import annotations

import pytest

from tests.core.conftest import clock, pytest_asyncio_loop_factories, server
from tests.core.scripted_server import ScriptedServer

from .token_service import RotationRecorder, TokenService

__all__ = ["clock", "pytest_asyncio_loop_factories", "saved", "server", "service"]


@pytest.fixture
def service(server: ScriptedServer) -> TokenService:
    """The token endpoint, and the signing service that takes its tokens, on the scripted server."""
    server.default_responder = service = TokenService(server)
    return service


@pytest.fixture
def saved(server: ScriptedServer) -> RotationRecorder:
    return RotationRecorder(server)
