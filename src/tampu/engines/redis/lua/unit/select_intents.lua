-- select_intents: units whose other slots may not have done their part; who asks has a while for it, then others are told.
-- needs: base intents
-- KEYS  1: a tag
-- ARGV  1: now   2: most
-- Returns {name, calls, …}
return take_intents(tonumber(ARGV[2]))
