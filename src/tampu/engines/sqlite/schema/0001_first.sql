-- Schema 1. The state of a message is the index table that has its `seq`. It is in exactly one of
-- tampu_ready, tampu_delayed, tampu_leased, tampu_held, tampu_dead, tampu_ended.
--
-- `seq` is milliseconds since 1970 times 2^20 plus a counter: it is the publish order, and the id
-- (a UUIDv7) is computed from it, so ids need no index. Only ids given by the user are stored.

CREATE TABLE tampu_meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- Numbers that change with every commit live on one page. q = 0: kind 0 last seq or position given out,
-- 1 end of the journal, 2 revision of the documents. Other q: kind = state number, n = messages in it.
CREATE TABLE tampu_counter (q INTEGER, kind INTEGER, n INTEGER NOT NULL, PRIMARY KEY (q, kind)) WITHOUT ROWID;
INSERT INTO tampu_counter VALUES (0, 0, 0), (0, 1, 0), (0, 2, 0);

CREATE TABLE tampu_queue (
  q INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  name TEXT NOT NULL,
  tokens REAL,          -- what is left of the claim rate, as of tokens_at
  tokens_at INTEGER,
  UNIQUE (tenant, name)
);

-- Written once. `lane` is the group, `body` the packed message. Changed only when a key replaces the payload.
CREATE TABLE tampu_message (
  seq INTEGER PRIMARY KEY,
  q INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  created INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  expires INTEGER,
  key TEXT,
  lane TEXT,
  id BLOB,
  body BLOB NOT NULL
);
-- Not unique: two tenants may use the same id. publish keeps ids unique within a tenant.
CREATE INDEX tampu_message_id ON tampu_message (id) WHERE id IS NOT NULL;

-- The order of the index is the order of delivery. A row is a run: messages that were published together, with
-- sequence numbers from `seq` to `last`.
CREATE TABLE tampu_ready (
  q INTEGER, rank INTEGER, pos INTEGER, seq INTEGER, attempts INTEGER, lease INTEGER, last INTEGER,
  PRIMARY KEY (q, rank, pos)
) WITHOUT ROWID;
-- Finds a message by seq, and the oldest of a queue.
CREATE INDEX tampu_ready_seq ON tampu_ready (q, seq);

CREATE TABLE tampu_delayed (
  seq INTEGER PRIMARY KEY, q INTEGER, run_at INTEGER, attempts INTEGER, lease INTEGER
);
CREATE INDEX tampu_delayed_due ON tampu_delayed (run_at, seq);
CREATE INDEX tampu_delayed_queue ON tampu_delayed (q, run_at, seq);

CREATE TABLE tampu_leased (
  seq INTEGER PRIMARY KEY, q INTEGER, lease INTEGER, until INTEGER, attempts INTEGER, worker TEXT,
  cancel INTEGER
);
-- One row per claim: the reaper finds leases by it. `until` is a lower bound; extensions change only the lease.
CREATE TABLE tampu_claim (until INTEGER, lease INTEGER, seqs BLOB, PRIMARY KEY (until, lease)) WITHOUT ROWID;

CREATE TABLE tampu_held (
  seq INTEGER PRIMARY KEY, q INTEGER, lane TEXT, reason TEXT, run_at INTEGER, attempts INTEGER
);
CREATE INDEX tampu_held_queue ON tampu_held (q, seq);
CREATE INDEX tampu_held_lane ON tampu_held (q, lane, seq) WHERE lane IS NOT NULL;
-- The message of a group that may be delivered now, in queues with group_order.
CREATE TABLE tampu_lane (q INTEGER, lane TEXT, seq INTEGER, PRIMARY KEY (q, lane)) WITHOUT ROWID;

CREATE TABLE tampu_dead (
  seq INTEGER PRIMARY KEY, q INTEGER, at INTEGER, reason TEXT, attempts INTEGER, lease INTEGER
);
CREATE INDEX tampu_dead_queue ON tampu_dead (q, at, seq);

CREATE TABLE tampu_ended (
  seq INTEGER PRIMARY KEY, q INTEGER, state INTEGER, at INTEGER, attempts INTEGER, lease INTEGER
);
-- One row per commit and state: retention and listing walk it.
CREATE TABLE tampu_ending (
  q INTEGER, state INTEGER, no INTEGER, at INTEGER, seqs BLOB, PRIMARY KEY (q, state, no)
) WITHOUT ROWID;

CREATE TABLE tampu_expiry (at INTEGER, seq INTEGER, PRIMARY KEY (at, seq)) WITHOUT ROWID;
CREATE TABLE tampu_key (q INTEGER, key TEXT, seq INTEGER, PRIMARY KEY (q, key)) WITHOUT ROWID;
CREATE TABLE tampu_idempotency (
  tenant TEXT, key TEXT, seq INTEGER, id BLOB, digest BLOB, until INTEGER, PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX tampu_idempotency_until ON tampu_idempotency (until);
CREATE TABLE tampu_failure (
  seq INTEGER, no INTEGER, attempt INTEGER, at INTEGER, outcome TEXT, worker TEXT, error TEXT, traceback TEXT,
  PRIMARY KEY (seq, no)
) WITHOUT ROWID;
CREATE TABLE tampu_result (seq INTEGER PRIMARY KEY, until INTEGER, body BLOB);
CREATE INDEX tampu_result_until ON tampu_result (until);

-- One row per commit, verb and queue; `first` is the offset of its first transition.
CREATE TABLE tampu_journal (first INTEGER PRIMARY KEY, n INTEGER, at INTEGER, q INTEGER, body BLOB);

CREATE TABLE tampu_document (
  kind TEXT, tenant TEXT, name TEXT, version INTEGER, value BLOB, PRIMARY KEY (kind, tenant, name)
) WITHOUT ROWID;
