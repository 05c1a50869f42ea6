-- sweep: claims that were looked at.
-- In:  arrays: $1 until, $2 lease, of rows that the caller has locked
DELETE FROM tampu.claim WHERE ctid = ANY (ARRAY(
  SELECT c.ctid FROM unnest($1::int8[], $2::int8[]) AS i(until, lease) CROSS JOIN LATERAL (
    SELECT ctid FROM tampu.claim c WHERE c.until = i.until AND c.lease = i.lease OFFSET 0) AS c))
