"""The programs of the guide `sync`."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from directsuite.sandbox import Sandbox
from directsuite.sync import RoundFinished
from tests.guides.documents import blocks, defined_by

ALICE = ("alice@direct.example.test", "secret")
LETTER = b"From: bob@clinic.example.test\r\nSubject: referral\r\n\r\nPlease see her.\r\n"


def example() -> dict[str, Any]:
    """What the guide's program defines."""
    return defined_by(blocks("sync")[0], ds=ds)


async def _password(_: str) -> str:
    return ALICE[1]


@pytest.mark.parametrize("name", ["worker", "follow"])
async def test_mail_is_kept(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    looked = asyncio.Event()
    async with Sandbox() as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
        suite.add_listener(lambda event: looked.set() if isinstance(event, RoundFinished) else None)
        await sandbox.add_account(*ALICE)
        await sandbox.deliver(ALICE[0], LETTER)
        given = [ALICE[0]] if name == "worker" else ALICE[0]
        working = asyncio.create_task(example()[name](suite, given, _password))
        await looked.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
    if name == "follow":
        assert capsys.readouterr().out == "new 1\n"
        return
    with closing(sqlite3.connect("sync.db")) as database:
        assert database.execute("SELECT subject, present FROM message").fetchall() == [("referral", 1)]
