"""The programs of the guide `sync`."""

from __future__ import annotations

import asyncio
import os
import pydoc
import signal
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

import directsuite as ds
from directsuite.sandbox import Sandbox
from directsuite.sync import Change, Deliver, RoundFinished, SqliteSink, SqliteStore, Synchronizer
from tests.guides.documents import ALICE, execute_programs, find_code_blocks

LETTER = b"From: bob@clinic.example.test\r\nSubject: referral\r\n\r\nPlease see her.\r\n"


def execute_program(number: int, name: str) -> Any:
    """Execute one of the guide's programs, and return what it defines with this name."""
    return execute_programs(find_code_blocks("sync")[number])[name]


async def find_password(_: str) -> str:
    return ALICE[1]


@pytest.mark.skipif(sys.platform == "win32", reason="signals are a matter of POSIX")
async def test_program_stops_at_sigterm_and_tells_of_failures(
    sandbox: Sandbox,
    suite: ds.DirectSuite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    async def find_wrong_password(_: str) -> str:
        return "wrong"

    def stop_after_a_round(event: ds.Event) -> None:
        if isinstance(event, RoundFinished):  # before the program's own listener is called
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)

    suite.add_listener(stop_after_a_round)
    await asyncio.wait_for(execute_program(1, "serve")(suite, [ALICE[0]], find_wrong_password), 20)
    assert "mailbox 1: The service rejected the mailbox's password" in capsys.readouterr().out


async def test_sink_of_ones_own_writes_with_the_store(sandbox: Sandbox, suite: ds.DirectSuite, tmp_path: Path) -> None:
    subjects = execute_program(2, "Subjects")
    await sandbox.deliver(ALICE[0], LETTER)
    for _ in range(2):
        async with SqliteStore(tmp_path / "sync.db", sink=subjects()) as store:
            await Synchronizer(suite, store, [ALICE[0]], find_password).once()
    with closing(sqlite3.connect(tmp_path / "sync.db")) as database:
        assert database.execute("SELECT * FROM subject").fetchall() == [(ALICE[0], 1, "referral")]


async def test_rows_and_calls_of_ones_own(sandbox: Sandbox, suite: ds.DirectSuite, tmp_path: Path) -> None:
    rows_and_calls = execute_program(3, "RowsAndCalls")
    called = list[Change]()

    def call(change: Change) -> None:
        called.append(change)
        if len(called) == 1:
            raise ValueError("the first time")

    for _ in range(2):
        await sandbox.deliver(ALICE[0], LETTER)
    for _ in range(2):
        async with SqliteStore(tmp_path / "sync.db", sink=rows_and_calls(call)) as store:
            await Synchronizer(suite, store, [ALICE[0]], find_password).once()
    async with SqliteStore(tmp_path / "sync.db", sink=SqliteSink()) as store:
        with pytest.raises(ds.ConfigurationError, match=r"\(rows and calls, not TableSink\)"):
            await Synchronizer(suite, store, [ALICE[0]], find_password).once()
    with closing(sqlite3.connect(tmp_path / "sync.db")) as database:
        rows = database.execute("SELECT uid, digest FROM message ORDER BY uid").fetchall()
    assert [uid for uid, _ in rows] == [1, 2]
    assert {(each.key.uid, each.digest) for each in called} == set(rows)
    assert len(called) == 3  # one is delivered twice, with the same key and digest


async def test_callable_gets_changes(
    sandbox: Sandbox, suite: ds.DirectSuite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deliver = execute_program(4, "deliver")
    await sandbox.deliver(ALICE[0], LETTER)
    async with SqliteStore(tmp_path / "sync.db") as store:
        await Synchronizer(suite, store, [ALICE[0]], find_password, deliver=deliver).once()
    assert capsys.readouterr().out.startswith("new 1 1 ")
    assert "Sequence[Change]" in pydoc.plain(pydoc.render_doc(Deliver))


@pytest.mark.parametrize("name", ["worker", "follow"])
async def test_mail_is_kept(
    sandbox: Sandbox,
    suite: ds.DirectSuite,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    looked = asyncio.Event()
    suite.add_listener(lambda event: looked.set() if isinstance(event, RoundFinished) else None)
    await sandbox.deliver(ALICE[0], LETTER)
    given = [ALICE[0]] if name == "worker" else ALICE[0]
    working = asyncio.create_task(execute_program(0, name)(suite, given, find_password))
    await looked.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    if name == "follow":
        assert capsys.readouterr().out == "new 1\n"
        return
    with closing(sqlite3.connect("sync.db")) as database:
        assert database.execute("SELECT subject, present FROM message").fetchall() == [("referral", 1)]


async def test_queries_find_mail_of_a_day_of_a_sender_and_attachments_of_a_type(tmp_path: Path) -> None:
    result = EmailMessage()
    result["From"], result["Subject"] = "lab@clinic.example.test", "result"
    result.set_content("See the attachment.")
    result.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="result.pdf")
    result.add_attachment("a note")
    async with Sandbox() as sandbox, ds.DirectSuite.from_env(sandbox.environment) as suite:
        await sandbox.add_account(*ALICE)
        sandbox.clock.freeze(datetime(2026, 3, 31, 23, 59, 59, tzinfo=UTC))
        await sandbox.deliver(ALICE[0], result.as_bytes())
        sandbox.clock.advance(timedelta(seconds=1))
        await sandbox.deliver(ALICE[0], LETTER)
        async with SqliteStore(tmp_path / "sync.db", sink=SqliteSink()) as store:
            await Synchronizer(suite, store, [ALICE[0]], find_password).once()
            with closing(sqlite3.connect(tmp_path / "sync.db")) as database:  # while the worker has the file open
                of_a_day, of_a_sender, of_a_type = find_code_blocks("sync", "sql")[0].split(";")[:3]
                day = database.execute(of_a_day, {"day": "2026-03-31"}).fetchall()
                sender = database.execute(of_a_sender, {"sender": "BOB@clinic.example.test"}).fetchall()
                attachments = database.execute(of_a_type, {"type": "application/pdf"}).fetchall()
                plans = [
                    str(database.execute(f"EXPLAIN QUERY PLAN {query}", {"day": "", "sender": ""}).fetchall())
                    for query in (of_a_day, of_a_sender)
                ]
    sent_at, received_at = "2026-03-31T23:59:59.000Z", "2026-04-01T00:00:00.000Z"
    assert day == [(ALICE[0], "INBOX", sent_at, "lab@clinic.example.test", "result")]
    assert sender == [(ALICE[0], "INBOX", received_at, "referral", "Please see her.\r\n")]
    assert attachments == [(sent_at, "lab@clinic.example.test", "result.pdf", b"%PDF")]
    assert ["USING INDEX message_received" in plans[0], "USING INDEX message_sender" in plans[1]] == [True, True]
    assert "TEMP B-TREE" not in "".join(plans)  # the indexes give the order
