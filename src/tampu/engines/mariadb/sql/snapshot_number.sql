-- Gives offsets to these records, and to no others. The caller has the end's lock.
-- In:  columns: $1 offset of the first transition, $2 no, $3 part
INSERT INTO tampu_journal (first, no, part, at, n, q, body)
WITH s (first, no, part) AS (VALUES {($1, $2, $3)})
SELECT s.first, w.no, w.part, w.at, w.n, w.q, w.body FROM s
STRAIGHT_JOIN tampu_journal_new w FORCE INDEX (PRIMARY) ON w.no = s.no AND w.part = s.part
