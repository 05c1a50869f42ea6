-- In:  $1 number
-- Out: tenant, name
SELECT tenant, name FROM tampu_queue WHERE q = $1
