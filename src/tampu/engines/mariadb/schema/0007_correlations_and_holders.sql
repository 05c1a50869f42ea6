-- Schema 7. Messages are found by their correlation id, and a leased message says since when its worker has it.

-- Only messages with a correlation id are in it. `word` is a hash of tenant and correlation id.
CREATE TABLE IF NOT EXISTS tampu_correlation (word binary(16), seq bigint, PRIMARY KEY (word, seq), KEY of_seq (seq))
  ENGINE = InnoDB;

-- When the lease began, and when it was last extended. NULL: leased by an earlier version; never extended.
ALTER TABLE tampu_leased ADD COLUMN IF NOT EXISTS since bigint;
ALTER TABLE tampu_leased ADD COLUMN IF NOT EXISTS extended bigint;
