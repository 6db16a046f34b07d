-- schedule: when the next round of a mailbox is due; its fence counts the claimed rounds
--     woken_at: when a worker was woken, or last reported that it has the mailbox; NULL while the mailbox waits
--     next_due_at of a mailbox that a worker has: when other workers may take it. A time too far ahead was set while a
--     clock was ahead, and counts as past.
-- worker: the last heartbeat of each worker of a fleet

-- name: fleet_tables
CREATE TABLE directsuite.schedule (
    mailbox bigint PRIMARY KEY REFERENCES directsuite.mailbox,
    next_due_at timestamptz NOT NULL DEFAULT now(), woken_at timestamptz, fence bigint NOT NULL DEFAULT 0,
    worker text, fail_count bigint NOT NULL DEFAULT 0, last_error text, up_to_date_at timestamptz
);
CREATE INDEX schedule_due ON directsuite.schedule (next_due_at);
CREATE TABLE directsuite.worker (id text PRIMARY KEY, seen_at timestamptz NOT NULL)

-- name: add_mailboxes
INSERT INTO directsuite.mailbox (name, fence) SELECT unnest(:names::text[]), 0 ON CONFLICT (name) DO NOTHING

-- name: add_to_schedule
INSERT INTO directsuite.schedule (mailbox) SELECT id FROM directsuite.mailbox WHERE name = ANY(:names)
ON CONFLICT (mailbox) DO NOTHING RETURNING mailbox

-- name: remove_from_schedule
DELETE FROM directsuite.schedule s USING directsuite.mailbox m WHERE m.id = s.mailbox AND m.name = ANY(:names)
RETURNING s.mailbox

-- name: heartbeat
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

-- name: leave
DELETE FROM directsuite.worker
WHERE id = :worker OR seen_at NOT BETWEEN now() - interval '1 day' AND now() + interval '1 day'

-- name: take_due_mailboxes
-- The last worker of a mailbox that is late is busy, so any worker may take it.
WITH due AS (
    SELECT mailbox FROM directsuite.schedule
    WHERE (next_due_at <= now() OR next_due_at > now() + make_interval(secs => :longest))
        AND (woken_at IS NULL OR woken_at NOT
            BETWEEN now() - make_interval(secs => :patience) AND now() + make_interval(secs => :patience))
    ORDER BY next_due_at LIMIT :most FOR UPDATE SKIP LOCKED
)
UPDATE directsuite.schedule s SET woken_at = now() FROM due WHERE s.mailbox = due.mailbox
RETURNING s.mailbox, (
    SELECT id FROM directsuite.worker w WHERE w.id = s.worker AND w.seen_at
        BETWEEN now() - make_interval(secs => :patience) AND now() + make_interval(secs => :patience)
        AND s.next_due_at > now() - make_interval(secs => :patience)
)

-- name: claim_rounds
WITH due AS (
    SELECT mailbox FROM directsuite.schedule WHERE mailbox = ANY(:mailboxes)
        AND (next_due_at <= now() OR next_due_at > now() + make_interval(secs => :longest))
    FOR UPDATE SKIP LOCKED
)
UPDATE directsuite.schedule s SET fence = s.fence + 1, worker = :worker, woken_at = now(),
    next_due_at = now() + make_interval(secs => :patience)
FROM due JOIN directsuite.mailbox m ON m.id = due.mailbox WHERE s.mailbox = due.mailbox
RETURNING s.mailbox, m.name, s.fence, s.fail_count, s.last_error,
    EXISTS (SELECT FROM directsuite.operator_request r WHERE r.mailbox = s.mailbox)

-- name: finish_rounds
WITH ended AS (
    SELECT s.mailbox, e.* FROM directsuite.schedule s JOIN unnest(:mailboxes::bigint[], :fences::bigint[],
        :pauses::float8[], :problems::text[], :failures::bigint[], :completions::boolean[])
        AS e (id, fence, pause, problem, failures, is_complete)
        ON s.mailbox = e.id AND s.fence = e.fence
    ORDER BY s.mailbox FOR UPDATE OF s
)
UPDATE directsuite.schedule s SET woken_at = CASE WHEN :wakes AND pause <= 0 THEN now() END, last_error = problem,
    next_due_at = CASE WHEN EXISTS (SELECT FROM directsuite.operator_request r WHERE r.mailbox = s.mailbox)
        THEN now() ELSE now() + make_interval(secs => pause) END,
    up_to_date_at = CASE WHEN is_complete THEN now() ELSE up_to_date_at END,
    fail_count = failures
FROM ended WHERE s.mailbox = ended.mailbox AND s.fence = ended.fence RETURNING s.mailbox

-- name: reschedule_now
-- A mailbox that a worker has is due after its round, because of the request.
WITH found AS (
    SELECT s.mailbox FROM directsuite.schedule s JOIN directsuite.mailbox m ON m.id = s.mailbox
    WHERE m.name = ANY(:names) ORDER BY s.mailbox FOR UPDATE OF s
)
UPDATE directsuite.schedule s SET
    next_due_at = CASE WHEN woken_at IS NULL THEN least(next_due_at, now()) ELSE next_due_at END
FROM found WHERE s.mailbox = found.mailbox RETURNING s.mailbox

-- name: scheduled_mailboxes
SELECT m.name, s.fence, extract(epoch FROM s.up_to_date_at)::float8, extract(epoch FROM s.next_due_at)::float8,
    s.fail_count, s.last_error
FROM directsuite.schedule s JOIN directsuite.mailbox m ON m.id = s.mailbox ORDER BY m.name COLLATE "C"

-- name: fleet_status
SELECT count(*), count(*) FILTER (WHERE fence = 0),
    greatest(0, coalesce(extract(epoch FROM now() - min(next_due_at)), 0))::float8,
    (SELECT count(*) FROM directsuite.worker WHERE seen_at
        BETWEEN now() - make_interval(secs => :patience) AND now() + make_interval(secs => :patience))
FROM directsuite.schedule

-- name: problems
SELECT last_error, count(*) FROM directsuite.schedule WHERE fail_count > 0 GROUP BY last_error
