-- In:  $1 the new revision
UPDATE tampu.revision SET n = $1::int8
