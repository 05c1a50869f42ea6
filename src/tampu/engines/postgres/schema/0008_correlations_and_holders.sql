-- Schema 8. Messages are found by their correlation id, and a leased message says since when its worker has it.

-- Only messages with a correlation id are in it. `word` is a hash of tenant and correlation id.
CREATE TABLE IF NOT EXISTS tampu.correlation (word bytea, seq int8, PRIMARY KEY (word, seq))
  WITH (autovacuum_vacuum_scale_factor = 0.05);
-- For the removal of messages. An expression, so that it cannot use the primary key, of which it would read every entry:
-- for an empty table the planner has no preference, and keeps its plan.
CREATE INDEX IF NOT EXISTS correlation_seq ON tampu.correlation ((seq + 0));

-- When the lease began, and when it was last extended. NULL: leased by an earlier version; never extended.
ALTER TABLE tampu.leased ADD COLUMN IF NOT EXISTS since int8;
ALTER TABLE tampu.leased ADD COLUMN IF NOT EXISTS extended int8;
