"""The tools beside which synchronisation into files is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.server import run_server
from benchmarks.sync import mailbox_tools, works


def test_it_says_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    assert mailbox_tools.measure_mailbox_tools() == 2
    assert capsys.readouterr().err == "This needs dovecot and mbsync: install dovecot-imapd and isync.\n"


@pytest.mark.process
async def test_ours_writes_a_file_for_each_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "MAILDIR_MESSAGES", 70)
    with run_server() as url:
        assert (await works.maildir(url, tmp_path))["messages"] == 70
    written = [file for file in (tmp_path / "mail").rglob("*.eml") if file.stat().st_size > works.ATTACHMENT_BYTES]
    assert len(written) == 70
