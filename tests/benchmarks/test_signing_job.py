"""The signing job, its floor and bare aiohttp sign the same documents."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from benchmarks.server import run_server
from benchmarks.signing_job import WORKS, make_documents


@pytest.mark.process
async def test_each_signs_all_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.signing_job.DOCUMENT_COUNT", 3)
    make_documents(tmp_path / "in", 3)
    signed = dict[str, dict[str, bytes]]()
    with run_server() as url:
        for name, work in WORKS.items():
            (folder := tmp_path / name).mkdir()
            assert (await work(url, str(folder), "0"))["documents per second"] > 0
            signed[name] = {file.name: file.read_bytes() for file in (folder / "out").iterdir()}
    assert signed["job"] == signed["floor"] == signed["bare"]
    assert len(signed["job"]) == 3
    with sqlite3.connect(tmp_path / "floor" / "journal.db") as journal:
        assert journal.execute("SELECT DISTINCT state FROM documents").fetchall() == [("done",)]
    journal.close()
