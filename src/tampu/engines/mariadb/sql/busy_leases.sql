-- sweep: leases that could not be locked and are there, so somebody else has locked them.
-- In:  columns: $1 seq, $2 lease
-- Out: seq, lease
SELECT seq, lease FROM tampu_leased FORCE INDEX (PRIMARY) WHERE seq IN ($1) AND (seq, lease) IN ({($1, $2)})
