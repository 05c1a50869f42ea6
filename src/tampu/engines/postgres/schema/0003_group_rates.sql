-- Schema 3. Group rates: deliveries a second of each group. See `tampu.engines.groups`.

-- Microseconds for a token, NULL for no rate, and the most tokens that are saved up.
ALTER TABLE tampu.queue ADD COLUMN pace int8, ADD COLUMN pace_burst int;

-- When all spent tokens of a group are back. Trim removes groups that are past that time.
CREATE TABLE tampu.pace (q int, lane bytea, spent int8 NOT NULL, PRIMARY KEY (q, lane));
CREATE INDEX pace_spent ON tampu.pace (spent);
