-- Schema 3. Groups have a pace: so many deliveries a second. See `tampu.engines.groups`.

-- A token every so many microseconds, NULL for none, and how many are saved up at most.
ALTER TABLE tampu.queue ADD COLUMN pace int8, ADD COLUMN pace_burst int;

-- When all that a group has spent is saved up again. Who is past that time is forgotten by trim.
CREATE TABLE tampu.pace (q int, lane bytea, spent int8 NOT NULL, PRIMARY KEY (q, lane));
CREATE INDEX pace_spent ON tampu.pace (spent);
