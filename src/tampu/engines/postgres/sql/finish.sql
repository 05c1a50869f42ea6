-- The last statement of every commit that changed something. What the operations have in common, written once.
-- In:  $1 the time; journal: $2 how many, $3 q, $4 body; counts: $5 q, $6 state, $7 change;
--      endings: $8 q, $9 state, $10 seqs; claims: $11 until, $12 lease, $13 seqs (all arrays)
-- The entry's number is drawn now: whatever this commit has seen of others was numbered before.
WITH entry AS MATERIALIZED (SELECT nextval('tampu.entry') AS no),
told AS (
  INSERT INTO tampu.journal_new (no, part, n, at, q, body)
  SELECT e.no, j.part, j.n, $1::int8, j.q, j.body
  FROM entry e, unnest($2::int8[], $3::int8[], $4::bytea[]) WITH ORDINALITY AS j(n, q, body, part)),
counted AS (
  INSERT INTO tampu.tally (q, kind, n)
  SELECT t.q, t.kind, t.n FROM unnest($5::int8[], $6::int8[], $7::int8[]) AS t(q, kind, n)),
over AS (
  INSERT INTO tampu.ending (q, state, no, at, seqs)
  SELECT d.q, d.state, e.no, $1::int8, d.seqs
  FROM entry e, unnest($8::int8[], $9::int8[], $10::bytea[]) AS d(q, state, seqs))
INSERT INTO tampu.claim (until, lease, seqs)
SELECT c.until, c.lease, c.seqs FROM unnest($11::int8[], $12::int8[], $13::bytea[]) AS c(until, lease, seqs)
