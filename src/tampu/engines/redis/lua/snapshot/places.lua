-- places: what may change of some messages. Writes nothing.
-- needs: base blocks named runs journal moves surveying
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [number or own id, …]
-- Returns {number, x, failures, expires, number, …}; see surveying.lua. Of own ids that are not here, nothing.
local seqs, answer = numbers_of(decode(ARGV[2])), {}
tell_places(answer, seqs)
return answer
