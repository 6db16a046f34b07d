-- name: tables
CREATE TABLE directsuite.message (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    mailbox text NOT NULL,
    folder text NOT NULL,
    uid_validity bigint NOT NULL,
    uid bigint NOT NULL,
    present boolean NOT NULL DEFAULT true,
    digest text,
    message_id text,
    sent timestamptz,
    received timestamptz,
    sender text,
    reply_to text,
    subject text,
    body text,
    html boolean NOT NULL,
    recipients jsonb NOT NULL,
    headers jsonb NOT NULL
);
CREATE UNIQUE INDEX message_present ON directsuite.message (mailbox, folder, uid_validity, uid)
WHERE present;
CREATE INDEX message_gone ON directsuite.message (mailbox, folder, uid_validity, uid) WHERE NOT present;
CREATE INDEX message_received ON directsuite.message (received);
CREATE INDEX message_sender ON directsuite.message (left(lower(sender), 320), received);
CREATE TABLE directsuite.attachment (
    message bigint NOT NULL REFERENCES directsuite.message ON DELETE CASCADE,
    number bigint NOT NULL,
    filename text,
    content_type text,
    content bytea NOT NULL,
    PRIMARY KEY (message, number)
)

-- name: select_present
SELECT id, digest FROM directsuite.message
WHERE mailbox = :mailbox AND folder = :folder AND uid_validity = :uid_validity AND uid = :uid
    AND present

-- name: select_gone
SELECT id, digest FROM directsuite.message
WHERE mailbox = :mailbox AND folder = :folder AND uid_validity = :uid_validity AND uid = :uid
    AND NOT present ORDER BY id DESC

-- name: select_ids
SELECT string_agg(uid || ' ' || id, ',') FROM directsuite.message
WHERE mailbox = :mailbox AND folder = :folder AND uid_validity = :uid_validity AND present AND uid = ANY(:uids)

-- name: move
UPDATE directsuite.message
SET present = true, mailbox = :mailbox, folder = :folder, uid_validity = :uid_validity, uid = :uid WHERE id = :id

-- name: insert
INSERT INTO directsuite.message (
    mailbox, folder, uid_validity, uid, digest, message_id, sent, received, sender, reply_to, subject, body, html,
    recipients, headers
) VALUES :rows

-- name: insert_attachments
INSERT INTO directsuite.attachment (message, number, filename, content_type, content) VALUES :rows

-- name: hide
UPDATE directsuite.message SET present = false WHERE id = :id

-- name: delete
DELETE FROM directsuite.message WHERE id = :id
