-- Messages that have not ended, without those that are ready and never moved; and dead ones.
-- In:  $1 qs, whether those are wanted that are: $2 ready, $3 delayed, $4 leased, $5 held, $6 dead
-- Out: seq, q, state number, attempts, run_at, ended at, reason
SELECT r.seq, r.q, 0, r.attempts, NULL, NULL, NULL FROM tampu_placed p FORCE INDEX (PRIMARY)
STRAIGHT_JOIN tampu_ready r FORCE INDEX (PRIMARY) ON r.q = p.q AND r.place = p.place AND r.pos = p.pos
WHERE $2 AND p.q IN ($1) AND p.pos <> p.seq;
SELECT seq, q, 1, attempts, run_at, NULL, NULL FROM tampu_delayed FORCE INDEX (of_queue) WHERE $3 AND q IN ($1);
SELECT seq, q, 2, attempts, NULL, NULL, NULL FROM tampu_leased WHERE $4 AND q IN ($1);
SELECT seq, q, 3, attempts, run_at, NULL, reason FROM tampu_held FORCE INDEX (of_queue) WHERE $5 AND q IN ($1);
SELECT seq, q, 5, attempts, NULL, at, reason FROM tampu_dead FORCE INDEX (of_queue) WHERE $6 AND q IN ($1)
