"""The wake-ups of a fleet: jobs of procrastinate, which say no more than that a mailbox may be due.

    wake ─► queue of the worker that knows the mailbox ─┬─► run(mailbox), one at a time for each mailbox
            or the queue of all ◄── it is dead or busy ─┘

A job that is lost or doubled does no harm: whether a turn is due stands in our own table. So none is tried again, none
is scheduled for later, and one whose worker died is removed. Jobs name mailboxes by number: procrastinate logs them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from directsuite.core.postgres_connections import Connection, Connections
from directsuite.core.postgres_schema import ensure_part
from directsuite.errors import ConfigurationError
from directsuite.sync.store import StoreError

if TYPE_CHECKING:
    import procrastinate

_TASK = "directsuite.sync.turn"
_QUEUE = "directsuite_sync"
_VERSION = 1

_TO_ALL = """
    UPDATE directsuite.procrastinate_jobs j SET queue_name = 'directsuite_sync'
    WHERE j.status = 'todo' AND j.task_name = 'directsuite.sync.turn' AND j.queue_name <> 'directsuite_sync' AND (
        NOT EXISTS (SELECT FROM directsuite.worker w WHERE j.queue_name = 'directsuite_sync_' || w.id
            AND w.seen_at > now() - make_interval(secs => %(patience)s))
        OR EXISTS (SELECT FROM directsuite.turn t WHERE t.mailbox = (j.args ->> 'mailbox')::bigint
            AND t.next_due_at < now() - make_interval(secs => %(patience)s)))
    RETURNING j.id
"""
_HERE = "SET LOCAL search_path TO directsuite"
_FREE = "DELETE FROM procrastinate_jobs WHERE id = ANY(%s) AND status = 'doing'"


class FleetQueue:
    """Wakes workers for mailboxes, and runs what this worker is woken for.

    run: takes the number of a mailbox, and never raises. turns: at a time. grace: seconds for those under way when the
    worker ends. patience: seconds after which a silent worker counts as dead. Raises ConfigurationError.
    """

    def __init__(
        self,
        connections: Connections,
        worker: str,
        run: Callable[[int], Awaitable[None]],
        *,
        turns: int,
        grace: float,
        patience: float,
    ) -> None:
        self._connections = connections
        self._worker = worker
        self._run = run
        self._turns = turns
        self._grace = grace
        self._patience = patience
        self._app = _app(connections)
        self._task: Any = self._app.task(name=_TASK, queue=_QUEUE, pass_context=True)(self._job)
        self._ended = set[int]()
        self._ended_before = set[int]()  # the last look

    async def open(self) -> None:
        """Connect; make procrastinate's tables in our schema where there are none. Raises StoreError."""
        schema = self._app.schema_manager.get_schema().encode()

        async def prepare(connection: Connection) -> None:
            """In the version of procrastinate that is first."""
            await ensure_part(connection, "queue", _VERSION, [_HERE, schema], error=StoreError)

        await self._connections.run(prepare)
        with self.translated():
            await self._app.open_async()

    async def aclose(self) -> None:
        """Disconnect."""
        with contextlib.suppress(StoreError), self.translated():
            await self._app.close_async()

    async def wake(self, mailbox: int, worker: str | None) -> None:
        """Have a turn of a mailbox looked for: by this worker, or by whichever is free. Raises StoreError."""
        from procrastinate.exceptions import AlreadyEnqueued

        key = f"directsuite:{mailbox}"
        queue = _QUEUE if worker is None else f"{_QUEUE}_{worker}"
        with self.translated(), contextlib.suppress(AlreadyEnqueued):
            await self._task.configure(queue=queue, lock=key, queueing_lock=key).defer_async(mailbox=mailbox)

    async def reap(self) -> None:
        """Free mailboxes of workers that died within a turn, and jobs that wait for them. Raises StoreError."""
        from procrastinate.jobs import Status

        with self.translated():
            for job in await self._app.job_manager.get_stalled_jobs(seconds_since_heartbeat=self._patience):
                # Not tried again: a second job may wait already, and what is due is woken for anyway.
                with contextlib.suppress(StoreError), self.translated():
                    await self._app.job_manager.finish_job(job, status=Status.FAILED, delete_job=True)
        await self._connections.fetch(_TO_ALL, {"patience": self._patience})

    async def free_ended(self) -> None:
        """Free mailboxes whose turn here has ended, and whose job has not, two looks later. Raises StoreError.

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
        """Run what comes, until cancelled; then nothing new is begun. Ends where PostgreSQL is away for long."""
        with self.translated():
            await self._app.run_worker_async(
                queues=[_QUEUE, f"{_QUEUE}_{self._worker}"],
                name=self._worker,
                concurrency=self._turns,
                delete_jobs="always",
                update_heartbeat_interval=self._patience / 6,
                stalled_worker_timeout=self._patience,
                shutdown_graceful_timeout=self._grace,
                fetch_job_polling_interval=1.0,
                install_signal_handlers=False,
            )

    @contextlib.contextmanager
    def translated(self) -> Any:
        """Errors of procrastinate and its connections become StoreError: their texts have values in them."""
        import psycopg
        from procrastinate.exceptions import ProcrastinateException

        try:
            yield
            return
        except (psycopg.Error, ProcrastinateException) as error:
            kind = type(error).__name__
        raise StoreError(f"The fleet's queue in PostgreSQL failed ({kind}): it is tried again.")

    async def _job(self, context: procrastinate.JobContext, mailbox: int) -> None:
        try:
            await self._run(mailbox)
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
        return procrastinate.App(connector=_connector(connections))
    raise ConfigurationError("A fleet needs the package procrastinate: pip install 'directsuite[fleet]'")


def _connector(connections: Connections) -> procrastinate.PsycopgConnector:
    import procrastinate
    from psycopg.conninfo import conninfo_to_dict

    conninfo = connections.conninfo.reveal()
    options = f"{conninfo_to_dict(conninfo).get('options') or ''} -c search_path=directsuite"
    return procrastinate.PsycopgConnector(
        conninfo=conninfo, kwargs={"options": options.strip()}, min_size=1, max_size=4, timeout=connections.timeout
    )
