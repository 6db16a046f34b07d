"""The engine of a worker in a fleet: processes that share the work of due keys, any of which may be killed.

    list_due ──► wake ─► queue of one worker ─────────────┬─► run_key(key), not concurrently for one key
     ▲                   or the shared queue ◄── it died ─┘       └─► the fleet's tables: when the key
     └─────────────────────────────────────────────────────────────── is due again

A key is a number that identifies recurring work, for example of a mailbox. Procrastinate logs it.

The queues contain procrastinate's jobs, which only say that a key may be due. The fleet's tables decide which worker
may write, so a lost or duplicate job does no harm.
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

_SLACK = 5.0  # seconds after the grace period for a worker's last writes
_VERSION = 1
_STALE_SECONDS = 24 * 3600.0  # long, because fleets with other timeouts share the table
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
"""Resets heartbeats written while the clock was ahead, because a dead worker would seem alive."""
_LAST_UNTRACKED_MIGRATION = "03.04.00_50_post_add_retry_failed_job_procedure.sql"
"""The last migration in databases without recorded migrations, whose tables are of procrastinate 3.10."""


class FleetEngine:
    """Dispatches due keys to the workers of the fleet, and runs the keys that this worker gets.

    kind: the kind of work, the same in all processes.
    worker: the worker's unique id.
    list_due: returns due keys, each with the worker to wake, or None for any. Called every `tick` seconds.
    run_key: does the work of a key, if it is still due. Must not raise.
    heartbeat: called every third of `worker_timeout`. Like `list_due`, it may raise the connections' error.
    on_stop: called when no more work starts.
    concurrency: the maximum number of keys in progress.
    grace: seconds for work in progress at the end.
    worker_timeout: seconds without a heartbeat after which a worker counts as dead.

    Raises ConfigurationError if procrastinate is not installed.
    """

    def __init__(
        self,
        connections: Connections,
        kind: str,
        worker: str,
        *,
        list_due: Callable[[], Awaitable[Iterable[tuple[int, str | None]]]],
        run_key: Callable[[int], Awaitable[None]],
        heartbeat: Callable[[], Awaitable[None]],
        on_stop: Callable[[], None] = lambda: None,
        concurrency: int,
        grace: float,
        worker_timeout: float,
        tick: float,
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
        self._waking_lock = asyncio.Lock()  # held while workers are woken for the keys of `list_due`
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Make `run` return after the work in progress or the grace period."""
        self._stopping.set()

    def wake_later(self, key: int, worker: str | None) -> None:
        """Wake a worker at the next tick. Retry until PostgreSQL accepts the job. worker: None for any."""
        self._to_wake[key] = worker

    async def wake(self, key: int, worker: str | None) -> None:
        """Wake a worker. worker: None for any."""
        await self._queue.wake(key, worker)

    async def run(self) -> None:
        """Work until stopped or cancelled; the work in progress then has the grace period. Can be called once.

        Raises the connections' error if PostgreSQL is not available at the start. Later failures are retried.
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
        self._queue.end()  # procrastinate may lose a cancellation
        await asyncio.gather(self._end_waking(waking), asyncio.wait([working], timeout=self._grace + _SLACK))
        await self._queue.aclose()  # ends waits for PostgreSQL if it is not available
        await _cancel(working, *others)  # last, so that heartbeats continue during the grace period

    async def _wake(self) -> None:
        async with self._waking_lock:
            self._to_wake.update(await self._list_due())
            await self._queue.release_finished()
            while self._to_wake:
                key = next(iter(self._to_wake))
                worker = self._to_wake.pop(key)  # `wake_later` may add the key again
                try:
                    await self._queue.wake(key, worker)
                except BaseException:
                    self._to_wake.setdefault(key, worker)
                    raise

    async def _end_waking(self, waking: asyncio.Task[object]) -> None:
        # Later calls of `list_due` return these keys only after `worker_timeout`.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._grace), self._waking_lock:
                pass
        await _cancel(waking)

    async def _beat(self) -> None:
        await self._heartbeat()
        await self._queue.reap()


class FleetQueue:
    """Procrastinate's jobs that wake workers for keys. Methods raise the connections' error.

    worker: a short id, because PostgreSQL limits channel names, which contain it.
    """

    def __init__(
        self,
        connections: Connections,
        kind: str,
        worker: str,
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
        self._procrastinate_worker: Any = None  # only partly typed
        self.is_stopping = False
        self._finished_jobs = set[int]()
        """Jobs whose work ended since the last call of `release_finished`."""
        self._finished_jobs_before = set[int]()

    async def open(self) -> None:
        """Connect, and create or migrate procrastinate's tables.

        Migrations that break older workers ("post") are omitted if a worker had a heartbeat in the last day. To upgrade
        while workers run, do not skip releases.
        """
        schema = self._app.schema_manager.get_schema().encode()
        shipped = _read_migrations(self._app)

        async def prepare(connection: Connection) -> None:
            """Create the tables."""
            # Procrastinate does not record which migrations it has applied.
            error = self._connections.error
            is_new = await ensure_part(connection, "queue", _VERSION, [_SET_SEARCH_PATH, schema], error=error)
            if await ensure_part(connection, "queue: migrations", _VERSION, [_CREATE_MIGRATION_TABLE], error=error):
                for name in shipped:
                    if is_new or name <= _LAST_UNTRACKED_MIGRATION:
                        await connection.execute(_RECORD_MIGRATION, (name,))

        async def migrate(connection: Connection) -> bool:
            """Apply the next migration. Return False if there is none."""
            # In a separate transaction, as some require.
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
        """Wake a worker. worker: None for any."""
        from procrastinate.exceptions import AlreadyEnqueued

        lock = f"{self._shared_queue}:{key}"
        queue = self._shared_queue if worker is None else f"{self._shared_queue}_{worker}"
        with self._translate_errors(), contextlib.suppress(AlreadyEnqueued):
            await self._task.configure(queue=queue, lock=lock, queueing_lock=lock).defer_async(key=key)

    async def reap(self) -> None:
        """Send a heartbeat, and delete the jobs of dead workers."""
        from procrastinate.jobs import Status

        await self._connections.fetch(_CORRECT_HEARTBEATS)
        with self._translate_errors():
            if self._procrastinate_worker is not None and self._procrastinate_worker.worker_id is not None:
                # Procrastinate's own heartbeats end at a failure, and when it is stopped.
                await self._app.job_manager.update_heartbeat(self._procrastinate_worker.worker_id)
            stalled = await self._app.job_manager.get_stalled_jobs(
                task_name=self._name, seconds_since_heartbeat=self._worker_timeout
            )
        for job in stalled:
            # Not retried, because due keys get another job.
            with contextlib.suppress(self._connections.error), self._translate_errors():
                await self._app.job_manager.finish_job(job, status=Status.FAILED, delete_job=True)

    async def release_finished(self) -> None:
        """Delete jobs whose work ended before the previous call, if procrastinate could not."""
        from procrastinate.jobs import Status

        if self._finished_jobs_before:
            with self._translate_errors():
                for job in await self._app.job_manager.list_jobs_async(task=self._name, status=Status.DOING.value):
                    if job.id in self._finished_jobs_before:
                        await self._app.job_manager.finish_job(job, status=Status.SUCCEEDED, delete_job=True)
        self._finished_jobs_before, self._finished_jobs = self._finished_jobs, set[int]()

    async def work(self) -> None:
        """Run this worker's jobs until `end` is called. Raises if PostgreSQL is unavailable for a long time."""
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
        """Make `work` return after the jobs in progress or the grace period."""
        self.is_stopping = True
        if self._procrastinate_worker is not None:
            self._procrastinate_worker.stop()

    @contextlib.contextmanager
    def _translate_errors(self) -> Generator[None]:
        # Not chained, because the texts of these errors contain values.
        import psycopg
        from procrastinate.exceptions import ProcrastinateException

        try:
            with propagate_cancellation():
                yield
            return
        except (psycopg.Error, ProcrastinateException) as error:
            kind = type(error).__name__
        raise self._connections.error(f"The fleet's queue in PostgreSQL failed ({kind}). It will be tried again.")

    async def _run_job(self, context: procrastinate.JobContext, key: int) -> None:
        try:
            await self._run_key(key)
        finally:
            if context.job.id is not None:
                self._finished_jobs.add(context.job.id)


async def _finish(ending: Coroutine[Any, Any, None]) -> None:
    """Wait for `ending`, even if cancelled. Then raise the cancellation."""
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
    raise ConfigurationError("A fleet requires the package procrastinate. Run: pip install 'directsuite[fleet]'")


def _read_migrations(app: procrastinate.App) -> dict[str, bytes]:
    folder = Path(app.schema_manager.get_migrations_path())
    return {each.name: each.read_bytes() for each in folder.glob("*.sql")}


def _make_job_manager(connector: Any) -> Any:
    # If a job can't be finished, `release_finished` or `reap` deletes it later.
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
