-- Messages that no longer wait give up their expiry and their key. Waits for a publish that replaces such a message.
-- In:  $1 seqs
WITH gone AS MATERIALIZED (
  SELECT m.seq, m.q, m.key, m.expires FROM unnest($1::int8[]) AS s(seq)
  CROSS JOIN LATERAL (SELECT * FROM tampu.message m WHERE m.seq = s.seq OFFSET 0) AS m ORDER BY m.q, m.key),
expire AS (
  DELETE FROM tampu.expiry WHERE ctid = ANY (ARRAY(
    SELECT e.place FROM gone g CROSS JOIN LATERAL (
      SELECT e.ctid AS place FROM tampu.expiry e WHERE e.at = g.expires AND e.seq = g.seq OFFSET 0) AS e)))
DELETE FROM tampu.key WHERE ctid = ANY (ARRAY(
  SELECT k.place FROM gone g CROSS JOIN LATERAL (
    SELECT k.ctid AS place FROM tampu.key k WHERE k.q = g.q AND k.key = g.key AND k.seq = g.seq OFFSET 0
    FOR UPDATE) AS k))
