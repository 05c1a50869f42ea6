-- Gives offsets to records that are visible, in the order of their entries. The caller has the end's lock.
-- In:  $1 at most so many records, $2 the offset given out last
INSERT INTO tampu_journal (first, no, part, at, n, q, body)
SELECT $2 + 1 + s.before_it, w.no, w.part, w.at, w.n, w.q, w.body FROM (
  SELECT no, part, SUM(n) OVER (ORDER BY no, part ROWS UNBOUNDED PRECEDING) - n AS before_it FROM (
    SELECT no, part, n FROM tampu_journal_new FORCE INDEX (PRIMARY) ORDER BY no, part LIMIT $1) AS head) AS s
STRAIGHT_JOIN tampu_journal_new w FORCE INDEX (PRIMARY) ON w.no = s.no AND w.part = s.part
