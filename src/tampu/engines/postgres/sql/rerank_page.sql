-- rerank: messages of a queue that have not ended, or are dead, by growing seq.
-- In:  $1 q, $2 seq to go on after, $3 at most so many
-- Out: seq, created, body, rank, is it ready
WITH live AS MATERIALIZED (
  SELECT seq, ready FROM (
    (SELECT seq, true AS ready FROM tampu.ready WHERE q = $1::int8 AND rank = 0 AND pos = seq AND pos > $2::int8
      ORDER BY q, rank, pos LIMIT $3::int8)
    UNION ALL (SELECT seq, true AS ready FROM tampu.ready WHERE q = $1::int8 AND (rank <> 0 OR pos <> seq) AND seq > $2::int8
      ORDER BY q, seq LIMIT $3::int8)
    UNION ALL (SELECT seq, false FROM tampu.delayed WHERE q = $1::int8 AND seq > $2::int8 ORDER BY seq LIMIT $3::int8)
    UNION ALL (SELECT seq, false FROM tampu.leased WHERE q = $1::int8 AND seq > $2::int8 ORDER BY seq LIMIT $3::int8)
    UNION ALL (SELECT seq, false FROM tampu.held WHERE q = $1::int8 AND seq > $2::int8 ORDER BY q, seq LIMIT $3::int8)
    UNION ALL (SELECT seq, false FROM tampu.dead WHERE q = $1::int8 AND seq > $2::int8 ORDER BY seq LIMIT $3::int8)) AS s
  ORDER BY seq LIMIT $3::int8)
SELECT m.seq, m.created, m.body, m.rank, l.ready FROM live l
CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = l.seq OFFSET 0) AS m ORDER BY m.seq
