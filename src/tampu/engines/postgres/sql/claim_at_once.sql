-- claim: a whole commit. The head of a queue's index becomes leased, if nothing is due that would have to come first and
-- all of it is plain: never delivered before, without expiry, key or own id. Otherwise nothing changes.
-- In:  $1 q, $2 at most so many, $3 lease, $4 for how long, $5 worker, $6 the time or NULL (the server's),
--      $7 position at rank 0 to begin behind, if nothing has a lower rank; NULL: begin at the front
--      $8 $9 $10 times before which nothing is due any more (see begin), $11 synchronous_commit (see begin),
--      $12 $13 the journal's record before the numbers, and after the milliseconds of the ids
-- Out: first the time, 1 if all was plain, 0 if not, NULL if nothing was found, when the next delay, lease and expiry are
--      due; then, in the order of delivery, what was taken: created, seq, stamp, max_attempts, position if the rank is
--      0, body
-- What lies one behind the other in the queue and has numbers one behind the other is a stretch, and read as one stretch of
-- the primary key; a message that fits nowhere is a stretch of one. When they are few, each has an entry of the journal
-- and a row in `claim` (one microsecond before the next: the reaper keeps their order), which is some bytes long however many
-- messages it is about. Otherwise all are one entry, packed as codes.pack_seqs does it. Entries are numbered when the
-- rows are ours. Bodies are read last, by themselves: they are long, and everything else can do without.
-- Beginning and ending 98 plan nodes was a sixth of a claim of 100, so there is one way for all shapes: 70.
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
  INSERT INTO tampu.leased (seq, lease, until, stamp, q, attempts, cancel, worker, lane)
  SELECT seq, $3::int8, (SELECT now + $4::int8 FROM t), stamp, $1::int8, 1, false, $5::bytea, lane FROM taken
  WHERE (SELECT plain FROM sum)),
watched AS (
  INSERT INTO tampu.claim (until, lease, seqs)
  SELECT t.now + $4::int8 - before, $3::int8, seqs FROM t, whole),
told AS (
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
