-- Statements for Spark, which reads a whole store in one snapshot.

-- name: snapshot_lock
-- Locks the giving of offsets until the end of the transaction. Takes no snapshot, so later statements see all.
-- Run by: snapshot
-- In:  nothing
-- Out: nothing
LOCK TABLE tampu.journal_end IN EXCLUSIVE MODE

-- name: snapshot_export
-- Exports the snapshot of this transaction to another session, while it is open.
-- Run by: snapshot
-- In:  nothing
-- Out: the name of the snapshot
SELECT pg_export_snapshot()

-- name: snapshot_queues
-- Every queue.
-- Run by: snapshot
-- In:  nothing
-- Out: q, tenant, name
SELECT q, tenant, name FROM tampu.queue ORDER BY q

-- name: snapshot_live
-- Live and dead messages, except those of `snapshot_unmoved`.
-- Run by: snapshot
-- In:  $1 qs, $2 state numbers
-- Out: seq, q, state number, attempts, run_at, ended at, reason
SELECT seq, q, 0, attempts, NULL::int8, NULL::int8, NULL::bytea FROM tampu.ready
  WHERE q = ANY ($1::int8[]) AND 0 = ANY ($2::int8[]) AND pos <> seq
UNION ALL SELECT seq, q, 1, attempts, run_at, NULL, NULL FROM tampu.delayed
  WHERE q = ANY ($1::int8[]) AND 1 = ANY ($2::int8[])
UNION ALL SELECT seq, q, 2, attempts, NULL, NULL, NULL FROM tampu.leased
  WHERE q = ANY ($1::int8[]) AND 2 = ANY ($2::int8[])
UNION ALL SELECT seq, q, 3, attempts, run_at, NULL, reason FROM tampu.held
  WHERE q = ANY ($1::int8[]) AND 3 = ANY ($2::int8[])
UNION ALL SELECT seq, q, 5, attempts, NULL, at, reason FROM tampu.dead
  WHERE q = ANY ($1::int8[]) AND 5 = ANY ($2::int8[])

-- name: snapshot_unmoved
-- Messages that are ready and never moved. There may be millions, so they are packed.
-- Run by: snapshot
-- In:  $1 qs
-- Out: q, seqs (eight bytes each); several rows for a queue with many
SELECT q, string_agg(int8send(seq), ''::bytea) FROM tampu.ready
WHERE q = ANY ($1::int8[]) AND pos = seq GROUP BY q, seq >> 24

-- name: snapshot_endings
-- Messages that ended, one row per commit.
-- Run by: snapshot
-- In:  $1 qs, $2 state numbers, $3 ended from, $4 ended before
-- Out: q, state number, at, seqs
SELECT q, state, at, seqs FROM tampu.ending
WHERE q = ANY ($1::int8[]) AND state = ANY ($2::int8[]) AND at >= $3::int8 AND at < $4::int8

-- name: snapshot_find
-- Finds messages of any tenant by id.
-- Run by: snapshot of messages by id
-- In:  arrays: $1 number or NULL, $2 stamp, $3 id
-- Out: seq, q
SELECT m.seq, m.q FROM unnest($1::int8[], $2::int8[], $3::uuid[]) AS i(seq, stamp, id)
CROSS JOIN LATERAL (
  SELECT m.seq, m.q FROM tampu.message m
  WHERE m.seq = i.seq AND m.id IS NULL AND m.created / 1000 + coalesce(m.ahead, 0) = i.stamp
  UNION ALL SELECT m.seq, m.q FROM tampu.message m WHERE m.id = i.id) AS m

-- name: snapshot_failures
-- The number of the latest failed attempt of messages, where there was one.
-- Run by: snapshot
-- In:  $1 seqs
-- Out: seq, number of the failed attempt
SELECT s.seq, f.no FROM unnest($1::int8[]) AS s(seq) CROSS JOIN LATERAL (
  SELECT f.no FROM tampu.failure f WHERE f.seq = s.seq ORDER BY f.no DESC LIMIT 1) AS f

-- name: snapshot_errors
-- The errors of failed attempts.
-- Run by: snapshot
-- In:  arrays: $1 seq, $2 number of a failed attempt
-- Out: seq, error
SELECT f.seq, f.error FROM unnest($1::int8[], $2::int8[]) AS s(seq, no)
CROSS JOIN LATERAL (SELECT f.seq, f.error FROM tampu.failure f WHERE f.seq = s.seq AND f.no = s.no OFFSET 0) AS f

-- name: snapshot_expiries
-- The expiries of messages that have one.
-- Run by: snapshot
-- In:  $1 seqs
-- Out: seq, expires
SELECT m.seq, m.expires FROM unnest($1::int8[]) AS s(seq)
CROSS JOIN LATERAL (SELECT m.seq, m.expires FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m
WHERE m.expires IS NOT NULL

-- name: snapshot_count
-- Counts the messages of a range of numbers.
-- Run by: snapshot
-- In:  $1 first and $2 last seq, $3 limit
-- Out: how many
SELECT count(*) FROM (SELECT FROM tampu.message WHERE seq BETWEEN $1::int8 AND $2::int8 LIMIT $3::int8) AS m

-- name: snapshot_messages
-- The immutable part of messages, column by column: one row for each range of numbers that has any.
-- Run with COPY, which takes no parameters: numbers are written into the text.
-- Run by: snapshot
-- In:  arrays: $1 first and $2 last seq of a range; $3 the most bytes a body may have to be included
-- Out: numbers and ids one after the other, in the order of seq and PostgreSQL's binary form:
--      seq; created; size of the body and max_attempts (four bytes each); of those that have one: seq and expires,
--      seq and ahead, seq and id; then the bodies
SELECT m.* FROM unnest('{$1}'::int8[], '{$2}'::int8[]) AS s(first, last)
CROSS JOIN LATERAL (
  SELECT string_agg(int8send(seq), ''), string_agg(int8send(created), ''),
    string_agg(int8send(octet_length(body)::int8 << 32 | max_attempts), ''),
    string_agg(int8send(seq) || int8send(expires), '') FILTER (WHERE expires IS NOT NULL),
    string_agg(int8send(seq) || int8send(ahead), '') FILTER (WHERE ahead IS NOT NULL),
    string_agg(int8send(seq) || uuid_send(id), '') FILTER (WHERE id IS NOT NULL),
    string_agg(body, '') FILTER (WHERE octet_length(body) <= $3)
  FROM (
    SELECT seq, created, max_attempts, expires, ahead, id, body FROM tampu.message
    WHERE seq BETWEEN s.first AND s.last ORDER BY seq
  ) AS m HAVING count(*) > 0
) AS m

-- name: snapshot_attempts
-- The attempts of messages of a range that ended after more or fewer than one.
-- Run by: snapshot
-- In:  $1 first and $2 last seq
-- Out: seq, attempts
SELECT seq, attempts FROM tampu.ended WHERE seq BETWEEN $1::int8 AND $2::int8 AND attempts <> 1

-- name: snapshot_last_errors
-- The error of the latest failed attempt of messages of a range, where there was one.
-- Run by: snapshot
-- In:  $1 first and $2 last seq
-- Out: seq, error
SELECT DISTINCT ON (seq) seq, error FROM tampu.failure WHERE seq BETWEEN $1::int8 AND $2::int8 ORDER BY seq, no DESC

-- name: snapshot_results
-- The results of messages of a range that have not expired.
-- Run by: snapshot
-- In:  $1 first and $2 last seq, $3 now
-- Out: seq, result
SELECT seq, body FROM tampu.result WHERE seq BETWEEN $1::int8 AND $2::int8 AND until > $3::int8

-- name: snapshot_result_sizes
-- The sizes of the results of a range of messages.
-- Run by: snapshot readers
-- In:  $1 first and $2 last seq, $3 the time
-- Out: seq, bytes of its result, if that has not expired
SELECT seq, octet_length(body) FROM tampu.result WHERE seq BETWEEN $1::int8 AND $2::int8 AND until > $3::int8

-- name: snapshot_results_of
-- The results of messages.
-- Run by: snapshot readers
-- In:  $1 seqs, $2 the time
-- Out: seq, result, if that has not expired
SELECT r.seq, r.body FROM unnest($1::int8[]) AS s(seq)
CROSS JOIN LATERAL (SELECT r.seq, r.body FROM tampu.result r WHERE r.seq = s.seq AND r.until > $2::int8 OFFSET 0) AS r

-- name: snapshot_sizes
-- The sizes of messages and their results.
-- Run by: snapshot readers
-- In:  $1 seqs
-- Out: seq, bytes of its body and its result
SELECT m.seq, m.size + coalesce(r.size, 0) FROM unnest($1::int8[]) AS s(seq)
CROSS JOIN LATERAL (
  SELECT m.seq, octet_length(m.body)::int8 AS size FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m
LEFT JOIN LATERAL (
  SELECT octet_length(r.body)::int8 AS size FROM tampu.result r WHERE r.seq = s.seq OFFSET 0) AS r ON true
