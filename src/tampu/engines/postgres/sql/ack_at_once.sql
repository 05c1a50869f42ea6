-- settle: a whole commit. Acks of one claim, all or none. The DELETE is the fence: whoever gets the row settles it.
-- In:  $1 seqs, $2 lease, $3 q, $4 the time or NULL (the server's), $5 synchronous_commit (see begin), $6 how many,
--      $7 the seqs, packed: if that is the whole claim, nobody needs to look at it any more
--      $8 the claim's until, if these are known to be all that is left of it; or NULL
--      Arrays, for each stretch of numbers that gets an entry: $9 the first number, $10 how many numbers, $11 the seqs in
--      their order, packed, $12 the journal's record before the milliseconds of the ids; $13 and after the attempts.
--      $1 is empty when the messages are all the numbers of the stretches: then these are walked, which is half of
--      the work of looking each up. Otherwise there is one stretch.
-- Out: the time
-- Raises invalid_text_representation, and nothing changes, when one is not leased so, or has its own id or a group.
-- Entries are numbered when the rows are ours.
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
told AS (
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
