-- The keeper's seat: taken if it is free or ours. By the server's clock, whatever clock the messages have.
-- In:  $1 who, $2 for how many seconds
-- Out: a row if it is ours
INSERT INTO tampu.seat AS s (name, holder, until)
VALUES ('keeper', $1::text, clock_timestamp() + make_interval(secs => $2::float8))
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE s.holder = excluded.holder OR s.until < clock_timestamp()
RETURNING name
