-- Messages that are ready and never moved; there may be millions, so they are packed.
-- In:  $1 qs
-- Out: q, seqs with commas between; several rows for a queue with many
SET STATEMENT group_concat_max_len = 1073741824 FOR
SELECT q, GROUP_CONCAT(seq) FROM tampu_ready FORCE INDEX (PRIMARY)
WHERE q IN ($1) AND pos = seq GROUP BY q, seq DIV 65536
