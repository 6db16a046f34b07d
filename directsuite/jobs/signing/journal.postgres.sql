-- signing_job        digest: of its signatures; identity: unique to the job in any database
-- signing_chunk      a batch of documents. fence: number of its latest lease; seen_at: the worker's last sign of life;
--                    woken_at: when workers were notified that it is due
-- signing_document   one row each. The name may not be valid Unicode. problem: a code of DocumentProblem, or a text
-- signing_abandoned  stored documents to delete, possibly signed
-- The columns of an entry are in the order of the fields of SigningEntry. States: 1 NEW, 5 DONE, 6 FAILED.
--
-- Transactions that write check the lease number and lock the batch's row, so that no new lease can start.

-- name: tables
CREATE TABLE directsuite.signing_job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, digest text,
    identity text NOT NULL
);
CREATE TABLE directsuite.signing_chunk (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job bigint NOT NULL REFERENCES directsuite.signing_job, fence bigint NOT NULL DEFAULT 0,
    seen_at timestamptz, woken_at timestamptz, done boolean NOT NULL DEFAULT false,
    abandoned bigint NOT NULL DEFAULT 0, requested bigint NOT NULL DEFAULT 0
);
CREATE INDEX signing_chunk_open ON directsuite.signing_chunk (job, id) WHERE NOT done;
CREATE TABLE directsuite.signing_document (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job bigint NOT NULL,
    chunk bigint NOT NULL REFERENCES directsuite.signing_chunk, name bytea NOT NULL,
    state smallint NOT NULL DEFAULT 1, identifier text, saved_at float8, source_sha text, source_stamp text,
    output_sha text, tries bigint NOT NULL DEFAULT 0, problem text, service_message text, UNIQUE (job, name)
);
CREATE INDEX signing_document_chunk ON directsuite.signing_document (chunk, number);
CREATE INDEX signing_document_state ON directsuite.signing_document (job, state);
CREATE TABLE directsuite.signing_abandoned (
    identifier text PRIMARY KEY, chunk bigint NOT NULL REFERENCES directsuite.signing_chunk,
    at float8 NOT NULL
);
CREATE INDEX signing_abandoned_chunk ON directsuite.signing_abandoned (chunk, identifier)

-- name: job
INSERT INTO directsuite.signing_job (name, identity) VALUES (:name, :identity)
ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id, identity

-- name: claim
UPDATE directsuite.signing_job SET digest = coalesce(digest, :digest) WHERE id = :job RETURNING digest

-- name: read_claim
SELECT digest FROM directsuite.signing_job WHERE id = :job

-- name: make_batch
INSERT INTO directsuite.signing_chunk (job) VALUES (:job) RETURNING id

-- name: drop_batch
DELETE FROM directsuite.signing_chunk WHERE id = :chunk

-- name: add
INSERT INTO directsuite.signing_document (job, chunk, name) VALUES :rows
ON CONFLICT (job, name) DO NOTHING RETURNING number

-- name: take_due_batches
-- Times in the future, written while the clock was ahead, are set to the current time: a live worker retains its lease,
-- and a dead worker's batch is due after the timeout.
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

-- name: lease
UPDATE directsuite.signing_chunk SET fence = fence + 1, seen_at = now(), woken_at = NULL
WHERE id = :chunk AND NOT done AND (seen_at IS NULL OR seen_at < now() - make_interval(secs => :patience))
RETURNING fence

-- name: confirm_lease
UPDATE directsuite.signing_chunk SET seen_at = now() WHERE id = :chunk AND fence = :fence AND seen_at IS NOT NULL
RETURNING id

-- name: lock_batch
SELECT id FROM directsuite.signing_chunk WHERE id = :chunk AND fence = :fence FOR UPDATE

-- name: release
UPDATE directsuite.signing_chunk c SET seen_at = NULL, woken_at = NULL, done = NOT EXISTS (
    SELECT FROM directsuite.signing_document d WHERE d.chunk = c.id AND d.state NOT IN (5, 6))
WHERE id = :chunk AND fence = :fence

-- name: count_open_batches
SELECT count(*) FROM directsuite.signing_chunk WHERE job = :job AND NOT done

-- name: names
SELECT name FROM directsuite.signing_document WHERE chunk = :chunk AND state NOT IN (5, 6) ORDER BY number

-- name: entries
SELECT number, name, state, identifier, saved_at, source_sha, source_stamp, output_sha,
    tries, problem, service_message
FROM directsuite.signing_document
WHERE job = :job AND chunk = :chunk AND name = ANY(:names::bytea[])

-- name: failures
SELECT number, name, state, identifier, saved_at, source_sha, source_stamp, output_sha,
    tries, problem, service_message
FROM directsuite.signing_document
WHERE job = :job AND state = 6 AND number > :after
ORDER BY number LIMIT coalesce(:most, 9223372036854775807)

-- name: put
WITH held AS (SELECT id FROM directsuite.signing_chunk WHERE id = :chunk AND fence = :fence FOR SHARE)
UPDATE directsuite.signing_document AS d
SET state = :state, identifier = :identifier, saved_at = :saved_at, source_sha = :source_sha,
    source_stamp = :source_stamp, output_sha = :output_sha, tries = :tries, problem = :problem,
    service_message = :service_message
FROM held WHERE d.chunk = held.id AND d.number = :number RETURNING number

-- name: add_counts
UPDATE directsuite.signing_chunk SET abandoned = abandoned + :abandoned, requested = requested + :requested
WHERE id = :chunk AND fence = :fence RETURNING id

-- name: abandon
INSERT INTO directsuite.signing_abandoned VALUES (:identifier, :chunk, :at) ON CONFLICT (identifier) DO NOTHING

-- name: select_abandoned
SELECT identifier FROM directsuite.signing_abandoned WHERE chunk = :chunk AND identifier > :after
ORDER BY identifier LIMIT coalesce(:most, 9223372036854775807)

-- name: forget
DELETE FROM directsuite.signing_abandoned WHERE identifier = ANY(:identifiers)

-- name: correct_future
-- Their times were written while the clock was ahead.
UPDATE directsuite.signing_abandoned SET at = :now
WHERE at > :now AND chunk IN (SELECT id FROM directsuite.signing_chunk WHERE job = :job)

-- name: forget_before
-- Also for batches that are done.
DELETE FROM directsuite.signing_abandoned
WHERE at < :at AND chunk IN (SELECT id FROM directsuite.signing_chunk WHERE job = :job)

-- name: retry_failed
UPDATE directsuite.signing_document
SET state = 1, problem = NULL, service_message = NULL, tries = 0, source_sha = NULL
WHERE job = :job AND state = 6 AND (:all::boolean OR problem = :problem) RETURNING chunk

-- name: reopen
UPDATE directsuite.signing_chunk SET done = false WHERE id = ANY(:chunks)

-- name: states
SELECT state, count(*) FROM directsuite.signing_document WHERE job = :job GROUP BY state

-- name: counts
SELECT coalesce(sum(abandoned), 0)::bigint, coalesce(sum(requested), 0)::bigint FROM directsuite.signing_chunk
WHERE job = :job
