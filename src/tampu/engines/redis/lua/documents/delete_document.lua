-- delete_document: remove a document.
-- needs: base
-- KEYS  1: tag of the store
-- ARGV  1: now   2: key ending (kind:tenant)   3: name
-- Returns 1 if it existed
local gone = call('HDEL', K .. 'doc:' .. ARGV[2], ARGV[3])
call('ZREM', K .. 'docnames:' .. ARGV[2], ARGV[3])
if gone == 1 then call('HINCRBY', K .. 'n', 'revision', 1) end
return gone
