"""Paths that no file can have: every public call that takes a path rejects them with a typed error."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, cast

import pytest

import directsuite as ds
from directsuite.core.files import resolve_path, to_path
from directsuite.jobs import delivery, signing
from directsuite.sync import MaildirSink, SqliteStore
from tests.chaos.leak_capture import collect_frame_locals, find_leaks

URL = "http://127.0.0.1:9"
NO_PATHS: dict[str, Any] = {
    "NUL": "a\0b",
    "half a surrogate pair": "a\ud800b",
    "empty": "",
    "a number": 7,
    "bytes": b"a.pdf",
    "nothing": None,
}


def _suite() -> ds.DirectSuite:
    return ds.DirectSuite(ds.Settings(signing_url=URL, message_url=URL), token="t")


async def _save(path: Any) -> object:
    async with _suite() as suite:
        return await suite.signing.save(path)


async def _download(path: str) -> object:
    async with _suite() as suite:
        return await suite.signing.download("doc", path)


async def _open(store: AbstractAsyncContextManager[object]) -> object:
    async with store as opened:
        return opened


async def _read(source: AsyncIterable[object]) -> object:
    return [each async for each in source]


CALLS: dict[str, Callable[[Any], object]] = {
    "Settings.from_toml": ds.Settings.from_toml,
    "DIRECTSUITE_CONFIG": lambda path: ds.Settings.from_env({"DIRECTSUITE_CONFIG": path}),
    "ca_bundle": lambda path: ds.Settings.from_env({"DIRECTSUITE_CA_BUNDLE": path}),
    "token_file": lambda path: ds.DirectSuite.from_env({"DIRECTSUITE_TOKEN_FILE": path}),
    "save": _save,
    "download": _download,
    "Attachment.from_path": ds.Attachment.from_path,
    "SqliteStore": lambda path: _open(SqliteStore(path)),
    "signing Journal": lambda path: _open(signing.SigningJournal(path)),
    "delivery Journal": lambda path: _open(delivery.DeliveryJournal(path)),
    "MaildirSink": MaildirSink,
    "Folder": lambda path: _read(signing.Folder(path)),
    "TargetFolder": signing.TargetFolder,
}
MEANINGFUL = {  # what else these take
    "save": {"bytes"},
    "DIRECTSUITE_CONFIG": {"empty"},
    "ca_bundle": {"empty"},
    "token_file": {"empty"},
    "SqliteStore": {"nothing"},
    "signing Journal": {"nothing"},
    "delivery Journal": {"nothing"},
}


async def _call(call: Callable[[Any], object], path: Any) -> None:
    result = call(path)
    if isinstance(result, Awaitable):
        await cast("Awaitable[object]", result)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", NO_PATHS)
@pytest.mark.parametrize("name", CALLS)
async def test_path_that_no_file_can_have_is_rejected(name: str, kind: str) -> None:
    if kind in MEANINGFUL.get(name, ()):
        return
    with pytest.raises((ds.InvalidArgumentError, ds.ConfigurationError)) as caught:
        await _call(CALLS[name], NO_PATHS[kind])
    assert caught.value.__cause__ is None
    str(caught.value).encode("ascii")  # half a surrogate pair could not be printed


@pytest.mark.parametrize("name", CALLS)
async def test_loop_of_symbolic_links_is_a_typed_error(tmp_path: Path, name: str) -> None:
    if name in ("download", "Attachment.from_path"):  # the first replaces the link, the second does not follow it
        return
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(ds.DirectSuiteError):
        await _call(CALLS[name], str(loop))


@pytest.mark.parametrize("name", ["ca_bundle", "token_file"])
async def test_home_of_an_unknown_user_is_a_typed_error(name: str) -> None:
    with pytest.raises(ds.ConfigurationError, match="home folder that is unknown on this machine"):
        await _call(CALLS[name], "~no-such-user/token")


@pytest.mark.parametrize("name", ["save", "download"])
async def test_name_that_is_too_long_is_a_typed_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(ds.InvalidArgumentError):
        await _call(CALLS[name], tmp_path / ("a" * 300))


@pytest.mark.parametrize("path", ["a.pdf", Path("a.pdf"), "Röntgen.pdf", "a\udcff.pdf"], ids=ascii)
def test_path_of_a_file_is_accepted(path: str | Path) -> None:
    assert to_path(path, "path") == Path(path)
    if sys.platform != "win32":
        assert os.fsencode(resolve_path(path, "path")).startswith(b"/")


def test_rejected_path_is_in_no_frame() -> None:
    with pytest.raises(ds.InvalidArgumentError) as caught:
        resolve_path("Zaphod\0", "path")
    assert find_leaks(collect_frame_locals(caught.value), ["Zaphod"]) == []
