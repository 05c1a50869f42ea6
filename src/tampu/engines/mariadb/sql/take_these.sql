-- claim: the places that the index has proposed, locked. What others are taking, or have taken, is passed over.
-- In:  $1 q, columns: $2 rank, $3 pos
-- Out: as `take`
SELECT CONCAT_WS(' ', m.seq, h.attempts, m.created, COALESCE(m.ahead, 0), m.max_attempts, COALESCE(m.expires, ''),
  m.word IS NOT NULL, COALESCE(HEX(m.id), ''), COALESCE(HEX(m.lane), ''), h.place, h.pos), m.body
FROM (SELECT place, pos, seq, attempts FROM tampu_ready FORCE INDEX (PRIMARY)
  WHERE (q, place, pos) IN ({($1, $2, $3)}) FOR UPDATE SKIP LOCKED) AS h
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = h.seq
