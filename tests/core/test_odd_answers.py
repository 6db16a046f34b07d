"""Unusual responses and arguments never raise an error of another type."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

import directsuite as ds

from . import responses
from .scripted_server import ScriptedServer
from .scripted_suite import ALICE, PASSWORD, catch_error, open_suite


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), "5"])
async def test_timeout_that_is_not_a_time_is_rejected(server: ScriptedServer, timeout: float) -> None:
    async with open_suite(server) as suite:
        with pytest.raises(ds.InvalidArgumentError) as caught:
            await suite.mailbox(ALICE, PASSWORD).get_message_count(timeout=timeout)
    assert caught.value.parameter == "timeout"
    assert server.requests == []


async def test_source_of_a_rejected_upload_is_closed_by_then(server: ScriptedServer) -> None:
    closed: list[bool] = []

    async def pdf() -> AsyncGenerator[bytes]:
        try:
            while True:
                yield b"%PDF-1.7 " * 9000
        finally:
            closed.append(True)

    server.default_responder = responses.respond_early(b"", 400)
    async with open_suite(server) as suite:
        error = await catch_error(suite.signing.save(pdf()))
    assert isinstance(error, ds.ServiceError | ds.TransportError)
    assert closed == [True]
