"""A worker is killed every second while mailboxes change and folders are renumbered."""

from __future__ import annotations

import email
import logging
from pathlib import Path

import pytest

from directsuite.sync.sinks.maildir import build_folder_dir, build_mailbox_dir
from tests.statements import query_file
from tests.sync.killing.traffic import ADDRESSES, FOLDERS, assert_equal, run_with_kills
from tests.sync.killing.worker import MAILDIR

pytestmark = pytest.mark.process

SECONDS = [8, pytest.param(120, marks=pytest.mark.slow)]


@pytest.mark.parametrize("seconds", SECONDS)
async def test_the_sink_has_each_message_once(seconds: int, tmp_path: Path) -> None:
    path = tmp_path / "sync.db"
    listed = await run_with_kills(seconds, str(path))
    rows = query_file(path, "SELECT mailbox, folder, uid, subject FROM message WHERE present = 1")
    new = [subject for (subject,) in query_file(path, "SELECT subject FROM told WHERE kind = 'new'")]
    assert_equal(listed, rows, new)


@pytest.mark.parametrize("seconds", SECONDS)
async def test_a_maildir_has_what_the_server_has(seconds: int, tmp_path: Path) -> None:
    path = tmp_path / MAILDIR
    listed = await run_with_kills(seconds, str(path))
    for address in ADDRESSES:
        for folder in FOLDERS:
            directory = path.with_suffix("") / build_mailbox_dir(address) / build_folder_dir(folder)
            files = [email.message_from_bytes(each.read_bytes())["Subject"] for each in directory.glob("new/*")]
            assert sorted(files) == sorted(subject for _, subject in listed.get((address, folder), ()))
    logging.getLogger(__name__).info("%d files, as on the server", len(list(path.with_suffix("").rglob("new/*"))))
