"""A worker of a fleet: many processes that share out what is due, of which any may be killed.

    due ──► wake ─► queue of one worker ───────────────────────┬─► take(key), one at a time for each key
     ▲              or the queue of all ◄── that one is no more ┘    └─► tables of the fleet's own, which say when
     └─────────────────────────────────────────────────────────────────── the key is due again

The queues hold jobs of procrastinate, which say no more than that a key may be due. A job that is lost or doubled does
no harm: who may write is for the fleet's own tables to say, by a fencing number. So none is tried again, none is
scheduled for later, and one whose worker died is removed. A key is a number, because procrastinate logs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from directsuite.core.clock import Clock
from directsuite.durable.postgres import Connection, Connections, ensure_part, lock_schema, propagate_cancellation
from directsuite.errors import ConfigurationError

if TYPE_CHECKING:
    import procrastinate

_LOGGER = logging.getLogger("directsuite")

_SLACK = 5.0  # seconds in which a worker notes its end after the grace of what is under way
_VERSION = 1
_STALE_SECONDS = 24 * 3600.0  # seconds: fleets with other patience share the table, and `reap` finds the dead earlier
_SET_SEARCH_PATH = "SET LOCAL search_path TO directsuite"
_OPTIONS = "-c search_path=directsuite -c default_transaction_isolation=read\\ committed"
_CREATE_MIGRATION_TABLE = "CREATE TABLE directsuite.queue_migration (name text PRIMARY KEY)"
_RECORD_MIGRATION = "INSERT INTO directsuite.queue_migration VALUES (%s)"
_HAS_RECENT_WORKERS = """
    SELECT EXISTS (
        SELECT FROM directsuite.procrastinate_workers
        WHERE abs(extract(epoch FROM now() - last_heartbeat)) < %(stale)s
    )
"""
_CORRECT_HEARTBEATS = """
    UPDATE directsuite.procrastinate_workers SET last_heartbeat = clock_timestamp()
    WHERE last_heartbeat > clock_timestamp()
"""
"""A heartbeat in the future was written while the clock was ahead, and would keep a dead worker alive until then. It
counts as now: who lives writes another one soon."""
_LAST_UNTRACKED_MIGRATION = "03.04.00_50_post_add_retry_failed_job_procedure.sql"
"""The last migration of procrastinate 3.10, whose tables a database has in which no migrations are noted."""


class FleetEngine:
    """Has the work of keys done that are due, here or in other processes. Raises ConfigurationError."""

    def __init__(
        self,
        connections: Connections,
        kind: str,  # of the work, the same in all processes
        worker: str,  # this one, and no other
        *,
        # Keys that are due and that nobody else wakes a worker for, each with the worker to wake, or None for any one.
        list_due: Callable[[], Awaitable[Iterable[tuple[int, str | None]]]],
        # Does the work of a key, and passes over one that isn't due any more. It never raises.
        run_key: Callable[[int], Awaitable[None]],
        # Called every third of `patience`. As `due`, it may raise the connections' error.
        heartbeat: Callable[[], Awaitable[None]],
        # Called when no more work begins.
        on_stop: Callable[[], None] = lambda: None,
        concurrency: int,  # keys that this worker has under way at a time
        grace: float,  # seconds that work under way gets at the end
        worker_timeout: float,  # seconds after which a worker that isn't heard of counts as dead
        tick: float,  # seconds between two calls of `due`
        clock: Clock,
    ) -> None:
        self._error = connections.error
        self._queue = FleetQueue(
            connections, kind, worker, run_key, concurrency=concurrency, grace=grace, worker_timeout=worker_timeout
        )
        self._list_due = list_due
        self._heartbeat = heartbeat
        self._on_stop = on_stop
        self._worker_timeout = worker_timeout
        self._tick = tick
        self._clock = clock
        self._grace = grace
        self._to_wake: dict[int, str | None] = {}
        self._waking_lock = asyncio.Lock()  # held from the call of `due` until workers are woken for all of that
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Let `run` return when the work under way has ended, or its grace has."""
        self._stopping.set()

    def wake_later(self, key: int, worker: str | None) -> None:
        """Wake a worker for a key at the next tick, and again until PostgreSQL takes it."""
        self._to_wake[key] = worker

    async def wake(self, key: int, worker: str | None) -> None:
        """Wake a worker for a key at once."""
        await self._queue.wake(key, worker)

    async def run(self) -> None:
        """Work until stopped or cancelled: either way the work under way gets its grace. Runs once.

        Raises the connections' error where PostgreSQL is away at the beginning; afterwards it is waited for.
        """
        try:
            await self._queue.open()
            tasks = [
                asyncio.create_task(each)
                for each in (
                    self._work(),
                    self._repeat(self._wake, self._tick),
                    self._repeat(self._beat, self._worker_timeout / 3),
                    self._stopping.wait(),
                )
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._on_stop()
                await _finish(self._end(*tasks))
            for task in tasks:
                if not task.cancelled():
                    task.result()
        finally:
            await _finish(self._queue.aclose())

    async def _repeat(self, call: Callable[[], Awaitable[None]], pause: float) -> None:
        while True:
            try:
                await call()
            except self._error as error:
                _LOGGER.warning("fleet: %s", error)
            await self._clock.sleep(pause)

    async def _work(self) -> None:
        while not self._queue.is_stopping:
            try:
                await self._queue.work()
            except self._error as error:
                _LOGGER.warning("fleet: %s", error)
            if not self._queue.is_stopping:
                await self._clock.sleep(1.0)

    async def _end(
        self, working: asyncio.Task[object], waking: asyncio.Task[object], *others: asyncio.Task[object]
    ) -> None:
        self._queue.end()  # a cancellation may get lost within, or come out as an error
        await asyncio.gather(self._end_waking(waking), asyncio.wait([working], timeout=self._grace + _SLACK))
        await self._queue.aclose()  # what still waits for PostgreSQL, which is away, ends then
        await _cancel(working, *others)  # the worker was heard of while its work had its grace

    async def _wake(self) -> None:
        async with self._waking_lock:
            self._to_wake.update(await self._list_due())
            await self._queue.release_finished()
            while self._to_wake:
                key = next(iter(self._to_wake))
                worker = self._to_wake.pop(key)  # it may come anew meanwhile
                try:
                    await self._queue.wake(key, worker)
                except BaseException:
                    self._to_wake.setdefault(key, worker)
                    raise

    async def _end_waking(self, waking: asyncio.Task[object]) -> None:
        """Wake workers for all that was found due here: nobody else would before `patience` is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._grace), self._waking_lock:
                pass
        await _cancel(waking)

    async def _beat(self) -> None:
        await self._heartbeat()
        await self._queue.reap()


class FleetQueue:
    """Jobs of procrastinate that wake workers for keys. Methods raise the connections' error."""

    def __init__(
        self,
        connections: Connections,
        kind: str,
        worker: str,  # in a few letters: with the kind it is the name of a channel, which PostgreSQL bounds
        run_key: Callable[[int], Awaitable[None]],
        *,
        concurrency: int,
        grace: float,
        worker_timeout: float,
    ) -> None:
        self._connections = connections
        self._worker = worker
        self._run_key = run_key
        self._concurrency = concurrency
        self._grace = grace
        self._worker_timeout = worker_timeout
        self._name = f"directsuite.{kind}.turn"
        self._shared_queue = f"directsuite_{kind}"
        self._app = _make_app(connections)
        self._task: Any = self._app.task(name=self._name, queue=self._shared_queue, pass_context=True)(self._run_job)
        self._procrastinate_worker: Any = None  # procrastinate's Worker, which is typed in part
        self.is_stopping = False
        self._finished_jobs = set[int]()
        """Jobs whose work ended here since the last call of `free_ended`."""
        self._finished_jobs_before = set[int]()
        """Jobs whose work ended here before that call."""

    async def open(self) -> None:
        """Connect; make procrastinate's tables in our schema where there are none, or bring them up to its version.

        What its migrations take away that workers of the version before need, the first start takes away of which no
        other worker is known: none that works, and none that ended without a word within the day before. Upgrade
        release by release where some are to go on working meanwhile.
        """
        schema = self._app.schema_manager.get_schema().encode()
        shipped = _read_migrations(self._app)

        async def prepare(connection: Connection) -> None:
            """Procrastinate doesn't note which of its migrations a database has had."""
            error = self._connections.error
            is_new = await ensure_part(connection, "queue", _VERSION, [_SET_SEARCH_PATH, schema], error=error)
            if await ensure_part(connection, "queue: migrations", _VERSION, [_CREATE_MIGRATION_TABLE], error=error):
                for name in shipped:
                    if is_new or name <= _LAST_UNTRACKED_MIGRATION:
                        await connection.execute(_RECORD_MIGRATION, (name,))

        async def migrate(connection: Connection) -> bool:
            """Apply the next migration; False where there is none. Each is a transaction, as some of them need."""
            await lock_schema(connection)
            cursor = await connection.execute("SELECT name FROM directsuite.queue_migration")
            pending = sorted(shipped.keys() - {name for (name,) in await cursor.fetchall()})
            if pending and "_post_" in pending[-1]:
                cursor = await connection.execute(_HAS_RECENT_WORKERS, {"stale": _STALE_SECONDS})
                if await cursor.fetchone() == (True,):
                    while pending and "_post_" in pending[-1]:
                        pending.pop()
            if pending:
                await connection.execute(_SET_SEARCH_PATH)
                await connection.execute(shipped[pending[0]])
                await connection.execute(_RECORD_MIGRATION, (pending[0],))
            return bool(pending)

        await self._connections.run(prepare)
        while await self._connections.run(migrate):
            pass
        with self._translate_errors():
            await self._app.open_async()

    async def aclose(self) -> None:
        """Disconnect."""
        with contextlib.suppress(self._connections.error), self._translate_errors():
            await self._app.close_async()

    async def wake(self, key: int, worker: str | None) -> None:
        """Have the work of a key done by this worker, or by whichever is free."""
        from procrastinate.exceptions import AlreadyEnqueued

        lock = f"{self._shared_queue}:{key}"
        queue = self._shared_queue if worker is None else f"{self._shared_queue}_{worker}"
        with self._translate_errors(), contextlib.suppress(AlreadyEnqueued):
            await self._task.configure(queue=queue, lock=lock, queueing_lock=lock).defer_async(key=key)

    async def reap(self) -> None:
        """Free what workers had under way that died."""
        from procrastinate.jobs import Status

        await self._connections.fetch(_CORRECT_HEARTBEATS)
        with self._translate_errors():
            if self._procrastinate_worker is not None and self._procrastinate_worker.worker_id is not None:
                # Its own signs of life end with the first that fails, and when it is to end.
                await self._app.job_manager.update_heartbeat(self._procrastinate_worker.worker_id)
            stalled = await self._app.job_manager.get_stalled_jobs(
                task_name=self._name, seconds_since_heartbeat=self._worker_timeout
            )
        for job in stalled:
            # Not tried again: a second job may wait already, and what is due is woken for anyway.
            with contextlib.suppress(self._connections.error), self._translate_errors():
                await self._app.job_manager.finish_job(job, status=Status.FAILED, delete_job=True)

    async def release_finished(self) -> None:
        """Free keys whose work ended here before the last call, and whose jobs have not ended with it.

        Where procrastinate can't note the end of a job, it does not try again, and the worker that has it lives.
        """
        from procrastinate.jobs import Status

        if self._finished_jobs_before:
            with self._translate_errors():
                for job in await self._app.job_manager.list_jobs_async(task=self._name, status=Status.DOING.value):
                    if job.id in self._finished_jobs_before:
                        await self._app.job_manager.finish_job(job, status=Status.SUCCEEDED, delete_job=True)
        self._finished_jobs_before, self._finished_jobs = self._finished_jobs, set[int]()

    async def work(self) -> None:
        """Do what this worker is woken for until `end`. Ends where PostgreSQL is away for long, too."""
        from procrastinate.worker import Worker

        self._procrastinate_worker = Worker(
            self._app,
            queues=[self._shared_queue, f"{self._shared_queue}_{self._worker}"],
            name=self._worker,
            concurrency=self._concurrency,
            delete_jobs="always",
            update_heartbeat_interval=self._worker_timeout / 6,
            stalled_worker_timeout=_STALE_SECONDS,
            shutdown_graceful_timeout=self._grace,
            fetch_job_polling_interval=1.0,
            install_signal_handlers=False,
        )
        with self._translate_errors():
            await self._procrastinate_worker.run()

    def end(self) -> None:
        """Let `work` return when what is under way has ended, or its grace has."""
        self.is_stopping = True
        if self._procrastinate_worker is not None:
            self._procrastinate_worker.stop()

    @contextlib.contextmanager
    def _translate_errors(self) -> Generator[None]:
        """Errors of procrastinate and its connections become ours: their texts have values in them."""
        import psycopg
        from procrastinate.exceptions import ProcrastinateException

        try:
            with propagate_cancellation():
                yield
            return
        except (psycopg.Error, ProcrastinateException) as error:
            kind = type(error).__name__
        raise self._connections.error(f"The fleet's queue in PostgreSQL failed ({kind}): it is tried again.")

    async def _run_job(self, context: procrastinate.JobContext, key: int) -> None:
        try:
            await self._run_key(key)
        finally:
            if context.job.id is not None:
                self._finished_jobs.add(context.job.id)


async def _finish(ending: Coroutine[Any, Any, None]) -> None:
    """Wait for the end, though the caller be cancelled meanwhile, even twice: nothing that goes on is left behind."""
    task, cancelled = asyncio.create_task(ending), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


async def _cancel(*tasks: asyncio.Task[object]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def _make_app(connections: Connections) -> procrastinate.App:
    try:
        import procrastinate
    except ModuleNotFoundError as error:
        if error.name != "procrastinate":
            raise
    else:
        app = procrastinate.App(connector=_make_connector(connections))
        app.job_manager = _make_job_manager(app.connector)
        return app
    raise ConfigurationError("A fleet needs the package procrastinate: pip install 'directsuite[fleet]'")


def _read_migrations(app: procrastinate.App) -> dict[str, bytes]:
    """Procrastinate's own, by the names whose order is theirs."""
    folder = Path(app.schema_manager.get_migrations_path())
    return {each.name: each.read_bytes() for each in folder.glob("*.sql")}


def _make_job_manager(connector: Any) -> Any:
    """One for which an end that can't be noted is no error: nobody would hear of it, and the job is freed anyway.

    That is so where PostgreSQL is away, or the worker was paused for so long that others took it for dead.
    """
    from procrastinate.exceptions import ConnectorException
    from procrastinate.manager import JobManager

    class Manager(JobManager):
        async def finish_job(self, *args: Any, **kwargs: Any) -> None:
            with contextlib.suppress(ConnectorException):
                await super().finish_job(*args, **kwargs)

    return Manager(connector)


def _make_connector(connections: Connections) -> procrastinate.PsycopgConnector:
    import procrastinate
    from psycopg.conninfo import conninfo_to_dict

    conninfo = connections.conninfo.reveal()
    options = f"{conninfo_to_dict(conninfo).get('options') or ''} {_OPTIONS}"
    return procrastinate.PsycopgConnector(
        conninfo=conninfo, kwargs={"options": options.strip()}, min_size=1, max_size=4, timeout=connections.timeout
    )
