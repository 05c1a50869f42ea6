-- What else another store needs of messages, besides `load`.
-- In:  $1 seqs, $2 the time or NULL (the server's clock)
-- Out: seq, rank, lane, whether it waits for its group's turn, whether its key stands for it, result, until when
SELECT m.seq, m.rank, m.lane, h.lane IS NOT NULL, k.seq IS NOT NULL, r.body, r.until
FROM unnest($1::int8[]) AS s(seq)
CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m
LEFT JOIN LATERAL (SELECT h.lane FROM tampu.held h WHERE h.seq = m.seq OFFSET 0) AS h ON true
LEFT JOIN LATERAL (
  SELECT k.seq FROM tampu.key k WHERE k.q = m.q AND k.key = m.key AND k.seq = m.seq OFFSET 0) AS k ON true
LEFT JOIN LATERAL (
  SELECT r.body, r.until FROM tampu.result r WHERE r.seq = m.seq
    AND r.until > coalesce($2::int8, (extract(epoch FROM statement_timestamp()) * 1000000)::int8) OFFSET 0) AS r ON true
