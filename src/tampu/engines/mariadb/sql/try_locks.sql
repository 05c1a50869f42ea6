-- As `locks`, of what nobody else has locked; the others are not waited for.
-- In:  $1 latches
-- Out: those that are ours until the end of the transaction
SELECT n FROM tampu_latch FORCE INDEX (PRIMARY) WHERE n IN ($1) ORDER BY n FOR UPDATE SKIP LOCKED
