"""The engine of a worker in a fleet: processes that share the work of due keys, any of which may be killed.

    list_due ──► jobs of up to `batch` keys ──► queue of one worker, or the shared queue ──► run_keys(keys)
     ▲                                                                                        └─► the fleet's tables:
     └────────────────────────────────────────────────────────── when each key is due again ◄──────┘

A key is a number that identifies recurring work, for example of a mailbox. Procrastinate logs it.

The queues contain procrastinate's jobs, which only say that keys may be due. The fleet's tables decide which worker has
a key, so a lost or duplicate job does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from directsuite.core.clock import Clock
from directsuite.durable.database import Statement, Tables, Transaction, load_statements
from directsuite.durable.postgres import PostgresDatabase, lock_schema, propagate_cancellation
from directsuite.errors import ConfigurationError

if TYPE_CHECKING:
    import procrastinate

_LOGGER = logging.getLogger("directsuite")

_SLACK = 5.0  # seconds after the grace period for a worker's last writes
_STALE_SECONDS = 24 * 3600.0  # long, because fleets with other timeouts share the table
_OPTIONS = "-c search_path=directsuite -c default_transaction_isolation=read\\ committed"
_SQL = load_statements("directsuite.durable", "queue")


@attrs.define(eq=False, repr=False, slots=False)
class FleetEngine:
    """Dispatches due keys to the workers of the fleet, and runs the keys that this worker gets.

    kind: the kind of work, the same in all processes.
    worker: the worker's unique id, short, because PostgreSQL limits channel names, which contain it.
    list_due: returns due keys, each with the worker to wake, or None for any. Called every `tick` seconds. It returns a
        key again after `worker_timeout` if no worker has begun with it.
    run_keys: does the work of keys that are still due, or starts it with `start`. Must not raise. Called one at a time.
    heartbeat: called every third of `worker_timeout`. Like `list_due`, it may raise the database's error.
    on_stop: called when no more work starts.
    batch: the maximum number of keys in a call.
    grace: seconds for work in progress at the end.
    worker_timeout: seconds without a heartbeat after which a worker counts as dead.

    Raises ConfigurationError if procrastinate is not installed.
    """

    _database: PostgresDatabase = attrs.field(alias="database")
    _kind: str = attrs.field(alias="kind")
    _worker: str = attrs.field(alias="worker")
    _list_due: Callable[[], Awaitable[Iterable[tuple[int, str | None]]]] = attrs.field(alias="list_due", kw_only=True)
    _run_keys: Callable[[Sequence[int]], Awaitable[None]] = attrs.field(alias="run_keys", kw_only=True)
    _heartbeat: Callable[[], Awaitable[None]] = attrs.field(alias="heartbeat", kw_only=True)
    _on_stop: Callable[[], None] = attrs.field(default=lambda: None, alias="on_stop", kw_only=True)
    _batch: int = attrs.field(default=1, alias="batch", kw_only=True)
    _grace: float = attrs.field(alias="grace", kw_only=True)
    _worker_timeout: float = attrs.field(alias="worker_timeout", kw_only=True)
    _tick: float = attrs.field(alias="tick", kw_only=True)
    _clock: Clock = attrs.field(alias="clock", kw_only=True)

    def __attrs_post_init__(self) -> None:
        self._shared_queue = f"directsuite_{self._kind}"
        self._task_name = f"directsuite.{self._kind}.run"
        self._app = _make_app(self._database)
        self._task: Any = self._app.task(name=self._task_name, queue=self._shared_queue)(self._run_job)
        self._procrastinate_worker: Any = None  # only partly typed
        self._started = set[asyncio.Task[None]]()
        self._to_wake: dict[int, str | None] = {}
        self._waking_lock = asyncio.Lock()  # held while workers are woken for the keys of `list_due`
        self._stop_requested = asyncio.Event()
        self._is_stopping = False

    def stop(self) -> None:
        """Make `run` return after the work in progress or the grace period."""
        self._stop_requested.set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work that may continue after `run_keys`. It must not raise."""
        task = asyncio.create_task(work)
        self._started.add(task)
        task.add_done_callback(self._started.discard)

    def wake_later(self, keys: Iterable[int], worker: str | None) -> None:
        """Wake a worker at the next tick. Retry until PostgreSQL accepts the job.

        worker: the worker to wake. None: any.
        """
        self._to_wake.update(dict.fromkeys(keys, worker))

    async def wake(self, workers: Mapping[int, str | None]) -> None:
        """Wake workers. If this raises the database's error, they are woken at the next tick.

        workers: the worker to wake for each key. None: any worker.
        """
        by_worker = defaultdict[str | None, list[int]](list)
        for key, worker in workers.items():
            by_worker[worker].append(key)
        jobs = list[Any]()
        for worker, keys in by_worker.items():
            # Workers share many keys more evenly in small batches.
            queue, size = self._shared_queue, max(1, self._batch // 5)
            if worker is not None:
                queue, size = f"{queue}_{worker}", self._batch
            deferrer = self._task.configure(queue=queue)
            jobs += [deferrer.make_new_job(keys=keys[at : at + size]) for at in range(0, len(keys), size)]
        try:
            with self._translate_errors():
                if jobs:
                    await self._app.job_manager.batch_defer_jobs_async(jobs)
        except BaseException:
            self._to_wake = dict(workers) | self._to_wake  # `wake_later` may have added keys
            raise

    async def run(self) -> None:
        """Work until `stop` is called or the task is cancelled. The work in progress then has the grace period.

        Can be called once. Raises the database's error if PostgreSQL is not available at the start. Later failures
        are retried.
        """
        try:
            await self.open()
            waking = self._repeat(self._wake_due, self._tick)
            beating = self._repeat(self._beat, self._worker_timeout / 3)
            tasks = list(map(asyncio.create_task, (self._work(), waking, beating, self._stop_requested.wait())))
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._on_stop()
                await _finish(self._end(*tasks))
            for task in tasks:
                if not task.cancelled():
                    task.result()
        finally:
            await _finish(self.aclose())

    async def open(self) -> None:
        """Connect, and create or migrate procrastinate's tables.

        Migrations that break older workers ("post") are omitted if a worker had a heartbeat in the last day. To upgrade
        while workers run, do not skip releases.
        """
        shipped = _read_migrations(self._app)
        # Procrastinate does not record which migrations it has applied.
        names = ", ".join(f"('{name}')" for name in shipped)
        pieces = [
            _SQL["search_path"].postgres,
            self._app.schema_manager.get_schema().encode(),
            _SQL["migration_table"].postgres,
            f"INSERT INTO directsuite.queue_migration VALUES {names}".encode(),  # noqa: S608  of file names
        ]
        tables = Tables("queue", Statement(b";".join(pieces), ""))

        async def migrate(transaction: Transaction) -> bool:
            await lock_schema(transaction.connection)
            applied = {name for (name,) in await transaction.execute(_SQL["applied_migrations"])}
            pending = sorted(shipped.keys() - applied)
            ((has_recent_workers,),) = await transaction.execute(
                _SQL["has_recent_workers"], {"seconds": _STALE_SECONDS}
            )
            while has_recent_workers and pending and "_post_" in pending[-1]:
                pending.pop()
            if pending:
                await transaction.execute(_SQL["search_path"])
                await transaction.connection.execute(shipped[pending[0]])
                await transaction.execute(_SQL["record_migration"], {"name": pending[0]})
            return bool(pending)

        await self._database.transaction(lambda transaction: transaction.ensure(tables))
        while await self._database.transaction(migrate):
            pass
        with self._translate_errors():
            await self._app.open_async()

    async def aclose(self) -> None:
        """Disconnect."""
        with contextlib.suppress(self._database.error), self._translate_errors():
            await self._app.close_async()

    async def delete_old_jobs(self) -> None:
        """Delete jobs that have not changed for twice `worker_timeout`.

        Their worker died, or procrastinate could not record their end.
        """
        values = {"task": self._task_name, "seconds": 2 * self._worker_timeout}

        async def delete(transaction: Transaction) -> None:
            await transaction.execute(_SQL["search_path"])  # for procrastinate's trigger
            await transaction.execute(_SQL["delete_old_jobs"], values)

        await self._database.transaction(delete)

    async def _repeat(self, call: Callable[[], Awaitable[None]], pause: float) -> None:
        while True:
            try:
                await call()
            except self._database.error as error:
                _LOGGER.warning("fleet: %s", error)
            await self._clock.sleep(pause)

    async def _wake_due(self) -> None:
        async with self._waking_lock:
            due = dict(await self._list_due())
            # Read only now, because a failed `wake` replaces it.
            waking, self._to_wake = self._to_wake | due, {}
            await self.wake(waking)

    async def _beat(self) -> None:
        await self._heartbeat()
        await self.delete_old_jobs()

    async def _work(self) -> None:
        from procrastinate.worker import Worker

        while not self._is_stopping:
            self._procrastinate_worker = Worker(
                self._app,
                queues=[self._shared_queue, f"{self._shared_queue}_{self._worker}"],
                name=self._worker,
                concurrency=1,
                delete_jobs="always",
                update_heartbeat_interval=self._worker_timeout / 6,
                stalled_worker_timeout=_STALE_SECONDS,
                shutdown_graceful_timeout=self._grace,
                fetch_job_polling_interval=1.0,
                install_signal_handlers=False,
            )
            try:
                with self._translate_errors():
                    await self._procrastinate_worker.run()
            except self._database.error as error:
                _LOGGER.warning("fleet: %s", error)
            if not self._is_stopping:
                await self._clock.sleep(1.0)

    async def _run_job(self, keys: Sequence[int]) -> None:
        await self._run_keys(keys)

    async def _end(
        self, working: asyncio.Task[object], waking: asyncio.Task[object], *others: asyncio.Task[object]
    ) -> None:
        self._is_stopping = True
        if self._procrastinate_worker is not None:
            self._procrastinate_worker.stop()  # procrastinate may lose a cancellation
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._grace + _SLACK):
                async with self._waking_lock:  # later calls of `list_due` return its keys only after `worker_timeout`
                    waking.cancel()
                await asyncio.wait([working])
                while self._started:
                    await asyncio.wait(self._started)
        await self.aclose()  # ends waits for PostgreSQL if it is not available
        # Last, so that heartbeats continue during the grace period.
        tasks = [working, waking, *self._started, *others]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

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
        raise self._database.error(f"The fleet's queue in PostgreSQL failed ({kind}). It will be tried again.")


def _read_migrations(app: procrastinate.App) -> dict[str, bytes]:
    folder = Path(app.schema_manager.get_migrations_path())
    return {each.name: each.read_bytes() for each in folder.glob("*.sql")}


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


def _make_app(database: PostgresDatabase) -> procrastinate.App:
    try:
        import procrastinate
    except ModuleNotFoundError as error:
        if error.name != "procrastinate":
            raise
        raise ConfigurationError(
            "A fleet requires the package procrastinate. In a copy of the repository, run: pip install '.[fleet]'"
        ) from None
    from procrastinate.exceptions import ConnectorException
    from procrastinate.manager import JobManager
    from psycopg.conninfo import conninfo_to_dict

    class Manager(JobManager):
        async def finish_job(self, *args: Any, **kwargs: Any) -> None:
            with contextlib.suppress(ConnectorException):  # `delete_old_jobs` deletes it later
                await super().finish_job(*args, **kwargs)

    conninfo = database.conninfo.reveal()
    options = f"{conninfo_to_dict(conninfo).get('options') or ''} {_OPTIONS}"
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(
            conninfo=conninfo, kwargs={"options": options.strip()}, min_size=1, max_size=4, timeout=database.timeout
        )
    )
    app.job_manager = Manager(app.connector)
    return app
