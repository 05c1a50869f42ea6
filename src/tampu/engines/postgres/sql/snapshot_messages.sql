-- What does not change of messages, column by column: a row for each stretch of numbers that has any. By COPY, which
-- knows no parameters: numbers are put in as they are.
-- In:  arrays: $1 first and $2 last seq of a stretch; $3 bodies of up to so many bytes
-- Out: numbers and ids one after the other, in the order of seq and PostgreSQL's binary form:
--      seq; created; size of the body and max_attempts (four bytes each); of those that have one: seq and expires,
--      seq and ahead, seq and id; then the bodies
SELECT m.* FROM unnest('{$1}'::int8[], '{$2}'::int8[]) AS s(first, last)
CROSS JOIN LATERAL (
  SELECT string_agg(int8send(seq), ''), string_agg(int8send(created), ''),
    string_agg(int8send(octet_length(body)::int8 << 32 | max_attempts), ''),
    string_agg(int8send(seq) || int8send(expires), '') FILTER (WHERE expires IS NOT NULL),
    string_agg(int8send(seq) || int8send(ahead), '') FILTER (WHERE ahead IS NOT NULL),
    string_agg(int8send(seq) || uuid_send(id), '') FILTER (WHERE id IS NOT NULL),
    string_agg(body, '') FILTER (WHERE octet_length(body) <= $3)
  FROM (
    SELECT seq, created, max_attempts, expires, ahead, id, body FROM tampu.message
    WHERE seq BETWEEN s.first AND s.last ORDER BY seq
  ) AS m HAVING count(*) > 0
) AS m
