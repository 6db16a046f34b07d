"""The wake-ups of a fleet: jobs of procrastinate, which say no more than that a turn of something may be due.

    wake ─► queue of one worker ───────────────────────┬─► take(key), one at a time for each key
            or the queue of all ◄── that one is no more ┘

A job that is lost or doubled does no harm: whether a turn is due stands in tables of our own. So none is tried again,
none is scheduled for later, and one whose worker died is removed. A key is a number: procrastinate logs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from directsuite.durable.postgres import Connection, Connections, cancellable, ensure_part, lock_schema
from directsuite.errors import ConfigurationError

if TYPE_CHECKING:
    import procrastinate

_VERSION = 1
_FORGOTTEN = 24 * 3600.0  # seconds: fleets with other patience share the table, and `reap` finds the dead earlier
_HERE = "SET LOCAL search_path TO directsuite"
_OPTIONS = "-c search_path=directsuite -c default_transaction_isolation=read\\ committed"
_MIGRATIONS = "CREATE TABLE directsuite.queue_migration (name text PRIMARY KEY)"
_APPLIED = "INSERT INTO directsuite.queue_migration VALUES (%s)"
_OTHERS = """
    SELECT EXISTS (
        SELECT FROM directsuite.procrastinate_workers WHERE last_heartbeat > now() - make_interval(secs => %s)
    )
"""
_UNNOTED = "03.04.00_50_post_add_retry_failed_job_procedure.sql"
"""The last migration of procrastinate 3.10, whose tables a database has in which no migrations are noted."""
_FREE = "DELETE FROM procrastinate_jobs WHERE id = ANY(%s) AND status = 'doing'"


class FleetQueue:
    """Wakes workers for turns, and takes those that this worker is woken for.

    kind: of the turns; workers of one kind share a queue. worker: this one, in a few letters: with the kind it is the
    name of a channel, which PostgreSQL bounds. take: takes a turn, by its key, and never raises. turns: at a time.
    grace: seconds for those under way when the worker ends. patience: seconds after which a silent worker counts as
    dead. Methods raise the connections' error. Raises ConfigurationError.
    """

    def __init__(
        self,
        connections: Connections,
        kind: str,
        worker: str,
        take: Callable[[int], Awaitable[None]],
        *,
        turns: int,
        grace: float,
        patience: float,
    ) -> None:
        self._connections = connections
        self._worker = worker
        self._take = take
        self._turns = turns
        self._grace = grace
        self._patience = patience
        self._name = f"directsuite.{kind}.turn"
        self._of_all = f"directsuite_{kind}"
        self._app = _app(connections)
        self._task: Any = self._app.task(name=self._name, queue=self._of_all, pass_context=True)(self._job)
        self._at_work: Any = None  # procrastinate's Worker, which is typed in part
        self.is_over = False
        self._ended = set[int]()
        self._ended_before = set[int]()  # the last look

    async def open(self) -> None:
        """Connect; make procrastinate's tables in our schema where there are none, or bring them up to its version.

        What its migrations take away that workers of the version before need, the first start takes away of which no
        other worker is known: none that works, and none that ended without a word within the day before. Upgrade
        release by release where some are to go on working meanwhile.
        """
        schema = self._app.schema_manager.get_schema().encode()
        shipped = _migrations(self._app)

        async def prepare(connection: Connection) -> None:
            """Procrastinate doesn't note which of its migrations a database has had."""
            error = self._connections.error
            is_new = await ensure_part(connection, "queue", _VERSION, [_HERE, schema], error=error)
            if await ensure_part(connection, "queue: migrations", _VERSION, [_MIGRATIONS], error=error):
                for name in shipped:
                    if is_new or name <= _UNNOTED:
                        await connection.execute(_APPLIED, (name,))

        async def migrate(connection: Connection) -> bool:
            """Apply the next migration; False where there is none. Each is a transaction, as some of them need."""
            await lock_schema(connection)
            cursor = await connection.execute("SELECT name FROM directsuite.queue_migration")
            pending = sorted(shipped.keys() - {name for (name,) in await cursor.fetchall()})
            if pending and "_post_" in pending[-1]:
                cursor = await connection.execute(_OTHERS, (_FORGOTTEN,))
                if await cursor.fetchone() == (True,):
                    while pending and "_post_" in pending[-1]:
                        pending.pop()
            if pending:
                await connection.execute(_HERE)
                await connection.execute(shipped[pending[0]])
                await connection.execute(_APPLIED, (pending[0],))
            return bool(pending)

        await self._connections.run(prepare)
        while await self._connections.run(migrate):
            pass
        with self._translated():
            await self._app.open_async()

    async def aclose(self) -> None:
        """Disconnect."""
        with contextlib.suppress(self._connections.error), self._translated():
            await self._app.close_async()

    async def wake(self, key: int, worker: str | None) -> None:
        """Have a turn taken: by this worker, or by whichever is free."""
        from procrastinate.exceptions import AlreadyEnqueued

        lock = f"{self._of_all}:{key}"
        queue = self._of_all if worker is None else f"{self._of_all}_{worker}"
        with self._translated(), contextlib.suppress(AlreadyEnqueued):
            await self._task.configure(queue=queue, lock=lock, queueing_lock=lock).defer_async(key=key)

    async def reap(self) -> None:
        """Free what workers had that died within a turn."""
        from procrastinate.jobs import Status

        with self._translated():
            if self._at_work is not None and self._at_work.worker_id is not None:
                # Its own signs of life end with the first that fails, and when it is to end.
                await self._app.job_manager.update_heartbeat(self._at_work.worker_id)
            stalled = await self._app.job_manager.get_stalled_jobs(
                task_name=self._name, seconds_since_heartbeat=self._patience
            )
        for job in stalled:
            # Not tried again: a second job may wait already, and what is due is woken for anyway.
            with contextlib.suppress(self._connections.error), self._translated():
                await self._app.job_manager.finish_job(job, status=Status.FAILED, delete_job=True)

    async def free_ended(self) -> None:
        """Free what had its turn here, and whose job has not ended with it, two looks later.

        Where procrastinate can't note the end of a job, it does not try again, and the worker that has it lives.
        """
        ended = list(self._ended_before)

        async def free(connection: Connection) -> None:
            """As procrastinate does, whose triggers look for its tables there."""
            await connection.execute(_HERE)
            await connection.execute(_FREE, (ended,))

        if ended:
            await self._connections.run(free)
        self._ended_before, self._ended = self._ended, set[int]()

    async def work(self) -> None:
        """Take turns until `end`. Ends where PostgreSQL is away for long, too."""
        from procrastinate.worker import Worker

        self._at_work = Worker(
            self._app,
            queues=[self._of_all, f"{self._of_all}_{self._worker}"],
            name=self._worker,
            concurrency=self._turns,
            delete_jobs="always",
            update_heartbeat_interval=self._patience / 6,
            stalled_worker_timeout=_FORGOTTEN,
            shutdown_graceful_timeout=self._grace,
            fetch_job_polling_interval=1.0,
            install_signal_handlers=False,
        )
        with self._translated():
            await self._at_work.run()

    def end(self) -> None:
        """Let `work` return when the turns under way have ended, or their grace has."""
        self.is_over = True
        if self._at_work is not None:
            self._at_work.stop()

    @contextlib.contextmanager
    def _translated(self) -> Generator[None]:
        """Errors of procrastinate and its connections become ours: their texts have values in them."""
        import psycopg
        from procrastinate.exceptions import ProcrastinateException

        try:
            with cancellable():
                yield
            return
        except (psycopg.Error, ProcrastinateException) as error:
            kind = type(error).__name__
        raise self._connections.error(f"The fleet's queue in PostgreSQL failed ({kind}): it is tried again.")

    async def _job(self, context: procrastinate.JobContext, key: int) -> None:
        try:
            await self._take(key)
        finally:
            if context.job.id is not None:
                self._ended.add(context.job.id)


def _app(connections: Connections) -> procrastinate.App:
    try:
        import procrastinate
    except ModuleNotFoundError as error:
        if error.name != "procrastinate":
            raise
    else:
        app = procrastinate.App(connector=_connector(connections))
        app.job_manager = _manager(app.connector)
        return app
    raise ConfigurationError("A fleet needs the package procrastinate: pip install 'directsuite[fleet]'")


def _migrations(app: procrastinate.App) -> dict[str, bytes]:
    """Procrastinate's own, by the names whose order is theirs."""
    folder = Path(app.schema_manager.get_migrations_path())
    return {each.name: each.read_bytes() for each in folder.glob("*.sql")}


def _manager(connector: Any) -> Any:
    """One for which an end that can't be noted is no error: nobody would hear of it, and the job is freed anyway.

    That is so where PostgreSQL is away, or the worker was paused for so long that others took it for dead.
    """
    from procrastinate.exceptions import ConnectorException
    from procrastinate.manager import JobManager

    class Manager(JobManager):
        async def finish_job(self, *of: Any, **how: Any) -> None:
            with contextlib.suppress(ConnectorException):
                await super().finish_job(*of, **how)

    return Manager(connector)


def _connector(connections: Connections) -> procrastinate.PsycopgConnector:
    import procrastinate
    from psycopg.conninfo import conninfo_to_dict

    conninfo = connections.conninfo.reveal()
    options = f"{conninfo_to_dict(conninfo).get('options') or ''} {_OPTIONS}"
    return procrastinate.PsycopgConnector(
        conninfo=conninfo, kwargs={"options": options.strip()}, min_size=1, max_size=4, timeout=connections.timeout
    )
