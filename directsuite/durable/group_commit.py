"""One thread that owns an SQLite connection, and commits together what was asked for while it was busy.

    run ─► queue ─► BEGIN ─► SAVEPOINT, work, RELEASE ─► … ─► COMMIT ─► callers get what their works gave
                                └─ raises: ROLLBACK TO, and only its caller gets the exception

A work that is alone in its transaction needs no SAVEPOINT: the transaction is undone with it.

A commit costs a flush of the disk, whoever waits for it: two hundred callers share one. Reads go the same way on a
connection of their own, where BEGIN locks nothing: each group of them sees what was committed before it began.
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
"""Opens a connection that commits by itself (isolation_level=None), and closes it, in the thread that uses it."""

_MAX_TRANSACTION_JOBS = 500  # works of a transaction, so that the first of them doesn't wait for ever

_HINT_NO_TRANSACTION_CONTROL = (
    "The store begins and commits: within its transaction use execute and executemany, and no executescript."
)


@attrs.define(eq=False)
class _Job:
    """What one caller waits for."""

    work: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Note why there is no result, unless a reason is known."""
        if self.error is None:
            self.error = error

    def resolve(self) -> None:
        """Tell the caller, who may have gone. In the thread of its loop."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class GroupCommitter:
    """Transactions on one connection, in one thread, for callers in one event loop. It is opened once.

    begin: the statement that begins one. explain: what a caller gets for a failure of the whole transaction; asked
    anew for each.
    """

    def __init__(self, connect: Connect, *, begin: str, explain: Callable[[BaseException], Exception]) -> None:
        self._connect = connect
        self._begin = begin
        self._explain = explain
        self._queue = queue.SimpleQueue[_Job | None]()
        self._waiting = set[_Job]()
        self._ended: asyncio.Future[None] | None = None
        self._process = 0
        self._is_open = False
        self._is_at_work = False

    async def open(self) -> None:
        """Start the thread and connect. Raises what connecting raised. Whether it does or not: aclose is due."""
        loop = asyncio.get_running_loop()
        opened, ended = (_Job(lambda _: None, loop.create_future()) for _ in range(2))
        ended.future.add_done_callback(self._fail_waiting)
        # A daemon: a program that forgets to close ends all the same, and SQLite survives that at any point.
        threading.Thread(target=self._commit_all, args=(opened, ended), name="directsuite-store", daemon=True).start()
        self._ended = ended.future
        self._process = os.getpid()
        await opened.future
        self._is_open = True

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What a work gives, once it is committed; what it raises, once it is undone. Raises ClosedError.

        A work that has begun when its caller is cancelled may be committed. Raises ConfigurationError in a forked
        process, which does not have the thread.
        """
        if not self._is_open or self._ended is None or self._ended.done():
            raise self._make_closed_error()
        if self._process != os.getpid():
            raise ConfigurationError("The file was opened before a fork: open it in the process that uses it.")
        job = _Job(work, asyncio.get_running_loop().create_future())
        self._waiting.add(job)
        self._queue.put(job)
        try:
            result: T = await job.future
        finally:
            self._waiting.discard(job)
        return result

    async def aclose(self) -> None:
        """Finish what is queued, disconnect, and end the thread. Raises what disconnecting or an early end raised.

        Do nothing in a forked process: the file and the thread belong to its parent.
        """
        self._is_open = False
        if self._ended is not None and self._process == os.getpid():
            self._queue.put(None)
            await asyncio.wait([self._ended])
            if self._ended.exception() is not None:
                raise self._make_closed_error()

    def _fail_waiting(self, _: asyncio.Future[None]) -> None:
        """Fail what the thread has left undone. In the thread of the loop, as `run`: nothing comes in between."""
        for job in self._waiting:
            job.fail(self._make_closed_error())
            job.resolve()

    def _make_closed_error(self) -> Exception:
        error = None if self._ended is None or not self._ended.done() else self._ended.exception()
        if error is not None:
            return self._explain(error)
        return ClosedError("The file is closed, or not open yet: use it within `async with`.")

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
        except BaseException as error:  # noqa: BLE001  nobody looks after this thread: its callers get it
            failing.fail(error)
        _resolve_jobs([opened, ended])

    def _collect_jobs(self) -> list[_Job]:
        """All that is queued, or so much of it as one transaction takes; empty when nothing more will come."""
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
        """One transaction of those that wait. Some remain where one of them has brought SQLite to undo it all.

        Whatever is raised, such as the MemoryError that SQLite's lack of memory comes as, fails those that are in it.
        """
        begun = list[_Job]()
        try:
            if connection.in_transaction:
                connection.rollback()  # the last one could not be undone
            connection.execute(self._begin)
            is_alone = len(waiting) == 1
            while waiting:
                job = waiting.popleft()
                if not job.future.cancelled():
                    begun.append(job)
                    self._attempt(connection, job, is_alone=is_alone)
            if not connection.in_transaction:
                raise sqlite3.OperationalError("SQLite has undone the transaction, and a work concealed that")
            connection.commit()
        except BaseException as error:  # noqa: BLE001  its callers get it
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
        """Do one work. If it raises, undo it: to its savepoint, or, where it is alone, by raising, which undoes all."""
        if not is_alone:
            connection.execute("SAVEPOINT directsuite")
        self._is_at_work = True
        try:
            job.result = job.work(connection)
        except BaseException as error:
            self._is_at_work = False
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH:
                error.add_note(_HINT_NO_TRANSACTION_CONTROL)
            job.fail(RuntimeError("The work raised StopIteration.") if isinstance(error, StopIteration) else error)
            if is_alone or not connection.in_transaction:
                raise  # on a full disk, for one, SQLite may undo the whole transaction by itself
            connection.execute("ROLLBACK TO directsuite")
        self._is_at_work = False
        if not is_alone:
            connection.execute("RELEASE directsuite")

    def _authorize(self, action: int, *_: str | None) -> int:
        """A work must not end the transaction that it shares with others."""
        forbidden = self._is_at_work and action == sqlite3.SQLITE_TRANSACTION
        return sqlite3.SQLITE_DENY if forbidden else sqlite3.SQLITE_OK


def _resolve_jobs(jobs: Sequence[_Job]) -> None:
    def resolve_all() -> None:
        """All at once: each call from another thread wakes the loop."""
        for job in jobs:
            job.resolve()

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        jobs[0].future.get_loop().call_soon_threadsafe(resolve_all)
