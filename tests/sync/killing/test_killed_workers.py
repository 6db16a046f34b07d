"""A worker is killed every second or so, while the mailbox changes and its uids begin anew: the sink equals the server.

What is told in the sink's own transaction is told once: every message NEW one time, however often a worker died.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.sync.killing.traffic import assert_equal, survived


@pytest.mark.parametrize("seconds", [8, pytest.param(120, marks=pytest.mark.slow)])
async def test_nothing_is_missing_and_nothing_doubled(seconds: int, tmp_path: Path) -> None:
    path = tmp_path / "sync.db"
    listed = await survived(seconds, str(path))
    with contextlib.closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT mailbox, folder, uid, subject FROM message WHERE present = 1").fetchall()
        new = [subject for (subject,) in database.execute("SELECT subject FROM told WHERE kind = 'new'")]
    assert_equal(listed, rows, new)
