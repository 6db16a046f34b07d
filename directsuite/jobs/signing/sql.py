"""The tables of signing jobs, and their statements. An SQLite file has one job with one batch.

signing_job        digest: of its signatures; identity: unique to the job in any database
signing_chunk      a batch of documents. fence: number of its latest lease; seen_at: the worker's last sign of life;
                   woken_at: when workers were notified that it is due
signing_document   one row each. The name may not be valid Unicode. problem: a code of DocumentProblem, or a text
signing_abandoned  stored documents to delete, possibly signed

Transactions that write check the lease number and lock the batch's row, so that no new lease can start.
"""

from __future__ import annotations

from directsuite.durable.database import Tables, sql
from directsuite.jobs.signing.workflow import DocumentState

_NEW, _FAILED = int(DocumentState.NEW), int(DocumentState.FAILED)
_FINAL_STATES = ", ".join(str(int(state)) for state in DocumentState if state.is_final)

TABLES = Tables(
    "signing",
    (
        sql("""
            CREATE TABLE directsuite.signing_job (
                id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, digest text,
                identity text NOT NULL
            )
        """),
        sql("""
            CREATE TABLE directsuite.signing_chunk (
                id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                job bigint NOT NULL REFERENCES directsuite.signing_job, fence bigint NOT NULL DEFAULT 0,
                seen_at timestamptz, woken_at timestamptz, done boolean NOT NULL DEFAULT false,
                abandoned bigint NOT NULL DEFAULT 0, requested bigint NOT NULL DEFAULT 0
            )
        """),
        sql("CREATE INDEX signing_chunk_open ON directsuite.signing_chunk (job, id) WHERE NOT done"),
        sql("""
            CREATE TABLE directsuite.signing_document (
                number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job bigint NOT NULL,
                chunk bigint NOT NULL REFERENCES directsuite.signing_chunk, name bytea NOT NULL,
                state smallint NOT NULL DEFAULT 1, identifier text, saved_at float8, source_sha text, source_stamp text,
                output_sha text, tries bigint NOT NULL DEFAULT 0, problem text, service_message text, UNIQUE (job, name)
            )
        """),
        # SQLite has only one batch.
        sql("CREATE INDEX signing_document_chunk ON directsuite.signing_document (chunk, number)", sqlite=""),
        sql("CREATE INDEX signing_document_state ON directsuite.signing_document (job, state)"),
        sql("""
            CREATE TABLE directsuite.signing_abandoned (
                identifier text PRIMARY KEY, chunk bigint NOT NULL REFERENCES directsuite.signing_chunk,
                at float8 NOT NULL
            )
        """),
        sql("CREATE INDEX signing_abandoned_chunk ON directsuite.signing_abandoned (chunk, identifier)"),
    ),
    version=2,
)

JOB = sql("""
    INSERT INTO directsuite.signing_job (name, identity) VALUES (:name, :identity)
    ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id, identity
""")
CLAIM = sql("UPDATE directsuite.signing_job SET digest = coalesce(digest, :digest) WHERE id = :job RETURNING digest")
READ_CLAIM = sql("SELECT digest FROM directsuite.signing_job WHERE id = :job")

MAKE_BATCH = sql("INSERT INTO directsuite.signing_chunk (job) VALUES (:job) RETURNING id")
BATCHES = sql("SELECT id FROM directsuite.signing_chunk WHERE job = :job")
DROP_BATCH = sql("DELETE FROM directsuite.signing_chunk WHERE id = :chunk")
ADD = sql("""
    INSERT INTO directsuite.signing_document (job, chunk, name) VALUES :rows
    ON CONFLICT (job, name) DO NOTHING RETURNING number
""")

# PostgreSQL only. Times in the future, written while the clock was ahead, are set to the current time: a live worker
# retains its lease, and a dead worker's batch is due after the timeout.
TAKE_DUE_BATCHES = sql("""
    WITH future AS (
        SELECT id FROM directsuite.signing_chunk
        WHERE job = :job AND NOT done AND greatest(seen_at, woken_at) > clock_timestamp()
        ORDER BY id FOR UPDATE SKIP LOCKED
    ), corrected AS (
        UPDATE directsuite.signing_chunk c SET seen_at = CASE WHEN seen_at IS NOT NULL THEN clock_timestamp() END,
            woken_at = CASE WHEN woken_at IS NOT NULL THEN clock_timestamp() END
        FROM future WHERE c.id = future.id
    ), due AS (
        SELECT id FROM directsuite.signing_chunk
        WHERE job = :job AND NOT done AND (seen_at IS NULL OR seen_at < now() - make_interval(secs => :patience))
            AND (woken_at IS NULL OR woken_at < now() - make_interval(secs => :patience))
        ORDER BY id FOR UPDATE SKIP LOCKED LIMIT (
            SELECT greatest(0, :most - count(*)) FROM directsuite.signing_chunk
            WHERE job = :job AND NOT done AND woken_at >= now() - make_interval(secs => :patience))
    )
    UPDATE directsuite.signing_chunk c SET woken_at = now() FROM due WHERE c.id = due.id RETURNING c.id
""")
LEASE = sql("""
    UPDATE directsuite.signing_chunk SET fence = fence + 1, seen_at = now(), woken_at = NULL
    WHERE id = :chunk AND NOT done AND (seen_at IS NULL OR seen_at < now() - make_interval(secs => :patience))
    RETURNING fence
""")
CONFIRM_LEASE = sql("""
    UPDATE directsuite.signing_chunk SET seen_at = now() WHERE id = :chunk AND fence = :fence AND seen_at IS NOT NULL
    RETURNING id
""")
LOCK_BATCH = sql("SELECT id FROM directsuite.signing_chunk WHERE id = :chunk AND fence = :fence FOR UPDATE")
RELEASE = sql(f"""
    UPDATE directsuite.signing_chunk c SET seen_at = NULL, woken_at = NULL, done = NOT EXISTS (
        SELECT FROM directsuite.signing_document d WHERE d.chunk = c.id AND d.state NOT IN ({_FINAL_STATES}))
    WHERE id = :chunk AND fence = :fence
""")  # noqa: S608  of constants
COUNT_OPEN_BATCHES = sql("SELECT count(*) FROM directsuite.signing_chunk WHERE job = :job AND NOT done")

# In the order of the fields of SigningEntry.
_COLUMNS = (
    "number, name, state, identifier, saved_at, source_sha, source_stamp, output_sha, tries, problem, service_message"
)
NAMES = sql(f"""
    SELECT name FROM directsuite.signing_document WHERE chunk = :chunk AND state NOT IN ({_FINAL_STATES}) \
ORDER BY number
""")  # noqa: S608  of constants
ENTRIES = sql(f"""
    SELECT {_COLUMNS} FROM directsuite.signing_document
    WHERE job = :job AND chunk = :chunk AND name = ANY(:names::bytea[])
""")  # noqa: S608  of constants
FAILURES = sql(f"""
    SELECT {_COLUMNS} FROM directsuite.signing_document WHERE job = :job AND state = {_FAILED} AND number > :after
    ORDER BY number LIMIT coalesce(:most, 9223372036854775807)
""")  # noqa: S608  of constants
PUT = sql("""
    WITH held AS (SELECT id FROM directsuite.signing_chunk WHERE id = :chunk AND fence = :fence FOR SHARE)
    UPDATE directsuite.signing_document AS d
    SET state = :state, identifier = :identifier, saved_at = :saved_at, source_sha = :source_sha,
        source_stamp = :source_stamp, output_sha = :output_sha, tries = :tries, problem = :problem,
        service_message = :service_message
    FROM held WHERE d.chunk = held.id AND d.number = :number RETURNING number
""")

ADD_COUNTS = sql("""
    UPDATE directsuite.signing_chunk SET abandoned = abandoned + :abandoned, requested = requested + :requested
    WHERE id = :chunk AND fence = :fence RETURNING id
""")
ABANDON = sql("""
    INSERT INTO directsuite.signing_abandoned VALUES (:identifier, :chunk, :at) ON CONFLICT (identifier) DO NOTHING
""")
SELECT_ABANDONED = sql("""
    SELECT identifier FROM directsuite.signing_abandoned WHERE chunk = :chunk AND identifier > :after
    ORDER BY identifier LIMIT coalesce(:most, 9223372036854775807)
""")
FORGET = sql("DELETE FROM directsuite.signing_abandoned WHERE identifier = ANY(:identifiers)")
CORRECT_FUTURE = sql("""
    UPDATE directsuite.signing_abandoned SET at = :now
    WHERE at > :now AND chunk IN (SELECT id FROM directsuite.signing_chunk WHERE job = :job)
""")  # written while the clock was ahead
FORGET_BEFORE = sql("""
    DELETE FROM directsuite.signing_abandoned
    WHERE at < :at AND chunk IN (SELECT id FROM directsuite.signing_chunk WHERE job = :job)
""")  # also of batches that are done

RETRY_FAILED = sql(f"""
    UPDATE directsuite.signing_document
    SET state = {_NEW}, problem = NULL, service_message = NULL, tries = 0, source_sha = NULL
    WHERE job = :job AND state = {_FAILED} AND (:all::boolean OR problem = ANY(:problems)) RETURNING chunk
""")  # noqa: S608  of constants
REOPEN = sql("UPDATE directsuite.signing_chunk SET done = false WHERE id = ANY(:chunks)")
STATES = sql("SELECT state, count(*) FROM directsuite.signing_document WHERE job = :job GROUP BY state")
COUNTS = sql("""
    SELECT coalesce(sum(abandoned), 0)::bigint, coalesce(sum(requested), 0)::bigint FROM directsuite.signing_chunk
    WHERE job = :job
""")
