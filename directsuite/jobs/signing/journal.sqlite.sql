-- signing_job        digest: of its signatures; identity: unique to the job in any database
-- signing_chunk      a batch of documents. fence: number of its latest lease; seen_at: the worker's last sign of life;
--                    woken_at: when workers were notified that it is due
-- signing_document   one row each. The name may not be valid Unicode. problem: a code of DocumentProblem, or a text
-- signing_abandoned  stored documents to delete, possibly signed
-- The columns of an entry are in the order of the fields of SigningEntry. States: 1 NEW, 5 DONE, 6 FAILED.
--
-- A file has one job with one batch. No index has all states, because each change of a state would also write its
-- pages: journals of earlier versions have such an index.

-- name: tables
CREATE TABLE IF NOT EXISTS signing_job (
    id INTEGER PRIMARY KEY, name text NOT NULL UNIQUE, digest text,
    identity text NOT NULL
);
CREATE TABLE IF NOT EXISTS signing_chunk (
    id INTEGER PRIMARY KEY,
    job bigint NOT NULL REFERENCES signing_job, fence bigint NOT NULL DEFAULT 0,
    seen_at TEXT, woken_at TEXT, done boolean NOT NULL DEFAULT false,
    abandoned bigint NOT NULL DEFAULT 0, requested bigint NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS signing_chunk_open ON signing_chunk (job, id) WHERE NOT done;
CREATE TABLE IF NOT EXISTS signing_document (
    number INTEGER PRIMARY KEY, job bigint NOT NULL,
    chunk bigint NOT NULL REFERENCES signing_chunk, name BLOB NOT NULL,
    state smallint NOT NULL DEFAULT 1, identifier text, saved_at REAL, source_sha text, source_stamp text,
    output_sha text, tries bigint NOT NULL DEFAULT 0, problem text, service_message text, UNIQUE (job, name)
);
DROP INDEX IF EXISTS signing_document_state;
CREATE INDEX IF NOT EXISTS signing_document_failed ON signing_document (job, number) WHERE state = 6;
CREATE TABLE IF NOT EXISTS signing_abandoned (
    identifier text PRIMARY KEY, chunk bigint NOT NULL REFERENCES signing_chunk,
    at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS signing_abandoned_chunk ON signing_abandoned (chunk, identifier)

-- name: job
INSERT INTO signing_job (name, identity) VALUES (:name, :identity)
ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id, identity

-- name: claim
UPDATE signing_job SET digest = coalesce(digest, :digest) WHERE id = :job RETURNING digest

-- name: read_claim
SELECT digest FROM signing_job WHERE id = :job

-- name: make_batch
INSERT INTO signing_chunk (job) VALUES (:job) RETURNING id

-- name: batches
SELECT id FROM signing_chunk WHERE job = :job

-- name: add
INSERT INTO signing_document (job, chunk, name) VALUES :rows
ON CONFLICT (job, name) DO NOTHING RETURNING number

-- name: entries
SELECT number, name, state, identifier, saved_at, source_sha, source_stamp, output_sha,
    tries, problem, service_message
FROM signing_document
WHERE job = :job AND chunk = :chunk AND name IN (:names)

-- name: failures
SELECT number, name, state, identifier, saved_at, source_sha, source_stamp, output_sha,
    tries, problem, service_message
FROM signing_document
WHERE job = :job AND state = 6 AND number > :after
ORDER BY number LIMIT coalesce(:most, 9223372036854775807)

-- name: put
WITH held AS (SELECT id FROM signing_chunk WHERE id = :chunk AND fence = :fence)
UPDATE signing_document AS d
SET state = :state, identifier = :identifier, saved_at = :saved_at, source_sha = :source_sha,
    source_stamp = :source_stamp, output_sha = :output_sha, tries = :tries, problem = :problem,
    service_message = :service_message
FROM held WHERE d.chunk = held.id AND d.number = :number RETURNING number

-- name: add_counts
UPDATE signing_chunk SET abandoned = abandoned + :abandoned, requested = requested + :requested
WHERE id = :chunk AND fence = :fence RETURNING id

-- name: abandon
INSERT INTO signing_abandoned VALUES (:identifier, :chunk, :at) ON CONFLICT (identifier) DO NOTHING

-- name: select_abandoned
SELECT identifier FROM signing_abandoned WHERE chunk = :chunk AND identifier > :after
ORDER BY identifier LIMIT coalesce(:most, 9223372036854775807)

-- name: forget
DELETE FROM signing_abandoned WHERE identifier IN (SELECT value FROM json_each(:identifiers))

-- name: correct_future
-- Their times were written while the clock was ahead.
UPDATE signing_abandoned SET at = :now
WHERE at > :now AND chunk IN (SELECT id FROM signing_chunk WHERE job = :job)

-- name: forget_before
-- Also for batches that are done.
DELETE FROM signing_abandoned
WHERE at < :at AND chunk IN (SELECT id FROM signing_chunk WHERE job = :job)

-- name: retry_failed
UPDATE signing_document
SET state = 1, problem = NULL, service_message = NULL, tries = 0, source_sha = NULL
WHERE job = :job AND state = 6 AND (:all OR problem = :problem) RETURNING chunk

-- name: reopen
UPDATE signing_chunk SET done = false WHERE id IN (SELECT value FROM json_each(:chunks))

-- name: states
-- The plus sign prevents the use of the index of names, whose order is not that of the rows.
SELECT state, count(*) FROM signing_document WHERE +job = :job GROUP BY state

-- name: counts
SELECT coalesce(sum(abandoned), 0), coalesce(sum(requested), 0) FROM signing_chunk
WHERE job = :job
