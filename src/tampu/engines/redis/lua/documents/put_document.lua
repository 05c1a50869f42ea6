-- put_document: write a document; with a version, only if it still has that version (0: it must be new).
-- needs: base
-- KEYS  1: tag of the store
-- ARGV  1: now   2: key ending (kind:tenant)   3: name   4: version, or ''   5: value   6, 7: for settings of a queue,
--       tenant/queue and its tail: the queue exists from then on; else ''
-- Returns the new version, or -1: it was changed meanwhile
-- `doc:<kind>:<tenant>`: name -> version, a colon, value. `docnames:<kind>:<tenant>`: the names in order.
-- All documents are under the tag of the store, so that a document and the common revision change together.
local key = K .. 'doc:' .. ARGV[2]
local raw = call('HGET', key, ARGV[3])
local version = raw and tonumber(raw:match('^%d+')) or 0
if ARGV[4] ~= '' and tonumber(ARGV[4]) ~= version then return -1 end
version = call('HINCRBY', K .. 'n', 'revision', 1)
if ARGV[6] ~= '' then call('HSET', K .. 'queues', ARGV[6], ARGV[7] .. '+') end
call('HSET', key, ARGV[3], string.format('%.0f:', version) .. ARGV[5])
if not raw then call('ZADD', K .. 'docnames:' .. ARGV[2], 0, ARGV[3]) end
return version
