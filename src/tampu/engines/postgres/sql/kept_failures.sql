-- In:  $1 seqs
-- Out: seq, attempt, at, outcome, worker, error, traceback; oldest first
SELECT f.seq, f.attempt, f.at, f.outcome, f.worker, f.error, f.traceback FROM unnest($1::int8[]) AS s(seq)
CROSS JOIN LATERAL (SELECT * FROM tampu.failure f WHERE f.seq = s.seq ORDER BY f.seq, f.no OFFSET 0) AS f
