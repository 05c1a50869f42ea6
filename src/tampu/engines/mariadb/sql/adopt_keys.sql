-- adopt: keys that stand for messages that wait, if nobody here has the key.
-- In:  $1 q, columns: $2 key, $3 seq
INSERT INTO tampu_key (q, word, seq) VALUES {($1, $2, $3)} ON DUPLICATE KEY UPDATE seq = tampu_key.seq
