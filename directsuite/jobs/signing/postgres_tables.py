"""The tables of signing jobs in PostgreSQL, in the schema `directsuite`, and what is asked of them.

signing_job        what is signed with; identity: no other job's, in whatever database
signing_chunk      documents that one worker at a time has: the turn's number is its lease; seen_at: it was heard of;
                   woken_at: workers were told that it is there to be taken
signing_document   one row each, by its name
signing_abandoned  stored documents that are to be deleted when there is time

A worker writes only in a turn that is the chunk's last one: each statement that writes holds the chunk's row meanwhile,
for which another turn has to wait.
"""

from __future__ import annotations

from typing import LiteralString

VERSION = 1
TABLES: tuple[LiteralString, ...] = (
    """
    CREATE TABLE directsuite.signing_job (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, digest text,
        identity uuid NOT NULL DEFAULT gen_random_uuid()
    )
    """,
    """
    CREATE TABLE directsuite.signing_chunk (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job bigint NOT NULL REFERENCES directsuite.signing_job,
        turn bigint NOT NULL DEFAULT 0, seen_at timestamptz, woken_at timestamptz, done boolean NOT NULL DEFAULT false,
        abandoned bigint NOT NULL DEFAULT 0, asked bigint NOT NULL DEFAULT 0
    )
    """,
    "CREATE INDEX signing_chunk_open ON directsuite.signing_chunk (job, id) WHERE NOT done",
    """
    CREATE TABLE directsuite.signing_document (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job bigint NOT NULL,
        chunk bigint NOT NULL REFERENCES directsuite.signing_chunk, name bytea NOT NULL,
        state smallint NOT NULL DEFAULT 1, identifier text, saved_at float8, source_sha text, output_sha text,
        tries bigint NOT NULL DEFAULT 0, problem text, UNIQUE (job, name)
    )
    """,
    "CREATE INDEX signing_document_chunk ON directsuite.signing_document (chunk, number)",
    "CREATE INDEX signing_document_failed ON directsuite.signing_document (job, number) WHERE state = 6",
    """
    CREATE TABLE directsuite.signing_abandoned (
        identifier text PRIMARY KEY, chunk bigint NOT NULL REFERENCES directsuite.signing_chunk, at float8 NOT NULL
    )
    """,
    "CREATE INDEX signing_abandoned_chunk ON directsuite.signing_abandoned (chunk, identifier)",
)

JOB = """
    INSERT INTO directsuite.signing_job (name) VALUES (%s)
    ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id, identity::text
"""
CLAIM = """
    UPDATE directsuite.signing_job SET digest = coalesce(digest, %s) WHERE id = %s RETURNING digest
"""

MAKE_CHUNK = "INSERT INTO directsuite.signing_chunk (job) VALUES (%s) RETURNING id"
ADD = """
    INSERT INTO directsuite.signing_document (job, chunk, name) SELECT %s, %s, unnest(%s::bytea[])
    ON CONFLICT (job, name) DO NOTHING RETURNING number
"""
DROP_CHUNK = "DELETE FROM directsuite.signing_chunk WHERE id = %s"

DUE = """
    WITH due AS (
        SELECT id FROM directsuite.signing_chunk
        WHERE job = %(job)s AND NOT done AND (seen_at IS NULL OR seen_at < now() - make_interval(secs => %(patience)s))
            AND (woken_at IS NULL OR woken_at < now() - make_interval(secs => %(patience)s))
        ORDER BY id FOR UPDATE SKIP LOCKED LIMIT (
            SELECT greatest(0, %(most)s - count(*)) FROM directsuite.signing_chunk
            WHERE job = %(job)s AND NOT done AND woken_at >= now() - make_interval(secs => %(patience)s))
    )
    UPDATE directsuite.signing_chunk c SET woken_at = now() FROM due WHERE c.id = due.id RETURNING c.id
"""
TAKE = """
    UPDATE directsuite.signing_chunk SET turn = turn + 1, seen_at = now(), woken_at = NULL
    WHERE id = %s AND NOT done AND (seen_at IS NULL OR seen_at < now() - make_interval(secs => %s)) RETURNING turn
"""
WAKE_ANEW = "UPDATE directsuite.signing_chunk SET woken_at = NULL WHERE id = %s RETURNING id"
SEEN = """
    UPDATE directsuite.signing_chunk SET seen_at = now() WHERE id = %s AND turn = %s AND seen_at IS NOT NULL
    RETURNING id
"""
HOLD = "SELECT id FROM directsuite.signing_chunk WHERE id = %s AND turn = %s FOR UPDATE"
LEAVE = """
    UPDATE directsuite.signing_chunk c SET seen_at = NULL, woken_at = NULL, done = NOT EXISTS (
        SELECT FROM directsuite.signing_document d WHERE d.chunk = c.id AND d.state < 5)
    WHERE id = %s AND turn = %s RETURNING done
"""
OPEN = "SELECT count(*) FROM directsuite.signing_chunk WHERE job = %s AND NOT done"

COLUMNS: LiteralString = "number, name, state, identifier, saved_at, source_sha, output_sha, tries, problem"
NAMES = "SELECT name FROM directsuite.signing_document WHERE chunk = %s AND state < 5 ORDER BY number"
ENTRIES = f"SELECT {COLUMNS} FROM directsuite.signing_document WHERE job = %s AND chunk = %s AND name = ANY(%s)"  # noqa: S608
FAILURES = f"""
    SELECT {COLUMNS} FROM directsuite.signing_document WHERE job = %s AND state = 6 AND number > %s
    ORDER BY number LIMIT %s
"""  # noqa: S608

PUT = """
    WITH held AS (SELECT id FROM directsuite.signing_chunk WHERE id = %(chunk)s AND turn = %(turn)s FOR SHARE)
    UPDATE directsuite.signing_document d SET state = %(state)s, identifier = %(identifier)s, saved_at = %(saved_at)s,
        source_sha = %(source_sha)s, output_sha = %(output_sha)s, tries = %(tries)s, problem = %(problem)s
    FROM held WHERE d.chunk = held.id AND d.number = %(number)s RETURNING d.number
"""
ABANDON = """
    INSERT INTO directsuite.signing_abandoned VALUES (%s, %s, %s) ON CONFLICT (identifier) DO NOTHING RETURNING chunk
"""
COUNT = """
    UPDATE directsuite.signing_chunk SET abandoned = abandoned + %s, asked = asked + %s WHERE id = %s AND turn = %s
    RETURNING id
"""
SET = """
    UPDATE directsuite.signing_document SET state = %(state)s, identifier = %(identifier)s, saved_at = %(saved_at)s,
        source_sha = %(source_sha)s, output_sha = %(output_sha)s, tries = %(tries)s, problem = %(problem)s
    WHERE chunk = %(chunk)s AND number = %(number)s
"""
ABANDONED = """
    SELECT identifier FROM directsuite.signing_abandoned WHERE chunk = %s AND identifier > %s
    ORDER BY identifier LIMIT %s
"""
FORGET = "DELETE FROM directsuite.signing_abandoned WHERE identifier = ANY(%s) RETURNING chunk"
FORGET_BEFORE = """
    DELETE FROM directsuite.signing_abandoned a USING directsuite.signing_chunk c
    WHERE a.chunk = c.id AND c.job = %s AND a.at < %s RETURNING a.chunk
"""  # of chunks that are done, too, whose turn nobody takes any more

RENEW = """
    WITH renewed AS (
        UPDATE directsuite.signing_document SET state = 1, problem = NULL, tries = 0, source_sha = NULL
        WHERE job = %(job)s AND state = 6 AND problem = coalesce(%(problem)s::text, problem) RETURNING chunk
    ), opened AS (
        UPDATE directsuite.signing_chunk SET done = false WHERE id IN (SELECT chunk FROM renewed)
    )
    SELECT count(*) FROM renewed
"""
STATES = "SELECT state, count(*) FROM directsuite.signing_document WHERE job = %s GROUP BY state"
COUNTS = """
    SELECT coalesce(sum(abandoned), 0)::bigint, coalesce(sum(asked), 0)::bigint FROM directsuite.signing_chunk
    WHERE job = %s
"""
