-- Ready rows are never updated in place: others find them by their place and may not lose one.
-- In:  $1 q, arrays: $2 seq, $3 rank in ready, $4 rank of the message
WITH item AS MATERIALIZED (SELECT * FROM unnest($2::int8[], $3::int8[]) AS i(seq, rank)),
plain AS MATERIALIZED (
  SELECT r.place FROM item i CROSS JOIN LATERAL (
    SELECT r.ctid AS place FROM tampu.ready r
    WHERE r.q = $1::int8 AND r.rank = 0 AND r.pos = i.seq AND r.seq = i.seq AND i.rank <> 0 OFFSET 0 FOR UPDATE) AS r),
ranked AS MATERIALIZED (
  SELECT r.place FROM item i CROSS JOIN LATERAL (
    SELECT r.ctid AS place FROM tampu.ready r
    WHERE r.q = $1::int8 AND r.seq = i.seq AND (r.rank <> 0 OR r.pos <> r.seq) AND r.rank <> i.rank OFFSET 0
    FOR UPDATE) AS r),
out AS (
  DELETE FROM tampu.ready WHERE ctid = ANY (ARRAY(SELECT place FROM plain UNION ALL SELECT place FROM ranked))
  RETURNING *),
back AS (
  INSERT INTO tampu.ready (rank, pos, seq, lease, q, attempts)
  SELECT ($3::int8[])[array_position($2::int8[], seq)], pos, seq, lease, q, attempts FROM out)
UPDATE tampu.message m SET rank = ($4::int8[])[array_position($2::int8[], seq)] WHERE seq = ANY ($2::int8[])
AND rank <> ($4::int8[])[array_position($2::int8[], seq)]
