-- The keeper's seat: taken if it is free or ours. By the server's clock, whatever clock the messages have.
-- In:  $1 who, $2 for how many seconds
-- Out: a row if it is ours
-- Assignments are made one after the other: the second looks at who has the seat after the first.
INSERT INTO tampu_seat (name, holder, until)
VALUES ('keeper', $1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + CAST($2 * 1000000 AS SIGNED))
ON DUPLICATE KEY UPDATE
  holder = IF(until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), VALUES(holder), holder),
  until = IF(holder = VALUES(holder), VALUES(until), until);
SELECT name FROM tampu_seat WHERE name = 'keeper' AND holder = $1
