-- trim: does a reader lack something of an entry?
-- In:  $1 nos, $2 the offset that all readers have
-- Out: those of which something comes after it
SELECT s.no FROM unnest($1::int8[]) AS s(no)
LEFT JOIN LATERAL (
  SELECT true AS yes FROM tampu.journal j WHERE j.no = s.no AND j.first + j.n - 1 > $2::int8 LIMIT 1) AS j ON true
LEFT JOIN LATERAL (SELECT true AS yes FROM tampu.journal_new w WHERE w.no = s.no LIMIT 1) AS w ON true
WHERE j.yes OR w.yes
