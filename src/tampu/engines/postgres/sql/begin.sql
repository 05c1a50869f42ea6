-- The first statement of every commit.
-- In:  $1 the time or NULL (the server's, of the transaction), $2 whether numbers are wanted,
--      $3 whether to look what is due, $4 synchronous_commit: on unless the server has something stricter, or off,
--      $5 $6 $7 times before which nothing is due any more: a delay, a lease, an expiry; NULL: look from the beginning,
--      $8 milliseconds to wait for a lock, where the user has set nothing
-- Out: the time, the first number of a block, when the next delay, lease and expiry are due, what was set
-- Not min(): on an empty table that may be planned as a scan, and the plan is kept.
SELECT coalesce($1::int8, (extract(epoch FROM transaction_timestamp()) * 1000000)::int8),
  CASE WHEN $2::boolean THEN nextval('tampu.number') END,
  CASE WHEN $3::boolean THEN (SELECT run_at FROM tampu.delayed WHERE run_at >= coalesce($5::int8, 0) ORDER BY run_at LIMIT 1) END,
  CASE WHEN $3::boolean THEN (SELECT until FROM tampu.claim WHERE until >= coalesce($6::int8, 0) ORDER BY until LIMIT 1) END,
  CASE WHEN $3::boolean THEN (SELECT at FROM tampu.expiry WHERE at >= coalesce($7::int8, 0) ORDER BY at LIMIT 1) END,
  CASE WHEN $4::text = 'off' OR current_setting('synchronous_commit') = 'off'
       THEN set_config('synchronous_commit', $4::text, true) END,
  CASE WHEN current_setting('lock_timeout') = '0' THEN set_config('lock_timeout', $8::text, true) END
