-- In:  arrays: $1 seq, $2 max_attempts
UPDATE tampu.message SET max_attempts = ($2::int8[])[array_position($1::int8[], seq)] WHERE seq = ANY ($1::int8[])
