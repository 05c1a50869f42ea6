-- scan_documents: the keys of documents among a part of all keys of the server. Writes nothing.
-- needs: base
-- KEYS  1: tag of the store
-- ARGV  1: now   2: pattern of the keys   3: cursor of SCAN   4: about how many are looked at
-- Returns {run of the server, next cursor ('0': that was all), key, …}; a cursor is good for the same run only
local page = call('SCAN', ARGV[3], 'MATCH', ARGV[2], 'COUNT', ARGV[4])
return { call('INFO', 'server'):match('run_id:(%x+)'), page[1], unpack(page[2]) }
