-- In:  $1 q
-- Out: state number, how many messages
SELECT kind, sum(n)::int8 FROM tampu.tally WHERE q = $1::int8 GROUP BY kind
