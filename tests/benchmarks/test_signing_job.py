"""The signing job, its floor and bare aiohttp sign the same documents."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from benchmarks.peers import get_client
from benchmarks.rows.table import BARE, CLIENT_OF_ROLE, FLOOR, OURS
from benchmarks.rows.works import WorkTask, sign_folder
from benchmarks.server import make_scenario_url, run_server


@pytest.mark.process
async def test_each_signs_all_documents(tmp_path: Path) -> None:
    signed, options = dict[str, dict[str, bytes]](), {"documents": 3, "document": 1_000}
    with run_server() as url:
        for role in (OURS, FLOOR, BARE):
            task = WorkTask(role=role, options=options, folder=tmp_path)
            async with get_client(CLIENT_OF_ROLE.get(role, role))(make_scenario_url(url, document=1_000)) as client:
                assert await sign_folder(client, task)() == 3
            signed[role] = {file.name: file.read_bytes() for file in (task.output / "out").iterdir()}
    assert signed[OURS] == signed[FLOOR] == signed[BARE]
    assert len(signed[OURS]) == 3
    with sqlite3.connect(tmp_path / "floor.out" / "journal.db") as journal:
        assert journal.execute("SELECT DISTINCT state FROM documents").fetchall() == [("done",)]
    journal.close()
