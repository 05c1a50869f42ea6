-- rerank: messages of a queue that have not ended, or are dead, by growing seq.
-- In:  $1 q, $2 seq to go on after, $3 at most so many
-- Out: seq, created, body, rank, is it ready
SELECT m.seq, m.created, m.body, m.place, live.ready FROM (
  SELECT seq, ready FROM (
    (SELECT seq, TRUE AS ready FROM tampu_ready FORCE INDEX (PRIMARY) WHERE q = $1 AND place = 0 AND pos = seq AND pos > $2
      ORDER BY pos LIMIT $3)
    UNION ALL (SELECT seq, TRUE AS ready FROM tampu_placed FORCE INDEX (PRIMARY) WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3)
    UNION ALL (SELECT seq, FALSE FROM tampu_delayed FORCE INDEX (PRIMARY) WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3)
    UNION ALL (SELECT seq, FALSE FROM tampu_leased FORCE INDEX (PRIMARY) WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3)
    UNION ALL (SELECT seq, FALSE FROM tampu_held FORCE INDEX (of_queue) WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3)
    UNION ALL (SELECT seq, FALSE FROM tampu_dead FORCE INDEX (PRIMARY) WHERE q = $1 AND seq > $2 ORDER BY seq LIMIT $3)) AS s
  ORDER BY seq LIMIT $3) AS live
STRAIGHT_JOIN tampu_message m FORCE INDEX (PRIMARY) ON m.seq = live.seq ORDER BY m.seq
