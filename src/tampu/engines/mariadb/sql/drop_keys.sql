-- Messages that no longer wait give up their keys. Waits for a publish that replaces such a message.
-- In:  $1 q, columns: $2 key, $3 seq
DELETE FROM tampu_key WHERE q = $1 AND word IN ($2) AND seq IN ($3) LIMIT #2
