"""A thread that owns an SQLite connection, and commits the jobs of concurrent callers in one transaction.

    run ─► queue ─► BEGIN ─► SAVEPOINT, job, RELEASE ─► … ─► COMMIT ─► callers get their results
                                └─ raises: ROLLBACK TO, and only its caller gets the exception

A commit flushes the disk, so one commit for many jobs is faster. Reads use a second committer, whose BEGIN locks
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import attrs

from directsuite.errors import ClosedError, ConfigurationError

T = TypeVar("T")

Connect = Callable[[], AbstractContextManager[sqlite3.Connection]]
"""Opens and closes a connection with isolation_level=None, in the thread that uses it."""

_MAX_TRANSACTION_JOBS = 500  # limits the wait of the first job

_HINT_NO_TRANSACTION_CONTROL = (
    "The store begins and commits the transaction. Use execute and executemany in it, and not executescript."
)


@attrs.define(eq=False)
class _Job:
    work: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error

    def resolve(self) -> None:
        # Called in the thread of the caller's event loop.
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class GroupCommitter:
    """Runs transactions on one connection in one thread, for callers in one event loop. Can be opened once.

    noun: the name of the file in error messages, for example "store".
    begin: the statement that begins a transaction.
    explain: returns the exception for each caller if the complete transaction fails.
    """

    def __init__(
        self, connect: Connect, *, noun: str, begin: str, explain: Callable[[BaseException], Exception]
    ) -> None:
        self._connect = connect
        self._noun = noun
        self._begin = begin
        self._explain = explain
        self._queue = queue.SimpleQueue[_Job | None]()
        self._waiting = set[_Job]()
        self._ended: asyncio.Future[None] | None = None
        self._process = 0
        self._is_open = False
        self._is_at_work = False

    async def open(self) -> None:
        """Start the thread and connect. Raises exceptions of `connect`. Call `aclose` even if this raises."""
        loop = asyncio.get_running_loop()
        opened, ended = (_Job(lambda _: None, loop.create_future()) for _ in range(2))
        ended.future.add_done_callback(self._fail_waiting)
        # A daemon thread, so that a program can exit without `aclose`. SQLite survives that at any point.
        threading.Thread(target=self._commit_all, args=(opened, ended), name="directsuite-store", daemon=True).start()
        self._ended = ended.future
        self._process = os.getpid()
        await opened.future
        self._is_open = True

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a transaction, and return its result after the commit. Roll it back if it raises.

        If the caller is cancelled, the work may be committed anyway. Raises ClosedError if not open, and
        ConfigurationError in a forked process.
        """
        if not self._is_open or self._ended is None or self._ended.done():
            raise self._make_closed_error()
        if self._process != os.getpid():
            raise ConfigurationError(f"The {self._noun} was opened before a fork. Open it in the process that uses it.")
        job = _Job(work, asyncio.get_running_loop().create_future())
        self._waiting.add(job)
        self._queue.put(job)
        try:
            result: T = await job.future
        finally:
            self._waiting.discard(job)
        return result

    async def aclose(self) -> None:
        """Finish the queued jobs, disconnect, and end the thread. Do nothing in a forked process.

        Raises the error that ended the thread, if any.
        """
        self._is_open = False
        if self._ended is not None and self._process == os.getpid():
            self._queue.put(None)
            await asyncio.wait([self._ended])
            if self._ended.exception() is not None:
                raise self._make_closed_error()

    def _fail_waiting(self, _: asyncio.Future[None]) -> None:
        for job in self._waiting:
            job.fail(self._make_closed_error())
            job.resolve()

    def _make_closed_error(self) -> Exception:
        error = None if self._ended is None or not self._ended.done() else self._ended.exception()
        if error is not None:
            return self._explain(error)
        return ClosedError(f"The {self._noun} is closed, or not open yet. Use it within `async with`.")

    def _commit_all(self, opened: _Job, ended: _Job) -> None:
        failing = opened
        try:
            with self._connect() as connection:
                connection.set_authorizer(self._authorize)
                failing = ended
                _resolve_jobs([opened])
                while jobs := self._collect_jobs():
                    waiting = deque(jobs)
                    while waiting:
                        self._transact(connection, waiting)
                    _resolve_jobs(jobs)
        except BaseException as error:  # noqa: BLE001  the callers get it
            failing.fail(error)
        _resolve_jobs([opened, ended])

    def _collect_jobs(self) -> list[_Job]:
        """Wait for the next transaction's jobs. Return an empty list at the end."""
        jobs = list[_Job]()
        job = self._queue.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == _MAX_TRANSACTION_JOBS:
                return jobs
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return jobs
        if jobs:
            self._queue.put(None)
        return jobs

    def _transact(self, connection: sqlite3.Connection, waiting: deque[_Job]) -> None:
        """Run the waiting jobs. Some remain if SQLite rolls the transaction back before they start."""
        begun = list[_Job]()
        try:
            if connection.in_transaction:
                connection.rollback()  # the rollback of the previous transaction failed
            connection.execute(self._begin)
            is_alone = len(waiting) == 1
            while waiting:
                job = waiting.popleft()
                if not job.future.cancelled():
                    begun.append(job)
                    self._attempt(connection, job, is_alone=is_alone)
            if not connection.in_transaction:
                raise sqlite3.OperationalError(
                    "SQLite has rolled back the transaction, but a function suppressed the error. Let it raise."
                )
            connection.commit()
        except BaseException as error:  # noqa: BLE001  the callers get it
            self._is_at_work = False
            if not begun:
                begun.extend(waiting)
                waiting.clear()
            for job in begun:
                job.fail(self._explain(error))
            with contextlib.suppress(BaseException):
                if connection.in_transaction:
                    connection.rollback()

    def _attempt(self, connection: sqlite3.Connection, job: _Job, *, is_alone: bool) -> None:
        """Run one job. If it fails, roll back to its savepoint, or raise if that is not possible."""
        if not is_alone:
            connection.execute("SAVEPOINT directsuite")
        self._is_at_work = True
        try:
            job.result = job.work(connection)
        except BaseException as error:
            self._is_at_work = False
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH:
                error.add_note(_HINT_NO_TRANSACTION_CONTROL)
            job.fail(
                RuntimeError("The function passed to the transaction raised StopIteration. Raise another exception.")
                if isinstance(error, StopIteration)
                else error
            )
            if is_alone or not connection.in_transaction:
                raise  # SQLite may roll back the transaction itself, for example on a full disk
            connection.execute("ROLLBACK TO directsuite")
        self._is_at_work = False
        if not is_alone:
            connection.execute("RELEASE directsuite")

    def _authorize(self, action: int, *_: str | None) -> int:
        # A job must not end the transaction that it shares with others.
        forbidden = self._is_at_work and action == sqlite3.SQLITE_TRANSACTION
        return sqlite3.SQLITE_DENY if forbidden else sqlite3.SQLITE_OK


def _resolve_jobs(jobs: Sequence[_Job]) -> None:
    def resolve_all() -> None:
        for job in jobs:
            job.resolve()

    with contextlib.suppress(RuntimeError):  # the event loop is closed
        jobs[0].future.get_loop().call_soon_threadsafe(resolve_all)
