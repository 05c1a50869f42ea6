-- The first statement of every commit, after START TRANSACTION.
-- In:  $1 the time or NULL (the server's), $2 whether numbers are wanted, $3 whether to look what is due
-- Out: one text: the time, the first number of a block, when the next delay, lease and expiry are due; or nothing
-- (One column: PyMySQL reads a description of each.)
SELECT CONCAT_WS(' ', COALESCE($1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
  CASE WHEN $2 THEN NEXTVAL(tampu_number) ELSE '' END,
  CASE WHEN $3 THEN COALESCE((SELECT run_at FROM tampu_delayed FORCE INDEX (due) ORDER BY run_at LIMIT 1), '') END,
  CASE WHEN $3 THEN COALESCE((SELECT until FROM tampu_claim FORCE INDEX (PRIMARY) ORDER BY until LIMIT 1), '') END,
  CASE WHEN $3 THEN COALESCE((SELECT at FROM tampu_expiry FORCE INDEX (PRIMARY) ORDER BY at LIMIT 1), '') END)
