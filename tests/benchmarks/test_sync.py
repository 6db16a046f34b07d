"""Synchronisation: each work once in a small size, the simulated latency, and the mailbox tools."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.processes import Figures, Work
from benchmarks.server import run_server
from benchmarks.sync import fleet, works
from benchmarks.sync.latency import Simulation
from tests.sync.fleet.postgres_server import find_binaries


@pytest.mark.process
async def test_each_work_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "FIRST_SYNC_MESSAGES", 70)
    monkeypatch.setattr(works, "LARGE_FOLDER_MESSAGES", 70)
    monkeypatch.setattr(works, "MAILDIR_MESSAGES", 70)
    monkeypatch.setattr(works, "POLLS", 3)
    with run_server() as url:
        for work in (works.idle, works.first, works.floor, works.iterated, works.maildir):
            (folder := tmp_path / work.__name__).mkdir()
            figures = await work(url, str(folder))
            assert figures.get("commits of all rounds", 0) == 0
    written = [file for file in tmp_path.rglob("*.eml") if file.stat().st_size > works.ATTACHMENT_BYTES]  # noqa: ASYNC240
    assert len(written) == 70


@pytest.mark.process
@pytest.mark.postgres
async def test_first_synchronisation_and_floor_use_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_binaries() is None:
        pytest.skip("PostgreSQL is not installed: initdb was not found.")
    monkeypatch.setattr(works, "FIRST_SYNC_MESSAGES", 70)
    with run_server() as url, works.run_postgres() as server:
        for work in (works.first, works.floor):
            assert (await work(url, server.create_database()))["messages per second"] > 0


def test_page_of_the_fleet_has_a_row_for_each_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_work(_work: Work, _url: str, workers: int, *_: object) -> Figures:
        return dict.fromkeys(fleet.FIGURES, float(workers))

    monkeypatch.setattr(fleet, "run_work", run_work)
    monkeypatch.setattr(fleet, "run_server", lambda: contextlib.nullcontext(""))
    assert main(["fleet", "--quick", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "fleet.md").read_text("utf-8")
    assert "| due every 10 seconds | 1 | 1.00 [1.00-1.00] |" in page
    assert "| as often as possible | 2 | 2.00 [2.00-2.00] |" in page


@pytest.mark.wide
def test_messages_to_busy_mailboxes_are_found_sooner_and_all_others_wait_equally() -> None:
    found = Simulation(200, 0.1, hours=2).run()
    assert found.messages > 20
    assert found.busy[1] < 12 < found.longest_pause < 34
    assert found.fairness < 1.1
    assert found.rate < 100
    assert found == Simulation(200, 0.1, hours=2).run()


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["mailbox-tools"]) == 2
    assert capsys.readouterr().err == "Install dovecot-imapd and isync: dovecot and mbsync was not found.\n"
