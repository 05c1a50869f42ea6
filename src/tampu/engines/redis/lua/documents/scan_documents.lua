-- scan_documents: scan a part of the server's keys for those of documents. Writes nothing.
-- needs: base
-- KEYS  1: tag of the store
-- ARGV  1: now   2: pattern of the keys   3: cursor of SCAN   4: about how many keys to look at
-- Returns {run id of the server, next cursor ('0' at the end), key, …}; a cursor is only valid for the same run id
local page = call('SCAN', ARGV[3], 'MATCH', ARGV[2], 'COUNT', ARGV[4])
return { call('INFO', 'server'):match('run_id:(%x+)'), page[1], unpack(page[2]) }
