"""The truth of a fleet: a row for each mailbox, with the time at which its next turn is due, and one for each worker.

wake ─► begin ─► a turn ─► finish, which sets when the next is due
          └─ number + 1: a turn that began later makes the end of an earlier one void
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import attrs

from directsuite.durable.postgres import Connection, Connections, ensure_part
from directsuite.sync.model import StoreError

_VERSION = 1
_TABLES = (
    """
    CREATE TABLE directsuite.turn (
        mailbox bigint PRIMARY KEY REFERENCES directsuite.mailbox, next_due_at timestamptz NOT NULL DEFAULT now(),
        woken_at timestamptz, number bigint NOT NULL DEFAULT 0, worker text, fail_count bigint NOT NULL DEFAULT 0,
        last_error text
    )
    """,
    "CREATE INDEX turn_due ON directsuite.turn (next_due_at)",
    "CREATE TABLE directsuite.worker (id text PRIMARY KEY, seen_at timestamptz NOT NULL)",
)

_IN_STEP = ("ALTER TABLE directsuite.turn ADD COLUMN in_step_at timestamptz",)

_ADD_MAILBOXES = """
    INSERT INTO directsuite.mailbox (name, fence) SELECT unnest(%s::text[]), 0 ON CONFLICT (name) DO NOTHING
"""
_ADD = """
    INSERT INTO directsuite.turn (mailbox) SELECT id FROM directsuite.mailbox WHERE name = ANY(%s)
    ON CONFLICT (mailbox) DO NOTHING RETURNING mailbox
"""
_REMOVE = """
    DELETE FROM directsuite.turn t USING directsuite.mailbox m WHERE m.id = t.mailbox AND m.name = ANY(%s)
    RETURNING mailbox
"""
_SEEN = """
    INSERT INTO directsuite.worker VALUES (%s, now()) ON CONFLICT (id) DO UPDATE SET seen_at = now() RETURNING id
"""
_LEAVE = "DELETE FROM directsuite.worker WHERE id = %s OR seen_at < now() - interval '1 day' RETURNING id"
_DUE = """
    WITH due AS (
        SELECT mailbox FROM directsuite.turn
        WHERE next_due_at <= now() AND (woken_at IS NULL OR woken_at < now() - make_interval(secs => %s))
        ORDER BY next_due_at LIMIT %s FOR UPDATE SKIP LOCKED
    )
    UPDATE directsuite.turn t SET woken_at = now() FROM due WHERE t.mailbox = due.mailbox
    RETURNING t.mailbox, (SELECT id FROM directsuite.worker w
        WHERE w.id = t.worker AND w.seen_at > now() - make_interval(secs => %s))
"""
_BEGIN = """
    UPDATE directsuite.turn t SET number = number + 1, worker = %s FROM directsuite.mailbox m
    WHERE t.mailbox = %s AND m.id = t.mailbox AND t.next_due_at <= now() RETURNING m.name, t.number, t.fail_count
"""
_FINISH = """
    UPDATE directsuite.turn t SET woken_at = NULL, last_error = %(problem)s,
        next_due_at = CASE WHEN EXISTS (SELECT FROM directsuite.wish w WHERE w.mailbox = t.mailbox)
            THEN now() ELSE now() + make_interval(secs => %(rest)s) END,
        in_step_at = CASE WHEN %(problem)s::text IS NULL AND %(rest)s > 0 THEN now() ELSE in_step_at END,
        fail_count = %(failures)s
    WHERE mailbox = %(mailbox)s AND number = %(number)s RETURNING number
"""
_HASTEN = """
    UPDATE directsuite.turn t SET next_due_at = least(next_due_at, now()), woken_at = NULL
    FROM directsuite.mailbox m WHERE m.id = t.mailbox AND m.name = ANY(%s) RETURNING t.mailbox
"""
_GIVE_TO_ALL = """
    UPDATE directsuite.procrastinate_jobs j SET queue_name = 'directsuite_sync'
    WHERE j.status = 'todo' AND j.task_name = 'directsuite.sync.turn' AND j.queue_name <> 'directsuite_sync' AND (
        NOT EXISTS (SELECT FROM directsuite.worker w WHERE j.queue_name = 'directsuite_sync_' || w.id
            AND w.seen_at > now() - make_interval(secs => %(patience)s))
        OR EXISTS (SELECT FROM directsuite.turn t WHERE t.mailbox = (j.args ->> 'key')::bigint
            AND t.next_due_at < now() - make_interval(secs => %(patience)s)))
    RETURNING j.id
"""
_MAILBOXES = """
    SELECT m.name, t.number, extract(epoch FROM t.in_step_at)::float8, extract(epoch FROM t.next_due_at)::float8,
        t.fail_count, t.last_error
    FROM directsuite.turn t JOIN directsuite.mailbox m ON m.id = t.mailbox ORDER BY m.name COLLATE "C"
"""
_OF_WORKER = "SELECT mailbox FROM directsuite.turn WHERE worker = %s"
_STANDING = """
    SELECT count(*), count(*) FILTER (WHERE number = 0),
        greatest(0, coalesce(extract(epoch FROM now() - min(next_due_at)), 0))::float8,
        (SELECT count(*) FROM directsuite.worker WHERE seen_at > now() - make_interval(secs => %s))
    FROM directsuite.turn
"""
_PROBLEMS = "SELECT last_error, count(*) FROM directsuite.turn WHERE fail_count > 0 GROUP BY last_error"
_AT_A_TIME = 500


@attrs.frozen(kw_only=True)
class BegunTurn:
    """A turn that is this worker's. number: of the mailbox's turns so far. failures: the last ones in a row."""

    mailbox: int
    name: str = attrs.field(repr=False)
    number: int
    failures: int


@attrs.frozen(kw_only=True)
class FleetStatus:
    """How a fleet stands. waiting: mailboxes that had no turn yet; failing: by what is wrong, in words.

    late: seconds since the mailbox that waits longest was due. workers: those that were seen lately.
    """

    mailboxes: int
    waiting: int
    failing: dict[str, int]
    late: float
    workers: int


@attrs.frozen(kw_only=True)
class FleetMailbox:
    """A mailbox of a fleet. in_step_at, due_at: Unix time. failures: turns that failed, in a row. problem: in words."""

    name: str = attrs.field(repr=False)
    turns: int
    in_step_at: float | None
    due_at: float
    failures: int
    problem: str | None


class FleetTable:
    """The tables of a fleet. patience: seconds after which a silent worker counts as dead. Methods raise StoreError."""

    def __init__(self, connections: Connections, worker: str, patience: float) -> None:
        self._connections = connections
        self._worker = worker
        self._patience = patience

    async def prepare(self) -> None:
        """Make the tables where there are none."""

        async def prepare(connection: Connection) -> None:
            """Beside those of the store."""
            await ensure_part(connection, "fleet", _VERSION, _TABLES, error=StoreError)
            await ensure_part(connection, "fleet: in step", _VERSION, _IN_STEP, error=StoreError)

        await self._connections.run(prepare)

    async def add(self, names: Iterable[str]) -> int:
        """Have turns of mailboxes taken, beginning now; how many are new to the fleet."""
        wanted = sorted(set(names))  # two that add the same ones wait for each other in one order

        async def add(connection: Connection) -> int:
            """Mailboxes and turns."""
            await connection.execute(_ADD_MAILBOXES, (wanted,))
            return len(await (await connection.execute(_ADD, (wanted,))).fetchall())

        return await self._connections.run(add)

    async def remove(self, names: Iterable[str]) -> int:
        """Have no more turns of mailboxes taken; how many there were. What the store knows of them stays."""
        return len(await self._connections.fetch(_REMOVE, (list(names),)))

    async def seen(self) -> None:
        """Note that this worker lives."""
        await self._connections.fetch(_SEEN, (self._worker,))

    async def leave(self) -> None:
        """Note that this worker has ended."""
        await self._connections.fetch(_LEAVE, (self._worker,))

    async def due(self) -> Sequence[tuple[int, str | None]]:
        """Mailboxes to wake, by nobody else for a while, each with the worker that had its last turn and lives."""
        found = await self._connections.fetch(_DUE, (self._patience, _AT_A_TIME, self._patience))
        return [(mailbox, worker) for mailbox, worker in found]

    async def begin(self, mailbox: int) -> BegunTurn | None:
        """Begin a turn; None where none is due."""
        found = await self._connections.fetch(_BEGIN, (self._worker, mailbox))
        if not found:
            return None
        ((name, number, failures),) = found
        return BegunTurn(mailbox=mailbox, name=name, number=number, failures=failures)

    async def finish(self, turn: BegunTurn, rest: float, problem: str | None, failures: int = 0) -> bool:
        """End a turn: the next is due in so many seconds. Whether nobody has begun a later one meanwhile.

        failures: in a row.
        """
        values = {
            "rest": rest,
            "problem": problem,
            "failures": failures,
            "mailbox": turn.mailbox,
            "number": turn.number,
        }
        return bool(await self._connections.fetch(_FINISH, values))

    async def give_to_all(self) -> None:
        """Let any worker have the turns that wait for one that is dead or busy."""
        await self._connections.fetch(_GIVE_TO_ALL, {"patience": self._patience})

    async def hasten(self, names: Iterable[str]) -> int:
        """Have the next turns of mailboxes due at once; how many there are in the fleet."""
        return len(await self._connections.fetch(_HASTEN, (list(names),)))

    async def mailboxes(self) -> Sequence[FleetMailbox]:
        """Every mailbox, by their names."""
        names = ("name", "turns", "in_step_at", "due_at", "failures", "problem")
        found = await self._connections.fetch(_MAILBOXES)
        return [FleetMailbox(**dict(zip(names, values, strict=True))) for values in found]

    async def own(self) -> Collection[int]:
        """Mailboxes whose last turn was this worker's."""
        return {mailbox for (mailbox,) in await self._connections.fetch(_OF_WORKER, (self._worker,))}

    async def status(self) -> FleetStatus:
        """How the fleet stands."""
        ((mailboxes, waiting, late, workers),) = await self._connections.fetch(_STANDING, (self._patience,))
        problems = await self._connections.fetch(_PROBLEMS)
        failing = {str(kind): count for kind, count in problems}
        return FleetStatus(mailboxes=mailboxes, waiting=waiting, failing=failing, late=late, workers=workers)
