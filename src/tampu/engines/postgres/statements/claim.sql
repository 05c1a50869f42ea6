-- Statements of claim.

-- name: claim_in_one_statement
-- A whole commit. Leases the head of a queue's index if nothing must be swept first and all messages are simple:
-- never delivered before, without expiry, key or own id. Otherwise nothing changes.
--
-- Messages that follow each other in the queue and have consecutive numbers are a range, and are read as one range of the
-- primary key; a single message is a range of one. If there are few ranges, each has an entry of the journal and
-- a row in `claim` (one microsecond before the next: the reaper keeps their order), a few bytes long however many messages
-- it covers. Otherwise all are one entry, packed as by encoding.pack_seqs. Entry numbers are drawn when the rows are
-- locked. Bodies are read last and alone: they are long, and nothing else needs them.
-- Starting and ending 98 plan nodes took a sixth of a claim of 100 messages, so one plan with 70 nodes serves all cases.
-- Run by: claim from a queue without limits
-- In:  $1 q, $2 limit, $3 lease, $4 lease time, $5 worker, $6 now or NULL (then the server's),
--      $7 position at rank 0 to begin after, if nothing has a lower rank; NULL: begin at the front
--      $8 $9 $10 times before which nothing is due (see begin), $11 synchronous_commit (see begin),
--      $12 $13 the journal's record before the numbers, and after the milliseconds of the ids
-- Out: first now, 1 if all were simple, 0 if not, NULL if nothing was found, when the next delay, lease and expiry are due;
--      then, in the order of delivery, what was taken: created, seq, stamp, max_attempts, position if the rank is 0, body
WITH t AS MATERIALIZED (
  SELECT coalesce($6::int8, (extract(epoch FROM transaction_timestamp()) * 1000000)::int8) AS now,
    (SELECT run_at FROM tampu.delayed WHERE run_at >= coalesce($8::int8, 0) ORDER BY run_at LIMIT 1) AS delay,
    (SELECT until FROM tampu.claim WHERE until >= coalesce($9::int8, 0) ORDER BY until LIMIT 1) AS lease,
    (SELECT at FROM tampu.expiry WHERE at >= coalesce($10::int8, 0) ORDER BY at LIMIT 1) AS expiry,
    CASE WHEN $11::text = 'off' OR current_setting('synchronous_commit') = 'off'
         THEN set_config('synchronous_commit', $11::text, true) END),
head AS MATERIALIZED (
  SELECT *, row_number() OVER () AS turn FROM (
    SELECT r.ctid AS place, r.rank, r.pos, r.seq, r.attempts FROM tampu.ready r
    WHERE r.q = $1::int8 AND (r.rank, r.pos) > ((
      SELECT CASE WHEN $7::int8 IS NULL OR EXISTS (SELECT 1 FROM tampu.ready u WHERE u.q = $1::int8 AND u.rank < 0)
                  THEN -9223372036854775808 ELSE 0 END), coalesce($7::int8, 0))
    ORDER BY r.rank, r.pos
    LIMIT (SELECT CASE WHEN least(delay, lease, expiry) <= now THEN 0 ELSE $2::int8 END FROM t) FOR UPDATE SKIP LOCKED) AS r),
stretch AS MATERIALIZED (
  SELECT low, low + n - 1 AS high, rank, ahead, fresh, few, CASE WHEN few THEN more ELSE 0 END AS before
  FROM (
    SELECT *, count(*) OVER () - row_number() OVER () AS more,
      count(*) OVER () <= 8 AND 8 * count(*) OVER () <= sum(n) OVER () AS few
    FROM (
      SELECT rank, pos - seq AS ahead, min(seq) AS low, count(*) AS n, bool_and(attempts = 0) AS fresh
      FROM head GROUP BY rank, pos - seq, pos - turn ORDER BY min(turn)) AS s) AS s),
taken AS MATERIALIZED (
  SELECT s.before, s.few, m.seq, m.created / 1000 + coalesce(m.ahead, 0) AS stamp, m.lane,
    s.fresh AND m.expires IS NULL AND m.key IS NULL AND m.id IS NULL AS plain
  FROM stretch s
  CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq >= s.low AND m.seq <= s.high ORDER BY m.seq OFFSET 0) AS m),
part AS MATERIALIZED (
  SELECT before, few, count(*) AS n, min(seq) AS first, min(stamp) AS low, max(stamp) AS high, bool_and(plain) AS plain
  FROM taken GROUP BY before, few),
sum AS MATERIALIZED (SELECT sum(n)::int8 AS n, bool_and(plain) AS plain FROM part),
whole AS MATERIALIZED (
  SELECT n, nextval('tampu.entry') AS no, before,
    CASE WHEN few THEN int8send(first) || int8send(1) || int4send(n::int4) ELSE (
      SELECT CASE WHEN count(*) > 2 AND min(step) = max(step)
        THEN int8send(CASE WHEN min(step) > 0 THEN min(seq) ELSE max(seq) END) || int8send(min(step)) || int4send(count(*)::int4)
        ELSE string_agg(int8send(seq), '') END
      FROM (SELECT seq, seq - lag(seq) OVER () AS step FROM taken) AS each) END AS seqs,
    CASE WHEN low = high THEN '\xcf'::bytea || int8send(low)
      ELSE '\xdc'::bytea || int2send(n::int2) || (
        SELECT string_agg('\xcf'::bytea || int8send(stamp), '') FROM taken WHERE taken.before = p.before) END AS stamps
  FROM (SELECT part.* FROM part, sum WHERE sum.plain ORDER BY before DESC) AS p),
gone AS (DELETE FROM tampu.ready r WHERE r.ctid = ANY (ARRAY(SELECT place FROM head WHERE (SELECT plain FROM sum)))),
leasing AS (
  INSERT INTO tampu.leased (seq, lease, until, stamp, q, attempts, cancel, worker, lane, since)
  SELECT seq, $3::int8, (SELECT now + $4::int8 FROM t), stamp, $1::int8, 1, false, $5::bytea, lane, (SELECT now FROM t)
  FROM taken
  WHERE (SELECT plain FROM sum)),
watched AS (
  INSERT INTO tampu.claim (until, lease, seqs)
  SELECT t.now + $4::int8 - before, $3::int8, seqs FROM t, whole),
journaled AS (
  INSERT INTO tampu.journal_new (no, part, n, at, q, body)
  SELECT no, 1, n, t.now, $1::int8, $12::bytea || int4send(length(seqs)) || seqs || stamps || $13::bytea FROM t, whole),
counted AS (
  INSERT INTO tampu.tally (q, kind, n) SELECT $1::int8, kind, n * change FROM sum, (VALUES (0, -1), (2, 1)) AS c(kind, change) WHERE plain)
SELECT now, plain::int::int8, delay, lease, expiry, NULL::bytea FROM t, sum
UNION ALL
SELECT m.created, m.seq, m.created / 1000 + coalesce(m.ahead, 0), m.max_attempts, CASE WHEN s.rank = 0 THEN m.seq + s.ahead END,
  m.body
FROM stretch s
CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq >= s.low AND m.seq <= s.high ORDER BY m.seq OFFSET 0) AS m
WHERE (SELECT plain FROM sum)

-- name: select_tokens
-- The tokens of a queue's rate. The caller holds the queue's lock.
-- Run by: claim from a queue with a rate
-- In:  $1 q
-- Out: tokens, tokens_at
SELECT tokens, tokens_at FROM tampu.queue WHERE q = $1::int8

-- name: spend_tokens
-- Records the tokens that are left.
-- Run by: claim from a queue with a rate
-- In:  $1 q, $2 tokens left, $3 now
-- Out: nothing
UPDATE tampu.queue SET tokens = $2::float8, tokens_at = $3::int8 WHERE q = $1::int8

-- name: claim_ready
-- Leases the head of a queue's index. Skips what other claims are taking.
-- Messages past their expiry are removed from the index and returned too, but not leased: the caller expires them.
-- LATERAL … OFFSET 0 keeps look-ups to the primary key.
-- Run by: claim
-- In:  $1 q, $2 limit, $3 lease, $4 lease time, $5 worker,
--      $6 now or NULL (then the server's time of the transaction),
--      $7 position at rank 0 to begin after, if nothing has a lower rank; NULL: begin at the front
-- Out: in the order of delivery: seq, attempts before, created, stamp, max_attempts, expires, whether it has a key,
--      id, group, body, position if the rank is 0
WITH t AS MATERIALIZED (
  SELECT coalesce($6::int8, (extract(epoch FROM transaction_timestamp()) * 1000000)::int8) AS now),
start AS MATERIALIZED (
  SELECT CASE WHEN $7::int8 IS NULL OR EXISTS (SELECT 1 FROM tampu.ready u WHERE u.q = $1::int8 AND u.rank < 0)
              THEN -9223372036854775808 ELSE 0 END AS rank, coalesce($7::int8, 0) AS pos),
head AS MATERIALIZED (
  SELECT r.ctid AS place, r.rank, r.pos, r.seq, r.attempts FROM tampu.ready r
  WHERE r.q = $1::int8 AND (r.rank, r.pos) > ((SELECT rank FROM start), (SELECT pos FROM start))
  ORDER BY r.rank, r.pos LIMIT $2::int8 FOR UPDATE SKIP LOCKED),
taken AS MATERIALIZED (
  SELECT h.rank AS place, h.pos, h.attempts, m.* FROM head h
  CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = h.seq OFFSET 0) AS m),
out AS (DELETE FROM tampu.ready r WHERE r.ctid = ANY (ARRAY(SELECT place FROM head))),
leasing AS (
  INSERT INTO tampu.leased (seq, lease, until, stamp, q, attempts, cancel, id, worker, lane, since)
  SELECT seq, $3::int8, t.now + $4::int8, created / 1000 + coalesce(ahead, 0), q, attempts + 1, false, id, $5::bytea, lane,
    t.now
  FROM taken, t WHERE expires IS NULL OR expires > t.now)
SELECT seq, attempts, created, created / 1000 + coalesce(ahead, 0), max_attempts, expires, key IS NOT NULL, id, lane, body,
  CASE WHEN place = 0 THEN pos END
FROM taken ORDER BY place, pos

-- name: count_dead_rows
-- Counts the dead rows of the tables whose heads every claim reads. The statistics are about a second old.
-- Run by: claim, vacuum
-- In:  nothing
-- Out: how many
SELECT (pg_stat_get_dead_tuples('tampu.ready'::regclass) + pg_stat_get_dead_tuples('tampu.claim'::regclass)
  + pg_stat_get_dead_tuples('tampu.delayed'::regclass) + pg_stat_get_dead_tuples('tampu.expiry'::regclass))::int8

-- name: delete_keys_and_expiries
-- Deletes expiry and key of messages that no longer wait. Waits for a publish that replaces such a message.
-- Run by: claim, and other verbs that remove waiting messages
-- In:  $1 seqs
-- Out: nothing
WITH gone AS MATERIALIZED (
  SELECT m.seq, m.q, m.key, m.expires FROM unnest($1::int8[]) AS s(seq)
  CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m ORDER BY m.q, m.key),
expire AS (
  DELETE FROM tampu.expiry WHERE ctid = ANY (ARRAY(
    SELECT e.place FROM gone g CROSS JOIN LATERAL (
      SELECT e.ctid AS place FROM tampu.expiry e WHERE e.at = g.expires AND e.seq = g.seq OFFSET 0) AS e)))
DELETE FROM tampu.key WHERE ctid = ANY (ARRAY(
  SELECT k.place FROM gone g CROSS JOIN LATERAL (
    SELECT k.ctid AS place FROM tampu.key k WHERE k.q = g.q AND k.key = g.key AND k.seq = g.seq OFFSET 0
    FOR UPDATE) AS k))

-- name: select_last_errors
-- The latest error of messages.
-- Run by: claim of messages that were delivered before
-- In:  $1 seqs
-- Out: seq, error of its latest failed attempt, where there was one
SELECT s.seq, f.error FROM unnest($1::int8[]) AS s(seq) CROSS JOIN LATERAL (
  SELECT f.error FROM tampu.failure f WHERE f.seq = s.seq ORDER BY f.no DESC LIMIT 1) AS f

-- name: select_bodies
-- The bodies of messages.
-- Run by: claim, sweep, fair order
-- In:  $1 seqs
-- Out: seq, body
SELECT m.seq, m.body FROM tampu.message m WHERE m.seq = ANY ($1::int8[])
