"""Group commit: shared transactions, separate rollbacks, and no endless waits."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from directsuite.core.files import DedicatedThread
from directsuite.durable.sqlite import _HINT_NO_TRANSACTION_CONTROL, GroupCommitter
from directsuite.errors import ClosedError
from tests.statements import query_file


class ExplainedError(Exception):
    pass


class Held:
    """A job that inserts a number, if it has one, and waits."""

    def __init__(self, number: int | None = None) -> None:
        self.number = number
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def __call__(self, connection: sqlite3.Connection) -> None:
        if self.number is not None:
            insert(self.number)(connection)
        self.begun.set()
        assert self.let_go.wait(10)

    async def start(self, writer: GroupCommitter) -> asyncio.Task[None]:
        task = asyncio.create_task(writer.run(self))
        await asyncio.to_thread(self.begun.wait, 10)
        return task


def explained(error: BaseException) -> Exception:
    return ExplainedError(str(error))


@contextlib.asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncGenerator[GroupCommitter]:
    writer = transactions(path, **options)
    await writer.open()
    yield writer
    await writer.aclose()


def transactions(
    path: Path,
    begin: str = "BEGIN IMMEDIATE",
    *,
    factory: type[sqlite3.Connection] = sqlite3.Connection,
    explain: Callable[[BaseException], Exception] = explained,
) -> GroupCommitter:
    @contextlib.contextmanager
    def connect() -> Generator[sqlite3.Connection]:
        connection = sqlite3.connect(path, isolation_level=None, timeout=0, factory=factory)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("CREATE TABLE IF NOT EXISTS number (n INTEGER PRIMARY KEY)")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS child (n INTEGER REFERENCES number DEFERRABLE INITIALLY DEFERRED)"
            )
            yield connection
        finally:
            connection.close()

    kind: Any = SimpleNamespace(noun="store", explain=explain)
    return GroupCommitter(kind, connect, begin)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "numbers.db"


@pytest.fixture
async def writer(path: Path) -> AsyncGenerator[GroupCommitter]:
    async with opened(path) as writer:
        yield writer


def insert(number: int) -> Callable[[sqlite3.Connection], int]:
    def work(connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO number VALUES (?)", (number,))
        return number

    return work


def kept(path: Path) -> list[int]:
    return [number for (number,) in query_file(path, "SELECT n FROM number ORDER BY n")]


@contextlib.asynccontextmanager
async def queued(
    writer: GroupCommitter, *works: Callable[[sqlite3.Connection], Any]
) -> AsyncGenerator[list[asyncio.Task[Any]]]:
    held = Held()
    holding = await held.start(writer)
    tasks = [asyncio.create_task(writer.run(work)) for work in works]
    await asyncio.sleep(0)
    try:
        yield tasks
    finally:
        held.let_go.set()
        _, pending = await asyncio.wait([holding, *tasks], timeout=30)
        assert not pending


@pytest.mark.parametrize(("jobs", "transactions"), [(200, 1), (1001, 3)])  # at most 500 jobs in each
async def test_waiting_jobs_share_transactions(
    jobs: int, transactions: int, writer: GroupCommitter, path: Path
) -> None:
    commits = list[str]()
    await writer.run(lambda connection: connection.set_trace_callback(commits.append))
    async with queued(writer, *(insert(number) for number in range(jobs))) as tasks:
        pass
    assert [task.result() for task in tasks] == list(range(jobs))
    assert len(kept(path)) == jobs
    assert commits.count("COMMIT") == 2 + transactions  # 2: setting the trace, and the blocking job


async def test_jobs_of_ready_tasks_share_a_transaction(writer: GroupCommitter, monkeypatch: pytest.MonkeyPatch) -> None:
    thread, sizes = writer._thread, list[int]()

    def submit(*args: Any) -> object:
        sizes.append(len(writer._queue))
        return DedicatedThread.submit(thread, *args)

    async def insert_later() -> None:
        await resolved
        await writer.run(insert(3))

    monkeypatch.setattr(thread, "submit", submit)
    loop = asyncio.get_running_loop()
    resolved = loop.create_future()
    jobs = asyncio.gather(insert_later(), *(writer.run(insert(number)) for number in range(3)))
    loop.call_soon(resolved.set_result, None)
    await jobs
    assert sizes == [4]


async def test_closing_finishes_jobs_that_were_added_just_before(writer: GroupCommitter, path: Path) -> None:
    job = asyncio.ensure_future(writer.run(insert(1)))
    closing = asyncio.ensure_future(writer.aclose())  # its first step runs before the job's transaction is scheduled
    assert await job == 1
    await closing
    assert kept(path) == [1]


async def test_a_job_that_raises_is_rolled_back_alone(writer: GroupCommitter, path: Path) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        insert(2)(connection)
        raise ValueError("mine")

    async with queued(writer, insert(1), fail, insert(1), insert(3)) as tasks:
        pass
    assert kept(path) == [1, 3]
    assert [type(task.exception()) for task in tasks] == [type(None), ValueError, sqlite3.IntegrityError, type(None)]


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_any_exception_leaves_thread_running_and_waiter_released(
    writer: GroupCommitter, path: Path, error: BaseException
) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        insert(1)(connection)
        raise error

    with pytest.raises(RuntimeError if isinstance(error, StopIteration) else type(error)):
        await writer.run(fail)
    await writer.run(insert(2))
    assert kept(path) == [2]


async def test_lost_transaction_is_reported_to_all_of_its_work(writer: GroupCommitter, path: Path) -> None:
    await writer.run(insert(1))

    def lose(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT OR ROLLBACK INTO number VALUES (1)")

    async with queued(writer, insert(2), lose, insert(3)) as tasks:
        pass
    kinds = [type(task.exception()) for task in tasks]
    assert kinds == [ExplainedError, sqlite3.IntegrityError, type(None)]
    assert str(tasks[0].exception()) == str(tasks[1].exception())
    assert kept(path) == [1, 3]


_ENDS: dict[str, Callable[[sqlite3.Connection], object]] = {
    "commit": sqlite3.Connection.commit,
    "rollback": sqlite3.Connection.rollback,
    "statement": lambda connection: connection.execute("COMMIT"),
    "script": lambda connection: connection.executescript("CREATE TABLE other (n)"),
    "with": lambda connection: connection.__enter__().__exit__(None, None, None),
}


@pytest.mark.parametrize("end", _ENDS.values(), ids=_ENDS.keys())
async def test_a_job_cannot_end_the_shared_transaction(
    writer: GroupCommitter, path: Path, end: Callable[[sqlite3.Connection], object]
) -> None:
    def work(connection: sqlite3.Connection) -> None:
        insert(1)(connection)
        end(connection)

    async with queued(writer, insert(2), work, insert(3)) as tasks:
        pass
    error = tasks[1].exception()
    assert isinstance(error, sqlite3.DatabaseError)
    assert error.__notes__ == [_HINT_NO_TRANSACTION_CONTROL]
    with pytest.raises(sqlite3.DatabaseError):
        await writer.run(work)  # alone
    assert kept(path) == [2, 3]


async def test_a_job_cancelled_in_the_queue_does_not_start(writer: GroupCommitter, path: Path) -> None:
    async with queued(writer, insert(1), insert(2), insert(3)) as tasks:
        tasks[1].cancel()
        await asyncio.sleep(0)
    assert tasks[1].cancelled()
    assert kept(path) == [1, 3]


async def test_a_job_cancelled_while_it_runs_is_committed(writer: GroupCommitter, path: Path) -> None:
    held = Held(1)
    task = await held.start(writer)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    held.let_go.set()
    await writer.run(insert(2))
    assert kept(path) == [1, 2]


async def test_closing_finishes_queued_jobs(writer: GroupCommitter, path: Path) -> None:
    async with queued(writer, insert(1), insert(2)) as tasks:
        closing = asyncio.create_task(writer.aclose())
        await asyncio.sleep(0)
        with pytest.raises(ClosedError):
            await writer.run(insert(3))
    await closing
    assert [task.result() for task in tasks] == [1, 2]
    assert kept(path) == [1, 2]
    with pytest.raises(ClosedError):
        await writer.run(insert(4))


async def test_opening_that_is_cancelled_leaves_no_thread(path: Path) -> None:
    writer = transactions(path)
    opening = asyncio.create_task(writer.open())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await writer.aclose()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
        other.execute("BEGIN EXCLUSIVE")  # no other process has it open


def test_a_loop_may_end_before_its_jobs(path: Path) -> None:
    held = Held()

    async def leave() -> None:
        writer = transactions(path)
        await writer.open()
        (await held.start(writer)).cancel()
        asyncio.create_task(writer.aclose())  # noqa: RUF006  the loop cancels it

    before = set(threading.enumerate())
    asyncio.run(leave())
    held.let_go.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    gc.collect()
    assert set(threading.enumerate()) <= before


async def test_reads_see_committed_rows_during_a_write(writer: GroupCommitter, path: Path) -> None:
    def count(connection: sqlite3.Connection) -> int:
        (found,) = connection.execute("SELECT count(*) FROM number").fetchone()
        return int(found)

    await writer.run(insert(1))
    held = Held(2)
    async with opened(path, begin="BEGIN") as reader:
        writing = await held.start(writer)
        assert await reader.run(count) == 1
        held.let_go.set()
        await writing
        assert await reader.run(count) == 2


class Unexplained(BaseException):
    pass


class Failing(sqlite3.Connection):
    failing = frozenset[int]()
    error: BaseException = MemoryError()

    def _count(self) -> None:
        self.failing = frozenset(number - 1 for number in self.failing)
        if -1 in self.failing:
            raise self.error

    def execute(self, *of: Any) -> sqlite3.Cursor:
        self._count()
        return super().execute(*of)

    def commit(self) -> None:
        self._count()
        super().commit()

    def rollback(self) -> None:
        self._count()
        super().rollback()


@pytest.mark.exhaustive(limit=9)
@pytest.mark.parametrize("error", [MemoryError(), Unexplained(), sqlite3.OperationalError()], ids=repr)
@pytest.mark.parametrize("failing", [{n} for n in range(12)] + [{n, n + 1} for n in range(12)], ids=str)
async def test_any_failure_is_reported_and_recovered(path: Path, failing: set[int], error: BaseException) -> None:
    def hold(connection: sqlite3.Connection) -> None:
        assert isinstance(connection, Failing)
        connection.error = error
        connection.failing = frozenset(failing)  # this work's RELEASE is the first that can, COMMIT the last

    def refuse(connection: sqlite3.Connection) -> None:
        insert(2)(connection)
        raise ValueError("mine")

    async with opened(path, factory=Failing) as writer:
        await writer.run(lambda _: None)
        async with queued(writer, hold, insert(1), refuse, insert(3)) as tasks:
            pass
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert kept(path) == [each for each in outcomes if isinstance(each, int)]
        assert await writer.run(insert(4)) == 4
        assert kept(path)[-1] == 4


async def test_unexplained_failure_of_a_commit_reaches_its_callers_only(path: Path) -> None:
    raised = list[BaseException]()

    def explain(error: BaseException) -> Exception:
        raised.append(error)
        raise Unexplained

    def break_off(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO child VALUES (-1)")  # checked by COMMIT

    async with opened(path, explain=explain) as writer:
        async with queued(writer, break_off, *(insert(number) for number in range(600))) as tasks:
            pass
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in outcomes] == [Unexplained] * 500 + [int] * 101
        assert len(raised) == 1
        assert await writer.run(insert(1)) == 1
        assert kept(path) == [1, *range(499, 600)]
