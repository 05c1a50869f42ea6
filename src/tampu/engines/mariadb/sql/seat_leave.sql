-- In:  $1 who
DELETE FROM tampu_seat WHERE name = 'keeper' AND holder = $1
