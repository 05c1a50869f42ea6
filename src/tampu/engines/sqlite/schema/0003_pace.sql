-- Schema 3. Groups have a pace: so many deliveries a second. See `tampu.engines.groups`.

-- A token every so many microseconds, NULL for none, and how many are saved up at most.
ALTER TABLE tampu_queue ADD COLUMN pace INTEGER;
ALTER TABLE tampu_queue ADD COLUMN pace_burst INTEGER;

-- When all that a group has spent is saved up again. Who is past that time is forgotten by trim.
CREATE TABLE tampu_pace (q INTEGER, lane TEXT, spent INTEGER NOT NULL, PRIMARY KEY (q, lane)) WITHOUT ROWID;
CREATE INDEX tampu_pace_spent ON tampu_pace (spent);
