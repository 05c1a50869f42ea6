-- In:  $1 the new revision
UPDATE tampu_revision SET n = $1 WHERE one = 1
