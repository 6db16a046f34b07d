-- name: tables
CREATE TABLE IF NOT EXISTS message (
    id INTEGER PRIMARY KEY,
    mailbox text NOT NULL,
    folder text NOT NULL,
    uid_validity bigint NOT NULL,
    uid bigint NOT NULL,
    present boolean NOT NULL DEFAULT true,
    digest text,
    message_id text,
    sent TEXT,
    received TEXT,
    sender text,
    reply_to text,
    subject text,
    body text,
    html boolean NOT NULL,
    recipients TEXT NOT NULL,
    headers TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS message_present ON message (mailbox, folder, uid_validity, uid)
WHERE present;
CREATE INDEX IF NOT EXISTS message_gone ON message (mailbox, folder, uid_validity, uid) WHERE NOT present;
CREATE INDEX IF NOT EXISTS message_received ON message (received);
CREATE INDEX IF NOT EXISTS message_sender ON message (lower(sender), received);
CREATE TABLE IF NOT EXISTS attachment (
    message bigint NOT NULL REFERENCES message ON DELETE CASCADE,
    number bigint NOT NULL,
    filename text,
    content_type text,
    content BLOB NOT NULL,
    PRIMARY KEY (message, number)
)

-- name: select_present
SELECT id, digest FROM message
WHERE mailbox = :mailbox AND folder = :folder AND uid_validity = :uid_validity AND uid = :uid
    AND present

-- name: select_gone
SELECT id, digest FROM message
WHERE mailbox = :mailbox AND folder = :folder AND uid_validity = :uid_validity AND uid = :uid
    AND NOT present ORDER BY id DESC

-- name: select_ids
-- Aggregated, because SQLite releases and reacquires the GIL for each row.
SELECT group_concat(uid || ' ' || id, ',') FROM message
WHERE mailbox = :mailbox AND folder = :folder AND uid_validity = :uid_validity AND present
    AND uid IN (SELECT value FROM json_each(:uids))

-- name: move
UPDATE message
SET present = true, mailbox = :mailbox, folder = :folder, uid_validity = :uid_validity, uid = :uid WHERE id = :id

-- name: insert
INSERT INTO message (
    mailbox, folder, uid_validity, uid, digest, message_id, sent, received, sender, reply_to, subject, body, html,
    recipients, headers
) VALUES :rows

-- name: insert_attachments
INSERT INTO attachment (message, number, filename, content_type, content) VALUES :rows

-- name: hide
UPDATE message SET present = false WHERE id = :id

-- name: delete
DELETE FROM message WHERE id = :id
