-- Out: when the next delay, lease and expiry are due. Not min(): on an empty table that may be planned as a scan.
SELECT (SELECT run_at FROM tampu.delayed ORDER BY run_at LIMIT 1),
  (SELECT until FROM tampu.claim ORDER BY until LIMIT 1),
  (SELECT at FROM tampu.expiry ORDER BY at LIMIT 1)
