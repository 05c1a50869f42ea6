-- Gives offsets to records that are visible, in the order of their entries.
-- In:  $1 at most so many records, $2 the offset given out last
-- Out: how many records
WITH new AS (
  DELETE FROM tampu.journal_new WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM tampu.journal_new ORDER BY no, part LIMIT $1::int8))
  RETURNING *),
moved AS (
  INSERT INTO tampu.journal (first, no, at, n, q, body)
  SELECT $2::int8 + 1 + sum(n) OVER (ORDER BY no, part) - n, no, at, n, q, body FROM new),
reached AS (UPDATE tampu.journal_end SET n = n + (SELECT coalesce(sum(n), 0) FROM new))
SELECT count(*) FROM new
