-- mailbox ─► folder ─► msg; a mailbox's fence counts its claims
--   └────► operator_request, written by other processes
-- sink: the sink to which the store is bound, at most one row
-- quarantine: the problem of each quarantined msg

-- name: tables
CREATE TABLE IF NOT EXISTS mailbox (
    id INTEGER PRIMARY KEY, name text NOT NULL UNIQUE, fence bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS folder (
    id INTEGER PRIMARY KEY,
    mailbox bigint NOT NULL REFERENCES mailbox, name text NOT NULL,
    uid_validity bigint NOT NULL, fingerprint BLOB, audited_ms bigint, UNIQUE (mailbox, name)
);
CREATE TABLE IF NOT EXISTS msg (
    folder bigint NOT NULL REFERENCES folder, uid_validity bigint NOT NULL, uid bigint NOT NULL,
    state bigint NOT NULL, identity BLOB, digest BLOB, size bigint NOT NULL, received_ms bigint,
    attempts bigint NOT NULL, retry_ms bigint, PRIMARY KEY (folder, uid_validity, uid)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS msg_digest ON msg (folder, digest) WHERE digest IS NOT NULL;
CREATE INDEX IF NOT EXISTS msg_unsettled ON msg (folder, state) WHERE state IN (2, 4, 5, 7);
CREATE TABLE IF NOT EXISTS operator_request (
    mailbox bigint NOT NULL REFERENCES mailbox, kind text NOT NULL, PRIMARY KEY (mailbox, kind)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sink (kind text NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS sink_is_one ON sink ((true))

-- name: quarantine_tables
CREATE TABLE IF NOT EXISTS quarantine (
    folder bigint NOT NULL REFERENCES folder, uid_validity bigint NOT NULL, uid bigint NOT NULL,
    problem text NOT NULL, PRIMARY KEY (folder, uid_validity, uid)
) WITHOUT ROWID

-- name: bind
INSERT INTO sink (kind) VALUES (:kind) ON CONFLICT DO NOTHING

-- name: bound_sink
SELECT kind FROM sink

-- name: claim
INSERT INTO mailbox AS m (name, fence) VALUES (:name, 1)
ON CONFLICT (name) DO UPDATE SET fence = m.fence + 1 RETURNING id, name, fence

-- name: lock_lease
SELECT fence FROM mailbox WHERE id = :mailbox

-- name: make_folder
INSERT INTO folder (mailbox, name, uid_validity) VALUES (:mailbox, :name, 1)
ON CONFLICT (mailbox, name) DO UPDATE SET name = excluded.name
RETURNING id, name, uid_validity, fingerprint, audited_ms

-- name: folders
SELECT id, name, uid_validity, fingerprint, audited_ms FROM folder WHERE mailbox = :mailbox

-- name: states
SELECT uid, state FROM msg WHERE folder = :folder AND uid_validity = :uid_validity

-- name: rows
SELECT * FROM msg WHERE folder = :folder AND uid_validity = :uid_validity ORDER BY uid

-- name: rows_by_uid
SELECT * FROM msg
WHERE folder = :folder AND uid_validity = :uid_validity AND uid IN (SELECT value FROM json_each(:uids))
ORDER BY uid

-- name: sentinels
SELECT * FROM (
    SELECT * FROM msg
    WHERE folder = :folder AND uid_validity = :uid_validity AND state = 1
        AND identity IS NOT NULL AND received_ms IS NOT NULL
    ORDER BY uid DESC LIMIT 1
) AS newest UNION SELECT * FROM (
    SELECT * FROM msg
    WHERE folder = :folder AND uid_validity = :uid_validity AND state = 1
        AND identity IS NOT NULL AND received_ms IS NOT NULL
    ORDER BY uid LIMIT 1
) AS oldest ORDER BY uid DESC

-- name: with_digests
-- Without the hint, SQLite prefers the primary key, and scans complete folders.
SELECT f.name, m.* FROM folder f JOIN msg m INDEXED BY msg_digest ON m.folder = f.id
WHERE f.mailbox = :mailbox AND m.digest IN (:digests)

-- name: unfinished
SELECT f.name, m.* FROM folder f
JOIN msg m INDEXED BY msg_unsettled ON m.folder = f.id
WHERE f.mailbox = :mailbox AND m.state IN (2, 4, 5, 7)
ORDER BY m.folder, m.uid_validity, m.uid

-- name: renumber
UPDATE msg SET state = CASE state WHEN 5 THEN 3 ELSE 4 END, attempts = 0, retry_ms = NULL
WHERE folder IN (SELECT value FROM json_each(:folders)) AND state IN (1, 2, 5, 6, 7)

-- name: write_rows
INSERT INTO msg VALUES :rows ON CONFLICT (folder, uid_validity, uid) DO UPDATE SET
    state = excluded.state, identity = excluded.identity, digest = excluded.digest, size = excluded.size,
    received_ms = excluded.received_ms, attempts = excluded.attempts, retry_ms = excluded.retry_ms

-- name: write_problems
INSERT INTO quarantine VALUES :rows ON CONFLICT (folder, uid_validity, uid) DO UPDATE SET
    problem = excluded.problem

-- name: forget_problems
DELETE FROM quarantine AS q WHERE folder IN (SELECT value FROM json_each(:folders)) AND NOT EXISTS (
    SELECT 1 FROM msg m
    WHERE m.folder = q.folder AND m.uid_validity = q.uid_validity AND m.uid = q.uid AND m.state IN (5, 7))

-- name: write_folder
UPDATE folder SET name = :name, uid_validity = :uid_validity, fingerprint = :fingerprint,
    audited_ms = :audited_ms
WHERE id = :id AND mailbox = :mailbox

-- name: add_request
INSERT INTO operator_request (mailbox, kind)
SELECT id, :kind FROM mailbox WHERE name IN (SELECT value FROM json_each(:names))
ON CONFLICT (mailbox, kind) DO NOTHING

-- name: mailbox_names
SELECT name FROM mailbox

-- name: mailboxes_with_messages
SELECT name FROM mailbox b
WHERE EXISTS (SELECT 1 FROM folder f JOIN msg m ON m.folder = f.id WHERE f.mailbox = b.id)

-- name: pending_requests
SELECT DISTINCT b.name FROM operator_request w JOIN mailbox b ON b.id = w.mailbox

-- name: has_requests
SELECT b.name FROM operator_request r JOIN mailbox b ON b.id = r.mailbox
WHERE b.name = :name

-- name: take_requests
DELETE FROM operator_request WHERE mailbox = (SELECT id FROM mailbox WHERE name = :name)
RETURNING mailbox, kind

-- name: apply_audit
UPDATE folder SET audited_ms = 0 WHERE mailbox = :mailbox AND audited_ms IS NOT NULL

-- name: apply_retry
UPDATE msg SET retry_ms = 0 WHERE retry_ms > 0 AND state IN (2, 4, 5, 7)
AND folder IN (SELECT id FROM folder WHERE mailbox = :mailbox)

-- name: status
SELECT b.id, b.name, f.name, f.uid_validity, f.audited_ms, m.state, count(m.uid) FROM mailbox b
LEFT JOIN folder f ON f.mailbox = b.id LEFT JOIN msg m ON m.folder = f.id
GROUP BY b.id, f.id, m.state ORDER BY b.name, f.name, m.state

-- name: quarantined_messages
SELECT b.id, b.name, f.name, m.uid_validity, m.uid, q.problem, m.attempts, m.retry_ms FROM mailbox b
JOIN folder f ON f.mailbox = b.id
JOIN msg m INDEXED BY msg_unsettled ON m.folder = f.id
LEFT JOIN quarantine q ON q.folder = m.folder AND q.uid_validity = m.uid_validity AND q.uid = m.uid
WHERE m.state IN (5, 7) AND m.state IN (2, 4, 5, 7)
ORDER BY b.name, f.name, m.uid_validity, m.uid
