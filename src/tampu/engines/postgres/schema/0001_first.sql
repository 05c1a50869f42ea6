-- Schema 1. The state of a message is the index table its `seq` is in; exactly one of
-- ready, delayed, leased, held, dead, ended. `tampu` stands for the schema's name everywhere in these files.
--
-- Texts that users choose are bytea: PostgreSQL's text cannot hold NUL, and no collation is wanted.
-- Small tables with many inserts and deletes are vacuumed early and often; pages of rows that are updated
-- keep room, so that an update stays on its page.

CREATE TABLE tampu.meta (name text PRIMARY KEY, value text NOT NULL);

-- Publish order and positions. Every commit that needs numbers takes a block of them.
CREATE SEQUENCE tampu.number INCREMENT 1024 START 1024;
-- Orders the journal: drawn at the end of a commit, so after the numbers of all commits it has seen.
CREATE SEQUENCE tampu.entry;

CREATE TABLE tampu.queue (
  q int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  tokens float8,          -- what is left of the claim rate, as of tokens_at
  tokens_at int8,
  UNIQUE (tenant, name)
) WITH (fillfactor = 50);

-- Written once; `body` is the packed message. Rewritten only when a key replaces the payload.
CREATE TABLE tampu.message (
  seq int8 PRIMARY KEY,
  created int8 NOT NULL,
  rank int8 NOT NULL,
  q int NOT NULL,
  max_attempts int NOT NULL,
  expires int8,
  ahead int8,             -- milliseconds that the id is ahead of `created`: when the clock was set back
  id uuid,                -- given by the user; others are computed
  key bytea,
  lane bytea,
  body bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE tampu.message ALTER body SET STORAGE EXTERNAL;
-- Not unique: ids are unique only within a tenant; publish ensures that.
CREATE INDEX message_id ON tampu.message (id) WHERE id IS NOT NULL;

-- The order of the index is the order of delivery.
CREATE TABLE tampu.ready (
  rank int8, pos int8, seq int8, lease int8, q int, attempts int, PRIMARY KEY (q, rank, pos)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
-- Finds a message by seq where the primary key does not, and the oldest of a queue. Simple messages are not in it.
CREATE INDEX ready_seq ON tampu.ready (q, seq) WHERE rank <> 0 OR pos <> seq;

CREATE TABLE tampu.delayed (seq int8 PRIMARY KEY, run_at int8, lease int8, q int, attempts int)
  WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX delayed_due ON tampu.delayed (run_at, seq);
CREATE INDEX delayed_queue ON tampu.delayed (q, run_at, seq);

-- `until` is in no index: an extension stays on its page.
CREATE TABLE tampu.leased (
  seq int8 PRIMARY KEY, lease int8, until int8, stamp int8, q int, attempts int, cancel boolean, id uuid, worker bytea,
  lane bytea
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
-- One row per claim: the reaper finds leases by it. `until` is a lower bound; extensions change only the lease.
CREATE TABLE tampu.claim (until int8, lease int8, seqs bytea, PRIMARY KEY (until, lease))
  WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE tampu.held (seq int8 PRIMARY KEY, run_at int8, q int, attempts int, lane bytea, reason bytea);
CREATE INDEX held_queue ON tampu.held (q, seq);
CREATE INDEX held_lane ON tampu.held (q, lane, seq) WHERE lane IS NOT NULL;
-- The message of a group that may be delivered now, in queues with group_order.
CREATE TABLE tampu.lane (q int, lane bytea, seq int8, PRIMARY KEY (q, lane));

CREATE TABLE tampu.dead (seq int8 PRIMARY KEY, at int8, lease int8, q int, attempts int, reason bytea);
CREATE INDEX dead_queue ON tampu.dead (q, at, seq);

CREATE TABLE tampu.ended (seq int8 PRIMARY KEY, at int8, lease int8, q int, attempts int, state int)
  WITH (autovacuum_vacuum_scale_factor = 0.05);
-- One row per commit, queue and state: used by trim and list. `no` is the entry number of the journal.
CREATE TABLE tampu.ending (q int, state int, no int8, at int8, seqs bytea, PRIMARY KEY (q, state, no));

CREATE TABLE tampu.expiry (at int8, seq int8, PRIMARY KEY (at, seq));
CREATE TABLE tampu.key (q int, key bytea, seq int8, PRIMARY KEY (q, key));
CREATE TABLE tampu.idempotency (
  tenant text COLLATE "C", key bytea, seq int8, stamp int8, until int8, id uuid, digest bytea,
  PRIMARY KEY (tenant, key)
);
CREATE INDEX idempotency_until ON tampu.idempotency (until);
CREATE TABLE tampu.failure (
  seq int8, no int8 GENERATED ALWAYS AS IDENTITY, at int8, attempt int, outcome text, worker bytea, error bytea,
  traceback bytea, PRIMARY KEY (seq, no)
);
CREATE TABLE tampu.result (seq int8 PRIMARY KEY, until int8, body bytea);
CREATE INDEX result_until ON tampu.result (until);

-- Counts: commits only insert rows, so none waits for another. The rows are added up now and then.
CREATE TABLE tampu.tally (no int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int8 NOT NULL, q int, kind int)
  WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tally_queue ON tampu.tally (q);

-- Records that no reader has seen yet: they have no offsets. A reader moves the records that it can see
-- to `journal` and numbers them there, so the records of a late commit get later offsets and are never skipped.
CREATE TABLE tampu.journal_new (no int8, part int, n int, at int8, q int, body bytea, PRIMARY KEY (no, part))
  WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
-- `first` is the offset of the first transition of a record.
CREATE TABLE tampu.journal (first int8 PRIMARY KEY, no int8, at int8, n int, q int, body bytea);
CREATE INDEX journal_no ON tampu.journal (no);
CREATE TABLE tampu.journal_end (n int8 NOT NULL) WITH (fillfactor = 10);
INSERT INTO tampu.journal_end VALUES (0);

CREATE TABLE tampu.document (
  kind text COLLATE "C", tenant text COLLATE "C", name text COLLATE "C", version int8, value bytea,
  PRIMARY KEY (kind, tenant, name)
);
CREATE TABLE tampu.revision (n int8 NOT NULL) WITH (fillfactor = 10);
INSERT INTO tampu.revision VALUES (0);

-- The process that leads maintenance.
CREATE TABLE tampu.seat (name text PRIMARY KEY, holder text NOT NULL, until timestamptz NOT NULL)
  WITH (fillfactor = 10);
