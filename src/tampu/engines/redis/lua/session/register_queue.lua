-- register_queue: add a queue to the registry before anything is stored in it.
-- needs: base
-- KEYS  1: tag of the store
-- ARGV  1: now   2: tenant/queue   3: tail of its ids (14 hex)   4: 1 if the queue exists, 0 if it may follow
-- Returns its tail; nil if another queue has the tail
-- `queues`: tenant/queue -> tail, with a + if the queue exists. `tails`: tail -> tenant/queue, and the first six digits of
-- tails -> the queues that have these, with spaces between them.
local known = call('HGET', K .. 'queues', ARGV[2])
local tail = known and known:sub(1, 14) or ARGV[3]
if not known and call('HSETNX', K .. 'tails', tail, ARGV[2]) == 0 then return false end
local sharing = call('HGET', K .. 'tails', tail:sub(1, 6))
if not sharing then
  call('HSET', K .. 'tails', tail:sub(1, 6), ARGV[2])
elseif not (' ' .. sharing .. ' '):find(' ' .. ARGV[2] .. ' ', 1, true) then
  call('HSET', K .. 'tails', tail:sub(1, 6), sharing .. ' ' .. ARGV[2])
end
if not known or (ARGV[4] == '1' and #known == 14) then
  call('HSET', K .. 'queues', ARGV[2], tail .. (ARGV[4] == '1' and '+' or ''))
end
return tail
