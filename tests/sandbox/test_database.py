"""The database: a completed write is committed, failures are separate, and a closed database rejects work."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import stat
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from directsuite.sandbox.database import SandboxDatabase
from directsuite.sandbox.server import Sandbox
from directsuite.sandbox.signing.keys import FileKeyStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMA = "CREATE TABLE IF NOT EXISTS fact(name TEXT PRIMARY KEY);"


def add(connection: sqlite3.Connection, name: str) -> str:
    connection.execute("INSERT INTO fact(name) VALUES(?)", (name,))
    return name


def names(connection: sqlite3.Connection) -> list[str]:
    return [row["name"] for row in connection.execute("SELECT name FROM fact ORDER BY name")]


def divide(_: sqlite3.Connection) -> str:
    return str(1 // 0)


class UnexpectedError(BaseException):
    pass


class Failing(sqlite3.Connection):
    failing = frozenset[int]()
    error: BaseException = MemoryError()

    def execute(self, *of: Any) -> sqlite3.Cursor:
        self.failing = frozenset(number - 1 for number in self.failing)
        if -1 in self.failing:
            raise self.error
        return super().execute(*of)


@pytest.mark.parametrize("error", [MemoryError(), UnexpectedError(), sqlite3.OperationalError()], ids=repr)
@pytest.mark.parametrize("failing", [{0}, {1}, {2}, {0, 1}, {1, 2}, {2, 3}, {2, 3, 4}], ids=str)
async def test_any_failure_is_reported_and_recovered(
    failing: set[int], error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Failing))
    database = SandboxDatabase(None, [SCHEMA])
    connection = database._writer.connection
    assert isinstance(connection, Failing)
    connection.error, connection.failing = error, frozenset(failing)  # BEGIN, INSERT, COMMIT, ROLLBACK
    works: list[Callable[[sqlite3.Connection], str]] = [partial(add, name="a"), divide, partial(add, name="b")]
    outcomes = await asyncio.gather(*(database.write(work) for work in works), return_exceptions=True)
    assert await database.read(names) == [each for each in outcomes if isinstance(each, str)]
    assert await database.write(partial(add, name="c")) == "c"
    assert error in outcomes
    database.close()


async def test_a_closed_database_rejects_work_after_earlier_writes(tmp_path: Path) -> None:
    database = SandboxDatabase(tmp_path, [SCHEMA])
    before = database._writer.submit(lambda connection: add(connection, "a"))
    database.close()
    assert before.result() == "a"
    for call in (database.read, database.write):
        with pytest.raises(RuntimeError, match="the sandbox is closed"):
            await asyncio.wait_for(call(names), 20)
    with pytest.raises(RuntimeError, match="the sandbox is closed"):
        database.post(names)
    again = SandboxDatabase(tmp_path, [SCHEMA])
    assert await again.read(names) == ["a"]
    again.close()


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_damaged_file_is_an_error_that_leaves_nothing_open(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "sandbox.sqlite3").write_bytes(content)
    before = threading.active_count()
    with pytest.raises(sqlite3.DatabaseError):
        SandboxDatabase(tmp_path, [SCHEMA])
    assert threading.active_count() == before


@pytest.mark.skipif(sys.platform == "win32", reason="modes are a matter of POSIX")
def test_only_the_owner_can_read_the_state(tmp_path: Path) -> None:
    def modes() -> set[int]:
        return {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()}

    folders = [tmp_path / "state", tmp_path / "restored"]
    for folder in folders:
        database = SandboxDatabase(folder, [SCHEMA])
        keys = FileKeyStore(folder)
        keys.authority_pem()
        assert modes() == {0o600}
        database._writer.connection.execute("PRAGMA wal_checkpoint")
        for each in folder.iterdir():
            each.chmod(0o644)
        if folder != folders[-1]:
            shutil.copytree(folder, folders[-1])
        database.close()
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


async def test_a_closed_sandbox_rejects_calls() -> None:
    sandbox = Sandbox()

    async def refused() -> None:
        calls = (
            sandbox.ledger(),
            sandbox.add_account("alice@direct.example.test", "secret"),
            sandbox.deliver("alice@direct.example.test", b"Subject: x\r\n\r\n"),
            sandbox.reset(),
            sandbox.issue_token(),
        )
        for call in calls:
            with pytest.raises(RuntimeError, match="the sandbox is closed"):
                await asyncio.wait_for(call, 20)
        with pytest.raises(RuntimeError, match="the sandbox is closed"):
            sandbox.authority_pem()

    await refused()
    async with sandbox:
        assert await sandbox.ledger() == []
    await refused()


async def test_stop_iteration_of_the_work_reaches_the_caller() -> None:
    def work(_: sqlite3.Connection) -> None:
        raise StopIteration

    database = SandboxDatabase(None, [SCHEMA])
    async with asyncio.timeout(20):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await database.read(work)
    database.close()
