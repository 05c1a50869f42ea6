-- Statements of settle and extend. `message row` stands for the columns of a MessageRow: seq, q, attempts, stamp, id, group,
-- rank, max_attempts, expires, whether it has a key.

-- name: ack_in_one_statement
-- A whole commit: acks of one claim, all or none. The DELETE is the fence: whoever deletes the row settles it.
-- Raises invalid_text_representation, and nothing changes, if one does not have this lease, or has a given id or a group.
-- Entry numbers are drawn when the rows are locked.
-- Run by: acks of one claim without results
-- In:  $1 seqs, $2 lease, $3 q, $4 now or NULL (then the server's), $5 synchronous_commit (see begin), $6 how many,
--      $7 the seqs, packed: if that is the whole claim, its row for the reaper is deleted
--      $8 the claim's until, if these are known to be all that is left of it; or NULL
--      Arrays, for each range of numbers that gets an entry: $9 the first number, $10 how many numbers, $11 the seqs in
--      their order, packed, $12 the journal's record before the milliseconds of the ids; $13 and after the attempts.
--      $1 is empty when the messages are all the numbers of the ranges: then the ranges are walked, which is half of
--      the work of looking each up. Otherwise there is one range.
-- Out: now
WITH t AS MATERIALIZED (
  SELECT coalesce($4::int8, (extract(epoch FROM transaction_timestamp()) * 1000000)::int8) AS now,
    CASE WHEN $5::text = 'off' OR current_setting('synchronous_commit') = 'off'
         THEN set_config('synchronous_commit', $5::text, true) END),
picked AS (
  DELETE FROM tampu.leased WHERE seq = ANY ($1::int8[]) AND lease = $2::int8 AND q = $3::int8
  RETURNING seq, attempts, stamp, until, id IS NULL AND lane IS NULL AS plain, 1 AS part),
walked AS (
  DELETE FROM tampu.leased
  WHERE cardinality($1::int8[]) = 0 AND lease = $2::int8 AND q = $3::int8
    AND seq >= ($9::int8[])[1] AND seq < ($9::int8[])[cardinality($9::int8[])] + ($10::int8[])[cardinality($9::int8[])]
    AND seq < ($9::int8[])[width_bucket(seq, $9::int8[])] + ($10::int8[])[width_bucket(seq, $9::int8[])]
  RETURNING seq, attempts, stamp, until, id IS NULL AND lane IS NULL AS plain, width_bucket(seq, $9::int8[]) AS part),
gone AS MATERIALIZED (SELECT * FROM picked UNION ALL SELECT * FROM walked),
part AS MATERIALIZED (
  SELECT part, count(*) AS n, min(until) AS until, min(stamp) AS low, max(stamp) AS high, min(attempts) AS least,
    max(attempts) AS most, bool_and(plain) AS plain FROM gone GROUP BY part),
sum AS MATERIALIZED (
  SELECT n, until,
    CASE WHEN n = $6::int8 AND plain THEN true
      ELSE ('tampu: not all of these are plain leases (' || n || ' of ' || $6::int8 || '), going one by one')::boolean
      END AS plain
  FROM (SELECT coalesce(sum(n), 0) AS n, min(until) AS until, bool_and(plain) AS plain FROM part) AS p),
whole AS MATERIALIZED (
  SELECT p.*, nextval('tampu.entry') AS no
  FROM (SELECT part.* FROM part, sum WHERE sum.plain ORDER BY part) AS p),
put AS (
  INSERT INTO tampu.ended (seq, at, lease, q, attempts, state)
  SELECT seq, (SELECT now FROM t), $2::int8, $3::int8, attempts, 4 FROM gone),
over AS (
  DELETE FROM tampu.claim
  WHERE until > (SELECT coalesce($8::int8 - 8, until - 1) FROM sum) AND until <= (SELECT coalesce($8::int8, until) FROM sum)
    AND lease = $2::int8 AND ($8::int8 IS NOT NULL OR seqs = $7::bytea)),
journaled AS (
  INSERT INTO tampu.journal_new (no, part, n, at, q, body)
  SELECT no, 1, n, t.now, $3::int8,
    ($12::bytea[])[part]
    || CASE WHEN low = high THEN '\xcf'::bytea || int8send(low) ELSE '\xdc'::bytea || int2send(n::int2)
       || (SELECT string_agg('\xcf'::bytea || int8send(stamp), '' ORDER BY seq) FROM gone WHERE gone.part = whole.part) END
    || CASE WHEN least = most THEN '\xce'::bytea || int4send(least) ELSE '\xdc'::bytea || int2send(n::int2)
       || (SELECT string_agg('\xce'::bytea || int4send(attempts), '' ORDER BY seq) FROM gone WHERE gone.part = whole.part) END
    || $13::bytea
  FROM whole, t),
counted AS (
  INSERT INTO tampu.tally (q, kind, n) SELECT $3::int8, kind, n * change FROM sum, (VALUES (2, -1), (4, 1)) AS c(kind, change)),
ended AS (
  INSERT INTO tampu.ending (q, state, no, at, seqs) SELECT $3::int8, 4, no, t.now, ($11::bytea[])[part] FROM whole, t)
SELECT t.now FROM t, sum WHERE sum.plain

-- name: ack
-- Acks of one claim. The DELETE is the fence: whoever deletes the row settles it.
-- Run by: settle
-- In:  $1 seqs, $2 lease, $3 q, $4 now or NULL (then the server's time of the transaction), $5 state number,
--      $6 the seqs, packed: if that is the whole claim, its row for the reaper is deleted
--      $7 the claim's until, if these are known to be all that is left of it; or NULL
-- Out: seq, attempts, stamp, id, group of those that had this lease
WITH gone AS (
  DELETE FROM tampu.leased WHERE seq = ANY ($1::int8[]) AND lease = $2::int8 AND q = $3::int8
  RETURNING seq, attempts, stamp, id, lane, until),
put AS (
  INSERT INTO tampu.ended (seq, at, lease, q, attempts, state)
  SELECT seq, coalesce($4::int8, (extract(epoch FROM transaction_timestamp()) * 1000000)::int8),
    $2::int8, $3::int8, attempts, $5::int8 FROM gone),
over AS (
  DELETE FROM tampu.claim
  WHERE until > (SELECT coalesce($7::int8 - 8, min(until) - 1) FROM gone)
    AND until <= (SELECT coalesce($7::int8, min(until)) FROM gone) AND lease = $2::int8
    AND CASE WHEN $7::int8 IS NULL THEN seqs = $6::bytea ELSE (SELECT count(*) FROM gone) = cardinality($1::int8[]) END)
SELECT seq, attempts, stamp, id, lane FROM gone

-- name: take_leases
-- Ends leases. Locking the row is the fence: whoever locks it settles it.
-- By seq, not by ctid: if a row was extended while we waited, our snapshot has only its old ctid.
-- Run by: settle
-- In:  arrays, by growing seq: $1 seq, $2 lease, $3 q
-- Out: message row, lease, worker, whether cancel was requested, the rate of its group
WITH gone AS MATERIALIZED (
  SELECT l.* FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS i(seq, lease, q)
  CROSS JOIN LATERAL (
    SELECT * FROM tampu.leased l WHERE l.seq = i.seq AND l.lease = i.lease AND l.q = i.q OFFSET 0
    FOR UPDATE) AS l),
out AS (DELETE FROM tampu.leased WHERE seq = ANY (ARRAY(SELECT seq FROM gone)))
SELECT m.seq, m.q, g.attempts, g.stamp, m.id, m.lane, m.rank, m.max_attempts, m.expires, m.key IS NOT NULL,
  g.lease, g.worker, g.cancel,
  CASE WHEN m.lane IS NOT NULL THEN (SELECT u.pace FROM tampu.queue u WHERE u.q = m.q) END
FROM gone g CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = g.seq OFFSET 0) AS m

-- name: find_settled
-- Finds what a settled lease led to, by its settle marker. Its snapshot is newer than that of the fence, so of two equal
-- settles at the same time, the second finds what the first did.
-- Run by: settle, for receipts that are not current any more
-- In:  arrays: $1 q, $2 seq, $3 the settle marker that the verb leaves
-- Out: seq, settle marker, state number, stamp, id
SELECT i.seq, i.trace, w.state, m.created / 1000 + coalesce(m.ahead, 0), m.id
FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS i(q, seq, trace)
CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = i.seq AND m.q = i.q OFFSET 0) AS m
CROSS JOIN LATERAL (
  SELECT state FROM tampu.ended e WHERE e.seq = i.seq AND e.lease = i.trace
  UNION ALL SELECT 5 FROM tampu.dead d WHERE d.seq = i.seq AND d.lease = i.trace
  UNION ALL SELECT 1 FROM tampu.delayed d WHERE d.seq = i.seq AND d.lease = i.trace
  UNION ALL SELECT 3 FROM tampu.held h WHERE h.seq = i.seq AND h.lease = i.trace
  UNION ALL SELECT 0 FROM tampu.ready r
    WHERE r.q = i.q AND r.seq = i.seq AND (r.rank <> 0 OR r.pos <> r.seq) AND r.lease = i.trace) AS w

-- name: upsert_results
-- Stores results.
-- Run by: ack with a result, import
-- In:  arrays: $1 seq, $2 until, $3 body
-- Out: nothing
INSERT INTO tampu.result (seq, until, body) SELECT * FROM unnest($1::int8[], $2::int8[], $3::bytea[])
ON CONFLICT (seq) DO UPDATE SET until = excluded.until, body = excluded.body

-- name: insert_ended
-- Puts messages into the index of ended messages.
-- Run by: settle, cancel, expire
-- In:  $1 now, arrays: $2 seq, $3 lease, $4 q, $5 attempts, $6 state number
-- Out: nothing
INSERT INTO tampu.ended (seq, at, lease, q, attempts, state)
SELECT seq, $1::int8, lease, q, attempts, state
FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[]) AS i(seq, lease, q, attempts, state)

-- name: insert_dead
-- Puts messages into the index of dead messages.
-- Run by: reject, sweep
-- In:  $1 now, arrays: $2 seq, $3 lease, $4 q, $5 attempts, $6 reason
-- Out: nothing
INSERT INTO tampu.dead (seq, at, lease, q, attempts, reason)
SELECT seq, $1::int8, lease, q, attempts, reason
FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::bytea[]) AS i(seq, lease, q, attempts, reason)

-- name: insert_failures
-- Stores failed attempts, for the history of their messages.
-- Run by: settle, sweep
-- In:  $1 now, arrays: $2 seq, $3 attempt, $4 outcome, $5 worker, $6 error, $7 traceback
-- Out: nothing
INSERT INTO tampu.failure (seq, at, attempt, outcome, worker, error, traceback)
SELECT seq, $1::int8, attempt, convert_from(outcome, 'UTF8'), worker, error, traceback
FROM unnest($2::int8[], $3::int8[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[])
  AS i(seq, attempt, outcome, worker, error, traceback)

-- name: restore_keys_and_expiries
-- Restores the expiry of messages that wait again, and their key if no newer message has it.
-- Run by: nack, release, replay, sweep
-- In:  $1 seqs
-- Out: nothing
WITH back AS MATERIALIZED (
  SELECT m.seq, m.q, m.key, m.expires FROM unnest($1::int8[]) AS s(seq)
  CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m),
expire AS (
  INSERT INTO tampu.expiry (at, seq) SELECT expires, seq FROM back WHERE expires IS NOT NULL ON CONFLICT DO NOTHING)
INSERT INTO tampu.key (q, key, seq) SELECT q, key, seq FROM back WHERE key IS NOT NULL ORDER BY q, key
ON CONFLICT DO NOTHING

-- name: delete_settled_claims
-- Removes the rows of claims that are completely settled: the reaper need not check them.
-- Run by: settle, extend
-- In:  arrays: $1 until, $2 lease. A claim of several ranges of numbers has rows in the microseconds before
-- Out: nothing
DELETE FROM tampu.claim WHERE ctid = ANY (ARRAY(
  SELECT c.ctid FROM unnest($1::int8[], $2::int8[]) AS i(until, lease)
  CROSS JOIN LATERAL (
    SELECT ctid FROM tampu.claim c WHERE c.until > i.until - 8 AND c.until <= i.until AND c.lease = i.lease OFFSET 0) AS c))

-- name: extend_leases
-- Extends leases.
-- Run by: extend
-- In:  $1 now, arrays in the order of seq: $2 seq, $3 lease, $4 q, $5 lease time
-- Out: seq, lease, until, whether cancel was requested, until before. An item without a row is LeaseLost.
WITH held AS MATERIALIZED (
  SELECT l.seq, l.until, i.us FROM unnest($2::int8[], $3::int8[], $4::int8[], $5::int8[]) AS i(seq, lease, q, us)
  CROSS JOIN LATERAL (
    SELECT l.seq, l.until FROM tampu.leased l
    WHERE l.seq = i.seq AND l.lease = i.lease AND l.q = i.q OFFSET 0 FOR UPDATE) AS l)
UPDATE tampu.leased l SET until = $1::int8 + (SELECT h.us FROM held h WHERE h.seq = l.seq), extended = $1::int8
WHERE l.seq = ANY (ARRAY(SELECT seq FROM held))
RETURNING l.seq, l.lease, l.until, l.cancel, (SELECT h.until FROM held h WHERE h.seq = l.seq)

-- name: set_max_attempts
-- Sets max_attempts of messages.
-- Run by: settle
-- In:  arrays: $1 seq, $2 max_attempts
-- Out: nothing
UPDATE tampu.message SET max_attempts = ($2::int8[])[array_position($1::int8[], seq)] WHERE seq = ANY ($1::int8[])
