-- In:  $1 q
-- Out: state number, how many messages
SELECT kind, CAST(SUM(n) AS SIGNED) FROM tampu_tally FORCE INDEX (of_queue) WHERE q = $1 GROUP BY kind
