"""An unreadable response proves nothing about the requested change, even if its head is valid."""

from __future__ import annotations

import asyncio
import io
import shutil
from pathlib import Path

import pybase64
import pytest

import directsuite as ds

from . import responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import PDF, catch_error, open_suite
from .virtual_time import yield_until

CODED = pybase64.b64encode(PDF * 9)
SAYS_NO = responses.respond({"error": "boom", "description": "nothing was done"})
SIGNATURE = ds.Signature(name="alice", widget=ds.Widget(x=1, y=2, width=3, height=4, page=1))
OLD = ds.DocumentUpdate(identifier="doc", document_digest="old")
SIGNED = responses.respond(
    {"identifier": "doc", "documentDigest": "new", "signatures": [{"name": "alice", "isSigned": True}]}
)


class GoneError(Exception):
    pass


def gone(_done: int, _total: int | None) -> None:
    """Progress callback that always fails."""
    raise GoneError


@pytest.mark.parametrize("answer", [SAYS_NO, responses.respond(CODED)], ids=["says no", "is good"])
async def test_progress_error_before_first_byte_leaves_outcome_unknown(
    server: ScriptedServer, answer: Responder
) -> None:
    server.default_responder = answer
    async with open_suite(server) as suite:
        error = await catch_error(suite.signing.flatten_and_pull("doc", destination=io.BytesIO(), progress=gone))
    assert isinstance(error, ds.OutcomeUnknownError)
    assert not error.happened
    assert error.__cause__ is not None
    assert isinstance(error.__cause__.__cause__, GoneError)
    assert len(server.requests) == 1


async def test_unread_response_of_a_change_is_settled(server: ScriptedServer) -> None:
    server.enqueue(SAYS_NO, SIGNED, responses.respond(CODED), SIGNED)
    async with open_suite(server) as suite:
        signing = suite.signing.sign_and_pull(OLD, SIGNATURE, destination=io.BytesIO(), progress=gone)
        error = await catch_error(signing)
    assert isinstance(error, ds.OutcomeUnknownError)
    assert error.happened
    assert len(server.requests) > 1


async def test_file_missing_before_first_byte_leaves_outcome_unknown(server: ScriptedServer, tmp_path: Path) -> None:
    folder, gate = tmp_path / "pulled", asyncio.Event()
    folder.mkdir()
    server.enqueue(responses.respond_after(gate, SAYS_NO))
    async with open_suite(server) as suite:
        pulling = asyncio.ensure_future(
            catch_error(suite.signing.flatten_and_pull("doc", destination=folder / "doc.pdf"))
        )
        await yield_until(lambda: server.busy == 1)
        shutil.rmtree(folder)
        gate.set()
        error = await pulling
    assert isinstance(error, ds.OutcomeUnknownError)
    assert not error.happened


async def test_progress_that_fails_at_the_first_byte_comes_after_the_change(server: ScriptedServer) -> None:
    def gone_later(done: int, _total: int | None) -> None:
        if done:
            raise GoneError

    server.default_responder = responses.respond(CODED)
    async with open_suite(server) as suite:
        error = await catch_error(suite.signing.flatten_and_pull("doc", destination=io.BytesIO(), progress=gone_later))
    assert isinstance(error, ds.OutcomeUnknownError)
    assert error.happened
    assert isinstance(error.__cause__, GoneError)


async def test_download_ends_with_what_its_progress_raised(server: ScriptedServer) -> None:
    server.default_responder = responses.respond(CODED)
    async with open_suite(server) as suite:
        with pytest.raises(GoneError):
            await suite.signing.download("doc", io.BytesIO(), progress=gone)
    assert len(server.requests) == 1


async def test_progress_that_fails_once_is_not_asked_again_by_settling(server: ScriptedServer) -> None:
    told: list[int] = []

    def gone_at_first(done: int, _total: int | None) -> None:
        told.append(done)
        if len(told) == 1:
            raise GoneError

    server.enqueue(responses.respond(CODED), SIGNED, responses.respond(CODED), SIGNED)
    async with open_suite(server) as suite:
        signing = suite.signing.sign_and_pull(OLD, SIGNATURE, destination=io.BytesIO(), progress=gone_at_first)
        error = await catch_error(signing)
    assert isinstance(error, ds.OutcomeUnknownError)
    assert error.happened
    assert isinstance(error.__cause__, GoneError)
    assert told == [0]
