-- The waiting messages that have these keys, locked: a claim that takes one meets us here.
-- In:  $1 q, $2 keys, in their order, so that all lock in one order
-- Out: key, seq
SELECT k.key, k.seq FROM unnest($2::bytea[]) AS i(key) CROSS JOIN LATERAL (
  SELECT k.key, k.seq FROM tampu.key k WHERE k.q = $1::int8 AND k.key = i.key OFFSET 0 FOR UPDATE) AS k
