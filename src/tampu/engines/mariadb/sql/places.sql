-- In:  $1 q
-- Out: how many messages of a group may go at once, its pace and burst
SELECT places, pace, pace_burst FROM tampu_queue FORCE INDEX (PRIMARY) WHERE q = $1
