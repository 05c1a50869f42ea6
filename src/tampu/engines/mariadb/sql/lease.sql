-- claim: messages become leased.
-- In:  $1 q, $2 lease, $3 for how long, $4 worker, $5 the time, columns: $6 seq, $7 stamp,
--      $8 attempts, $9 id, $10 lane
INSERT INTO tampu_leased (seq, lease, until, stamp, q, attempts, cancel, id, worker, lane)
VALUES {($6, $2, $5 + $3, $7, $1, $8, FALSE, $9, $4, $10)}
