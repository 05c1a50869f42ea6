-- Counts to be added up. Others skip what is being folded.
-- In:  $1 at most so many rows
-- Out: no, q, state number, change
SELECT no, q, kind, n FROM tampu_tally FORCE INDEX (PRIMARY) ORDER BY no LIMIT $1 FOR UPDATE SKIP LOCKED
