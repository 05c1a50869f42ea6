-- Schema 7. Messages are found by their correlation id, and a leased message says since when its worker has it.

-- Only messages with a correlation id are in it. `word` is a hash of tenant and correlation id.
CREATE TABLE tampu_correlation (word BLOB, seq INTEGER, PRIMARY KEY (word, seq)) WITHOUT ROWID;
CREATE INDEX tampu_correlation_seq ON tampu_correlation (seq);

-- When the lease began, and when it was last extended. NULL: leased by an earlier version; never extended.
ALTER TABLE tampu_leased ADD COLUMN since INTEGER;
ALTER TABLE tampu_leased ADD COLUMN extended INTEGER;
