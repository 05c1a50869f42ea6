-- publish: a whole commit. Messages of one queue that are ready at once, at rank 0, and have nothing else.
-- In:  $1 q, $2 the time or NULL (the server's), $3 synchronous_commit (see begin), $4 the newest id's millisecond known,
--      $5 max_attempts, $6 bodies, at most 1024, $7 $8 $9 the journal's record before the first number, between it
--      and the millisecond of the ids, and after that
-- Out: the time, the first number
WITH t AS MATERIALIZED (
  SELECT coalesce($2::int8, (extract(epoch FROM transaction_timestamp()) * 1000000)::int8) AS now,
    nextval('tampu.number') AS first, nextval('tampu.entry') AS no, cardinality($6::bytea[]) AS n,
    CASE WHEN $3::text = 'off' OR current_setting('synchronous_commit') = 'off'
         THEN set_config('synchronous_commit', $3::text, true) END),
s AS MATERIALIZED (SELECT greatest(now / 1000, $4::int8) AS stamp FROM t),
stored AS (
  INSERT INTO tampu.message (seq, created, rank, q, max_attempts, ahead, body)
  SELECT (SELECT first FROM t) + i.place - 1, (SELECT now FROM t), 0, $1::int8, $5::int8,
    (SELECT nullif(s.stamp - t.now / 1000, 0) FROM t, s), i.body
  FROM unnest($6::bytea[]) WITH ORDINALITY AS i(body, place)),
put AS (
  INSERT INTO tampu.ready (rank, pos, seq, q, attempts)
  SELECT 0, i.seq, i.seq, $1::int8, 0 FROM t, generate_series(t.first, t.first + t.n - 1) AS i(seq)),
told AS (
  INSERT INTO tampu.journal_new (no, part, n, at, q, body)
  SELECT t.no, 1, t.n, t.now, $1::int8, $7::bytea || int8send(t.first) || $8::bytea || int8send(s.stamp) || $9::bytea
  FROM t, s),
counted AS (INSERT INTO tampu.tally (q, kind, n) SELECT $1::int8, 0, t.n FROM t)
SELECT now, first FROM t
