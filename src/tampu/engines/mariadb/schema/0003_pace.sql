-- Schema 3. Groups have a pace: so many deliveries a second. See `tampu.engines.groups`.

-- A token every so many microseconds, NULL for none, and how many are saved up at most.
ALTER TABLE tampu_queue ADD COLUMN IF NOT EXISTS pace bigint, ADD COLUMN IF NOT EXISTS pace_burst int;

-- When all that a group has spent is saved up again. Who is past that time is forgotten by trim.
CREATE TABLE IF NOT EXISTS tampu_pace (
  q int, lane varbinary(1024), spent bigint NOT NULL, PRIMARY KEY (q, lane), KEY spent (spent)
) ENGINE = InnoDB;
