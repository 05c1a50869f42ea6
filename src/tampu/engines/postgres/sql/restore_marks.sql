-- Messages that wait again take their expiry back, and their key if no newer message has it.
-- In:  $1 seqs
WITH back AS MATERIALIZED (
  SELECT m.seq, m.q, m.key, m.expires FROM unnest($1::int8[]) AS s(seq)
  CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m),
expire AS (
  INSERT INTO tampu.expiry (at, seq) SELECT expires, seq FROM back WHERE expires IS NOT NULL ON CONFLICT DO NOTHING)
INSERT INTO tampu.key (q, key, seq) SELECT q, key, seq FROM back WHERE key IS NOT NULL ORDER BY q, key
ON CONFLICT DO NOTHING
