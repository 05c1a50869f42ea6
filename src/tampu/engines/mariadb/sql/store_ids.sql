-- In:  columns: $1 id, $2 seq of messages whose ids users gave
INSERT INTO tampu_own_id (id, seq) VALUES {($1, $2)}
