-- Schema 1. The state of a message is the index table its `seq` is in; exactly one of
-- ready, delayed, leased, held, dead, ended. The tables are beside the user's own, with `tampu_` before their names.
--
-- InnoDB keeps a table in the order of its primary key, so an index that is walked is the primary key wherever that is
-- possible. There are no partial indexes: what PostgreSQL has in one is a small table here (`placed`, `own_id`).
-- CREATE TABLE commits at once and cannot be rolled back: so every statement here may be
-- repeated, and the version is written last.
-- Texts that users choose are bytes; names compare byte for byte, including trailing spaces (nopad).

CREATE TABLE IF NOT EXISTS tampu_meta (
  name varchar(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
  value varchar(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE = InnoDB;

-- Publish order and positions. Every commit that needs numbers takes a block of them.
CREATE SEQUENCE IF NOT EXISTS tampu_number INCREMENT BY 1024 START WITH 1024 ENGINE = InnoDB;
-- Orders the journal: drawn at the end of a commit, so after the numbers of all commits it has seen.
CREATE SEQUENCE IF NOT EXISTS tampu_entry START WITH 1 ENGINE = InnoDB;

-- Rows that serve as locks, by hash of a name, until the end of a transaction. Row 0 is the lock of the sweep.
CREATE TABLE IF NOT EXISTS tampu_latch (n int PRIMARY KEY) ENGINE = InnoDB;
INSERT IGNORE INTO tampu_latch
  WITH d (n) AS (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15))
  SELECT a.n + 16 * b.n + 256 * c.n FROM d AS a, d AS b, d AS c;

CREATE TABLE IF NOT EXISTS tampu_queue (
  q int AUTO_INCREMENT PRIMARY KEY,
  tenant varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  name varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL,
  tokens double,          -- what is left of the claim rate, as of tokens_at
  tokens_at bigint,
  UNIQUE KEY tenant_name (tenant, name)
) ENGINE = InnoDB;

-- Written once; `body` is the packed message. Rewritten only when a key replaces the payload.
CREATE TABLE IF NOT EXISTS tampu_message (
  seq bigint PRIMARY KEY,
  created bigint NOT NULL,
  place bigint NOT NULL,  -- the rank
  q int NOT NULL,
  max_attempts int NOT NULL,
  expires bigint,
  ahead bigint,           -- milliseconds that the id is ahead of `created`: when the clock was set back
  id binary(16),          -- given by the user; others are computed
  word varbinary(2048),   -- the key
  lane varbinary(1024),
  body longblob NOT NULL
) ENGINE = InnoDB;
-- Finds messages by ids that users gave. Ids are unique only within a tenant; publish ensures that.
CREATE TABLE IF NOT EXISTS tampu_own_id (id binary(16), seq bigint, PRIMARY KEY (id, seq)) ENGINE = InnoDB;

-- The order of the index is the order of delivery.
CREATE TABLE IF NOT EXISTS tampu_ready (
  q int, place bigint, pos bigint, seq bigint NOT NULL, lease bigint, attempts int NOT NULL,
  PRIMARY KEY (q, place, pos)
) ENGINE = InnoDB;
-- Dummy rows, so that the table is never so small that a DELETE would scan it (see templates.py).
INSERT IGNORE INTO tampu_ready (q, place, pos, seq, attempts) SELECT 0, 0, n, n, 0 FROM tampu_latch WHERE n < 512;
-- Finds a ready message by seq where the primary key does not, and the oldest of a queue. Simple messages
-- (place 0, pos = seq) are not in it.
CREATE TABLE IF NOT EXISTS tampu_placed (
  q int, seq bigint, place bigint NOT NULL, pos bigint NOT NULL, PRIMARY KEY (q, seq)
) ENGINE = InnoDB;
INSERT IGNORE INTO tampu_placed (q, seq, place, pos) SELECT 0, n, 0, n FROM tampu_latch WHERE n < 512;

CREATE TABLE IF NOT EXISTS tampu_delayed (
  seq bigint PRIMARY KEY, run_at bigint NOT NULL, lease bigint, q int NOT NULL, attempts int NOT NULL,
  KEY due (run_at, seq), KEY of_queue (q, run_at, seq)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS tampu_leased (
  seq bigint PRIMARY KEY, lease bigint NOT NULL, until bigint NOT NULL, stamp bigint NOT NULL, q int NOT NULL,
  attempts int NOT NULL, cancel boolean NOT NULL, id binary(16), worker varbinary(1024), lane varbinary(1024)
) ENGINE = InnoDB;
-- Dummy rows as for `ready`, with numbers that no message has.
INSERT IGNORE INTO tampu_leased (seq, lease, until, stamp, q, attempts, cancel)
  SELECT 9223372036854775807 - n, 0, 0, 0, 0, 0, FALSE FROM tampu_latch WHERE n < 512;
-- One row per claim: the reaper finds leases by it. `until` is a lower bound; extensions change only the lease.
CREATE TABLE IF NOT EXISTS tampu_claim (until bigint, lease bigint, seqs longblob NOT NULL, PRIMARY KEY (until, lease))
  ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS tampu_held (
  seq bigint PRIMARY KEY, run_at bigint, q int NOT NULL, attempts int NOT NULL, lane varbinary(1024),
  reason varbinary(1024), KEY of_queue (q, seq), KEY of_lane (q, lane, seq)
) ENGINE = InnoDB;
-- The message of a group that may be delivered now, in queues with group_order.
CREATE TABLE IF NOT EXISTS tampu_lane (q int, lane varbinary(1024), seq bigint NOT NULL, PRIMARY KEY (q, lane)) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS tampu_dead (
  seq bigint PRIMARY KEY, at bigint NOT NULL, lease bigint, q int NOT NULL, attempts int NOT NULL,
  reason varbinary(1024), KEY of_queue (q, at, seq)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS tampu_ended (
  seq bigint PRIMARY KEY, at bigint NOT NULL, lease bigint, q int NOT NULL, attempts int NOT NULL, state int NOT NULL
) ENGINE = InnoDB;
-- One row per commit, queue and state: used by trim and list. `no` is the entry number of the journal.
CREATE TABLE IF NOT EXISTS tampu_ending (
  q int, state int, no bigint, at bigint NOT NULL, seqs longblob NOT NULL, PRIMARY KEY (q, state, no)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS tampu_expiry (at bigint, seq bigint, PRIMARY KEY (at, seq)) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS tampu_key (q int, word varbinary(2048), seq bigint NOT NULL, PRIMARY KEY (q, word)) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS tampu_idempotency (
  tenant varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin, word varbinary(2048), seq bigint NOT NULL,
  stamp bigint NOT NULL, until bigint NOT NULL, id binary(16), digest varbinary(64) NOT NULL,
  PRIMARY KEY (tenant, word), KEY until (until)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS tampu_failure (
  seq bigint, no bigint, at bigint NOT NULL, attempt int NOT NULL, outcome varchar(32) CHARACTER SET ascii NOT NULL,
  worker varbinary(1024), error longblob, traceback longblob, PRIMARY KEY (seq, no)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS tampu_result (seq bigint PRIMARY KEY, until bigint NOT NULL, body longblob NOT NULL, KEY until (until))
  ENGINE = InnoDB;

-- Counts: commits only insert rows, so none waits for another. The rows are added up now and then.
CREATE TABLE IF NOT EXISTS tampu_tally (
  no bigint AUTO_INCREMENT PRIMARY KEY, n bigint NOT NULL, q int NOT NULL, kind int NOT NULL, KEY of_queue (q, kind)
) ENGINE = InnoDB;

-- Records that no reader has seen yet: they have no offsets. A reader moves the records that it can see
-- to `journal` and numbers them there, so the records of a late commit get later offsets and are never skipped.
CREATE TABLE IF NOT EXISTS tampu_journal_new (
  no bigint, part int, n int NOT NULL, at bigint NOT NULL, q int NOT NULL, body longblob NOT NULL,
  PRIMARY KEY (no, part)
) ENGINE = InnoDB;
-- `first` is the offset of the first transition of a record.
CREATE TABLE IF NOT EXISTS tampu_journal (
  first bigint PRIMARY KEY, no bigint NOT NULL, part int NOT NULL, at bigint NOT NULL, n int NOT NULL, q int NOT NULL,
  body longblob NOT NULL, KEY entry (no, part)
) ENGINE = InnoDB;
-- The last offset given; `seen` is only there to be written, see the statement seal_journal.
CREATE TABLE IF NOT EXISTS tampu_journal_end (one int PRIMARY KEY, n bigint NOT NULL, seen bigint NOT NULL) ENGINE = InnoDB;
INSERT IGNORE INTO tampu_journal_end VALUES (1, 0, 0);

CREATE TABLE IF NOT EXISTS tampu_document (
  kind varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
  tenant varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
  name varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
  version bigint NOT NULL, value longblob NOT NULL, PRIMARY KEY (kind, tenant, name)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS tampu_revision (one int PRIMARY KEY, n bigint NOT NULL) ENGINE = InnoDB;
INSERT IGNORE INTO tampu_revision VALUES (1, 0);

-- The process that leads maintenance.
CREATE TABLE IF NOT EXISTS tampu_seat (
  name varchar(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
  holder varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, until bigint NOT NULL
) ENGINE = InnoDB;

-- Messages that became ready and that the index in Redis lacks (q 0: any message). Empty without such an index.
CREATE TABLE IF NOT EXISTS tampu_stale (
  no bigint AUTO_INCREMENT PRIMARY KEY, q int NOT NULL, place bigint NOT NULL, pos bigint NOT NULL
) ENGINE = InnoDB;
