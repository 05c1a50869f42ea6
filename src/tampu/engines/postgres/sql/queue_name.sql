-- In:  $1 number
-- Out: tenant, name
SELECT tenant, name FROM tampu.queue WHERE q = $1::int8
