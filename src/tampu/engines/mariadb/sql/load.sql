-- Messages with the index each is in.
-- In:  $1 seqs
-- Out: seq, q, created, stamp, max_attempts, expires, id, body, state number, attempts, run_at, ended at, reason,
--      whether a cancel was asked for, the last error
SELECT m.seq, m.q, m.created, m.created DIV 1000 + COALESCE(m.ahead, 0), m.max_attempts, m.expires, m.id, m.body,
  CASE WHEN r.seq IS NOT NULL OR s.seq IS NOT NULL THEN 0 WHEN e.seq IS NOT NULL THEN e.state
    WHEN l.seq IS NOT NULL THEN 2 WHEN d.seq IS NOT NULL THEN 1 WHEN x.seq IS NOT NULL THEN 5
    WHEN h.seq IS NOT NULL THEN 3 END,
  COALESCE(r.attempts, s.attempts, e.attempts, l.attempts, d.attempts, x.attempts, h.attempts),
  COALESCE(d.run_at, h.run_at), COALESCE(e.at, x.at), COALESCE(x.reason, h.reason), COALESCE(l.cancel, FALSE),
  (SELECT f.error FROM tampu_failure f FORCE INDEX (PRIMARY) WHERE f.seq = m.seq ORDER BY f.no DESC LIMIT 1)
FROM tampu_message m FORCE INDEX (PRIMARY)
LEFT JOIN tampu_ready r FORCE INDEX (PRIMARY) ON r.q = m.q AND r.place = 0 AND r.pos = m.seq AND r.seq = m.seq
LEFT JOIN tampu_placed p FORCE INDEX (PRIMARY) ON p.q = m.q AND p.seq = m.seq
LEFT JOIN tampu_ready s FORCE INDEX (PRIMARY) ON s.q = p.q AND s.place = p.place AND s.pos = p.pos
LEFT JOIN tampu_ended e FORCE INDEX (PRIMARY) ON e.seq = m.seq
LEFT JOIN tampu_leased l FORCE INDEX (PRIMARY) ON l.seq = m.seq
LEFT JOIN tampu_delayed d FORCE INDEX (PRIMARY) ON d.seq = m.seq
LEFT JOIN tampu_dead x FORCE INDEX (PRIMARY) ON x.seq = m.seq
LEFT JOIN tampu_held h FORCE INDEX (PRIMARY) ON h.seq = m.seq
WHERE m.seq IN ($1)
