-- In:  arrays: $1 q, $2 lane, $3 seq that has no place any more. The caller has the lanes' locks.
DELETE FROM tampu.lane WHERE ctid = ANY (ARRAY(
  SELECT l.place FROM unnest($1::int8[], $2::bytea[], $3::int8[]) AS i(q, lane, seq) CROSS JOIN LATERAL (
    SELECT l.ctid AS place FROM tampu.lane l WHERE l.q = i.q AND l.lane = i.lane AND l.seq = i.seq OFFSET 0) AS l))
