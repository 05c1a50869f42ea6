-- In:  $1 q, $2 state number, $3 nos
DELETE FROM tampu.ending WHERE q = $1::int8 AND state = $2::int8 AND no = ANY ($3::int8[])
