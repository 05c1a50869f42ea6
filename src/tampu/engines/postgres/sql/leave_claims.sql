-- settle: claims of which nothing is left: nobody needs to look at them.
-- In:  arrays: $1 until, $2 lease. A claim of several stretches of numbers has rows in the microseconds before
DELETE FROM tampu.claim WHERE ctid = ANY (ARRAY(
  SELECT c.ctid FROM unnest($1::int8[], $2::int8[]) AS i(until, lease)
  CROSS JOIN LATERAL (
    SELECT ctid FROM tampu.claim c WHERE c.until > i.until - 8 AND c.until <= i.until AND c.lease = i.lease OFFSET 0) AS c))
