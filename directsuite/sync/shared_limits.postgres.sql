-- rate: when the next request to a service is allowed

-- name: rate_tables
-- A crash empties an unlogged table, so take_slots creates a missing row.
CREATE UNLOGGED TABLE directsuite.rate (name text PRIMARY KEY, arrival timestamptz NOT NULL);
CREATE FUNCTION directsuite.take_slots(
    rate_name text, places integer, spacing float8, tolerance float8, longest float8
) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
    next_arrival timestamptz;
    this_moment timestamptz;
    wait float8;
BEGIN
    INSERT INTO directsuite.rate VALUES (rate_name, clock_timestamp()) ON CONFLICT DO NOTHING;
    SELECT arrival INTO next_arrival FROM directsuite.rate WHERE name = rate_name FOR UPDATE;
    this_moment := clock_timestamp();
    wait := extract(epoch FROM next_arrival - this_moment) - tolerance;
    IF wait > longest THEN
        RETURN -wait;
    END IF;
    next_arrival := greatest(next_arrival, this_moment) + make_interval(secs => places * spacing);
    UPDATE directsuite.rate SET arrival = next_arrival WHERE name = rate_name;
    RETURN greatest(wait, 0);
END $$

-- name: take_slots
SELECT directsuite.take_slots(
    :rate::text, :slots::integer, :spacing::float8, :tolerance::float8, :longest::float8)

-- name: push_back
INSERT INTO directsuite.rate AS r VALUES (:rate, clock_timestamp() + make_interval(secs => :seconds))
ON CONFLICT (name) DO UPDATE SET arrival = greatest(r.arrival, excluded.arrival)

-- name: correct_rate
UPDATE directsuite.rate SET arrival = clock_timestamp()
WHERE name = :rate AND arrival > clock_timestamp() + make_interval(secs => :longest)
