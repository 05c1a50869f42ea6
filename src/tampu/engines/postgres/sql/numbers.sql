-- In:  $1 how many blocks
-- Out: the first number of each; they grow
SELECT nextval('tampu.number') FROM generate_series(1, $1::int8)
