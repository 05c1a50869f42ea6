-- replay: dead messages leave their index. An expiry that has passed meanwhile does not count any more.
-- In:  $1 seqs, $2 the time, $3 max_attempts of each from now on
-- Out: card, attempts 0
WITH gone AS (DELETE FROM tampu.dead WHERE seq = ANY ($1::int8[]) RETURNING seq),
given AS (SELECT * FROM unnest($1::int8[], $3::int8[]) AS i(seq, max_attempts) WHERE seq IN (SELECT seq FROM gone)),
changed AS (
  UPDATE tampu.message m SET expires = CASE WHEN m.expires > $2::int8 THEN m.expires END, max_attempts = i.max_attempts
  FROM given i
  WHERE m.seq = i.seq AND m.seq = ANY ($1::int8[]) AND (m.expires <= $2::int8 OR m.max_attempts <> i.max_attempts))
SELECT m.seq, m.q, 0, m.created / 1000 + coalesce(m.ahead, 0), m.id, m.lane, m.rank, i.max_attempts,
  CASE WHEN m.expires > $2::int8 THEN m.expires END, m.key IS NOT NULL
FROM given i CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = i.seq OFFSET 0) AS m
