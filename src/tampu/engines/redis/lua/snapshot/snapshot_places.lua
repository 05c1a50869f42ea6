-- snapshot_places: the changing parts of these messages. Writes nothing.
-- needs: base blocks find_numbers runs journal moves snapshot_rows
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [number or own id, …]
-- Returns {number, x, failures, expires, number, …}, without own ids that are not here; see snapshot_rows.lua.
local seqs, answer = numbers_of(decode(ARGV[2])), {}
append_statuses(answer, seqs)
return answer
