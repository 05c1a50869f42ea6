-- Schema 2. Groups can have several slots, and can take fair turns.

-- Slots of each group: NULL or 0 is one at a time in publish order, kept through retries; see `tampu.engines.groups`.
ALTER TABLE tampu.queue ADD COLUMN places int;

-- Messages that have a slot of their group: they may be delivered now.
ALTER TABLE tampu.lane DROP CONSTRAINT lane_pkey, ADD PRIMARY KEY (q, lane, seq);

-- Turns of groups in queues with the ordering `fair`: the highest rank that a message of the group was given. Groups
-- behind the first ready message are deleted: they start again with its rank.
CREATE TABLE tampu.fair (q int, lane bytea, last int8 NOT NULL, PRIMARY KEY (q, lane));
CREATE INDEX fair_last ON tampu.fair (q, last);
