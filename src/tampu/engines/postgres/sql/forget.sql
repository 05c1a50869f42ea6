-- Messages that are in no index any more are removed, with their history and result.
-- In:  $1 seqs
WITH history AS (DELETE FROM tampu.failure WHERE seq = ANY ($1::int8[])),
answers AS (DELETE FROM tampu.result WHERE seq = ANY ($1::int8[]))
DELETE FROM tampu.message WHERE seq = ANY ($1::int8[])
