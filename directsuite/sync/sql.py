"""The tables of a store, and all statements that use them.

mailbox ─► folder ─► msg; a mailbox's fence counts its claims
  └────► operator_request, written by other processes
sink: the sink to which the store is bound, at most one row
quarantine: the problem of each quarantined msg

Only in PostgreSQL, for several processes:
schedule: when the next round of a mailbox is due; its fence counts the claimed rounds
worker: the last heartbeat of each worker of a fleet
rate: when the next request to a service is allowed
"""

from __future__ import annotations

from collections.abc import Mapping

from directsuite.durable.database import Statement, Tables, sql
from directsuite.sync.model import OperatorRequest

TABLES = Tables(
    "store",
    (
        sql("""
            CREATE TABLE directsuite.mailbox (
                id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, fence bigint NOT NULL
            )
        """),
        sql("""
            CREATE TABLE directsuite.folder (
                id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                mailbox bigint NOT NULL REFERENCES directsuite.mailbox, name text NOT NULL,
                uid_validity bigint NOT NULL, fingerprint bytea, audited_ms bigint, UNIQUE (mailbox, name)
            )
        """),
        sql("""
            CREATE TABLE directsuite.msg (
                folder bigint NOT NULL REFERENCES directsuite.folder, uid_validity bigint NOT NULL, uid bigint NOT NULL,
                state bigint NOT NULL, identity bytea, digest bytea, size bigint NOT NULL, received_ms bigint,
                attempts bigint NOT NULL, retry_ms bigint, PRIMARY KEY (folder, uid_validity, uid)
            ) /*+ WITHOUT ROWID */
        """),
        sql("CREATE INDEX msg_digest ON directsuite.msg (folder, digest) WHERE digest IS NOT NULL"),
        sql("CREATE INDEX msg_unsettled ON directsuite.msg (folder, state) WHERE state IN (2, 4, 5, 7)"),
        sql("""
            CREATE TABLE directsuite.operator_request (
                mailbox bigint NOT NULL REFERENCES directsuite.mailbox, kind text NOT NULL, PRIMARY KEY (mailbox, kind)
            ) /*+ WITHOUT ROWID */
        """),
        sql("CREATE TABLE directsuite.sink (kind text NOT NULL)"),
        sql("CREATE UNIQUE INDEX sink_is_one ON directsuite.sink ((true))"),  # workers may start at the same time
    ),
    version=2,
)

QUARANTINE_TABLES = Tables(
    "quarantine",
    (
        sql("""
            CREATE TABLE directsuite.quarantine (
                folder bigint NOT NULL REFERENCES directsuite.folder, uid_validity bigint NOT NULL, uid bigint NOT NULL,
                problem text NOT NULL, PRIMARY KEY (folder, uid_validity, uid)
            ) /*+ WITHOUT ROWID */
        """),
    ),
)

BIND = sql("INSERT INTO directsuite.sink (kind) VALUES (:kind) ON CONFLICT DO NOTHING")
BOUND_SINK = sql("SELECT kind FROM directsuite.sink")

CLAIM = sql("""
    INSERT INTO directsuite.mailbox AS m (name, fence) VALUES (:name, 1)
    ON CONFLICT (name) DO UPDATE SET fence = m.fence + 1 RETURNING id, name, fence
""")
LOCK_LEASE = sql("SELECT fence FROM directsuite.mailbox WHERE id = :mailbox FOR UPDATE")

MAKE_FOLDER = sql("""
    INSERT INTO directsuite.folder (mailbox, name, uid_validity) VALUES (:mailbox, :name, 1)
    ON CONFLICT (mailbox, name) DO NOTHING
""")
FOLDER = sql("""
    SELECT id, name, uid_validity, fingerprint, audited_ms FROM directsuite.folder
    WHERE mailbox = :mailbox AND name = :name
""")
FOLDERS = sql("SELECT id, name, uid_validity, fingerprint, audited_ms FROM directsuite.folder WHERE mailbox = :mailbox")

STATES = sql("SELECT uid, state FROM directsuite.msg WHERE folder = :folder AND uid_validity = :uid_validity")
ROWS = sql("SELECT * FROM directsuite.msg WHERE folder = :folder AND uid_validity = :uid_validity ORDER BY uid")
ROWS_BY_UID = sql("""
    SELECT * FROM directsuite.msg WHERE folder = :folder AND uid_validity = :uid_validity AND uid = ANY(:uids)
    ORDER BY uid
""")
_CANDIDATES = """
    SELECT * FROM directsuite.msg WHERE folder = :folder AND uid_validity = :uid_validity AND state = 1
    AND identity IS NOT NULL AND received_ms IS NOT NULL ORDER BY uid
"""
SENTINELS = sql(f"""
    SELECT * FROM ({_CANDIDATES} DESC LIMIT 1) AS newest UNION SELECT * FROM ({_CANDIDATES} LIMIT 1) AS oldest
    ORDER BY uid DESC
""")  # noqa: S608  of constants
# The hints prevent scans of complete folders: SQLite prefers the primary key, and PostgreSQL's statistics are outdated
# during a first synchronisation.
WITH_DIGESTS = sql(
    """
    SELECT f.name, m.* FROM directsuite.folder f CROSS JOIN unnest(:digests::bytea[]) AS w(digest) CROSS JOIN LATERAL (
        SELECT * FROM directsuite.msg WHERE folder = f.id AND digest = w.digest OFFSET 0
    ) m WHERE f.mailbox = :mailbox
    """,
    sqlite="""
    SELECT f.name, m.* FROM folder f JOIN msg m INDEXED BY msg_digest ON m.folder = f.id
    WHERE f.mailbox = :mailbox AND m.digest IN (:digests)
    """,
)
UNFINISHED = sql("""
    SELECT f.name, m.* FROM directsuite.folder f
    JOIN directsuite.msg m /*+ INDEXED BY msg_unsettled */ ON m.folder = f.id
    WHERE f.mailbox = :mailbox AND m.state IN (2, 4, 5, 7)
    ORDER BY m.folder, m.uid_validity, m.uid
""")

RENUMBER = sql("""
    UPDATE directsuite.msg SET state = CASE state WHEN 5 THEN 3 ELSE 4 END, attempts = 0, retry_ms = NULL
    WHERE folder = ANY(:folders) AND state IN (1, 2, 5, 6, 7)
""")
WRITE_ROWS = sql("""
    INSERT INTO directsuite.msg VALUES :rows ON CONFLICT (folder, uid_validity, uid) DO UPDATE SET
        state = excluded.state, identity = excluded.identity, digest = excluded.digest, size = excluded.size,
        received_ms = excluded.received_ms, attempts = excluded.attempts, retry_ms = excluded.retry_ms
""")
WRITE_PROBLEMS = sql("""
    INSERT INTO directsuite.quarantine VALUES :rows ON CONFLICT (folder, uid_validity, uid) DO UPDATE SET
        problem = excluded.problem
""")
FORGET_PROBLEMS = sql("""
    DELETE FROM directsuite.quarantine AS q WHERE folder = ANY(:folders) AND NOT EXISTS (
        SELECT 1 FROM directsuite.msg m
        WHERE m.folder = q.folder AND m.uid_validity = q.uid_validity AND m.uid = q.uid AND m.state IN (5, 7))
""")
WRITE_FOLDER = sql("""
    UPDATE directsuite.folder SET name = :name, uid_validity = :uid_validity, fingerprint = :fingerprint,
        audited_ms = :audited_ms
    WHERE id = :id AND mailbox = :mailbox
""")

ADD_REQUEST = sql("""
    INSERT INTO directsuite.operator_request (mailbox, kind)
    SELECT id, :kind FROM directsuite.mailbox WHERE name = ANY(:names)
    ON CONFLICT (mailbox, kind) DO NOTHING
""")
MAILBOX_NAMES = sql("SELECT name FROM directsuite.mailbox")
PENDING_REQUESTS = sql(
    "SELECT DISTINCT b.name FROM directsuite.operator_request w JOIN directsuite.mailbox b ON b.id = w.mailbox"
)
HAS_REQUESTS = sql("""
    SELECT b.name FROM directsuite.operator_request r JOIN directsuite.mailbox b ON b.id = r.mailbox
    WHERE b.name = :name
""")
TAKE_REQUESTS = sql("""
    DELETE FROM directsuite.operator_request WHERE mailbox = (SELECT id FROM directsuite.mailbox WHERE name = :name)
    RETURNING mailbox, kind
""")
APPLY_REQUEST: Mapping[str, Statement] = {
    OperatorRequest.AUDIT: sql(
        "UPDATE directsuite.folder SET audited_ms = 0 WHERE mailbox = :mailbox AND audited_ms IS NOT NULL"
    ),
    OperatorRequest.RETRY: sql("""
        UPDATE directsuite.msg SET retry_ms = 0 WHERE retry_ms > 0 AND state IN (2, 4, 5, 7)
        AND folder IN (SELECT id FROM directsuite.folder WHERE mailbox = :mailbox)
    """),
}

STATUS = sql("""
    SELECT b.id, b.name, f.name, f.uid_validity, f.audited_ms, m.state, count(m.uid) FROM directsuite.mailbox b
    LEFT JOIN directsuite.folder f ON f.mailbox = b.id LEFT JOIN directsuite.msg m ON m.folder = f.id
    GROUP BY b.id, f.id, m.state ORDER BY b.name COLLATE "C", f.name COLLATE "C", m.state
""")

QUARANTINED_MESSAGES = sql("""
    SELECT b.id, b.name, f.name, m.uid_validity, m.uid, q.problem, m.attempts, m.retry_ms FROM directsuite.mailbox b
    JOIN directsuite.folder f ON f.mailbox = b.id
    JOIN directsuite.msg m /*+ INDEXED BY msg_unsettled */ ON m.folder = f.id
    LEFT JOIN directsuite.quarantine q ON q.folder = m.folder AND q.uid_validity = m.uid_validity AND q.uid = m.uid
    WHERE m.state IN (5, 7) AND m.state IN (2, 4, 5, 7)
    ORDER BY b.name COLLATE "C", f.name COLLATE "C", m.uid_validity, m.uid
""")

FLEET_TABLES = Tables(
    "fleet",
    (
        sql("""
            CREATE TABLE directsuite.schedule (
                mailbox bigint PRIMARY KEY REFERENCES directsuite.mailbox,
                next_due_at timestamptz NOT NULL DEFAULT now(), woken_at timestamptz, fence bigint NOT NULL DEFAULT 0,
                worker text, fail_count bigint NOT NULL DEFAULT 0, last_error text, up_to_date_at timestamptz
            )
        """),
        sql("CREATE INDEX schedule_due ON directsuite.schedule (next_due_at)"),
        sql("CREATE TABLE directsuite.worker (id text PRIMARY KEY, seen_at timestamptz NOT NULL)"),
    ),
)

ADD_MAILBOXES = sql("""
    INSERT INTO directsuite.mailbox (name, fence) SELECT unnest(:names::text[]), 0 ON CONFLICT (name) DO NOTHING
""")
ADD_TO_SCHEDULE = sql("""
    INSERT INTO directsuite.schedule (mailbox) SELECT id FROM directsuite.mailbox WHERE name = ANY(:names)
    ON CONFLICT (mailbox) DO NOTHING RETURNING mailbox
""")
REMOVE_FROM_SCHEDULE = sql("""
    DELETE FROM directsuite.schedule s USING directsuite.mailbox m WHERE m.id = s.mailbox AND m.name = ANY(:names)
    RETURNING s.mailbox
""")
# woken_at: when a worker was woken, or last reported that it has the mailbox; NULL while the mailbox waits.
# next_due_at of a mailbox that a worker has: when other workers may take it. A time too far ahead was set while a
# clock was ahead, and counts as past.
_IS_DUE = "(next_due_at <= now() OR next_due_at > now() + make_interval(secs => :longest))"
_IS_RECENT = "BETWEEN now() - make_interval(secs => :patience) AND now() + make_interval(secs => :patience)"
HEARTBEAT = sql("""
    WITH alive AS (
        INSERT INTO directsuite.worker VALUES (:worker, now()) ON CONFLICT (id) DO UPDATE SET seen_at = now()
    ), held AS (
        SELECT mailbox FROM directsuite.schedule
        JOIN unnest(:mailboxes::bigint[], :fences::bigint[]) AS l (mailbox, fence) USING (mailbox, fence)
        FOR UPDATE OF schedule SKIP LOCKED
    ), extended AS (
        UPDATE directsuite.schedule s SET woken_at = now(), next_due_at = now() + make_interval(secs => :patience)
        FROM held WHERE s.mailbox = held.mailbox
    )
    SELECT count(*), array_remove(array_agg(CASE WHEN worker = :worker THEN mailbox END), NULL)
    FROM directsuite.schedule
""")
LEAVE = sql("""
    DELETE FROM directsuite.worker
    WHERE id = :worker OR seen_at NOT BETWEEN now() - interval '1 day' AND now() + interval '1 day'
""")
# The last worker of a mailbox that is late is busy, so any worker may take it.
TAKE_DUE_MAILBOXES = sql(f"""
    WITH due AS (
        SELECT mailbox FROM directsuite.schedule
        WHERE {_IS_DUE} AND (woken_at IS NULL OR woken_at NOT {_IS_RECENT})
        ORDER BY next_due_at LIMIT :most FOR UPDATE SKIP LOCKED
    )
    UPDATE directsuite.schedule s SET woken_at = now() FROM due WHERE s.mailbox = due.mailbox
    RETURNING s.mailbox, (SELECT id FROM directsuite.worker w WHERE w.id = s.worker AND w.seen_at {_IS_RECENT}
        AND s.next_due_at > now() - make_interval(secs => :patience))
""")  # noqa: S608  of constants
CLAIM_ROUNDS = sql(f"""
    WITH due AS (
        SELECT mailbox FROM directsuite.schedule WHERE mailbox = ANY(:mailboxes) AND {_IS_DUE}
        FOR UPDATE SKIP LOCKED
    )
    UPDATE directsuite.schedule s SET fence = s.fence + 1, worker = :worker, woken_at = now(),
        next_due_at = now() + make_interval(secs => :patience)
    FROM due JOIN directsuite.mailbox m ON m.id = due.mailbox WHERE s.mailbox = due.mailbox
    RETURNING s.mailbox, m.name, s.fence, s.fail_count, s.last_error,
        EXISTS (SELECT FROM directsuite.operator_request r WHERE r.mailbox = s.mailbox)
""")  # noqa: S608  of constants
FINISH_ROUNDS = sql("""
    WITH ended AS (
        SELECT s.mailbox, e.* FROM directsuite.schedule s JOIN unnest(:mailboxes::bigint[], :fences::bigint[],
            :pauses::float8[], :problems::text[], :failures::bigint[]) AS e (id, fence, pause, problem, failures)
            ON s.mailbox = e.id AND s.fence = e.fence
        ORDER BY s.mailbox FOR UPDATE OF s
    )
    UPDATE directsuite.schedule s SET woken_at = CASE WHEN :wakes AND pause <= 0 THEN now() END, last_error = problem,
        next_due_at = CASE WHEN EXISTS (SELECT FROM directsuite.operator_request r WHERE r.mailbox = s.mailbox)
            THEN now() ELSE now() + make_interval(secs => pause) END,
        up_to_date_at = CASE WHEN problem IS NULL AND pause > 0 THEN now() ELSE up_to_date_at END,
        fail_count = failures
    FROM ended WHERE s.mailbox = ended.mailbox AND s.fence = ended.fence RETURNING s.mailbox
""")
# A mailbox that a worker has is due after its round, because of the request.
RESCHEDULE_NOW = sql("""
    WITH found AS (
        SELECT s.mailbox FROM directsuite.schedule s JOIN directsuite.mailbox m ON m.id = s.mailbox
        WHERE m.name = ANY(:names) ORDER BY s.mailbox FOR UPDATE OF s
    )
    UPDATE directsuite.schedule s SET
        next_due_at = CASE WHEN woken_at IS NULL THEN least(next_due_at, now()) ELSE next_due_at END
    FROM found WHERE s.mailbox = found.mailbox RETURNING s.mailbox
""")
SCHEDULED_MAILBOXES = sql("""
    SELECT m.name, s.fence, extract(epoch FROM s.up_to_date_at)::float8, extract(epoch FROM s.next_due_at)::float8,
        s.fail_count, s.last_error
    FROM directsuite.schedule s JOIN directsuite.mailbox m ON m.id = s.mailbox ORDER BY m.name COLLATE "C"
""")
FLEET_STATUS = sql(f"""
    SELECT count(*), count(*) FILTER (WHERE fence = 0),
        greatest(0, coalesce(extract(epoch FROM now() - min(next_due_at)), 0))::float8,
        (SELECT count(*) FROM directsuite.worker WHERE seen_at {_IS_RECENT})
    FROM directsuite.schedule
""")  # noqa: S608  of constants
PROBLEMS = sql("SELECT last_error, count(*) FROM directsuite.schedule WHERE fail_count > 0 GROUP BY last_error")

RATE_TABLES = Tables(
    "rate",
    (
        sql("CREATE UNLOGGED TABLE directsuite.rate (name text PRIMARY KEY, arrival timestamptz NOT NULL)"),
        # A crash empties an unlogged table, so a missing row is created.
        sql("""
            CREATE FUNCTION directsuite.take_slots(
                rate_name text, places integer, spacing float8, tolerance float8, longest float8
            ) RETURNS float8 LANGUAGE plpgsql AS $$
            DECLARE
                next_arrival timestamptz;
                this_moment timestamptz;
                wait float8;
            BEGIN
                INSERT INTO directsuite.rate VALUES (rate_name, clock_timestamp()) ON CONFLICT DO NOTHING;
                SELECT arrival INTO next_arrival FROM directsuite.rate WHERE name = rate_name FOR UPDATE;
                this_moment := clock_timestamp();
                wait := extract(epoch FROM next_arrival - this_moment) - tolerance;
                IF wait > longest THEN
                    RETURN -wait;
                END IF;
                next_arrival := greatest(next_arrival, this_moment) + make_interval(secs => places * spacing);
                UPDATE directsuite.rate SET arrival = next_arrival WHERE name = rate_name;
                RETURN greatest(wait, 0);
            END $$
        """),
    ),
)
TAKE_SLOTS = sql("""
    SELECT directsuite.take_slots(
        :rate::text, :slots::integer, :spacing::float8, :tolerance::float8, :longest::float8)
""")
PUSH_BACK = sql("""
    INSERT INTO directsuite.rate AS r VALUES (:rate, clock_timestamp() + make_interval(secs => :seconds))
    ON CONFLICT (name) DO UPDATE SET arrival = greatest(r.arrival, excluded.arrival)
""")
CORRECT_RATE = sql("""
    UPDATE directsuite.rate SET arrival = clock_timestamp()
    WHERE name = :rate AND arrival > clock_timestamp() + make_interval(secs => :longest)
""")
