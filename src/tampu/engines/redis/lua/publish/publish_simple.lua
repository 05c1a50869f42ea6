-- publish_simple: store messages that are ready or done at once, at rank 0, without lookups or expiry.
-- needs: base blocks runs journal moves
-- KEYS  1: tag of the queue
-- ARGV  1: now   2: msgpack [max_attempts (one, or one each), type (one, or one each), why they are done or false]
--       3 …: packed bodies
-- Returns {newly_ready, due, whether the queue is new, now, first number}; the numbers of the others follow in steps of two.
local most, types, done = unpack(decode(ARGV[2]))
local count = #ARGV - 2
local prefix, no = series(count)
local head = '\150\176' .. FIFO .. '\0' .. encode(now)
local same = type(most) == 'number' and head .. encode(most) .. '\192'
local messages, seqs = {}, {}
for i = 1, count do
  local seq = prefix .. format('%05x', no + 2 * (i - 1))
  seqs[i] = seq
  messages[2 * i - 1], messages[2 * i] = seq, (same or head .. encode(most[i]) .. '\192') .. ARGV[2 + i]
end
many('HSET', block_for(prefix, count), messages)
if not done then enter_run(prefix, no, count) end
local r = new_record('publish', done and HELD or READY)
r.seqs, r.attempts, r.types = seqs, 0, types
if done then
  local ended, index, statuses = new_record('ack', DONE), {}, {}
  ended.seqs, ended.attempts, ended.details = seqs, 0, {}
  for i = 1, count do
    index[2 * i - 1], index[2 * i], ended.details[i] = now, seqs[i], done
  end
  many('ZADD', INDEX[DONE], index)
  local status = encode({ DONE, 0, '', now, done, finish() })
  for i = 1, count do
    statuses[2 * i - 1], statuses[2 * i] = seqs[i], status
  end
  write_statuses(statuses)
else
  finish()
end
return { done and 0 or count, false, is_new and 1 or 0, now, seqs[1] }
