-- In:  arrays: $1 seq, $2 body
UPDATE tampu.message SET body = ($2::bytea[])[array_position($1::int8[], seq)] WHERE seq = ANY ($1::int8[])
