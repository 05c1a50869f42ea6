-- snapshot_places: what may change of these messages. Writes nothing.
-- needs: base blocks find_numbers runs journal moves snapshot_rows
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [number or own id, …]
-- Returns {number, x, failures, expires, number, …}; see snapshot_rows.lua. Of own ids that are not here, nothing.
local seqs, answer = numbers_of(decode(ARGV[2])), {}
tell_places(answer, seqs)
return answer
