-- settle: acks of one claim. The DELETE is the fence: whoever gets the row settles it.
-- In:  $1 seqs, $2 lease, $3 q
-- Out: of those that were leased so, one text: seq, attempts, stamp, until, id and lane in hexadecimal or nothing
DELETE FROM tampu_leased WHERE seq IN ($1) AND lease = $2 AND q = $3 LIMIT #1
RETURNING CONCAT_WS(' ', seq, attempts, stamp, until, COALESCE(HEX(id), ''), COALESCE(HEX(lane), ''))
