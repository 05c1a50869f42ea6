-- In:  $1 who
DELETE FROM tampu.seat WHERE name = 'keeper' AND holder = $1::text
