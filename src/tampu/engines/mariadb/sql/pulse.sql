-- Out: two numbers, one of which changes with every commit that journals (mostly: wake-ups may be lost)
SELECT COALESCE((SELECT no FROM tampu_journal_new FORCE INDEX (PRIMARY) ORDER BY no DESC, part DESC LIMIT 1), 0),
  (SELECT n FROM tampu_journal_end WHERE one = 1)
