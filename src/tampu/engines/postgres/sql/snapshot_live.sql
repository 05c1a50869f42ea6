-- Messages that have not ended, without those that are ready and never moved; and dead ones.
-- In:  $1 qs, $2 state numbers
-- Out: seq, q, state number, attempts, run_at, ended at, reason
SELECT seq, q, 0, attempts, NULL::int8, NULL::int8, NULL::bytea FROM tampu.ready
  WHERE q = ANY ($1::int8[]) AND 0 = ANY ($2::int8[]) AND pos <> seq
UNION ALL SELECT seq, q, 1, attempts, run_at, NULL, NULL FROM tampu.delayed
  WHERE q = ANY ($1::int8[]) AND 1 = ANY ($2::int8[])
UNION ALL SELECT seq, q, 2, attempts, NULL, NULL, NULL FROM tampu.leased
  WHERE q = ANY ($1::int8[]) AND 2 = ANY ($2::int8[])
UNION ALL SELECT seq, q, 3, attempts, run_at, NULL, reason FROM tampu.held
  WHERE q = ANY ($1::int8[]) AND 3 = ANY ($2::int8[])
UNION ALL SELECT seq, q, 5, attempts, NULL, at, reason FROM tampu.dead
  WHERE q = ANY ($1::int8[]) AND 5 = ANY ($2::int8[])
