-- The engine port on PostgreSQL, as tried out on PostgreSQL 15. A sketch for decision 0001, not an engine; 0001 says what is left out.
-- Load it into an empty database with psql; `EXECUTE settle(…)` runs a verb. States are words here; an engine
-- would use numbers.

CREATE SCHEMA tampu; SET search_path = tampu;
CREATE TABLE queue (q int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant text, name text,
  tokens float8, tokens_at int8, UNIQUE (tenant, name));
CREATE SEQUENCE seq;
CREATE TABLE message (seq int8 PRIMARY KEY, q int, rank int8, created int8, max_attempts int, expires int8,
  key text, lane text, own uuid UNIQUE, priority int8, deadline int8, body bytea);
CREATE TABLE ready (q int, rank int8, pos int8, seq int8, attempts int, lease int8, PRIMARY KEY (q, rank, pos));
CREATE INDEX ON ready (q, seq);
CREATE TABLE delayed (seq int8 PRIMARY KEY, q int, run_at int8, attempts int, lease int8);
CREATE INDEX ON delayed (run_at, seq);
CREATE INDEX ON delayed (q, run_at, seq);
-- `until` is in no index: an extension is a HOT update. The reaper finds leases by their claim's row.
CREATE TABLE leased (seq int8 PRIMARY KEY, q int, lease int8, until int8, attempts int, worker text,
  cancel bool DEFAULT false) WITH (fillfactor = 70);
CREATE TABLE claimed (until int8, lease int8, seqs int8[], PRIMARY KEY (until, lease));
CREATE TABLE held (seq int8 PRIMARY KEY, q int, lane text, reason text, run_at int8, attempts int);
CREATE INDEX ON held (q, seq);
CREATE INDEX ON held (q, lane, seq) WHERE lane IS NOT NULL;
CREATE TABLE lane (q int, lane text, seq int8, PRIMARY KEY (q, lane));
CREATE TABLE dead (seq int8 PRIMARY KEY, q int, at int8, reason text, attempts int, lease int8);
CREATE INDEX ON dead (q, at, seq);
CREATE TABLE ended (seq int8 PRIMARY KEY, q int, state text, at int8, attempts int, lease int8);
CREATE INDEX ON ended (q, state, at, seq);
CREATE TABLE expiry (at int8, seq int8, PRIMARY KEY (at, seq));
CREATE TABLE key (q int, key text, seq int8, PRIMARY KEY (q, key));
CREATE TABLE idempotency (tenant text, key text, seq int8, digest bytea, until int8, PRIMARY KEY (tenant, key));
CREATE INDEX ON idempotency (until);
CREATE TABLE failure (seq int8, no int8 GENERATED ALWAYS AS IDENTITY, attempt int, at int8, outcome text,
  worker text, error text, traceback text, PRIMARY KEY (seq, no));
CREATE TABLE result (seq int8 PRIMARY KEY, until int8, body bytea);
CREATE INDEX ON result (until);
-- Counts: every statement adds rows, none updates one; maintenance folds them.
CREATE TABLE tally (no int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, q int, state text, n int8);
CREATE INDEX ON tally (q, state) INCLUDE (n);
-- Columns instead of a packed body: the server knows the seqs, the client does not yet.
CREATE TABLE journal_new (no int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, xid xid8 DEFAULT pg_current_xact_id(),
  verb text, q int, state text, at int8, worker text, seqs int8[], attempts int[], types text[], details text[]);
CREATE TABLE journal (first int8 PRIMARY KEY, LIKE journal_new);
ALTER TABLE journal DROP COLUMN no, DROP COLUMN xid;
CREATE TABLE journal_end (n int8); INSERT INTO journal_end VALUES (0);
CREATE TABLE document (kind text, tenant text, name text, version int8, value bytea, PRIMARY KEY (kind, tenant, name));
CREATE TABLE revision (n int8); INSERT INTO revision VALUES (0);
-- The engine's clock; tests set tampu.now.
CREATE FUNCTION now_us() RETURNS int8 LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(nullif(current_setting('tampu.now', true), '')::int8,
                  (extract(epoch FROM clock_timestamp()) * 1000000)::int8) $$;

-- locks: what a batch is about to look at, in one order for all.
-- In: texts such as 'key/<q>/<key>', 'idem/<tenant>/<key>', 'lane/<q>/<lane>', 'depth/<q>'
PREPARE locks AS
SELECT pg_advisory_xact_lock(h)
FROM (SELECT DISTINCT hashtextextended(name, 0) AS h FROM unnest($1::text[]) AS name ORDER BY 1) s;

-- sweep. A function, because each of its statements needs a newer snapshot than the one before.
CREATE FUNCTION sweep(most int, OUT moved int, OUT next_us int8) LANGUAGE plpgsql AS $$
DECLARE t int8 := now_us();
BEGIN
  moved := 0;
  IF EXISTS (SELECT FROM delayed WHERE run_at <= t) THEN
    WITH due AS (DELETE FROM delayed WHERE seq IN (SELECT seq FROM delayed WHERE run_at <= t ORDER BY run_at, seq
        LIMIT most FOR UPDATE SKIP LOCKED) RETURNING *),
    put AS (INSERT INTO ready SELECT d.q, m.rank, nextval('seq'), d.seq, d.attempts, d.lease
        FROM due d JOIN message m USING (seq) ORDER BY d.run_at, d.seq),
    count AS (INSERT INTO tally (q, state, n) SELECT q, s, sum(d) FROM due, (VALUES ('delayed', -1), ('ready', 1)) AS v(s, d)
        GROUP BY 1, 2),
    note AS (INSERT INTO journal_new (verb, q, state, at, seqs, attempts)
        SELECT 'promote', q, 'ready', t, array_agg(seq), array_agg(attempts) FROM due GROUP BY q)
    SELECT moved + count(*) INTO moved FROM due;
  END IF;
  IF EXISTS (SELECT FROM claimed WHERE until <= t) THEN
    WITH over AS (DELETE FROM claimed WHERE (until, lease) IN (SELECT until, lease FROM claimed WHERE until <= t
        ORDER BY until LIMIT most FOR UPDATE SKIP LOCKED) RETURNING *),
    one AS (SELECT over.lease, unnest(seqs) AS seq FROM over),
    kept AS (INSERT INTO claimed SELECT min(l.until), l.lease, array_agg(l.seq) FROM one JOIN leased l USING (seq, lease)
        WHERE l.until > t GROUP BY l.lease ON CONFLICT (until, lease) DO UPDATE SET seqs = claimed.seqs || excluded.seqs),
    out AS (DELETE FROM leased l USING one WHERE (l.seq, l.lease) = (one.seq, one.lease) AND l.until <= t RETURNING l.*),
    went AS MATERIALIZED (SELECT o.*, m.rank, m.key, m.expires, CASE WHEN o.cancel THEN 'cancelled'
        WHEN o.attempts >= m.max_attempts THEN 'dead' ELSE 'ready' END AS state FROM out o JOIN message m USING (seq)),
    back AS (INSERT INTO ready SELECT q, rank, nextval('seq'), seq, attempts FROM went WHERE state = 'ready'),
    buried AS (INSERT INTO dead SELECT seq, q, t, 'lease_expired', attempts, lease FROM went WHERE state = 'dead'),
    stopped AS (INSERT INTO ended SELECT seq, q, state, t, attempts, lease FROM went WHERE state = 'cancelled'),
    marks AS (INSERT INTO key SELECT q, key, seq FROM went WHERE key IS NOT NULL AND state = 'ready'
        ON CONFLICT DO NOTHING),
    expire AS (INSERT INTO expiry SELECT expires, seq FROM went WHERE expires IS NOT NULL AND state = 'ready'
        ON CONFLICT DO NOTHING),
    failed AS (INSERT INTO failure (seq, attempt, at, outcome, worker)
        SELECT seq, attempts, t, 'lease_expired', worker FROM went),
    count AS (INSERT INTO tally (q, state, n) SELECT q, s, sum(d) FROM went,
        LATERAL (VALUES ('leased', -1), (went.state, 1)) AS v(s, d) GROUP BY 1, 2),
    note AS (INSERT INTO journal_new (verb, q, state, at, seqs, attempts)
        SELECT 'reap', q, state, t, array_agg(seq), array_agg(attempts) FROM went GROUP BY q, state)
    SELECT moved + count(*) INTO moved FROM went;
  END IF;
  -- Expiry: DELETE FROM expiry … FOR UPDATE SKIP LOCKED, then as cancel, with 'expired'.
  SELECT least((SELECT min(run_at) FROM delayed), (SELECT min(until) FROM claimed), (SELECT min(at) FROM expiry))
    INTO next_us;
END $$;

-- claim. In: wants as JSON (q, token = 63 random bits, lease_us, in_flight, rate, burst), limit, worker.
-- Out: the leases. A function, so that several queues, limits and keys are one round trip.
CREATE FUNCTION claim(wants jsonb, most int, who text) RETURNS TABLE (seq int8, q int, lease int8, until int8,
  attempts int, created int8, max_attempts int, expires int8, own uuid, body bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE w record; room int; t int8 := now_us(); got int8[];
BEGIN
  PERFORM sweep(1000);
  FOR w IN SELECT * FROM jsonb_to_recordset(wants) AS w(q int, token int8,
      lease_us int8, in_flight int, rate float8, burst int) LOOP
    EXIT WHEN most <= 0;
    room := most;
    IF w.in_flight > 0 OR w.rate > 0 THEN  -- only limited queues queue up here
      PERFORM 1 FROM queue WHERE queue.q = w.q FOR UPDATE;
      IF w.in_flight > 0 THEN
        room := least(room, w.in_flight - (SELECT coalesce(sum(n), 0) FROM tally y WHERE y.q = w.q AND state = 'leased'));
      END IF;
      IF w.rate > 0 THEN
        UPDATE queue SET tokens = least(w.burst, coalesce(tokens + greatest(0, t - tokens_at) * w.rate / 1e6, w.burst)),
          tokens_at = t WHERE queue.q = w.q;
        room := least(room, (SELECT floor(tokens + 1e-9) FROM queue WHERE queue.q = w.q));
      END IF;
    END IF;
    CONTINUE WHEN room <= 0;
    WITH head AS MATERIALIZED (SELECT r.* FROM ready r WHERE r.q = w.q ORDER BY r.rank, r.pos LIMIT room
        FOR UPDATE SKIP LOCKED),
    left_ready AS (DELETE FROM ready r USING head h WHERE (r.q, r.rank, r.pos) = (h.q, h.rank, h.pos)),
    taken AS (INSERT INTO leased SELECT h.seq, h.q, w.token, t + w.lease_us, h.attempts + 1, who FROM head h
        RETURNING leased.seq, leased.attempts),
    batch AS (INSERT INTO claimed SELECT t + w.lease_us, w.token, array_agg(seq) FROM taken HAVING count(*) > 0),
    count AS (INSERT INTO tally (q, state, n) SELECT w.q, s, d * n FROM (SELECT count(*) AS n FROM taken) c,
        (VALUES ('ready', -1), ('leased', 1)) AS v(s, d) WHERE n > 0),
    note AS (INSERT INTO journal_new (verb, q, state, at, worker, seqs, attempts)
        SELECT 'claim', w.q, 'leased', t, who, array_agg(seq), array_agg(attempts) FROM taken HAVING count(*) > 0)
    SELECT array_agg(seq) INTO got FROM taken;
    CONTINUE WHEN got IS NULL;
    -- Key and expiry go. A publish that is replacing a body holds the key's row: this waits for it, and
    -- the body is read only afterwards, by the next statement, which has a newer snapshot.
    DELETE FROM key k USING message m WHERE m.seq = ANY (got) AND (k.q, k.key, k.seq) = (m.q, m.key, m.seq);
    DELETE FROM expiry e USING message m WHERE m.seq = ANY (got) AND (e.at, e.seq) = (m.expires, m.seq);
    IF w.rate > 0 THEN UPDATE queue SET tokens = tokens - cardinality(got) WHERE queue.q = w.q; END IF;
    most := most - cardinality(got);
    RETURN QUERY SELECT m.seq, m.q, l.lease, l.until, l.attempts, m.created, m.max_attempts, m.expires, m.own, m.body
      FROM unnest(got) WITH ORDINALITY AS g(seq, n) JOIN leased l USING (seq) JOIN message m USING (seq) ORDER BY g.n;
  END LOOP;
END $$;

-- publish: all calls of a run. One row per item; `call` says whose it is.
-- In: arrays of call, q, ordering, ageing, priority, deadline, max_attempts, delay, run, ttl, key, lane, idempotency
-- key, digest, type, body; tenant; q and depth of limited queues; window. Out: n, seq, state, now, why refused.
-- Items that share a key or idempotency key are folded by the engine first. A batch that must look before it writes
-- (keys, groups, depths) sends `locks` before it in the same pipeline: a statement's snapshot is older than the locks
-- it waits for, so looking and waiting cannot be one statement.
PREPARE publish AS
WITH t AS MATERIALIZED (SELECT now_us() AS now),
item AS MATERIALIZED (
  SELECT i.*, t.now, coalesce(t.now + delay, run) AS run_at, t.now + ttl AS expires,
    CASE ordering WHEN 'priority' THEN CASE WHEN ageing > 0 THEN t.now - priority * ageing ELSE -priority END
                  WHEN 'deadline' THEN coalesce(deadline, 1::int8 << 62) ELSE 0 END AS rank
  FROM t, unnest($1::int[], $2::int[], $3::text[], $4::int8[], $5::int8[], $6::int8[], $7::int[], $8::int8[],
    $9::int8[], $10::int8[], $11::text[], $12::text[], $13::text[], $14::bytea[], $15::text[], $16::bytea[])
    WITH ORDINALITY AS i(call, q, ordering, ageing, priority, deadline, max_attempts, delay, run, ttl, key, lane,
      idem, digest, type, body, n)),
known AS MATERIALIZED (SELECT n, call, d.seq, d.digest <> item.digest AS conflict FROM item
  JOIN idempotency d ON d.tenant = $17 AND d.key = item.idem AND d.until > item.now),
waiting AS MATERIALIZED (SELECT item.n, k.seq FROM item JOIN key k USING (q, key)
  WHERE item.n NOT IN (SELECT n FROM known) FOR UPDATE OF k),
wanted AS MATERIALIZED (SELECT * FROM item WHERE n NOT IN (SELECT n FROM known UNION ALL SELECT n FROM waiting)),
refused AS MATERIALIZED (
  SELECT call, 'idempotency_conflict' AS why FROM known WHERE conflict
  UNION SELECT call, 'queue_full' FROM (SELECT call, q, count(*) AS n FROM wanted GROUP BY 1, 2) w
    JOIN unnest($18::int[], $19::int8[]) AS most(q, depth) USING (q)
    WHERE w.n + (SELECT coalesce(sum(n), 0) FROM tally y
                 WHERE y.q = w.q AND state IN ('ready', 'delayed', 'leased', 'held')) > depth),
new AS MATERIALIZED (SELECT nextval('seq') AS seq, w.*,
    CASE WHEN w.lane IS NOT NULL AND (l.seq IS NOT NULL OR row_number() OVER (PARTITION BY w.q, w.lane ORDER BY w.n) > 1)
         THEN 'held' WHEN run_at > now THEN 'delayed' ELSE 'ready' END AS state
  FROM wanted w LEFT JOIN lane l ON l.q = w.q AND l.lane = w.lane
  WHERE call NOT IN (SELECT call FROM refused) ORDER BY w.n),
put AS (INSERT INTO message
  SELECT seq, q, rank, now, max_attempts, expires, key, lane, NULL, priority, deadline, body FROM new),
put_ready AS (INSERT INTO ready SELECT q, rank, seq, seq, 0 FROM new WHERE state = 'ready'),
put_delayed AS (INSERT INTO delayed SELECT seq, q, run_at, 0 FROM new WHERE state = 'delayed'),
put_held AS (INSERT INTO held SELECT seq, q, lane, 'group', run_at, 0 FROM new WHERE state = 'held'),
put_lane AS (INSERT INTO lane SELECT q, lane, seq FROM new WHERE lane IS NOT NULL AND state <> 'held'),
put_expiry AS (INSERT INTO expiry SELECT expires, seq FROM new WHERE expires IS NOT NULL),
put_key AS (INSERT INTO key SELECT q, key, seq FROM new WHERE key IS NOT NULL),
put_idem AS (INSERT INTO idempotency SELECT $17, idem, seq, digest, now + $20::int8 FROM new WHERE idem IS NOT NULL
  ON CONFLICT (tenant, key) DO UPDATE SET seq = excluded.seq, digest = excluded.digest, until = excluded.until),
replace AS (UPDATE message m SET body = i.body FROM waiting w JOIN item i USING (n)
  WHERE m.seq = w.seq AND i.call NOT IN (SELECT call FROM refused)),
count AS (INSERT INTO tally (q, state, n) SELECT q, state, count(*) FROM new GROUP BY 1, 2),
note AS (INSERT INTO journal_new (verb, q, state, at, seqs, attempts, types)
  SELECT 'publish', q, state, min(now), array_agg(seq ORDER BY n), array_agg(0 ORDER BY n), array_agg(type ORDER BY n)
  FROM new GROUP BY q, state)
SELECT i.n, coalesce(new.seq, w.seq, k.seq) AS seq, new.state, i.now, r.why
FROM item i LEFT JOIN new USING (n) LEFT JOIN waiting w USING (n) LEFT JOIN known k USING (n)
LEFT JOIN refused r ON r.call = i.call ORDER BY i.n;

-- settle. In: arrays of verb, q, seq, lease, result, result_ttl, reason, error, traceback, delay, number of the
-- delay table, spread; the delay tables as JSON. Out: n, seq, state; NULL is a miss.
-- The DELETE is the fence: whoever gets the row settles it. Release and reject leave the complement of the lease,
-- so that a repeat is known by its verb too.
PREPARE settle AS
WITH t AS MATERIALIZED (SELECT now_us() AS now),
item AS MATERIALIZED (SELECT * FROM unnest($1::text[], $2::int[], $3::int8[], $4::int8[], $5::bytea[], $6::int8[],
  $7::text[], $8::text[], $9::text[], $10::int8[], $11::int[], $12::float8[])
  WITH ORDINALITY AS i(verb, q, seq, lease, result, result_ttl, reason, error, trace, delay, tbl, spread, n)),
gone AS (DELETE FROM leased l USING item i WHERE (l.seq, l.lease, l.q) = (i.seq, i.lease, i.q) RETURNING l.*),
went AS MATERIALIZED (
  SELECT i.*, CASE WHEN verb IN ('release', 'reject') THEN ~lease ELSE lease END AS trace_of, g.worker, t.now, m.rank, m.lane, m.expires, m.key,
    g.attempts - (verb = 'release')::int AS attempts, wait.us AS wait,
    CASE WHEN verb = 'ack' THEN 'done' WHEN verb = 'reject' THEN 'dead' WHEN g.cancel THEN 'cancelled'
         WHEN verb = 'release' THEN 'ready' WHEN g.attempts >= m.max_attempts THEN 'dead'
         WHEN wait.us > 0 THEN 'delayed' ELSE 'ready' END AS state
  FROM t, gone g JOIN item i USING (seq, lease) JOIN message m USING (seq) CROSS JOIN LATERAL (
    SELECT coalesce(i.delay, ($13::jsonb -> i.tbl ->> (least(g.attempts, jsonb_array_length($13::jsonb -> i.tbl)) - 1))::int8
                             * i.spread)::int8 AS us) wait),
to_ended AS (INSERT INTO ended SELECT seq, q, state, now, attempts, trace_of FROM went WHERE state IN ('done', 'cancelled')),
to_dead AS (INSERT INTO dead SELECT seq, q, now, CASE verb WHEN 'reject' THEN coalesce(reason, 'unrecoverable')
  ELSE 'retries_exhausted' END, attempts, trace_of FROM went WHERE state = 'dead'),
to_delayed AS (INSERT INTO delayed SELECT seq, q, now + wait, attempts, trace_of FROM went WHERE state = 'delayed'),
to_ready AS (INSERT INTO ready SELECT q, rank, nextval('seq'), seq, attempts, trace_of FROM went WHERE state = 'ready'),
marks AS (INSERT INTO key SELECT q, key, seq FROM went WHERE key IS NOT NULL AND state IN ('ready', 'delayed')
  ON CONFLICT DO NOTHING),
expire AS (INSERT INTO expiry SELECT expires, seq FROM went WHERE expires IS NOT NULL AND state IN ('ready', 'delayed')
  ON CONFLICT DO NOTHING),
failed AS (INSERT INTO failure (seq, attempt, at, outcome, worker, error, traceback)
  SELECT seq, attempts, now, verb, worker, error, trace FROM went WHERE verb IN ('nack', 'reject')),
kept AS (INSERT INTO result SELECT seq, now + result_ttl, result FROM went WHERE verb = 'ack' AND result IS NOT NULL),
count AS (INSERT INTO tally (q, state, n) SELECT q, s, sum(d) FROM went,
  LATERAL (VALUES ('leased', -1), (went.state, 1)) AS v(s, d) GROUP BY 1, 2),
note AS (INSERT INTO journal_new (verb, q, state, at, worker, seqs, attempts, details)
  SELECT verb, q, state, min(now), worker, array_agg(seq), array_agg(attempts), array_agg(split_part(error, E'\n', 1))
  FROM went GROUP BY verb, q, state, worker)
SELECT item.n, item.seq, went.state FROM item LEFT JOIN went USING (n) ORDER BY item.n;

-- settle, the misses: asked again with a newer snapshot, before LeaseLost is said.
PREPARE again AS
SELECT i.n, w.state FROM unnest($1::text[], $2::int[], $3::int8[], $4::int8[]) WITH ORDINALITY AS i(verb, q, seq, lease, n)
CROSS JOIN LATERAL (SELECT CASE WHEN i.verb IN ('release', 'reject') THEN ~i.lease ELSE i.lease END AS trace) t
CROSS JOIN LATERAL (
  SELECT state FROM ended e WHERE (e.seq, e.q, e.lease) = (i.seq, i.q, trace) AND (verb = 'ack') = (state = 'done')
  UNION ALL SELECT 'dead' FROM dead d WHERE (d.seq, d.q, d.lease) = (i.seq, i.q, trace)
  UNION ALL SELECT 'delayed' FROM delayed d WHERE (d.seq, d.q, d.lease) = (i.seq, i.q, trace)
  UNION ALL SELECT 'ready' FROM ready r WHERE (r.q, r.seq, r.lease) = (i.q, i.seq, trace)) w;

-- settle, cancel, purge, sweep: the next message of each group gets the slot. In: seqs that ended. Out: q, lane
-- (group), seq for `seat`. After `locks` of the groups.
PREPARE advance AS
WITH free AS (DELETE FROM lane l USING unnest($1::int8[]) AS s(seq) WHERE l.seq = s.seq RETURNING l.q, l.lane),
next AS MATERIALIZED (SELECT h.*, m.rank, CASE WHEN h.run_at > now_us() THEN 'delayed' ELSE 'ready' END AS state
  FROM free f CROSS JOIN LATERAL (SELECT * FROM held h WHERE (h.q, h.lane) = (f.q, f.lane) ORDER BY h.seq LIMIT 1) h
  JOIN message m USING (seq)),
out AS (DELETE FROM held h USING next n WHERE h.seq = n.seq),
to_ready AS (INSERT INTO ready SELECT q, rank, nextval('seq'), seq, attempts FROM next WHERE state = 'ready'),
to_delayed AS (INSERT INTO delayed SELECT seq, q, run_at, attempts FROM next WHERE state = 'delayed'),
count AS (INSERT INTO tally (q, state, n) SELECT q, s, d FROM next,
  LATERAL (VALUES ('held', -1), (next.state, 1)) AS v(s, d)),
note AS (INSERT INTO journal_new (verb, q, state, at, seqs, attempts)
  SELECT 'free', q, state, now_us(), ARRAY[seq], ARRAY[attempts] FROM next)
SELECT q, lane, seq FROM next;

-- give the slot to the next message of each group. In: q, lane (group), seq
PREPARE seat AS
INSERT INTO lane SELECT * FROM unnest($1::int[], $2::text[], $3::int8[]);

-- extend. In: arrays of q, seq, lease, us. Out: n, until, cancel asked for; an item without a row is LeaseLost.
PREPARE extend AS
UPDATE leased l SET until = now_us() + i.us FROM unnest($1::int[], $2::int8[], $3::int8[], $4::int8[])
  WITH ORDINALITY AS i(q, seq, lease, us, n)
WHERE (l.seq, l.lease, l.q) = (i.seq, i.lease, i.q) RETURNING i.n, l.until, l.cancel;

-- extend to an earlier time: the reaper must look sooner. In: until, lease, seq
PREPARE sooner AS
INSERT INTO claimed SELECT until, lease, ARRAY[seq] FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS s(until, lease, seq)
ON CONFLICT (until, lease) DO UPDATE SET seqs = claimed.seqs || excluded.seqs;

-- cancel. In: seqs (out of the ids), tenant. Out: seq, state. What is missing is NotFound or InvalidState.
PREPARE cancel AS
WITH i AS MATERIALIZED (SELECT seq, m.q FROM unnest($1::int8[]) AS i(seq) JOIN message m USING (seq)
  JOIN queue USING (q) WHERE tenant = $2),
a AS (DELETE FROM ready r USING i WHERE (r.q, r.seq) = (i.q, i.seq) RETURNING r.seq, r.q, r.attempts, 'ready' AS was),
b AS (DELETE FROM delayed d USING i WHERE d.seq = i.seq RETURNING d.seq, d.q, d.attempts, 'delayed'),
c AS (DELETE FROM held h USING i WHERE h.seq = i.seq RETURNING h.seq, h.q, h.attempts, 'held'),
asked AS (UPDATE leased l SET cancel = true FROM i WHERE l.seq = i.seq RETURNING l.seq),
out AS MATERIALIZED (TABLE a UNION ALL TABLE b UNION ALL TABLE c),
marks AS (DELETE FROM key k USING out JOIN message m USING (seq) WHERE (k.q, k.key, k.seq) = (m.q, m.key, m.seq)),
expire AS (DELETE FROM expiry e USING out JOIN message m USING (seq) WHERE (e.at, e.seq) = (m.expires, m.seq)),
put AS (INSERT INTO ended SELECT seq, q, 'cancelled', now_us(), attempts FROM out),
count AS (INSERT INTO tally (q, state, n) SELECT q, s, sum(d) FROM out,
  LATERAL (VALUES (out.was, -1), ('cancelled', 1)) AS v(s, d) GROUP BY 1, 2),
note AS (INSERT INTO journal_new (verb, q, state, at, seqs, attempts)
  SELECT 'cancel', q, 'cancelled', now_us(), array_agg(seq), array_agg(attempts) FROM out GROUP BY q)
SELECT seq, 'cancelled' FROM out UNION ALL SELECT seq, 'leased' FROM asked;

-- replay. In: seqs, tenant. Out: seq, state. (With groups: as publish, after `locks`.)
PREPARE replay AS
WITH gone AS (DELETE FROM dead d USING unnest($1::int8[]) AS i(seq), queue u
  WHERE d.seq = i.seq AND u.q = d.q AND u.tenant = $2 RETURNING d.seq, d.q),
fresh AS (UPDATE message m SET expires = CASE WHEN m.expires > now_us() THEN m.expires END
  FROM gone g WHERE m.seq = g.seq RETURNING m.seq, m.q, m.rank, m.key, m.expires),
put AS (INSERT INTO ready SELECT q, rank, nextval('seq'), seq, 0 FROM fresh),
marks AS (INSERT INTO key SELECT q, key, seq FROM fresh WHERE key IS NOT NULL ON CONFLICT DO NOTHING),
expire AS (INSERT INTO expiry SELECT expires, seq FROM fresh WHERE expires IS NOT NULL ON CONFLICT DO NOTHING),
count AS (INSERT INTO tally (q, state, n) SELECT q, s, sum(d) FROM fresh,
  (VALUES ('dead', -1), ('ready', 1)) AS v(s, d) GROUP BY 1, 2),
note AS (INSERT INTO journal_new (verb, q, state, at, seqs, attempts)
  SELECT 'replay', q, 'ready', now_us(), array_agg(seq), array_agg(0) FROM fresh GROUP BY q)
SELECT seq, 'ready' FROM fresh;

-- free. In: seqs, tenant. Out: seq, state.
PREPARE free AS
WITH out AS (DELETE FROM held h USING unnest($1::int8[]) AS i(seq), queue u WHERE h.seq = i.seq AND h.lane IS NULL
  AND u.q = h.q AND u.tenant = $2 RETURNING h.*),
went AS MATERIALIZED (SELECT o.*, m.rank, CASE WHEN o.run_at > now_us() THEN 'delayed' ELSE 'ready' END AS state
  FROM out o JOIN message m USING (seq)),
to_ready AS (INSERT INTO ready SELECT q, rank, nextval('seq'), seq, attempts FROM went WHERE state = 'ready'),
to_delayed AS (INSERT INTO delayed SELECT seq, q, run_at, attempts FROM went WHERE state = 'delayed'),
count AS (INSERT INTO tally (q, state, n) SELECT q, s, sum(d) FROM went,
  LATERAL (VALUES ('held', -1), (went.state, 1)) AS v(s, d) GROUP BY 1, 2),
note AS (INSERT INTO journal_new (verb, q, state, at, seqs, attempts)
  SELECT 'free', q, state, now_us(), array_agg(seq), array_agg(attempts) FROM went GROUP BY q, state)
SELECT seq, state FROM went;

-- purge, here of the dead; the other states the same from their own table. In: q, limit. Out: how many.
PREPARE purge AS
WITH gone AS (DELETE FROM dead WHERE seq IN (SELECT seq FROM dead WHERE q = $1 ORDER BY at, seq LIMIT $2
  FOR UPDATE SKIP LOCKED) RETURNING seq, q, attempts),
bodies AS (DELETE FROM message m USING gone g WHERE m.seq = g.seq),
history AS (DELETE FROM failure f USING gone g WHERE f.seq = g.seq),
count AS (INSERT INTO tally (q, state, n) SELECT q, 'dead', -count(*) FROM gone GROUP BY q),
note AS (INSERT INTO journal_new (verb, q, at, seqs, attempts)
  SELECT 'purge', q, now_us(), array_agg(seq), array_agg(attempts) FROM gone GROUP BY q)
SELECT count(*) FROM gone;

-- rerank. In: q, ordering, ageing, after, limit. Out: where to go on, or NULL.
PREPARE rerank AS
WITH live AS (SELECT seq FROM (
    (SELECT seq FROM ready WHERE q = $1 AND seq > $4 ORDER BY seq LIMIT $5) UNION ALL
    (SELECT seq FROM held WHERE q = $1 AND seq > $4 ORDER BY seq LIMIT $5) UNION ALL
    (SELECT seq FROM delayed WHERE q = $1 AND seq > $4 ORDER BY seq LIMIT $5) UNION ALL
    (SELECT seq FROM leased WHERE q = $1 AND seq > $4 ORDER BY seq LIMIT $5)) s ORDER BY seq LIMIT $5),
ranked AS (UPDATE message m SET rank = CASE $2 WHEN 'priority' THEN CASE WHEN $3::int8 > 0
      THEN created - priority * $3::int8 ELSE -priority END WHEN 'deadline' THEN coalesce(deadline, 1::int8 << 62) ELSE 0 END
  FROM live WHERE m.seq = live.seq RETURNING m.seq, m.rank),
moved AS (UPDATE ready r SET rank = k.rank FROM ranked k WHERE r.q = $1 AND r.seq = k.seq)
SELECT CASE WHEN count(*) = $5 THEN max(seq) END FROM ranked;

-- trim, here the ended; results, spent keys and journal the same, each by its own time. In: q and keep of queues
-- with their own retention, state, default, limit. Out: how many.
PREPARE trim AS
WITH old AS (DELETE FROM ended WHERE seq IN (SELECT seq FROM queue u CROSS JOIN LATERAL (SELECT seq FROM ended e
    LEFT JOIN unnest($1::int[], $2::int8[]) AS r(q, keep) ON r.q = u.q
    WHERE e.q = u.q AND e.state = $3 AND e.at <= now_us() - coalesce(keep, $4) ORDER BY at LIMIT $5) s LIMIT $5)
  RETURNING seq, q, state),
bodies AS (DELETE FROM message m USING old WHERE m.seq = old.seq),
history AS (DELETE FROM failure f USING old WHERE f.seq = old.seq),
results AS (DELETE FROM result r USING old WHERE r.seq = old.seq),
count AS (INSERT INTO tally (q, state, n) SELECT q, state, -count(*) FROM old GROUP BY 1, 2)
SELECT count(*) FROM old;

-- maintenance: fold the counts, so that stats add up few rows
PREPARE fold_tally AS
WITH gone AS (DELETE FROM tally WHERE no IN (SELECT no FROM tally ORDER BY no LIMIT 10000 FOR UPDATE SKIP LOCKED)
  RETURNING q, state, n)
INSERT INTO tally (q, state, n) SELECT q, state, sum(n) FROM gone GROUP BY 1, 2;

-- maintenance, and every reader first: give journal rows their offsets, once no earlier one can commit.
-- The order is (transaction, row); a transaction that is still open holds back what came after it.
PREPARE number_journal AS
WITH new AS (DELETE FROM journal_new WHERE xid < pg_snapshot_xmin(pg_current_snapshot())
    AND pg_try_advisory_xact_lock(7461) RETURNING *),
total AS (UPDATE journal_end SET n = n + (SELECT coalesce(sum(cardinality(seqs)), 0) FROM new) RETURNING n)
INSERT INTO journal
SELECT total.n + 1 - sum(cardinality(seqs)) OVER (ORDER BY xid DESC, no DESC),
  verb, q, state, at, worker, seqs, attempts, types, details FROM new, total;

-- journal. In: offset, tenant or NULL, limit
PREPARE read_journal AS
SELECT j.* FROM journal j JOIN queue u USING (q) WHERE first >= coalesce((SELECT max(first) FROM journal WHERE first <= $1 + 1), 0)
AND u.tenant = coalesce($2, u.tenant) ORDER BY first LIMIT $3;

-- put document. In: kind, tenant, name, value, version or NULL. Out: version; no row is VersionConflict.
-- The one row of `revision` orders changes of documents; there are few.
PREPARE put_document AS
WITH r AS (UPDATE revision SET n = n + 1 RETURNING n)
INSERT INTO document SELECT $1, $2, $3, r.n, $4 FROM r WHERE coalesce($5::int8, 0) = 0
  OR EXISTS (SELECT FROM document WHERE (kind, tenant, name) = ($1, $2, $3))
ON CONFLICT (kind, tenant, name) DO UPDATE SET version = excluded.version, value = excluded.value
  WHERE $5::int8 IS NULL OR document.version = $5::int8
RETURNING version;

-- delete document. Out: whether it was there
PREPARE delete_document AS
WITH gone AS (DELETE FROM document WHERE (kind, tenant, name) = ($1, $2, $3) RETURNING 1),
r AS (UPDATE revision SET n = n + 1 WHERE EXISTS (TABLE gone) RETURNING n)
SELECT count(*) > 0 FROM gone;

-- get. In: seq (out of the id), tenant
PREPARE get_one AS
SELECT m.*, s.* FROM message m JOIN queue u USING (q) CROSS JOIN LATERAL (
  SELECT state, attempts, NULL::int8 AS run_at, at, NULL AS reason, false AS cancel FROM ended WHERE seq = m.seq
  UNION ALL SELECT 'ready', attempts, NULL, NULL, NULL, false FROM ready WHERE (q, seq) = (m.q, m.seq)
  UNION ALL SELECT 'leased', attempts, NULL, NULL, NULL, cancel FROM leased WHERE seq = m.seq
  UNION ALL SELECT 'delayed', attempts, run_at, NULL, NULL, false FROM delayed WHERE seq = m.seq
  UNION ALL SELECT 'held', attempts, run_at, NULL, reason, false FROM held WHERE seq = m.seq
  UNION ALL SELECT 'dead', attempts, NULL, at, reason, false FROM dead WHERE seq = m.seq) s
WHERE m.seq = $1 AND u.tenant = $2;

-- page, here of ready; each state by its own index. The cursor is what follows seq.
PREPARE page AS
SELECT seq, rank, pos FROM ready WHERE q = $1 AND (rank, pos) > ($2, $3) ORDER BY rank, pos LIMIT $4;

-- stats. In: tenant, queue or NULL
PREPARE stats AS
SELECT u.name, t.state, sum(t.n), (SELECT created FROM message WHERE seq = (SELECT seq FROM ready r WHERE r.q = u.q ORDER BY seq LIMIT 1))
FROM queue u LEFT JOIN tally t USING (q) WHERE u.tenant = $1 AND u.name = coalesce($2, u.name) GROUP BY u.q, u.name, t.state;
