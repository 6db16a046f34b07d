-- The queue of a fleet: procrastinate's tables in the schema `directsuite`.
-- queue_migration: its migrations that were applied, which procrastinate does not record

-- name: search_path
SET LOCAL search_path TO directsuite

-- name: migration_table
CREATE TABLE directsuite.queue_migration (name text PRIMARY KEY)

-- name: applied_migrations
SELECT name FROM directsuite.queue_migration

-- name: record_migration
INSERT INTO directsuite.queue_migration VALUES (:name)

-- name: has_recent_workers
SELECT EXISTS (
    SELECT FROM directsuite.procrastinate_workers
    WHERE abs(extract(epoch FROM now() - last_heartbeat)) < :seconds
)

-- name: delete_old_jobs
-- Their keys are due again, or a worker has them. The times of a wrong clock may be in the future.
DELETE FROM directsuite.procrastinate_jobs j WHERE task_name = :task AND NOT EXISTS (
    SELECT FROM directsuite.procrastinate_events e
    WHERE e.job_id = j.id AND abs(extract(epoch FROM now() - e.at)) < :seconds
)
