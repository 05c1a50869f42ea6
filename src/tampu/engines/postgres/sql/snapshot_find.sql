-- In:  arrays: $1 number or NULL, $2 stamp, $3 id
-- Out: seq, q of the messages that have one of these ids, of any tenant
SELECT m.seq, m.q FROM unnest($1::int8[], $2::int8[], $3::uuid[]) AS i(seq, stamp, id)
CROSS JOIN LATERAL (
  SELECT m.seq, m.q FROM tampu.message m
  WHERE m.seq = i.seq AND m.id IS NULL AND m.created / 1000 + coalesce(m.ahead, 0) = i.stamp
  UNION ALL SELECT m.seq, m.q FROM tampu.message m WHERE m.id = i.id) AS m
