-- Schema 3. Groups have a rate of deliveries per second. See `tampu.engines.groups`.

-- Microseconds between two tokens (NULL: no rate), and how many unused tokens a group can save up.
ALTER TABLE tampu_queue ADD COLUMN pace INTEGER;
ALTER TABLE tampu_queue ADD COLUMN pace_burst INTEGER;

-- When the burst of a group is full again. Trim deletes rows whose time has passed.
CREATE TABLE tampu_pace (q INTEGER, lane TEXT, spent INTEGER NOT NULL, PRIMARY KEY (q, lane)) WITHOUT ROWID;
CREATE INDEX tampu_pace_spent ON tampu_pace (spent);
