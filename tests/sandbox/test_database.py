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
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

SCHEMA = "CREATE TABLE IF NOT EXISTS fact(name TEXT PRIMARY KEY);"


def add(connection: sqlite3.Connection, name: str) -> str:
    connection.execute("INSERT INTO fact(name) VALUES(?)", (name,))
    return name


def names(connection: sqlite3.Connection) -> list[str]:
    return [row["name"] for row in connection.execute("SELECT name FROM fact ORDER BY name")]


add_b = partial(add, name="b")


def divide(_: sqlite3.Connection) -> str:
    return str(1 // 0)


@pytest.fixture(params=["file", "memory"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SandboxDatabase]:
    opened = SandboxDatabase(tmp_path if request.param == "file" else None, [SCHEMA])
    yield opened
    opened.close()


@pytest.fixture
def file_database(tmp_path: Path) -> Iterator[SandboxDatabase]:
    opened = SandboxDatabase(tmp_path, [SCHEMA])
    yield opened
    opened.close()


class Gate:
    """Stops a worker's thread before a statement until `open` is set."""

    def __init__(self, connection: sqlite3.Connection, statement: str) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self._statement = statement
        connection.set_trace_callback(self._trace)

    def _trace(self, statement: str) -> None:
        if statement == self._statement:
            self.reached.set()
            self.open.wait(20)


@pytest.fixture
async def commit(database: SandboxDatabase) -> AsyncIterator[Gate]:
    """The writer, stopped before its next COMMIT."""
    gate = Gate(database._writer.connection, "COMMIT")
    yield gate
    gate.open.set()


async def test_a_write_ends_after_its_commit(database: SandboxDatabase, commit: Gate) -> None:
    future = database._writer.submit(lambda connection: add(connection, "a"))
    refused = database._writer.submit(lambda connection: connection.execute("no SQL"))
    # The loop processes results from before COMMIT before it receives `reached`.
    assert await asyncio.to_thread(commit.reached.wait, 20)
    assert not future.done()
    assert not refused.done()
    commit.open.set()
    assert await future == "a"
    with pytest.raises(sqlite3.OperationalError):
        await refused


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


@pytest.mark.exhaustive
@pytest.mark.parametrize("error", [MemoryError(), UnexpectedError(), sqlite3.OperationalError()], ids=repr)
@pytest.mark.parametrize("failing", [{n} for n in range(11)] + [{n, n + 1} for n in range(11)], ids=str)
async def test_any_failure_is_reported_and_recovered(
    failing: set[int], error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Failing))
    database = SandboxDatabase(None, [SCHEMA])
    gate = Gate(database._writer.connection, "BEGIN IMMEDIATE")

    def hold(connection: sqlite3.Connection) -> None:
        assert isinstance(connection, Failing)
        connection.error = error
        connection.failing = frozenset(failing)  # its own RELEASE is the first that can, COMMIT the last

    first = database._writer.submit(names)
    assert await asyncio.to_thread(gate.reached.wait, 20)  # what comes now shares one transaction
    group = [database._writer.submit(work) for work in (hold, partial(add, name="a"), divide, add_b)]
    gate.open.set()
    async with asyncio.timeout(20):
        await first
        outcomes = await asyncio.gather(*group, return_exceptions=True)
        assert await database.read(names) == [each for each in outcomes if isinstance(each, str)]
        assert await database.write(partial(add, name="c")) == "c"
    database.close()


async def test_a_closed_database_rejects_work_after_earlier_writes(tmp_path: Path) -> None:
    database = SandboxDatabase(tmp_path, [SCHEMA])
    before = database._writer.submit(lambda connection: add(connection, "a"))
    database.close()
    assert await before == "a"
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


async def test_an_ended_thread_fails_waiting_and_later_calls(
    database: SandboxDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(database._writer.connection, "BEGIN IMMEDIATE")
    first = database._writer.submit(names)
    assert await asyncio.to_thread(gate.reached.wait, 20)

    def die(_: object) -> None:
        raise UnexpectedError

    monkeypatch.setattr(database._writer, "_execute", die)
    group = [database._writer.submit(partial(add, name=str(number))) for number in range(600)]
    gate.open.set()
    async with asyncio.timeout(20):
        assert await first == []
        outcomes = await asyncio.gather(*group, return_exceptions=True)
        assert {str(each) for each in outcomes} == {
            "the sandbox's database failed (UnexpectedError): restart the sandbox"
        }
        with pytest.raises(RuntimeError, match="restart the sandbox"):
            await database.write(names)


async def test_stop_iteration_of_the_work_reaches_the_caller(database: SandboxDatabase) -> None:
    def work(_: sqlite3.Connection) -> None:
        raise StopIteration

    async with asyncio.timeout(20):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await database.read(work)
