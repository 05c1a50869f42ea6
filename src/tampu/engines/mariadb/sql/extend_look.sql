-- In:  columns: $1 seq, $2 lease, $3 q
-- Out: seq, lease, until, whether a cancel was asked for; locked. An item without a row is LeaseLost.
SELECT seq, lease, until, cancel FROM tampu_leased FORCE INDEX (PRIMARY)
WHERE seq IN ($1) AND (seq, lease, q) IN ({($1, $2, $3)})
FOR UPDATE
