-- In:  $1 queues
-- Out: q, state number, how many
SELECT q, kind, CAST(SUM(n) AS SIGNED) FROM tampu_tally FORCE INDEX (of_queue) WHERE q IN ($1) GROUP BY q, kind
