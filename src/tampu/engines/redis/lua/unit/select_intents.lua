-- select_intents: units that may be incomplete in other slots. For a while, no other process gets the same ones.
-- needs: base intents
-- KEYS  1: a tag
-- ARGV  1: now   2: limit
-- Returns {name, calls, …}
return take_intents(tonumber(ARGV[2]))
