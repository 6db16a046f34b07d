"""Responses written to a file: completely or not at all; disk errors are reported as such."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import shutil
from pathlib import Path
from typing import Any

import pybase64
import pytest

import directsuite as ds

from . import responses
from .scripted_server import Responder, ScriptedServer
from .scripted_suite import DOCUMENT, SIGNATURE, catch_error, expect_error, open_suite

OLD = b"the file that was there"
CODED = pybase64.b64encode(DOCUMENT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "signed.pdf"
    file.write_bytes(OLD)
    return file


def names_beside(path: Path) -> list[str]:
    return [entry.name for entry in path.parent.iterdir()]


def assert_holds(path: Path, content: bytes) -> None:
    assert path.read_bytes() == content
    assert names_beside(path) == [path.name]


def assert_untouched(path: Path) -> None:
    assert_holds(path, OLD)


SPOILT: dict[str, Responder] = {
    "truncated": responses.truncate(CODED),
    "not base64": responses.respond(b"<html>"),
    "broken off in a character": responses.respond(CODED[:-3]),
    "pause": responses.respond_in_chunks(CODED[:40], responses.Pause(1000)),
    "500": responses.respond(b"", 500),
    "reset": responses.reset,
    "empty": responses.respond(b""),
}


@pytest.mark.exhaustive(limit=4)
@pytest.mark.parametrize("spoilt", SPOILT)
async def test_spoilt_download_is_tried_again_and_leaves_everything_as_it_was(
    server: ScriptedServer, suite: ds.DirectSuite, path: Path, spoilt: str
) -> None:
    server.enqueue(*[SPOILT[spoilt]] * 3)
    error = await catch_error(suite.signing.download("doc", path))
    assert (error.outcome, error.attempts) == (ds.Outcome.UNKNOWN, 2)
    assert not isinstance(error, ds.OutcomeUnknownError)
    assert_untouched(path)
    await suite.signing.download("doc", path)
    assert_holds(path, DOCUMENT)


@pytest.mark.exhaustive(limit=4)
@pytest.mark.parametrize("spoilt", SPOILT)
async def test_damaged_response_to_sign_is_unknown_and_not_retried(
    server: ScriptedServer, suite: ds.DirectSuite, path: Path, spoilt: str
) -> None:
    server.default_responder = SPOILT[spoilt]
    await expect_error(ds.OutcomeUnknownError, suite.signing.sign_and_pull("doc", SIGNATURE, destination=path))
    assert len(server.requests) == 1
    assert_untouched(path)


@pytest.mark.parametrize(
    ("method", "timeout", "elapsed"), [("download", None, None), ("sign_and_pull", None, None), ("download", 50, 50)]
)
async def test_only_a_timeout_of_its_own_ends_a_document_that_flows(
    server: ScriptedServer, path: Path, method: str, timeout: float | None, elapsed: float | None
) -> None:
    flowing = [part for _ in range(20) for part in (b"AAAA", responses.Pause(15))]
    server.default_responder = responses.respond_in_chunks(*flowing)
    arguments = ["doc"] if method == "download" else ["doc", SIGNATURE]
    async with open_suite(server, timeout=60, attempt_timeout=20) as suite:
        call = getattr(suite.signing, method)(*arguments, destination=path, timeout=timeout)
        if elapsed is None:
            await call
            assert_holds(path, bytes(60))
        else:
            error = await catch_error(call)
            assert type(error) is ds.DeadlineExceededError
            assert error.elapsed == pytest.approx(elapsed)
            assert_untouched(path)
    assert len(server.requests) == 1


async def test_missing_folder_is_rejected_before_anything_is_sent(server: ScriptedServer, tmp_path: Path) -> None:
    async with open_suite(server) as suite:
        for destination in (tmp_path / "missing" / "a.pdf", tmp_path):
            for call in (
                suite.signing.download("doc", destination),
                suite.signing.sign_and_pull("doc", SIGNATURE, destination=destination),
            ):
                error = await expect_error(ds.InvalidArgumentError, call)
                assert error.parameter == "destination"
    assert server.requests == []


class SmallDisk(io.FileIO):
    """A file that cannot grow beyond 4 KB."""

    def write(self, content: Any) -> int:
        """Write as much as fits, then fail like a full disk."""
        if self.tell() + len(content) > 4096:
            raise OSError(errno.ENOSPC, "no space left on device")
        return super().write(content)


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open all files for writing on a small disk, buffered, so that closing fails again."""

    def opened_there(descriptor: int, mode: str) -> Any:
        return io.BufferedWriter(SmallDisk(descriptor, mode))

    monkeypatch.setattr(os, "fdopen", opened_there)


@pytest.mark.usefixtures("small_disk")
@pytest.mark.parametrize("size", [5000, 200_000])
async def test_full_disk_is_an_os_error_and_nothing_is_repeated(server: ScriptedServer, path: Path, size: int) -> None:
    server.default_responder = responses.respond(pybase64.b64encode(bytes(size)))
    async with open_suite(server) as suite:
        with pytest.raises(OSError, match="no space left") as caught:
            await suite.signing.download("doc", path)
    assert not isinstance(caught.value, ds.DirectSuiteError)
    assert len(server.requests) == 1
    assert_untouched(path)


async def test_folder_that_vanishes_meanwhile_is_an_os_error(server: ScriptedServer, path: Path) -> None:
    gate = asyncio.Event()
    server.enqueue(responses.respond_after(gate, responses.respond(CODED)))
    async with open_suite(server) as suite:
        task = await server.begin(suite.signing.download("doc", path))
        shutil.rmtree(path.parent)
        gate.set()
        with pytest.raises(FileNotFoundError):
            await task
    assert len(server.requests) == 1


async def test_long_file_name_is_as_good_as_any(server: ScriptedServer, suite: ds.DirectSuite, tmp_path: Path) -> None:
    destination = tmp_path / ("a" * 251 + ".pdf")
    assert await suite.signing.sign_and_pull("d", SIGNATURE, destination=destination) == destination
    assert names_beside(destination) == [destination.name]
