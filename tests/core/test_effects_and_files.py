"""Changes whose response is written to a file: an unusable destination is rejected before the request."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

import directsuite as ds

from . import responses
from .scripted_server import ScriptedServer
from .scripted_suite import PDF, catch_error, open_suite

SIGNATURE = ds.Signature(name="consent")


def _names(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


async def test_long_file_name_is_as_good_as_any(server: ScriptedServer, tmp_path: Path) -> None:
    server.default_responder = responses.respond(b"JVBERi0xLjc=")
    destination = tmp_path / ("a" * 251 + ".pdf")
    async with open_suite(server) as suite:
        assert await suite.signing.sign_and_pull("d", SIGNATURE, destination=destination) == destination
    assert _names(tmp_path) == [destination.name]


async def test_effect_with_unstorable_response_is_reported_as_happened(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    server.default_responder = responses.respond(b"JVBERi0xLjc=")
    monkeypatch.setattr(Path, "replace", full)
    async with open_suite(server) as suite:
        error = await catch_error(suite.signing.sign_and_pull("d", SIGNATURE, destination=tmp_path / "a.pdf"))
        with pytest.raises(OSError, match="no space"):
            await suite.signing.download("d", tmp_path / "a.pdf")
    assert isinstance(error, ds.OutcomeUnknownError)
    assert "it happened" in str(error)
    assert isinstance(error.__cause__, OSError)
    assert _names(tmp_path) == []


@pytest.mark.parametrize("read", ["get_doc", "download", "sign_and_pull"])
async def test_empty_response_is_not_a_document(server: ScriptedServer, tmp_path: Path, read: str) -> None:
    server.default_responder = responses.respond(b"")
    kept = tmp_path / "kept.pdf"
    kept.write_bytes(PDF)
    async with open_suite(server, retry=ds.RetryPolicy.none()) as suite:
        if read == "get_doc":
            error = await catch_error(suite.signing.get_doc("d"))
        elif read == "download":
            error = await catch_error(suite.signing.download("d", kept))
        else:
            error = await catch_error(suite.signing.sign_and_pull("d", SIGNATURE))
    assert isinstance(error, ds.ResponseDecodeError | ds.OutcomeUnknownError)
    assert kept.read_bytes() == PDF


async def test_response_that_flows_may_take_longer_than_a_call(server: ScriptedServer, tmp_path: Path) -> None:
    coded = b"JVBERi0xLjcK" * 8
    flowing = [part for start in range(0, len(coded), 12) for part in (coded[start : start + 12], responses.Pause(15))]
    server.default_responder = responses.respond_in_chunks(*flowing)
    async with open_suite(server, timeout=60, attempt_timeout=20) as suite:
        path = await suite.signing.sign_and_pull("d", SIGNATURE, destination=tmp_path / "a.pdf")
    assert path.read_bytes() == b"%PDF-1.7\n" * 8
    assert len(server.requests) == 1
