"""The signing job, its floor and bare aiohttp do the same work."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from benchmarks.server import run_server
from benchmarks.signing_job import works


@pytest.mark.process
async def test_each_signs_all_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "DOCUMENT_COUNT", 3)
    (tmp_path / "in").mkdir()
    works.make_documents(tmp_path / "in")
    signed = dict[str, dict[str, bytes]]()
    with run_server() as url:
        for name in ("job", "floor", "bare"):
            (folder := tmp_path / name).mkdir()
            assert (await works.WORKS[name](url, folder))["documents a second"] > 0
            signed[name] = {file.name: file.read_bytes() for file in (folder / "out").iterdir()}
    assert signed["job"] == signed["floor"] == signed["bare"]
    assert len(signed["job"]) == 3
    with sqlite3.connect(tmp_path / "floor" / "journal.db") as journal:
        assert journal.execute("SELECT DISTINCT state FROM documents").fetchall() == [("done",)]
    journal.close()
