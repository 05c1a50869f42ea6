-- Messages that are ready and never moved; there may be millions, so they are packed.
-- In:  $1 qs
-- Out: q, seqs (eight bytes each); several rows for a queue with many
SELECT q, string_agg(int8send(seq), ''::bytea) FROM tampu.ready
WHERE q = ANY ($1::int8[]) AND pos = seq GROUP BY q, seq >> 24
