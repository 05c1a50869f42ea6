-- In:  $1 the time, $2 at most so many
-- Out: q, lane of groups that spent more than they can have spent by now: a clock was ahead. From the times on that not
--      even the slowest pace of a queue explains; of a faster one, as soon as it is beyond that.
SELECT p.q, p.lane FROM tampu_pace p FORCE INDEX (spent) STRAIGHT_JOIN tampu_queue t ON t.q = p.q
WHERE p.spent > $1 + (SELECT MAX(pace * pace_burst) FROM tampu_queue) AND p.spent > $1 + t.pace * t.pace_burst
ORDER BY p.spent LIMIT $2
