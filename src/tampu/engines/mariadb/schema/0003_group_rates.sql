-- Schema 3. Group rates: deliveries a second of each group. See `tampu.engines.groups`.

-- Microseconds for a token, NULL for no rate, and the most tokens that are saved up.
ALTER TABLE tampu_queue ADD COLUMN IF NOT EXISTS pace bigint, ADD COLUMN IF NOT EXISTS pace_burst int;

-- When all spent tokens of a group are back. Trim removes groups that are past that time.
CREATE TABLE IF NOT EXISTS tampu_pace (
  q int, lane varbinary(1024), spent bigint NOT NULL, PRIMARY KEY (q, lane), KEY spent (spent)
) ENGINE = InnoDB;
