-- How far the numbers of a stem (own ids that begin alike) were stored in this queue, also when the messages are gone: for
-- callers that store them in their order and can not note it in the same step themselves.
-- `loaded`: stem -> number; by time in `loaded.until`.
local keep_stored, stored = 0, {} -- how long; 0: nobody asked for it

local function stored_upto(stem)
  if not stored[stem] then stored[stem] = tonumber(call('HGET', K .. 'loaded', stem) or -1) end
  return stored[stem]
end

local function stored_before(stem, number) return keep_stored > 0 and number <= stored_upto(stem) end

local function remember_stored(stem, number)
  if keep_stored > 0 and number > stored_upto(stem) then
    stored[stem] = number
    call('HSET', K .. 'loaded', stem, whole(number))
    call('ZADD', K .. 'loaded.until', whole(now + keep_stored), stem)
  end
end
