-- mailbox ─► folder ─► msg; a mailbox's fence counts its claims
--   └────► operator_request, written by other processes
-- sink: the sink to which the store is bound, at most one row
-- quarantine: the problem of each quarantined msg

-- name: tables
CREATE TABLE directsuite.mailbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, fence bigint NOT NULL
);
CREATE TABLE directsuite.folder (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    mailbox bigint NOT NULL REFERENCES directsuite.mailbox, name text NOT NULL,
    uid_validity bigint NOT NULL, fingerprint bytea, audited_ms bigint, UNIQUE (mailbox, name)
);
CREATE TABLE directsuite.msg (
    folder bigint NOT NULL REFERENCES directsuite.folder, uid_validity bigint NOT NULL, uid bigint NOT NULL,
    state bigint NOT NULL, identity bytea, digest bytea, size bigint NOT NULL, received_ms bigint,
    attempts bigint NOT NULL, retry_ms bigint, PRIMARY KEY (folder, uid_validity, uid)
);
CREATE INDEX msg_digest ON directsuite.msg (folder, digest) WHERE digest IS NOT NULL;
CREATE INDEX msg_unsettled ON directsuite.msg (folder, state) WHERE state IN (2, 4, 5, 7);
CREATE TABLE directsuite.operator_request (
    mailbox bigint NOT NULL REFERENCES directsuite.mailbox, kind text NOT NULL, PRIMARY KEY (mailbox, kind)
);
CREATE TABLE directsuite.sink (kind text NOT NULL);
CREATE UNIQUE INDEX sink_is_one ON directsuite.sink ((true))

-- name: quarantine_tables
CREATE TABLE directsuite.quarantine (
    folder bigint NOT NULL REFERENCES directsuite.folder, uid_validity bigint NOT NULL, uid bigint NOT NULL,
    problem text NOT NULL, PRIMARY KEY (folder, uid_validity, uid)
)

-- name: bind
INSERT INTO directsuite.sink (kind) VALUES (:kind) ON CONFLICT DO NOTHING

-- name: bound_sink
SELECT kind FROM directsuite.sink

-- name: claim
INSERT INTO directsuite.mailbox AS m (name, fence) VALUES (:name, 1)
ON CONFLICT (name) DO UPDATE SET fence = m.fence + 1 RETURNING id, name, fence

-- name: lock_lease
SELECT fence FROM directsuite.mailbox WHERE id = :mailbox FOR UPDATE

-- name: make_folder
INSERT INTO directsuite.folder (mailbox, name, uid_validity) VALUES (:mailbox, :name, 1)
ON CONFLICT (mailbox, name) DO UPDATE SET name = excluded.name
RETURNING id, name, uid_validity, fingerprint, audited_ms

-- name: folders
SELECT id, name, uid_validity, fingerprint, audited_ms FROM directsuite.folder WHERE mailbox = :mailbox

-- name: states
SELECT uid, state FROM directsuite.msg WHERE folder = :folder AND uid_validity = :uid_validity

-- name: rows
SELECT * FROM directsuite.msg WHERE folder = :folder AND uid_validity = :uid_validity ORDER BY uid

-- name: rows_by_uid
SELECT * FROM directsuite.msg WHERE folder = :folder AND uid_validity = :uid_validity AND uid = ANY(:uids)
ORDER BY uid

-- name: sentinels
SELECT * FROM (
    SELECT * FROM directsuite.msg
    WHERE folder = :folder AND uid_validity = :uid_validity AND state = 1
        AND identity IS NOT NULL AND received_ms IS NOT NULL
    ORDER BY uid DESC LIMIT 1
) AS newest UNION SELECT * FROM (
    SELECT * FROM directsuite.msg
    WHERE folder = :folder AND uid_validity = :uid_validity AND state = 1
        AND identity IS NOT NULL AND received_ms IS NOT NULL
    ORDER BY uid LIMIT 1
) AS oldest ORDER BY uid DESC

-- name: with_digests
-- OFFSET 0 prevents scans of complete folders: statistics are outdated during a first synchronisation.
SELECT f.name, m.* FROM directsuite.folder f CROSS JOIN unnest(:digests::bytea[]) AS w(digest) CROSS JOIN LATERAL (
    SELECT * FROM directsuite.msg WHERE folder = f.id AND digest = w.digest OFFSET 0
) m WHERE f.mailbox = :mailbox

-- name: unfinished
SELECT f.name, m.* FROM directsuite.folder f
JOIN directsuite.msg m ON m.folder = f.id
WHERE f.mailbox = :mailbox AND m.state IN (2, 4, 5, 7)
ORDER BY m.folder, m.uid_validity, m.uid

-- name: renumber
UPDATE directsuite.msg SET state = CASE state WHEN 5 THEN 3 ELSE 4 END, attempts = 0, retry_ms = NULL
WHERE folder = ANY(:folders) AND state IN (1, 2, 5, 6, 7)

-- name: write_rows
INSERT INTO directsuite.msg VALUES :rows ON CONFLICT (folder, uid_validity, uid) DO UPDATE SET
    state = excluded.state, identity = excluded.identity, digest = excluded.digest, size = excluded.size,
    received_ms = excluded.received_ms, attempts = excluded.attempts, retry_ms = excluded.retry_ms

-- name: write_problems
INSERT INTO directsuite.quarantine VALUES :rows ON CONFLICT (folder, uid_validity, uid) DO UPDATE SET
    problem = excluded.problem

-- name: forget_problems
DELETE FROM directsuite.quarantine AS q WHERE folder = ANY(:folders) AND NOT EXISTS (
    SELECT 1 FROM directsuite.msg m
    WHERE m.folder = q.folder AND m.uid_validity = q.uid_validity AND m.uid = q.uid AND m.state IN (5, 7))

-- name: write_folder
UPDATE directsuite.folder SET name = :name, uid_validity = :uid_validity, fingerprint = :fingerprint,
    audited_ms = :audited_ms
WHERE id = :id AND mailbox = :mailbox

-- name: add_request
INSERT INTO directsuite.operator_request (mailbox, kind)
SELECT id, :kind FROM directsuite.mailbox WHERE name = ANY(:names)
ON CONFLICT (mailbox, kind) DO NOTHING

-- name: mailbox_names
SELECT name FROM directsuite.mailbox

-- name: mailboxes_with_messages
SELECT name FROM directsuite.mailbox b
WHERE EXISTS (SELECT FROM directsuite.folder f JOIN directsuite.msg m ON m.folder = f.id WHERE f.mailbox = b.id)

-- name: pending_requests
SELECT DISTINCT b.name FROM directsuite.operator_request w JOIN directsuite.mailbox b ON b.id = w.mailbox

-- name: has_requests
SELECT b.name FROM directsuite.operator_request r JOIN directsuite.mailbox b ON b.id = r.mailbox
WHERE b.name = :name

-- name: take_requests
DELETE FROM directsuite.operator_request WHERE mailbox = (SELECT id FROM directsuite.mailbox WHERE name = :name)
RETURNING mailbox, kind

-- name: apply_audit
UPDATE directsuite.folder SET audited_ms = 0 WHERE mailbox = :mailbox AND audited_ms IS NOT NULL

-- name: apply_retry
UPDATE directsuite.msg SET retry_ms = 0 WHERE retry_ms > 0 AND state IN (2, 4, 5, 7)
AND folder IN (SELECT id FROM directsuite.folder WHERE mailbox = :mailbox)

-- name: status
SELECT b.id, b.name, f.name, f.uid_validity, f.audited_ms, m.state, count(m.uid) FROM directsuite.mailbox b
LEFT JOIN directsuite.folder f ON f.mailbox = b.id LEFT JOIN directsuite.msg m ON m.folder = f.id
GROUP BY b.id, f.id, m.state ORDER BY b.name COLLATE "C", f.name COLLATE "C", m.state

-- name: quarantined_messages
SELECT b.id, b.name, f.name, m.uid_validity, m.uid, q.problem, m.attempts, m.retry_ms FROM directsuite.mailbox b
JOIN directsuite.folder f ON f.mailbox = b.id
JOIN directsuite.msg m ON m.folder = f.id
LEFT JOIN directsuite.quarantine q ON q.folder = m.folder AND q.uid_validity = m.uid_validity AND q.uid = m.uid
WHERE m.state IN (5, 7) AND m.state IN (2, 4, 5, 7)
ORDER BY b.name COLLATE "C", f.name COLLATE "C", m.uid_validity, m.uid
