-- Schema 2. Groups: several messages of one may go at once, and they can take turns.

-- As many as this: NULL or 0 is one at a time in publish order, kept through its retries; see `tampu.engines.groups`.
ALTER TABLE tampu.queue ADD COLUMN places int;

-- The messages of a group that have a place: they may be delivered now.
ALTER TABLE tampu.lane DROP CONSTRAINT lane_pkey, ADD PRIMARY KEY (q, lane, seq);

-- Where groups stand in the round of a queue with the ordering `fair`: the highest rank that one of the group's messages
-- was given. Those who stand behind the first ready message are forgotten: they begin again with it.
CREATE TABLE tampu.fair (q int, lane bytea, last int8 NOT NULL, PRIMARY KEY (q, lane));
CREATE INDEX fair_last ON tampu.fair (q, last);
