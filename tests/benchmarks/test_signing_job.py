"""The signing job, its floor and bare aiohttp sign the same documents."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from benchmarks.peers import get_client
from benchmarks.rows.table import BARE, FLOOR, OURS
from benchmarks.rows.works import WorkTask, make_sources, sign_folder
from benchmarks.server import make_scenario_url, run_server


@pytest.mark.process
async def test_each_signs_all_documents(tmp_path: Path) -> None:
    signed, sources = dict[str, dict[str, bytes]](), make_sources(tmp_path, 3, 1_000)
    with run_server() as url:
        for name in (OURS, FLOOR, BARE):
            task = WorkTask(options={}, sources=sources, output=tmp_path / f"{name}.out")
            async with get_client(name)(make_scenario_url(url, document=1_000)) as client:
                assert await sign_folder(client, task) == 3
            signed[name] = {file.name: file.read_bytes() for file in task.output.glob("*.pdf")}
    assert signed[OURS] == signed[FLOOR] == signed[BARE]
    assert len(signed[OURS]) == 3
    with sqlite3.connect(tmp_path / "floor.out" / "journal.db") as journal:
        assert journal.execute("SELECT DISTINCT state FROM documents").fetchall() == [("done",)]
    journal.close()
