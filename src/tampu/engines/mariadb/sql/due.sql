-- Out: when the next delay, lease and expiry are due
SELECT (SELECT run_at FROM tampu_delayed FORCE INDEX (due) ORDER BY run_at LIMIT 1),
  (SELECT until FROM tampu_claim FORCE INDEX (PRIMARY) ORDER BY until LIMIT 1),
  (SELECT at FROM tampu_expiry FORCE INDEX (PRIMARY) ORDER BY at LIMIT 1)
