-- message      one row each. Messages that are over remain until `forget`, so that none is tracked twice
-- send         messages sent by `DeliveryTracker.send`; mark: hash of the key; smtp_id: set when certainly sent
-- recipient    the latest status, deleted when the message's last change is acknowledged
-- change       changes that are not acknowledged
--
-- They contain recipients' addresses, but no credentials. A mailbox is stored as a hash.

-- name: tables
CREATE TABLE IF NOT EXISTS message (
    number INTEGER PRIMARY KEY, mailbox TEXT NOT NULL, bare_id TEXT NOT NULL, smtp_id TEXT NOT NULL,
    added_at REAL NOT NULL, recipients INTEGER NOT NULL, give_up_after REAL NOT NULL,
    isolated INTEGER NOT NULL DEFAULT 0, is_over INTEGER NOT NULL DEFAULT 0, UNIQUE (mailbox, bare_id)
);
CREATE INDEX IF NOT EXISTS message_followed ON message (mailbox) WHERE NOT is_over;
CREATE TABLE IF NOT EXISTS send (
    mailbox TEXT NOT NULL, mark TEXT NOT NULL, began_at REAL NOT NULL, content TEXT NOT NULL, smtp_id TEXT,
    message INTEGER REFERENCES message ON DELETE CASCADE, PRIMARY KEY (mailbox, mark)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS send_message ON send (message);
CREATE TABLE IF NOT EXISTS recipient (
    message INTEGER NOT NULL REFERENCES message ON DELETE CASCADE, address TEXT NOT NULL, recipient TEXT,
    status TEXT, step INTEGER NOT NULL, is_end INTEGER NOT NULL, PRIMARY KEY (message, address)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS change (
    number INTEGER PRIMARY KEY, message INTEGER NOT NULL REFERENCES message ON DELETE CASCADE,
    id TEXT NOT NULL UNIQUE, recipient TEXT, status TEXT, step INTEGER NOT NULL, details TEXT,
    sent_at TEXT, is_end INTEGER NOT NULL, given_up INTEGER NOT NULL, ends_message INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS change_message ON change (message)

-- name: add
INSERT INTO message (mailbox, bare_id, smtp_id, added_at, recipients, give_up_after)
VALUES (:mailbox, :bare_id, :smtp_id, :added_at, :recipients, :give_up_after)
ON CONFLICT DO NOTHING RETURNING number

-- name: begin_send
INSERT INTO send (mailbox, mark, began_at, content) VALUES (:mailbox, :mark, :began_at, :content)
ON CONFLICT DO NOTHING RETURNING mark

-- name: select_send
SELECT began_at, content, smtp_id FROM send WHERE mailbox = :mailbox AND mark = :mark

-- name: withdraw_send
DELETE FROM send WHERE mailbox = :mailbox AND mark = :mark

-- name: end_send
UPDATE send SET smtp_id = :smtp_id,
    message = (SELECT number FROM message WHERE mailbox = :mailbox AND bare_id = :bare_id)
WHERE mailbox = :mailbox AND mark = :mark

-- name: forget_begin
UPDATE send SET began_at = 0 WHERE mailbox = :mailbox AND mark = :mark

-- name: correct_times
UPDATE message SET added_at = :now WHERE mailbox = :mailbox AND added_at > :now

-- name: select_followed
SELECT number, mailbox, smtp_id, added_at, recipients, give_up_after, isolated FROM message
WHERE mailbox = :mailbox AND NOT is_over ORDER BY number

-- name: select_recipients
SELECT message, address, recipient, status, step, is_end FROM recipient JOIN message ON message = number
WHERE mailbox = :mailbox AND NOT is_over

-- name: set_recipient
INSERT INTO recipient VALUES (:message, :address, :recipient, :status, :step, :is_end)
ON CONFLICT (message, address) DO UPDATE SET
    recipient = excluded.recipient, status = excluded.status, step = excluded.step, is_end = excluded.is_end

-- name: add_change
INSERT INTO change (message, id, recipient, status, step, details, sent_at, is_end, given_up, ends_message)
VALUES (:message, :id, :recipient, :status, :step, :details, :sent_at, :is_end, :given_up, :ends_message)
ON CONFLICT DO NOTHING

-- name: end_message
UPDATE message SET is_over = 1 WHERE number = :message

-- name: isolate
UPDATE message SET isolated = :isolated WHERE number = :message

-- name: select_pending
SELECT id, smtp_id, recipient, status, step, details, sent_at, is_end, given_up, ends_message
FROM change JOIN message ON message = message.number
WHERE mailbox = :mailbox ORDER BY change.number LIMIT :most

-- name: delete_change
DELETE FROM change WHERE id = :id RETURNING message, ends_message

-- name: drop_recipients
DELETE FROM recipient WHERE message = :message

-- name: forget
DELETE FROM message
WHERE is_over AND added_at < :before AND NOT EXISTS (SELECT 1 FROM change WHERE message = message.number)
RETURNING number
